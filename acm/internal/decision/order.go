package decision

import (
	"cmp"
	"math"
	"slices"

	"assent.dev/assent/acm/internal/facts"
)

// Order ranks the instances that want an answer: those whose pod is in flight already; pods that
// are down; maintenance by deadline; scale-in; swap; deployment; scale-out; then the oldest, then
// the highest index. The order is total, so the slices' order in the request does not matter.
func Order(s *State, snapshot *facts.Snapshot, flight *Flight) []*Instance {
	var waiting []*Instance
	for i := range s.Instances {
		if !s.Instances[i].State.InFlight() {
			waiting = append(waiting, &s.Instances[i])
		}
	}
	rank := make(map[*Instance]int, len(waiting))
	for _, i := range waiting {
		rank[i] = rankOf(i, snapshot, flight)
	}
	slices.SortFunc(waiting, func(a, b *Instance) int {
		return cmp.Or(
			cmp.Compare(rank[a], rank[b]),
			cmp.Compare(deadline(a), deadline(b)),
			a.WaitingSince.Compare(b.WaitingSince),
			cmp.Compare(b.Index, a.Index),
			cmp.Compare(a.Set, b.Set),
			cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Operation, b.Operation),
			cmp.Compare(a.Stage, b.Stage),
		)
	})
	return waiting
}

func rankOf(i *Instance, snapshot *facts.Snapshot, flight *Flight) int {
	p := snapshot.Pods().Get(i.Pod)
	switch {
	case flight.byPod[i.Pod] != nil:
		return 0
	case p != nil && !p.Available:
		return 1
	case maintenance(i):
		return 2
	}
	switch i.Type {
	case ScaleIn:
		return 3
	case Swap:
		return 4
	case Deployment:
		return 5
	default:
		return 6
	}
}

func maintenance(i *Instance) bool {
	return i.Type == Disruption || i.Cause == "maintenance" || i.Cause == "eviction"
}

// deadline ranks maintenance; everything else has none, and is equal.
func deadline(i *Instance) float64 {
	if i.Deadline.IsZero() || !maintenance(i) {
		return math.Inf(1)
	}
	return Unix(i.Deadline)
}
