package listatefulset

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	plan "assent.dev/assent/operator/internal/plan/listatefulset"
)

// writeStatus stores what changed in the set's and its Revisions' statuses: at once when the plan says so, otherwise at
// most once an interval. It returns how long to wait before the rest is written.
func (c *Controller) writeStatus(ctx context.Context, set *v1alpha1.LiStatefulSet, p plan.Plan) (time.Duration, error) {
	key := client.ObjectKeyFromObject(set)
	c.deps.Metrics.Unavailable(set.Namespace, set.Name, int(plan.Replicas(set)-p.Status.AvailableReplicas))
	changed := !equality.Semantic.DeepEqual(set.Status, p.Status)
	if !changed && len(p.RevisionStatus) == 0 {
		return 0, nil
	}
	if wait := c.pace.Wait(key); wait > 0 && !(changed && p.StatusUrgent) {
		return wait, nil
	}
	for i := range p.RevisionStatus {
		r := &p.RevisionStatus[i]
		if err := c.deps.Writer.Status().Update(ctx, r); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("writing the status of revision %s: %w", r.Name, err)
		}
	}
	if changed {
		next := set.DeepCopy()
		next.Status = p.Status
		if err := c.deps.Writer.Status().Update(ctx, next); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("writing the status of set %s: %w", key, err)
		}
		c.tell(set, set.Status.Conditions, p.Status.Conditions)
	}
	c.pace.Done(key)
	return 0, nil
}

// tell emits the events of conditions that have just turned bad.
func (c *Controller) tell(set *v1alpha1.LiStatefulSet, old, next []metav1.Condition) {
	turned := func(kind string, bad metav1.ConditionStatus) (string, string, bool) {
		was, is := meta.FindStatusCondition(old, kind), meta.FindStatusCondition(next, kind)
		if is == nil || is.Status != bad || was != nil && was.Status == bad && was.Reason == is.Reason {
			return "", "", false
		}
		return is.Reason, is.Message, true
	}
	if _, message, ok := turned(v1alpha1.ConditionTemplateValid, metav1.ConditionFalse); ok {
		event.TemplateInvalid(c.deps.Events, set, message)
	}
	if _, message, ok := turned(v1alpha1.ConditionApplicationAgreed, metav1.ConditionFalse); ok {
		event.ApplicationConflict(c.deps.Events, set, message)
	}
	reason, message, ok := turned(v1alpha1.ConditionStalled, metav1.ConditionTrue)
	switch {
	case ok && reason == event.ReasonServiceTaken:
		event.ServiceTaken(c.deps.Events, set, message)
	case ok && reason == event.ReasonProgressDeadlineExceeded:
		event.ProgressDeadlineExceeded(c.deps.Events, set, message)
	}
}
