package operation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/operation"
)

// observe reads an application, the first time in a session live, and always with this process's own writes. What was
// read live is remembered as those are, so that a later look at the cache does not go back in time.
func (c *Controller) observe(ctx context.Context, name types.NamespacedName, app *application, live bool) (plan.Input, error) {
	from := c.deps.Cached
	if live = live || !app.live; live {
		from = c.deps.Live
	}
	in, err := c.read(ctx, from, name)
	if err != nil {
		return in, err
	}
	if live {
		for i := range in.Identities {
			c.identitiesWritten.Note(&in.Identities[i])
		}
		for i := range in.Operations {
			c.operationsWritten.Note(&in.Operations[i])
		}
		app.live = true
	}
	belongs := func(application, namespace string) bool {
		return application == name.Name && namespace == name.Namespace
	}
	in.Identities, err = latest(ctx, c.deps.Live, c.identitiesWritten, in.Identities,
		func(s *v1alpha1.StatefulPod) bool { return belongs(s.Spec.Application, s.Namespace) })
	if err != nil {
		return in, err
	}
	in.Operations, err = latest(ctx, c.deps.Live, c.operationsWritten, in.Operations,
		func(o *v1alpha1.Operation) bool { return belongs(o.Spec.Application, o.Namespace) })
	if err != nil {
		return in, err
	}
	if err := c.proveAbsent(ctx, &in); err != nil {
		return in, err
	}
	return in, c.proveGone(ctx, &in, app)
}

func (c *Controller) read(ctx context.Context, from client.Reader, name types.NamespacedName) (plan.Input, error) {
	in := plan.Input{
		Application: name, Session: c.deps.Session.ID, Term: c.deps.Session.Term, Age: c.deps.Session.Age(),
		Held: c.deps.Approvals.Of(name), Now: c.deps.Clock.Now(), Absent: map[string]bool{},
	}
	sets := &v1alpha1.LiStatefulSetList{}
	if err := from.List(ctx, sets, client.InNamespace(name.Namespace), kube.Shared); err != nil {
		return in, fmt.Errorf("listing sets: %w", err)
	}
	for i := range sets.Items {
		if sets.Items[i].ApplicationName() == name.Name {
			in.Sets = append(in.Sets, sets.Items[i])
		}
	}
	indexes, operations := &v1alpha1.PodIndexList{}, &v1alpha1.OperationList{}
	identities, pods := &v1alpha1.StatefulPodList{}, &corev1.PodList{}
	labels := client.MatchingLabels{v1alpha1.LabelApplication: name.Name}
	for _, list := range []client.ObjectList{indexes, operations, identities, pods} {
		if err := from.List(ctx, list, client.InNamespace(name.Namespace), labels, kube.Shared); err != nil {
			return in, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	in.Indexes, in.Operations, in.Identities, in.Pods = indexes.Items, operations.Items, identities.Items, pods.Items
	return in, nil
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	client.Object
}

// latest puts this process's own writes in place of what the cache shows. What was written and is not in the cache is
// looked up live.
func latest[T any, P object[T]](ctx context.Context, live client.Reader, w *kube.Written[P], cached []T, belongs func(P) bool) ([]T, error) {
	seen := make(map[types.NamespacedName]bool, len(cached))
	list := make([]T, 0, len(cached))
	for i := range cached {
		seen[client.ObjectKeyFromObject(P(&cached[i]))] = true
		if o, exists := w.Latest(P(&cached[i])); exists {
			list = append(list, *o)
		}
	}
	for _, mine := range w.Missing(seen, belongs) {
		o := P(new(T))
		err := live.Get(ctx, client.ObjectKeyFromObject(mine), o)
		switch {
		case apierrors.IsNotFound(err):
			w.NoteGone(mine)
		case err != nil:
			return nil, fmt.Errorf("reading %s again: %w", mine.GetName(), err)
		default:
			w.Note(o)
			list = append(list, *o)
		}
	}
	return list, nil
}

// proveAbsent looks live for identities that live instances are about to change or remove and that are not seen.
func (c *Controller) proveAbsent(ctx context.Context, in *plan.Input) error {
	have := make(map[string]bool, len(in.Identities))
	for i := range in.Identities {
		have[in.Identities[i].Name] = true
	}
	for i := range in.Operations {
		op := &in.Operations[i]
		if op.Spec.Type == v1alpha1.ScaleOut || op.Ended() {
			continue
		}
		for _, inst := range op.Spec.Instances {
			if have[inst.Pod] || in.Absent[inst.Pod] {
				continue
			}
			s := &v1alpha1.StatefulPod{}
			err := c.deps.Live.Get(ctx, types.NamespacedName{Namespace: op.Namespace, Name: inst.Pod}, s)
			switch {
			case apierrors.IsNotFound(err):
				in.Absent[inst.Pod] = true
			case err != nil:
				return fmt.Errorf("looking for identity %s: %w", inst.Pod, err)
			default:
				c.identitiesWritten.Note(s)
				in.Identities, have[inst.Pod] = append(in.Identities, *s), true
			}
		}
	}
	return nil
}

// proveGone looks live for Operations that grants name and that are not seen. Names never come back, so once is enough.
func (c *Controller) proveGone(ctx context.Context, in *plan.Input, app *application) error {
	have := make(map[string]bool, len(in.Operations))
	for i := range in.Operations {
		have[in.Operations[i].Name] = true
	}
	for i := range in.Identities {
		g := in.Identities[i].Spec.Grant
		if g == nil || have[g.Operation] || app.gone[g.Operation] {
			continue
		}
		op := &v1alpha1.Operation{}
		err := c.deps.Live.Get(ctx, types.NamespacedName{Namespace: in.Application.Namespace, Name: g.Operation}, op)
		switch {
		case apierrors.IsNotFound(err):
			app.gone[g.Operation] = true
		case err != nil:
			return fmt.Errorf("looking for Operation %s: %w", g.Operation, err)
		default:
			c.operationsWritten.Note(op)
			in.Operations, have[op.Name] = append(in.Operations, *op), true
		}
	}
	in.OperationsGone = app.gone
	return nil
}
