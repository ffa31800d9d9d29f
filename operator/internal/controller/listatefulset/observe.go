package listatefulset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/listatefulset"
)

// observe looks at a set through a reader, and at its Pods through the cache, since they only give a count. It returns
// false if the set is gone or going: then nothing is done, garbage collection does the rest.
func (c *Controller) observe(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Input, bool, error) {
	in := plan.Input{Set: &v1alpha1.LiStatefulSet{}, Now: c.deps.Clock.Now()}
	if err := r.Get(ctx, key, in.Set); err != nil {
		if apierrors.IsNotFound(err) {
			return in, false, nil
		}
		return in, false, fmt.Errorf("reading set %s: %w", key, err)
	}
	if !in.Set.DeletionTimestamp.IsZero() {
		return in, false, nil
	}
	look := looker{reader: r, set: in.Set}
	in.Revisions = owned(ctx, &look, &v1alpha1.RevisionList{}, func(l *v1alpha1.RevisionList) []v1alpha1.Revision { return l.Items })
	in.Indexes = owned(ctx, &look, &v1alpha1.PodIndexList{}, func(l *v1alpha1.PodIndexList) []v1alpha1.PodIndex { return l.Items })
	in.Pods = owned(ctx, &look, &v1alpha1.StatefulPodList{}, func(l *v1alpha1.StatefulPodList) []v1alpha1.StatefulPod { return l.Items })
	in.Operations = look.operations(ctx, in.Indexes)
	in.Siblings = look.siblings(ctx)
	in.Service = look.service(ctx)
	look.reader = c.deps.Cached
	in.Ready = look.ready(ctx)
	return in, true, look.err
}

// looker reads what belongs to a set and remembers the first error.
type looker struct {
	reader client.Reader
	set    *v1alpha1.LiStatefulSet
	err    error
}

// list reads all objects of a kind that carry the set's label.
func (l *looker) list(ctx context.Context, list client.ObjectList) {
	if l.err != nil {
		return
	}
	err := l.reader.List(ctx, list, client.InNamespace(l.set.Namespace), client.MatchingLabels{v1alpha1.LabelSet: l.set.Name}, kube.Shared)
	if err != nil {
		l.err = fmt.Errorf("listing %T of set %s: %w", list, l.set.Name, err)
	}
}

// owned lists the objects of a kind that this very set owns, and not a predecessor of its name.
func owned[L client.ObjectList, T any, P interface {
	*T
	client.Object
}](ctx context.Context, l *looker, list L, items func(L) []T) []T {
	l.list(ctx, list)
	var mine []T
	for _, o := range items(list) {
		if kube.Owned(P(&o), l.set.UID) {
			mine = append(mine, o)
		}
	}
	return mine
}

func (l *looker) operations(ctx context.Context, indexes []v1alpha1.PodIndex) []v1alpha1.Operation {
	list := &v1alpha1.OperationList{}
	l.list(ctx, list)
	var mine []v1alpha1.Operation
	for i := range list.Items {
		for x := range indexes {
			if kube.Owned(&list.Items[i], indexes[x].UID) {
				mine = append(mine, list.Items[i])
				break
			}
		}
	}
	return mine
}

// siblings lists the sets of the application; only those that name it in their spec or are named like it.
func (l *looker) siblings(ctx context.Context) []v1alpha1.LiStatefulSet {
	if l.err != nil {
		return nil
	}
	list := &v1alpha1.LiStatefulSetList{}
	if err := l.reader.List(ctx, list, client.InNamespace(l.set.Namespace), kube.Shared); err != nil {
		l.err = fmt.Errorf("listing the sets of namespace %s: %w", l.set.Namespace, err)
	}
	var same []v1alpha1.LiStatefulSet
	for i := range list.Items {
		if list.Items[i].ApplicationName() == l.set.ApplicationName() {
			same = append(same, list.Items[i])
		}
	}
	return same
}

func (l *looker) service(ctx context.Context) *corev1.Service {
	if l.err != nil {
		return nil
	}
	s := &corev1.Service{}
	err := l.reader.Get(ctx, client.ObjectKeyFromObject(l.set), s)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		l.err = fmt.Errorf("reading service %s: %w", l.set.Name, err)
	}
	return s
}

func (l *looker) ready(ctx context.Context) int32 {
	list := &corev1.PodList{}
	l.list(ctx, list)
	n := int32(0)
	for i := range list.Items {
		for _, c := range list.Items[i].Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				n++
			}
		}
	}
	return n
}
