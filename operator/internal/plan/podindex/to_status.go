package podindex

import (
	"cmp"
	"slices"

	"assent.dev/assent/operator/api/v1alpha1"
)

func (l *ledger) status() v1alpha1.PodIndexStatus {
	s := v1alpha1.PodIndexStatus{
		ObservedGeneration: l.in.Index.Generation,
		Sequence:           l.sequence,
		Incarnations:       l.incarnations(),
		Open:               int32(len(l.claims)),
	}
	if len(l.claims) > 0 {
		s.Claims = slices.Clone(l.claims)
	}
	if l.in.SetGone {
		s.ObservedGeneration = l.in.Index.Status.ObservedGeneration
	}
	for _, e := range l.in.Index.Spec.Indices {
		if e.Presence != v1alpha1.Present {
			continue
		}
		s.Wanted++
		if l.settled(e) {
			s.Settled++
		}
	}
	return s
}

// settled says whether a present index is available as wanted and nothing is open for it.
func (l *ledger) settled(e v1alpha1.StagedIndex) bool {
	pod := l.pods[e.Index]
	if _, differs := l.needs(e); differs || pod == nil || !pod.Status.Available || pod.Spec.State != v1alpha1.Running {
		return false
	}
	return !slices.ContainsFunc(l.claims, func(c v1alpha1.Claim) bool {
		return slices.ContainsFunc(c.Instances, func(i v1alpha1.ClaimedInstance) bool { return i.Index == e.Index && !i.Released })
	})
}

// incarnations keeps the highest that each index of the block ever had; the first, 0, needs no entry.
func (l *ledger) incarnations() []v1alpha1.IndexIncarnation {
	highest := map[int32]int32{}
	for _, i := range l.in.Index.Status.Incarnations {
		highest[i.Index] = i.Incarnation
	}
	for index, pod := range l.pods {
		if index/v1alpha1.BlockSize == l.in.Index.Spec.Block {
			highest[index] = max(highest[index], pod.Spec.Incarnation)
		}
	}
	var list []v1alpha1.IndexIncarnation
	for index, incarnation := range highest {
		if incarnation > 0 {
			list = append(list, v1alpha1.IndexIncarnation{Index: index, Incarnation: incarnation})
		}
	}
	slices.SortFunc(list, func(a, b v1alpha1.IndexIncarnation) int { return cmp.Compare(a.Index, b.Index) })
	return list
}
