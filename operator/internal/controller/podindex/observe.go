package podindex

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/podindex"
)

// observe looks at a block through a reader. It returns false if the block is gone or going: then nothing is done.
func (c *Controller) observe(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Input, bool, error) {
	in := plan.Input{Index: &v1alpha1.PodIndex{}, Now: c.deps.Clock.Now()}
	if err := r.Get(ctx, key, in.Index); err != nil {
		if apierrors.IsNotFound(err) {
			return in, false, nil
		}
		return in, false, fmt.Errorf("reading pod index %s: %w", key, err)
	}
	owner := metav1.GetControllerOf(in.Index)
	if !in.Index.DeletionTimestamp.IsZero() || owner == nil {
		return in, false, nil
	}
	look := looker{reader: r, index: in.Index, set: owner.UID}
	in.Blocks = look.blocks(ctx)
	in.Operations = look.operations(ctx)
	in.Pods = look.pods(ctx)
	in.SetGone = look.setGone(ctx)
	return in, true, look.err
}

// looker reads what belongs to a block and remembers the first error.
type looker struct {
	reader client.Reader
	index  *v1alpha1.PodIndex
	// set is the UID of the owning set.
	set types.UID
	err error
}

func (l *looker) list(ctx context.Context, list client.ObjectList, labels client.MatchingLabels) {
	if l.err != nil {
		return
	}
	labels[v1alpha1.LabelSet] = l.index.Spec.Set
	if err := l.reader.List(ctx, list, client.InNamespace(l.index.Namespace), labels, kube.Shared); err != nil {
		l.err = fmt.Errorf("listing %T of set %s: %w", list, l.index.Spec.Set, err)
	}
}

func (l *looker) blocks(ctx context.Context) []v1alpha1.PodIndex {
	list := &v1alpha1.PodIndexList{}
	l.list(ctx, list, client.MatchingLabels{})
	return kept(list.Items, func(x *v1alpha1.PodIndex) bool { return kube.Owned(x, l.set) })
}

func (l *looker) operations(ctx context.Context) []v1alpha1.Operation {
	list := &v1alpha1.OperationList{}
	l.list(ctx, list, client.MatchingLabels{v1alpha1.LabelBlock: l.index.Labels[v1alpha1.LabelBlock]})
	return kept(list.Items, func(o *v1alpha1.Operation) bool { return kube.Owned(o, l.index.UID) })
}

func (l *looker) pods(ctx context.Context) []v1alpha1.StatefulPod {
	list := &v1alpha1.StatefulPodList{}
	l.list(ctx, list, client.MatchingLabels{})
	return kept(list.Items, func(p *v1alpha1.StatefulPod) bool { return kube.Owned(p, l.set) })
}

// setGone says whether the owning set is being deleted or is no more.
func (l *looker) setGone(ctx context.Context) bool {
	if l.err != nil {
		return true
	}
	set := &v1alpha1.LiStatefulSet{}
	err := l.reader.Get(ctx, types.NamespacedName{Namespace: l.index.Namespace, Name: l.index.Spec.Set}, set)
	if client.IgnoreNotFound(err) != nil {
		l.err = fmt.Errorf("reading set %s: %w", l.index.Spec.Set, err)
	}
	return err != nil || set.UID != l.set || !set.DeletionTimestamp.IsZero()
}

func kept[T any](items []T, keep func(*T) bool) []T {
	var list []T
	for i := range items {
		if keep(&items[i]) {
			list = append(list, items[i])
		}
	}
	return list
}
