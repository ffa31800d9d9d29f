package etcd

import "assent.dev/assent/acm/internal/facts"

// election follows leadership from one collection to the next.
type election struct {
	leader uint64
	term   uint64
	since  float64
	begun  bool
}

// observe gives the election as a fact; nil while nobody answers, since then nothing is known.
// Since is when this leader, or the absence of one, was first seen.
func (e *election) observe(k *cluster, now float64) *facts.Election {
	answering, voters := 0, 0
	for _, a := range k.answers {
		if a.status != nil && !a.status.GetIsLearner() {
			answering++
		}
	}
	for _, m := range k.registered {
		if !m.GetIsLearner() {
			voters++
		}
	}
	if answering == 0 {
		e.begun = false
		return nil
	}
	var leader, term uint64
	if k.leader != nil {
		leader, term = k.leader.id(), k.leader.status.GetRaftTerm()
	}
	if !e.begun || leader != e.leader || leader != 0 && term != e.term {
		e.leader, e.since, e.begun = leader, now, true
	}
	e.term = term
	if k.leader != nil {
		return &facts.Election{Leader: k.leader.pod, Since: e.since}
	}
	// With a majority that answers, an election runs or will; without one, nobody can be elected.
	return &facts.Election{InProgress: voters == 0 || answering > voters/2, Since: e.since}
}
