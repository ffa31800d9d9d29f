package podindex

import (
	"cmp"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Causes of Operations that follow from an edited set.
const (
	causeRollout = "rollout"
	causeCanary  = "canary"
	causeRestart = "restart"
	causeEdit    = "edit"
)

// order is what the indices of one claim have in common.
type order struct {
	kind   v1alpha1.OperationType
	cause  string
	target v1alpha1.Target
}

// claim reserves every index that differs from what is wanted and that no claim of the same type holds. It returns
// whether an index has to wait for the scale-in of another block.
func (l *ledger) claim() (turn bool) {
	wanted := map[order][]v1alpha1.ClaimedInstance{}
	for _, e := range l.in.Index.Spec.Indices {
		o, ok := l.needs(e)
		if ok && !l.holds(o.kind, e.Index) {
			wanted[o] = append(wanted[o], l.instance(e.Index))
		}
	}
	if index, ok, later := l.scaleIn(); ok {
		wanted[order{kind: v1alpha1.ScaleIn, cause: causeEdit}] = []v1alpha1.ClaimedInstance{l.instance(index)}
	} else {
		turn = later
	}
	for _, o := range sorted(wanted) {
		l.sequence++
		instances := wanted[o]
		slices.SortFunc(instances, func(a, b v1alpha1.ClaimedInstance) int { return cmp.Compare(a.Index, b.Index) })
		l.claimed = append(l.claimed, v1alpha1.Claim{
			Name: v1alpha1.OperationName(l.in.Index.Spec.Set, l.in.Index.Spec.Block, o.kind, l.sequence),
			Type: o.kind, Cause: o.cause, Target: o.target, Instances: instances, Generation: l.in.Index.Generation,
		})
	}
	l.claims = append(l.claims, l.claimed...)
	return turn
}

// needs says which order would bring a present index to what is wanted.
func (l *ledger) needs(e v1alpha1.StagedIndex) (order, bool) {
	pod := l.pods[e.Index]
	switch {
	case e.Presence != v1alpha1.Present:
		return order{}, false
	case pod == nil || pod.Spec.State == v1alpha1.Stopped:
		// While it is being scaled in, the identity goes first: going back is a new Operation, after it.
		return order{kind: v1alpha1.ScaleOut, cause: causeEdit, target: v1alpha1.Target{Revision: e.Revision}},
			!l.holds(v1alpha1.ScaleIn, e.Index)
	case pod.Spec.Revision != e.Revision || pod.Spec.Restart != e.Restart:
		return order{
			kind: v1alpha1.Deployment, cause: deploymentCause(e, pod),
			target: v1alpha1.Target{Revision: e.Revision, Restart: e.Restart},
		}, true
	}
	return order{}, false
}

func deploymentCause(e v1alpha1.StagedIndex, pod *v1alpha1.StatefulPod) string {
	switch {
	case pod.Spec.Revision == e.Revision:
		return causeRestart
	case e.Canary != "":
		return causeCanary
	}
	return causeRollout
}

// scaleIn is the index of the set to remove next, if it is in this block: the highest absent one that has an identity,
// but one that is down before all that are up. While a scale-in is open nothing else is claimed, except one that is down
// beside one that is up: the one that is up may have to wait until the other is gone. later: there is one to remove here,
// but not yet.
func (l *ledger) scaleIn() (index int32, ok, later bool) {
	var next, here *v1alpha1.StatefulPod
	open, downOpen := false, false
	for i := range l.in.Blocks {
		b := &l.in.Blocks[i]
		claims, mine := b.Status.Claims, b.Spec.Block == l.in.Index.Spec.Block
		if mine {
			b, claims = l.in.Index, l.claims
		}
		for _, e := range b.Spec.Indices {
			pod := l.pods[e.Index]
			switch {
			case holds(claims, v1alpha1.ScaleIn, e.Index):
				open, downOpen = true, downOpen || pod == nil || !pod.Status.Available
			case pod == nil, e.Presence != v1alpha1.Absent:
			default:
				next = sooner(next, pod)
				if mine {
					here = sooner(here, pod)
				}
			}
		}
	}
	if here == nil {
		return 0, false, false
	}
	if here != next || downOpen || open && here.Status.Available {
		return 0, false, true
	}
	return here.Spec.Index, true, false
}

// sooner is the one of two pods that is removed first.
func sooner(a, b *v1alpha1.StatefulPod) *v1alpha1.StatefulPod {
	switch {
	case a == nil:
		return b
	case a.Status.Available != b.Status.Available:
		if a.Status.Available {
			return b
		}
		return a
	case b.Spec.Index > a.Spec.Index:
		return b
	}
	return a
}

// instance is an index as it is now: its newest incarnation, the highest there ever was when it has no identity.
func (l *ledger) instance(index int32) v1alpha1.ClaimedInstance {
	if p := l.pods[index]; p != nil {
		return v1alpha1.ClaimedInstance{Index: index, Incarnation: p.Spec.Incarnation, RevisionFrom: p.Spec.Revision}
	}
	i := v1alpha1.ClaimedInstance{Index: index}
	for _, known := range l.in.Index.Status.Incarnations {
		if known.Index == index {
			i.Incarnation = known.Incarnation
		}
	}
	return i
}

// sorted puts orders in the order in which they get their sequence numbers.
func sorted(orders map[order][]v1alpha1.ClaimedInstance) []order {
	list := make([]order, 0, len(orders))
	for o := range orders {
		list = append(list, o)
	}
	slices.SortFunc(list, func(a, b order) int {
		return cmp.Or(
			cmp.Compare(a.kind, b.kind), cmp.Compare(a.cause, b.cause),
			cmp.Compare(a.target.Revision, b.target.Revision), cmp.Compare(a.target.Restart, b.target.Restart),
		)
	})
	return list
}

// ToOperation is the Operation exactly as claimed.
func ToOperation(index *v1alpha1.PodIndex, c v1alpha1.Claim) v1alpha1.Operation {
	op := v1alpha1.Operation{
		ObjectMeta: metav1.ObjectMeta{
			Name: c.Name, Namespace: index.Namespace,
			Labels: map[string]string{
				v1alpha1.LabelApplication:   index.Spec.Application,
				v1alpha1.LabelSet:           index.Spec.Set,
				v1alpha1.LabelBlock:         strconv.Itoa(int(index.Spec.Block)),
				v1alpha1.LabelOperationType: string(c.Type),
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(index, v1alpha1.GroupVersion.WithKind("PodIndex")),
			},
		},
		Spec: v1alpha1.OperationSpec{
			Set: index.Spec.Set, Application: index.Spec.Application, PodIndex: index.Name,
			Type: c.Type, Cause: c.Cause, Target: c.Target, Generation: c.Generation,
		},
	}
	for _, i := range c.Instances {
		op.Spec.Instances = append(op.Spec.Instances, v1alpha1.OperationInstance{
			Index: i.Index, Incarnation: i.Incarnation, Pod: v1alpha1.PodName(index.Spec.Set, i.Index, i.Incarnation),
			RevisionFrom: i.RevisionFrom,
		})
	}
	return op
}
