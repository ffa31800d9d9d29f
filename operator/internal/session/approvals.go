package session

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Phase is how far an approval of this session has come.
type Phase string

// Phases. Only Received and Recorded can be revoked: from Begun on, an act may be on its way to the API server.
const (
	// Received: an ACM answered, no grant is recorded yet, or it is not known whether it is.
	Received Phase = "Received"
	// Recorded: the grant is stored in the StatefulPod.
	Recorded Phase = "Recorded"
	// Begun: the act is being sent.
	Begun Phase = "Begun"
	// Unknown: the act was sent and nobody knows whether it happened.
	Unknown Phase = "Unknown"
	// Acted: the API server accepted the act.
	Acted Phase = "Acted"
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

// Approval is what an ACM allowed. Its decision identifies it.
type Approval struct {
	Decision string
	// Application is its namespace and name.
	Application types.NamespacedName
	Operation   string
	Type        v1alpha1.OperationType
	Stage       v1alpha1.Stage
	Set         string
	Pod         string
	Index       int32
	Incarnation int32
	// Parameters reach the pod as annotations.
	Parameters map[string]string
	// PodUID and PodDown are what the question said of the pod: another pod, or one that has come back, was not judged.
	PodUID  string
	PodDown bool
	// Deadline is the last moment at which the act may be sent.
	Deadline time.Time
}

// Held is an approval and its phase.
type Held struct {
	Approval
	Phase Phase
}

// Expired says whether the act may not be sent anymore.
func (h Held) Expired(now time.Time) bool { return !now.Before(h.Deadline) }

// Approvals is the register in which the controller that records grants and the one that acts on them agree on who
// comes first: a revoked approval cannot begin, and a begun one cannot be revoked. Safe for concurrent use.
type Approvals struct {
	clock clock.PassiveClock

	mu         sync.Mutex
	byDecision map[string]*Held
}

// NewApprovals makes an empty register.
func NewApprovals(c clock.PassiveClock) *Approvals {
	return &Approvals{clock: c, byDecision: map[string]*Held{}}
}

// Receive registers an approval; one that is registered already stays as it is.
func (a *Approvals) Receive(approval Approval) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byDecision[approval.Decision] == nil {
		a.byDecision[approval.Decision] = &Held{Approval: approval, Phase: Received}
	}
}

// Record notes that the grant is stored. It never takes a phase back.
func (a *Approvals) Record(decision string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.byDecision[decision]; h != nil && h.Phase == Received {
		h.Phase = Recorded
	}
}

// Begin asks to act. It returns until when the act may be sent, and false if the approval is unknown, revoked, expired or
// already acted on. While an act is of unknown outcome it may be sent again, unchanged.
func (a *Approvals) Begin(decision string) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.byDecision[decision]
	if h == nil || h.Phase == Acted || h.Expired(a.clock.Now()) {
		return time.Time{}, false
	}
	if h.Phase != Unknown {
		h.Phase = Begun
	}
	return h.Deadline, true
}

// Settle tells how the act of a begun approval went. A refused one may begin again until it expires.
func (a *Approvals) Settle(decision string, o Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.byDecision[decision]
	if h == nil {
		return
	}
	switch o {
	case Done:
		h.Phase = Acted
	case Refused:
		h.Phase = Recorded
	case Lost:
		h.Phase = Unknown
	}
}

// Revoke voids an approval, unless an act may be on its way: then it returns false and changes nothing.
func (a *Approvals) Revoke(decision string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if h := a.byDecision[decision]; h != nil && h.Phase != Received && h.Phase != Recorded {
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
func (a *Approvals) Get(decision string) (Held, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.byDecision[decision]
	if h == nil {
		return Held{}, false
	}
	return *h, true
}

// Of lists an application's approvals, ordered by decision.
func (a *Approvals) Of(application types.NamespacedName) []Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	var held []Held
	for _, h := range a.byDecision {
		if h.Application == application {
			held = append(held, *h)
		}
	}
	slices.SortFunc(held, func(x, y Held) int { return cmp.Compare(x.Decision, y.Decision) })
	return held
}
