package podindex

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/podindex"
)

// apply carries a plan out: what the ledger claims already, the ledger, what it claims anew, and what has expired. It
// returns how long to wait before the rest of the ledger is written.
func (c *Controller) apply(ctx context.Context, in plan.Input, p plan.Plan) (time.Duration, error) {
	if err := c.create(ctx, in.Index, p.Missing); err != nil {
		return 0, err
	}
	wait, err := c.writeStatus(ctx, in.Index, p)
	if err != nil {
		return 0, err
	}
	if wait == 0 {
		if err := c.create(ctx, in.Index, p.Claimed); err != nil {
			return 0, err
		}
	}
	return wait, c.remove(ctx, in.Index, p.Expired)
}

// create makes Operations exactly as claimed. One that exists is ours if this very PodIndex owns it.
func (c *Controller) create(ctx context.Context, index *v1alpha1.PodIndex, ops []v1alpha1.Operation) error {
	for i := range ops {
		op := &ops[i]
		err := c.deps.Writer.Create(ctx, op)
		switch {
		case apierrors.IsAlreadyExists(err):
			if err := c.adopt(ctx, index, op); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("creating operation %s: %w", op.Name, err)
		default:
			event.OperationCreated(c.deps.Events, index, op)
		}
		c.expect(index, op.Name)
	}
	return nil
}

func (c *Controller) adopt(ctx context.Context, index *v1alpha1.PodIndex, op *v1alpha1.Operation) error {
	live := &v1alpha1.Operation{}
	if err := c.deps.Live.Get(ctx, client.ObjectKeyFromObject(op), live); err != nil {
		return fmt.Errorf("reading operation %s: %w", op.Name, err)
	}
	if !kube.Owned(live, index.UID) {
		return fmt.Errorf("creating operation %s: %w", op.Name,
			apierrors.NewAlreadyExists(v1alpha1.GroupVersion.WithResource("operations").GroupResource(), op.Name))
	}
	return nil
}

// writeStatus stores the ledger if it is still as it was read: at once when the plan says so, otherwise at most once an
// interval.
func (c *Controller) writeStatus(ctx context.Context, index *v1alpha1.PodIndex, p plan.Plan) (time.Duration, error) {
	if equality.Semantic.DeepEqual(index.Status, p.Status) {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(index)
	if wait := c.pace.Wait(key); wait > 0 && !p.StatusUrgent {
		return wait, nil
	}
	next := index.DeepCopy()
	next.Status = p.Status
	if err := c.deps.Writer.Status().Update(ctx, next); err != nil {
		return 0, fmt.Errorf("writing the ledger of pod index %s: %w", index.Name, err)
	}
	c.pace.Done(key)
	return 0, nil
}

// remove deletes complete Operations that were kept long enough, if they are still as read.
func (c *Controller) remove(ctx context.Context, index *v1alpha1.PodIndex, expired []v1alpha1.Operation) error {
	for i := range expired {
		op := &expired[i]
		pre := client.Preconditions{UID: &op.UID, ResourceVersion: &op.ResourceVersion}
		if err := c.deps.Writer.Delete(ctx, op, pre); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing operation %s: %w", op.Name, err)
		}
		event.OperationRemoved(c.deps.Events, index, op)
	}
	return nil
}
