package statefulpod

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	plan "assent.dev/assent/operator/internal/plan/statefulpod"
)

// writeStatus stores the planned status if it is worth a write, and tells of what it newly says.
func (c *Controller) writeStatus(ctx context.Context, in plan.Input, p plan.Plan) (time.Duration, error) {
	if !p.WriteStatus || in.Identity.DeletionTimestamp != nil {
		return 0, nil
	}
	next := in.Identity.DeepCopy()
	next.Status = p.Status
	err := c.deps.Writer.Status().Update(ctx, next)
	switch {
	case apierrors.IsConflict(err):
		return conflictRetry, nil
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("writing the status of identity %s: %w", next.Name, err)
	}
	c.tell(in.Identity, next, p)
	return 0, nil
}

func (c *Controller) tell(before, after *v1alpha1.StatefulPod, p plan.Plan) {
	lost := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionPodLost)
	if meta.IsStatusConditionTrue(after.Status.Conditions, v1alpha1.ConditionPodLost) &&
		!meta.IsStatusConditionTrue(before.Status.Conditions, v1alpha1.ConditionPodLost) {
		event.PodLost(c.deps.Events, after, lost.Message)
	}
	waits := p.Wait != "" || c.trouble.of(client.ObjectKeyFromObject(after)) != ""
	if waits && before.Status.Message != after.Status.Message {
		event.PodWaits(c.deps.Events, after, after.Status.Message)
	}
}
