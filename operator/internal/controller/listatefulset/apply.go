package listatefulset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	plan "assent.dev/assent/operator/internal/plan/listatefulset"
)

// fieldOwner owns the fields that this controller applies.
const fieldOwner = client.FieldOwner("assent-listatefulset")

// destructive says whether a plan may only be carried out if live reads lead to the same.
func destructive(p plan.Plan) bool {
	return p.Revision != nil || !p.Staging.Empty() || len(p.Unused) > 0 || p.Service != nil
}

// apply carries out everything but the statuses, in the order in which the chain reads it: a Revision before what is
// staged at it.
func (c *Controller) apply(ctx context.Context, in plan.Input, p plan.Plan) error {
	set := in.Set
	if p.Revision != nil {
		if err := c.deps.Writer.Create(ctx, p.Revision); err != nil {
			return fmt.Errorf("creating revision %s: %w", p.Revision.Name, err)
		}
		event.RevisionCreated(c.deps.Events, set, p.Revision)
	}
	if p.Service != nil {
		if err := c.deps.Writer.Apply(ctx, serviceConfiguration(p.Service), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying service %s: %w", p.Service.Name, err)
		}
	}
	if err := c.stage(ctx, in, p.Staging); err != nil {
		return err
	}
	return c.prune(ctx, set, p.Unused)
}

func (c *Controller) stage(ctx context.Context, in plan.Input, s plan.Staging) error {
	before := map[string]string{}
	for i := range in.Indexes {
		before[in.Indexes[i].Name] = plan.Describe(&in.Indexes[i])
	}
	for i := range s.Create {
		x := &s.Create[i]
		if err := c.deps.Writer.Create(ctx, x); err != nil {
			return fmt.Errorf("creating pod index %s: %w", x.Name, err)
		}
		event.Staged(c.deps.Events, in.Set, x, plan.Describe(x))
	}
	for i := range s.Update {
		x := &s.Update[i]
		if err := c.deps.Writer.Update(ctx, x); err != nil {
			return fmt.Errorf("updating pod index %s: %w", x.Name, err)
		}
		if now := plan.Describe(x); now != before[x.Name] {
			event.Staged(c.deps.Events, in.Set, x, now)
		}
	}
	return nil
}

// prune removes Revisions that were read as unused, if they are still as read.
func (c *Controller) prune(ctx context.Context, set *v1alpha1.LiStatefulSet, unused []v1alpha1.Revision) error {
	for i := range unused {
		r := &unused[i]
		pre := client.Preconditions{UID: &r.UID, ResourceVersion: &r.ResourceVersion}
		if err := c.deps.Writer.Delete(ctx, r, pre); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("removing revision %s: %w", r.Name, err)
		}
		event.RevisionRemoved(c.deps.Events, set, r)
	}
	return nil
}

func serviceConfiguration(s *corev1.Service) *applycore.ServiceApplyConfiguration {
	owner := s.OwnerReferences[0]
	return applycore.Service(s.Name, s.Namespace).
		WithLabels(s.Labels).
		WithOwnerReferences(applymeta.OwnerReference().
			WithAPIVersion(owner.APIVersion).WithKind(owner.Kind).WithName(owner.Name).WithUID(owner.UID).
			WithController(true).WithBlockOwnerDeletion(true)).
		WithSpec(applycore.ServiceSpec().
			WithClusterIP(s.Spec.ClusterIP).
			WithPublishNotReadyAddresses(s.Spec.PublishNotReadyAddresses).
			WithSelector(s.Spec.Selector))
}
