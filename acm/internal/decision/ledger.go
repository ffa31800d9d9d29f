package decision

import (
	"maps"
	"slices"
	"time"
)

// LedgerMargin is added to the expiry of approvals when a ledger cannot know what an earlier one approved.
const LedgerMargin = 5 * time.Second

// DenyRetry is how long a deny parks its instance when no reason gives a retry_after.
const DenyRetry = 10 * time.Minute

const (
	historyLimit  = 1000
	historyLength = 24 * time.Hour
	// sessionMemory is how many superseded sessions of one term are remembered.
	sessionMemory = 16
)

// Answer is the reply to one request.
type Answer struct {
	SessionID     string
	RequestNumber uint64
	Epoch         int64
	Decisions     []Decision
}

// Decision answers one instance and stage.
type Decision struct {
	ID string
	Step
	Judgement
	// Parameters, for an approval, reach the pod.
	Parameters     map[string]string
	BundleRevision string
	FactsVersion   string
	// FactsAge is the age of the oldest source used.
	FactsAge time.Duration
	// ExpiresAfter, for an approval, counts from the send of the request.
	ExpiresAfter time.Duration
}

// Ledger is what one ACM remembers of one application while it decides for it: the session, the
// last answer, approvals that are not yet visible as grants, approval times and parked denials.
// It is memory only. Not safe for concurrent use.
type Ledger struct {
	expiresAfter time.Duration
	epoch        int64
	begun        time.Time
	// complete: no earlier ACM can have approved anything that this ledger does not know.
	complete   bool
	session    Session
	superseded []string
	// number is the newest request's; answer is its, nil while it is being decided.
	number       uint64
	answer       *Answer
	reservations map[string]*Reservation
	owner        map[string]string
	repairs      map[string]bool
	history      []time.Time
	since        time.Time
	parked       map[Step]parked
}

// NewLedger is an empty ledger whose approvals may be acted on for expiresAfter. It begins with
// epoch; first says that this is the Lease's first term, so that there was no earlier ledger.
func NewLedger(expiresAfter time.Duration, epoch int64, first bool, now time.Time) *Ledger {
	return &Ledger{
		expiresAfter: expiresAfter, epoch: epoch, begun: now, since: now, complete: first,
		reservations: map[string]*Reservation{}, owner: map[string]string{}, repairs: map[string]bool{}, parked: map[Step]parked{},
	}
}

// Copy is a ledger with the same reservations and history, to try things on.
func (l *Ledger) Copy() *Ledger {
	c := *l
	c.reservations, c.owner, c.repairs = maps.Clone(l.reservations), maps.Clone(l.owner), maps.Clone(l.repairs)
	c.parked, c.history = map[Step]parked{}, slices.Clone(l.history)
	return &c
}

// Epoch is the number of the Lease's term.
func (l *Ledger) Epoch() int64 { return l.epoch }

// Opening is how a request begins. Exactly one of Repeat, Refused and Flight is set.
type Opening struct {
	// Repeat is the answer that this very request has been given before.
	Repeat *Answer
	// Refused says why nothing can be approved to this request.
	Refused *MachineryError
	// Flight is what executes or is approved as the batch begins.
	Flight *Flight
}

// Open takes a request: it settles the session, gives a repeated request its old answer, voids
// what an earlier answer approved and the operator does not hold, and tells what is in flight.
func (l *Ledger) Open(s *State, now time.Time) Opening {
	if refused := l.openSession(s); refused != nil {
		return Opening{Refused: refused}
	}
	if l.answer != nil && s.RequestNumber == l.number {
		l.extend(now)
		return Opening{Repeat: l.answer}
	}
	if s.RequestNumber < l.number {
		return Opening{Refused: &MachineryError{Code: CodeSessionSuperseded, Message: "a newer request of this session has been asked"}}
	}
	l.number, l.answer = s.RequestNumber, nil
	l.settle(s, now)
	if starting := l.starting(s, now); starting != nil {
		// The request is spent: a repeat must not be judged otherwise than it was.
		return Opening{Refused: starting}
	}
	return Opening{Flight: l.Flight(s)}
}

// openSession follows the operator's leadership: a lower term, or a session that another of the
// same term has followed, is refused.
func (l *Ledger) openSession(s *State) *MachineryError {
	if s.Session.ID == l.session.ID {
		return nil
	}
	if s.Session.Term < l.session.Term || slices.Contains(l.superseded, s.Session.ID) {
		return &MachineryError{Code: CodeSessionSuperseded, Message: "a newer session of the operator has spoken"}
	}
	if s.Session.Term > l.session.Term {
		l.superseded = nil
	} else if l.session.ID != "" {
		l.superseded = append(l.superseded, l.session.ID)
		l.superseded = l.superseded[max(0, len(l.superseded)-sessionMemory):]
	}
	l.session, l.number, l.answer = s.Session, 0, nil
	return nil
}

// extend keeps the approvals of a repeated answer reserved: the operator counts them from its own, later send.
func (l *Ledger) extend(now time.Time) {
	for _, d := range l.answer.Decisions {
		if r := l.reservations[d.ID]; r != nil && !r.ExpiresAt.IsZero() {
			r.ExpiresAt = now.Add(l.expiresAfter)
		}
	}
}

// settle makes the reservations equal to what may still be acted on. Approvals of this session
// live while the operator holds them; those of an earlier session, which may still act on them,
// until they expire; a recorded grant is reported as its instance and needs none.
func (l *Ledger) settle(s *State, now time.Time) {
	granted := map[string]bool{}
	for i := range s.Instances {
		if id := s.Instances[i].DecisionID; id != "" && s.Instances[i].State.InFlight() {
			granted[id] = true
		}
	}
	held := map[string]bool{}
	for i := range s.Holding {
		held[s.Holding[i].DecisionID] = true
		l.hold(&s.Holding[i], now)
	}
	for id, r := range l.reservations {
		expired := !r.ExpiresAt.IsZero() && !now.Before(r.ExpiresAt)
		own := l.owner[id] == l.session.ID
		if granted[id] || !held[id] && (own || expired) {
			if granted[id] && r.Repair {
				l.repairs[id] = true
			}
			delete(l.reservations, id)
			delete(l.owner, id)
		}
	}
	maps.DeleteFunc(l.repairs, func(id string, _ bool) bool { return !granted[id] })
	live := map[Step]bool{}
	for i := range s.Instances {
		live[s.Instances[i].Step] = true
	}
	maps.DeleteFunc(l.parked, func(step Step, _ parked) bool { return !live[step] })
}

// hold keeps or learns an approval that the operator holds.
func (l *Ledger) hold(h *Holding, now time.Time) {
	r := l.reservations[h.DecisionID]
	if r == nil {
		r = &Reservation{Step: h.Step, DecisionID: h.DecisionID, ApprovedAt: now, ExpiresAt: now.Add(l.expiresAfter)}
		l.reservations[h.DecisionID] = r
	}
	l.owner[h.DecisionID] = l.session.ID
	if h.OutcomeUnknown {
		r.ExpiresAt = time.Time{}
	}
}

// starting says why a ledger that may miss approvals of an earlier ACM approves nothing yet.
func (l *Ledger) starting(s *State, now time.Time) *MachineryError {
	enough := l.expiresAfter + LedgerMargin
	if l.complete || s.Session.Age >= enough || now.Sub(l.begun) >= enough {
		l.complete = true
		return nil
	}
	left := min(enough-s.Session.Age, enough-now.Sub(l.begun)).Round(time.Second)
	return &MachineryError{
		Code:    CodeACMStarting,
		Message: "this ACM has just started and an earlier one may have approved a step that nobody reports; asked again at " + now.Add(left).UTC().Format("15:04:05 MST"),
		Details: map[string]any{"retry_after_seconds": left.Seconds()},
	}
}

// Flight is what the operator reports, then what it holds, then what an earlier session may still do.
func (l *Ledger) Flight(s *State) *Flight {
	f := NewFlight()
	for i := range s.Instances {
		if in := &s.Instances[i]; in.State.InFlight() {
			f.add(in.Step, runningEntry(in), l.repairs[in.DecisionID])
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(l.reservations), l.olderFirst) {
		r := l.reservations[id]
		f.add(r.Step, approvedEntry(r), r.Repair)
	}
	return f
}

func (l *Ledger) olderFirst(a, b string) int {
	if c := l.reservations[a].ApprovedAt.Compare(l.reservations[b].ApprovedAt); c != 0 {
		return c
	}
	if a < b {
		return -1
	}
	return 1
}

// Reserve records an approval and puts it in flight, at once. An approval of the same pod that an
// earlier session was given stays: that session may act on it whatever becomes of the new one.
func (l *Ledger) Reserve(f *Flight, i *Instance, id string, repair bool, now time.Time) {
	for old, r := range l.reservations {
		if r.Pod == i.Pod && l.owner[old] == l.session.ID {
			delete(l.reservations, old)
			delete(l.owner, old)
		}
	}
	r := &Reservation{
		Step: i.Step, DecisionID: id, Cause: i.Cause, DeletesData: i.DeletesData,
		ApprovedAt: now, ExpiresAt: now.Add(l.expiresAfter), Repair: repair,
	}
	l.reservations[id], l.owner[id] = r, l.session.ID
	delete(f.byPod, i.Pod)
	f.add(r.Step, approvedEntry(r), repair)
	l.history = append(l.history, now)
	if over := len(l.history) - historyLimit; over > 0 {
		l.history = l.history[over:]
		l.since = l.history[0]
	}
}

// Close remembers the answer. One to a superseded session or an older request is not kept.
func (l *Ledger) Close(a *Answer) {
	if a.SessionID != l.session.ID || a.RequestNumber != l.number {
		return
	}
	l.answer = a
	for i := range a.Decisions {
		if r := l.reservations[a.Decisions[i].ID]; r != nil {
			r.decision = &a.Decisions[i]
		}
	}
}

// Held is the approval of this very step that the operator holds and can still act on, to be
// answered again as it was with the time that is left; nil when the step must be judged.
func (l *Ledger) Held(step Step, now time.Time) *Decision {
	for id, r := range l.reservations {
		if r.Step != step || r.decision == nil || l.owner[id] != l.session.ID || r.ExpiresAt.IsZero() || !now.Before(r.ExpiresAt) {
			continue
		}
		d := *r.decision
		d.ExpiresAfter = r.ExpiresAt.Sub(now)
		return &d
	}
	return nil
}

// ExpiresAfter is how long an approval may be acted on.
func (l *Ledger) ExpiresAfter() time.Duration { return l.expiresAfter }

// Reservations are the approvals that count as in flight, oldest first.
func (l *Ledger) Reservations() []Reservation {
	var out []Reservation
	for _, id := range slices.SortedFunc(maps.Keys(l.reservations), l.olderFirst) {
		out = append(out, *l.reservations[id])
	}
	return out
}

// History lists approval times, newest first.
func (l *Ledger) History(now time.Time) *History {
	oldest := now.Add(-historyLength)
	h := &History{Since: Unix(l.since), Approved: []float64{}}
	if l.since.Before(oldest) {
		h.Since = Unix(oldest)
	}
	for _, at := range slices.Backward(l.history) {
		if at.Before(oldest) {
			break
		}
		h.Approved = append(h.Approved, Unix(at))
	}
	return h
}

// parked is a deny that need not be thought over again.
type parked struct {
	key, revision, overrides string
	until                    time.Time
	decision                 Decision
}

// Park remembers a deny until the instance's key, the bundle's revision or the overrides change, or
// its retry_after has passed.
func (l *Ledger) Park(i *Instance, d Decision, revision, overrides string, now time.Time) {
	wait := d.RetryAfter
	if wait == 0 {
		wait = DenyRetry
	}
	l.parked[i.Step] = parked{key: i.Key, revision: revision, overrides: overrides, until: now.Add(wait), decision: d}
}

// Parked gives the deny that still stands for the instance, with what is left of its retry_after; nil when it must be judged.
func (l *Ledger) Parked(i *Instance, revision, overrides string, now time.Time) *Decision {
	p, ok := l.parked[i.Step]
	if !ok || p.key != i.Key || p.revision != revision || p.overrides != overrides || !now.Before(p.until) {
		return nil
	}
	d := p.decision
	d.RetryAfter = p.until.Sub(now)
	return &d
}
