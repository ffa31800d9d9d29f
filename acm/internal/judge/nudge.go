package judge

import (
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// Causes of a nudge.
const (
	CauseFacts  = "facts"
	CauseBundle = "bundle"
	CauseLease  = "lease"
)

// waiting is what the last answer left undecided, and on what it was based.
type waiting struct {
	content  uint64
	standing string
	fresh    *freshness
}

// disarm stops nudging while a request is being decided.
func (j *Judge) disarm() {
	j.nudging.Lock()
	defer j.nudging.Unlock()
	j.waiting = nil
}

// arm asks for a nudge once facts change, if the answer left anybody waiting and facts could change it: not while a new
// ledger waits for old approvals to run out, nor without a bundle.
func (j *Judge) arm(s *decision.State, a decision.Answer) {
	if j.based == nil {
		return
	}
	deferred := false
	for i := range a.Decisions {
		deferred = deferred || a.Decisions[i].Verdict == decision.Defer
	}
	if !deferred {
		return
	}
	w := &waiting{content: j.based.Content()}
	if policy, fault := j.Policies.Policy(s.Application.Policy); fault == nil {
		fresh := newFreshness(policy.Manifest(), s, j.flight.changedAt, j.Clock.Now())
		w.fresh = &fresh
		w.standing = fresh.standing(j.based)
	}
	j.nudging.Lock()
	j.waiting = w
	j.nudging.Unlock()
	j.Published(j.Facts.Snapshot())
}

// Published takes note of a newer snapshot and nudges when a deferred instance may fare better now:
// at most once until the next request.
func (j *Judge) Published(s *facts.Snapshot) {
	j.nudging.Lock()
	w := j.waiting
	if w == nil || s.Content() == w.content && !w.opened(s, j) {
		j.nudging.Unlock()
		return
	}
	j.waiting = nil
	j.nudging.Unlock()
	j.Nudge(CauseFacts)
}

// opened says whether a gate stands otherwise than when the answer was given.
func (w *waiting) opened(s *facts.Snapshot, j *Judge) bool {
	if w.fresh == nil {
		return false
	}
	fresh := *w.fresh
	fresh.now = j.Clock.Now()
	return fresh.standing(s) != w.standing
}

// BundleChanged nudges: another revision, or a bundle error that came or went.
func (j *Judge) BundleChanged() { j.Nudge(CauseBundle) }
