package operation

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	"assent.dev/assent/operator/internal/metrics"
	plan "assent.dev/assent/operator/internal/plan/operation"
)

// writeStatuses stores the projections that changed, each Operation's at most once an interval unless it is urgent. It
// returns when the next one is due.
func (c *Controller) writeStatuses(ctx context.Context, p plan.Plan) (time.Duration, error) {
	var wait time.Duration
	for i := range p.Statuses {
		s := &p.Statuses[i]
		key := client.ObjectKeyFromObject(s.Operation)
		if left := c.pace.Wait(key); left > 0 && !s.Urgent {
			wait = kube.Sooner(wait, left)
			continue
		}
		retry, err := c.writeStatus(ctx, s)
		if err != nil {
			return 0, err
		}
		c.pace.Done(key)
		wait = kube.Sooner(wait, retry)
	}
	return wait, nil
}

func (c *Controller) writeStatus(ctx context.Context, s *plan.StatusWrite) (time.Duration, error) {
	err := c.deps.Writer.Status().Update(ctx, s.Operation)
	switch {
	case apierrors.IsNotFound(err):
		c.operationsWritten.NoteGone(s.Operation)
		return 0, nil
	case apierrors.IsConflict(err):
		now := &v1alpha1.Operation{}
		if err := c.deps.Live.Get(ctx, client.ObjectKeyFromObject(s.Operation), now); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("reading Operation %s again: %w", s.Operation.Name, err)
		} else if err == nil {
			c.operationsWritten.Note(now)
		}
		return conflictRetry, nil
	case err != nil:
		return 0, fmt.Errorf("writing the status of Operation %s: %w", s.Operation.Name, err)
	}
	c.operationsWritten.Note(s.Operation)
	c.tell(s)
	return 0, nil
}

// tell emits what the stored status newly says: changed verdicts and codes, and ends.
func (c *Controller) tell(s *plan.StatusWrite) {
	before := map[string]v1alpha1.InstanceStatus{}
	for _, i := range s.Before.Instances {
		before[i.Pod] = i
	}
	for _, i := range s.Operation.Status.Instances {
		old := before[i.Pod]
		code, oldCode := first(i.Reasons), first(old.Reasons)
		if len(i.Reasons) > 0 && (i.Verdict != old.Verdict || code.Code != oldCode.Code) {
			event.Decision(c.deps.Events, s.Operation, i.Pod, i.Verdict, code.Code, code.Message)
		}
		if i.Verdict != "" && (i.Verdict != old.Verdict || code.Code != oldCode.Code) {
			c.deps.Metrics.Decision(i.Verdict, code.Code)
		}
		if i.State.Ended() && !old.State.Ended() {
			event.Ended(c.deps.Events, s.Operation, i.Pod, i.State)
		}
	}
}

func first(reasons []v1alpha1.Reason) v1alpha1.Reason {
	if len(reasons) == 0 {
		return v1alpha1.Reason{}
	}
	return reasons[0]
}

func (c *Controller) count(application types.NamespacedName, p plan.Plan) {
	count := make(map[metrics.InstanceKey]int, len(p.Count))
	for k, n := range p.Count {
		count[metrics.InstanceKey{Type: string(k.Type), State: string(k.State)}] = n
	}
	c.deps.Metrics.Instances(application.String(), count)
}
