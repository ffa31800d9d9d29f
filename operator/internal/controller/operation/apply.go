package operation

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/operation"
	"assent.dev/assent/operator/internal/plan/statefulpod"
	"assent.dev/assent/operator/internal/session"
)

// apply carries out what changes identities, in the plan's order. It says whether anything was written or found to be
// different, so that a second look is due, and when to try again what was put off.
func (c *Controller) apply(ctx context.Context, in plan.Input, p plan.Plan) (again bool, wait time.Duration, err error) {
	for _, decision := range p.Recorded {
		c.deps.Approvals.Record(decision)
	}
	for _, decision := range p.Void {
		c.deps.Approvals.Revoke(decision)
	}
	for _, decision := range p.Forget {
		c.deps.Approvals.Forget(decision)
	}
	for i := range p.Returns {
		did, err := c.takeBack(ctx, &p.Returns[i])
		if err != nil {
			return again, 0, err
		}
		again, wait = again || did, kube.Sooner(wait, putOff(did))
	}
	for i := range p.Removals {
		did, err := c.remove(ctx, &p.Removals[i])
		if err != nil {
			return again, 0, err
		}
		again, wait = again || did, kube.Sooner(wait, putOff(did))
	}
	for i := range p.Grants {
		did, err := c.grant(ctx, in, &p.Grants[i])
		if err != nil {
			return again, 0, err
		}
		again, wait = again || did, kube.Sooner(wait, putOff(did))
	}
	return again || len(p.Recorded) > 0, wait, nil
}

func putOff(did bool) time.Duration {
	if did {
		return 0
	}
	return putOffRetry
}

// takeBack stores what was approved before a grant that nobody can act on anymore.
func (c *Controller) takeBack(ctx context.Context, r *plan.Return) (bool, error) {
	if r.WithoutPod {
		if there, err := c.podExists(ctx, r.Identity); err != nil || there {
			return false, err
		}
	}
	switch {
	case r.Certain:
		c.deps.Approvals.Forget(r.Decision)
	case !c.deps.Approvals.Revoke(r.Decision):
		return false, nil
	}
	if err := c.identities.Update(ctx, r.Identity); err != nil {
		return true, c.refresh(ctx, r.Identity, err)
	}
	c.identitiesWritten.Note(r.Identity)
	event.GrantReturned(c.deps.Events, r.Identity, r.Decision, r.Why.Message)
	return true, nil
}

// podExists looks live for the identity's Pod.
func (c *Controller) podExists(ctx context.Context, s *v1alpha1.StatefulPod) (bool, error) {
	pod := &corev1.Pod{}
	err := c.deps.Live.Get(ctx, client.ObjectKeyFromObject(s), pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for pod %s: %w", s.Name, err)
	}
	return statefulpod.Owned(s, pod), nil
}

// remove deletes an identity whose Pod a live read shows to be gone.
func (c *Controller) remove(ctx context.Context, r *plan.Removal) (bool, error) {
	if there, err := c.podExists(ctx, r.Identity); err != nil || there {
		return false, err
	}
	if err := c.identities.Delete(ctx, r.Identity); err != nil {
		return true, c.refresh(ctx, r.Identity, err)
	}
	c.identitiesWritten.NoteGone(r.Identity)
	return true, nil
}

// grant records an approval: the write-ahead record of the act that it allows.
func (c *Controller) grant(ctx context.Context, in plan.Input, g *plan.Grant) (bool, error) {
	if g.ConfirmAbsent {
		if ok, err := c.confirmAbsent(ctx, in.Application, g); err != nil || !ok {
			return false, err
		}
	}
	call, cancel := context.WithTimeout(ctx, g.Deadline.Sub(c.deps.Clock.Now()))
	defer cancel()
	write := c.identities.Update
	if g.Identity.ResourceVersion == "" {
		write = c.identities.Create
	}
	if err := write(call, g.Identity); err != nil {
		return true, c.refresh(ctx, g.Identity, err)
	}
	c.identitiesWritten.Note(g.Identity)
	c.deps.Approvals.Record(g.Decision)
	c.deps.Metrics.Grant(string(g.Operation.Spec.Type), string(g.Stage))
	event.Granted(c.deps.Events, g.Operation, g.Identity, g.Stage, g.Decision)
	return true, nil
}

// confirmAbsent reads the staging and the set live: an index is only removed if both agree, now, that it is not wanted.
func (c *Controller) confirmAbsent(ctx context.Context, app types.NamespacedName, g *plan.Grant) (bool, error) {
	index := &v1alpha1.PodIndex{}
	err := c.deps.Live.Get(ctx, types.NamespacedName{Namespace: app.Namespace, Name: g.Operation.Spec.PodIndex}, index)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	set := &v1alpha1.LiStatefulSet{}
	if err := c.deps.Live.Get(ctx, types.NamespacedName{Namespace: app.Namespace, Name: g.Set}, set); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if set.DeletionTimestamp != nil || !kube.Owned(index, set.UID) || index.Spec.SetGeneration != set.Generation {
		return false, nil
	}
	for _, e := range index.Spec.Indices {
		if e.Index == g.Index && e.Presence == v1alpha1.Present {
			return false, nil
		}
	}
	return true, nil
}

// refresh looks live at an identity whose write was not clearly accepted, so that the next plan starts from what is. A
// clear refusal because it changed is no error.
func (c *Controller) refresh(ctx context.Context, s *v1alpha1.StatefulPod, cause error) error {
	if kube.IsNamespaceTerminating(cause) {
		return nil
	}
	now := &v1alpha1.StatefulPod{}
	err := c.deps.Live.Get(ctx, client.ObjectKeyFromObject(s), now)
	switch {
	case apierrors.IsNotFound(err):
		if s.UID != "" {
			c.identitiesWritten.NoteGone(s)
		}
	case err != nil:
		return fmt.Errorf("%w; reading it again: %w", cause, err)
	default:
		c.identitiesWritten.Note(now)
	}
	if kube.OutcomeOf(cause) == session.Refused && (apierrors.IsConflict(cause) || apierrors.IsNotFound(cause) || apierrors.IsAlreadyExists(cause)) {
		return nil
	}
	return cause
}
