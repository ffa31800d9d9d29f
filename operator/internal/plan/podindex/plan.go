package podindex

import (
	"slices"
	"strings"
	"time"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Input is one look at a block. Nothing in it is changed.
type Input struct {
	Index *v1alpha1.PodIndex
	// Blocks are all PodIndexes of the set, this one included: only one scale-in is open in a set.
	Blocks []v1alpha1.PodIndex
	// Pods are the set's identities, of all blocks.
	Pods []v1alpha1.StatefulPod
	// Operations that this PodIndex owns, live and complete ones.
	Operations []v1alpha1.Operation
	// SetGone: the set is being deleted or is gone, so nothing new is claimed.
	SetGone bool
	Now     time.Time
}

// Plan is what should be written, in the order of its fields.
type Plan struct {
	// Missing are Operations claimed in the ledger as it was read and not seen: they are to be created as written.
	Missing []v1alpha1.Operation
	// Status is the new ledger. Claimed are the Operations that it claims anew, to be created once it is stored.
	Status  v1alpha1.PodIndexStatus
	Claimed []v1alpha1.Operation
	// StatusUrgent says whether the ledger must be written now. Otherwise at most once a second.
	StatusUrgent bool
	// Expired are complete Operations that were kept long enough, oldest first.
	Expired []v1alpha1.Operation
	// LookAgain is when the next one expires; zero for never.
	LookAgain time.Time
	// Turn: an absent index waits for the scale-in of another block to end.
	Turn bool
}

// Make plans.
func Make(in Input) Plan {
	l := newLedger(in)
	p := Plan{Missing: l.missing()}
	l.release()
	if !in.SetGone {
		p.Turn = l.claim()
	}
	for _, c := range l.claimed {
		p.Claimed = append(p.Claimed, ToOperation(in.Index, c))
	}
	p.Status = l.status()
	p.StatusUrgent = len(l.claimed) > 0 || l.dropped || p.Status.ObservedGeneration != in.Index.Status.ObservedGeneration
	p.Expired, p.LookAgain = l.expired()
	return p
}

// ledger is the PodIndex's status on its way to the next.
type ledger struct {
	in      Input
	pods    map[int32]*v1alpha1.StatefulPod
	ops     map[string]*v1alpha1.Operation
	claims  []v1alpha1.Claim
	claimed []v1alpha1.Claim
	// sequence of the last claim.
	sequence int64
	// dropped: a claim that had ended was removed.
	dropped bool
}

func newLedger(in Input) *ledger {
	l := &ledger{in: in, pods: newest(in.Pods), ops: map[string]*v1alpha1.Operation{}, sequence: in.Index.Status.Sequence}
	for i := range in.Operations {
		l.ops[in.Operations[i].Name] = &in.Operations[i]
	}
	for _, c := range in.Index.Status.Claims {
		l.claims = append(l.claims, *c.DeepCopy())
	}
	return l
}

// newest keeps the newest incarnation of each index.
func newest(pods []v1alpha1.StatefulPod) map[int32]*v1alpha1.StatefulPod {
	byIndex := make(map[int32]*v1alpha1.StatefulPod, len(pods))
	for i := range pods {
		p := &pods[i]
		if old := byIndex[p.Spec.Index]; old == nil || old.Spec.Incarnation < p.Spec.Incarnation {
			byIndex[p.Spec.Index] = p
		}
	}
	return byIndex
}

// missing lists the claimed Operations that are not there.
func (l *ledger) missing() []v1alpha1.Operation {
	var list []v1alpha1.Operation
	for _, c := range l.claims {
		if l.ops[c.Name] == nil {
			list = append(list, ToOperation(l.in.Index, c))
		}
	}
	return list
}

// release lets go of instances that ended, and of claims all of whose instances did. An ended instance never lives
// again, so a stale Operation can only release later.
func (l *ledger) release() {
	kept := l.claims[:0]
	for _, c := range l.claims {
		ended := endedIndices(l.ops[c.Name])
		all := true
		for i := range c.Instances {
			c.Instances[i].Released = c.Instances[i].Released || ended[c.Instances[i].Index]
			all = all && c.Instances[i].Released
		}
		if all {
			l.dropped = true
			continue
		}
		kept = append(kept, c)
	}
	l.claims = kept
}

func endedIndices(op *v1alpha1.Operation) map[int32]bool {
	ended := map[int32]bool{}
	if op == nil {
		return ended
	}
	for _, s := range op.Status.Instances {
		ended[s.Index] = s.State.Ended()
	}
	return ended
}

// holds says whether an unreleased claim of the type has the index.
func (l *ledger) holds(t v1alpha1.OperationType, index int32) bool {
	return holds(l.claims, t, index)
}

func holds(claims []v1alpha1.Claim, t v1alpha1.OperationType, index int32) bool {
	return slices.ContainsFunc(claims, func(c v1alpha1.Claim) bool {
		return c.Type == t && slices.ContainsFunc(c.Instances, func(i v1alpha1.ClaimedInstance) bool {
			return i.Index == index && !i.Released
		})
	})
}

func byName(a, b v1alpha1.Operation) int {
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}
