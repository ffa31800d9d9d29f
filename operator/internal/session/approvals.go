package session

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"assent.dev/assent/operator/internal/plan/approval"
)

// Outcome of an act.
type Outcome string

// Outcomes.
const (
	// Done: the API server accepted the act.
	Done Outcome = "done"
	// Refused: the act did not and can not happen anymore.
	Refused Outcome = "refused"
	// Lost: the act may have happened, or may happen yet.
	Lost Outcome = "unknown"
)

// Approvals is the register in which the controller that records grants and the one that acts on them agree on who
// comes first: a revoked approval cannot begin, and a begun one cannot be revoked. Safe for concurrent use.
type Approvals struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	byDecision map[string]*approval.Held
}

// NewApprovals makes an empty register.
func NewApprovals(c clock.PassiveClock) *Approvals {
	return &Approvals{clock: c, byDecision: map[string]*approval.Held{}}
}

// Receive registers an approval; one that is registered already stays as it is.
func (a *Approvals) Receive(received approval.Approval) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byDecision[received.Decision] == nil {
		a.byDecision[received.Decision] = &approval.Held{Approval: received, Phase: approval.Received}
	}
}

// Record notes that the grant is stored. It never takes a phase back.
func (a *Approvals) Record(decision string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.byDecision[decision]; h != nil && h.Phase == approval.Received {
		h.Phase = approval.Recorded
	}
}

// Begin asks to act. It returns until when the act may be sent, and false if the approval is unknown, revoked, expired or
// already acted on. While an act is of unknown outcome it may be sent again, unchanged.
func (a *Approvals) Begin(decision string) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.byDecision[decision]
	if h == nil || h.Phase == approval.Acted || h.Expired(a.clock.Now()) {
		return time.Time{}, false
	}
	if h.Phase != approval.Unknown {
		h.Phase = approval.Begun
	}
	return h.Deadline, true
}

// Settle tells how the act of a begun approval went. A refused one may begin again until it expires; but if an earlier
// sending of the same act is of unknown outcome, a refusal says nothing about that one.
func (a *Approvals) Settle(decision string, o Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.byDecision[decision]
	if h == nil {
		return
	}
	switch o {
	case Done:
		h.Phase = approval.Acted
	case Refused:
		if h.Phase == approval.Begun {
			h.Phase = approval.Recorded
		}
	case Lost:
		h.Phase = approval.Unknown
	}
}

// Revoke voids an approval, unless an act may be on its way: then it returns false and changes nothing.
func (a *Approvals) Revoke(decision string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.byDecision[decision]; h != nil && !h.Revocable() {
		return false
	}
	delete(a.byDecision, decision)
	return true
}

// Forget drops an approval that is done with.
func (a *Approvals) Forget(decision string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byDecision, decision)
}

// Get returns an approval.
func (a *Approvals) Get(decision string) (approval.Held, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.byDecision[decision]
	if h == nil {
		return approval.Held{}, false
	}
	return *h, true
}

// Of lists an application's approvals, ordered by decision.
func (a *Approvals) Of(application types.NamespacedName) []approval.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	var held []approval.Held
	for _, h := range a.byDecision {
		if h.Application == application {
			held = append(held, *h)
		}
	}
	slices.SortFunc(held, func(x, y approval.Held) int { return cmp.Compare(x.Decision, y.Decision) })
	return held
}
