package judge

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// Facts is what a judge needs of one application's facts.
type Facts interface {
	// Snapshot is the newest state; it never blocks.
	Snapshot() *facts.Snapshot
	// Apply publishes changes and gives the snapshot after them.
	Apply(facts.Changes) *facts.Snapshot
	// Configure makes the collectors run that the manifest declares, and stops others. Cheap when nothing changed.
	Configure(Manifest)
	// Refresh asks the application's collectors to collect at once.
	Refresh()
}

// Log takes decisions. It must not block.
type Log interface {
	Decided(Entry)
}

// Entry is one decision with what it was made from.
type Entry struct {
	Time        time.Time
	Application decision.ApplicationRef
	Session     string
	Request     uint64
	Epoch       int64
	// Question is nil when the machinery decided without asking the policy.
	Question *decision.Question
	Decision decision.Decision
	// Took is how long the evaluation took; 0 without one.
	Took time.Duration
	// Preview: nothing was reserved.
	Preview bool
}

// Deps are what a Judge works with. All are needed.
type Deps struct {
	Policies Policies
	Facts    Facts
	Clock    clock.PassiveClock
	Log      Log
	// NewID gives a decision id that is unique for ever.
	NewID func() string
	// Nudge tells whoever watches the application that asking again is worth it. It must not block.
	Nudge func(cause string)
	// ExpiresAfter is how long an approval may be acted on, counted from the send of the request.
	ExpiresAfter time.Duration
	// BatchBudget bounds the evaluations of one request; what is left over is deferred.
	BatchBudget time.Duration
}

// Defaults of Deps.
const (
	DefaultExpiresAfter = 30 * time.Second
	DefaultBatchBudget  = 1500 * time.Millisecond
)

// Judge decides for one application. Safe for concurrent use: requests are taken one after the other.
type Judge struct {
	Deps
	// turn holds one token: whoever has it decides.
	turn chan struct{}

	// The following belong to whoever has the turn.
	ledger  *decision.Ledger
	last    *decision.State
	flight  flightTracker
	view    *decision.View
	memos   map[decision.Step]memo
	before  situation
	lastAsk time.Time
	// based is the snapshot that the last answer was made from; nil when no fact would have changed it.
	based *facts.Snapshot

	nudging sync.Mutex
	waiting *waiting
}

// New makes a judge that decides nothing until Begin.
func New(d Deps) *Judge {
	return &Judge{Deps: d, turn: make(chan struct{}, 1)}
}

// Begin starts deciding under a term of the application's Lease, with an empty ledger. First says
// that the Lease never had an earlier term.
func (j *Judge) Begin(epoch int64, first bool) {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.ledger = decision.NewLedger(j.ExpiresAfter, epoch, first, j.Clock.Now())
	j.flight, j.memos, j.before = flightTracker{}, nil, situation{}
}

// End stops deciding: the Lease is lost or given up.
func (j *Judge) End() {
	j.turn <- struct{}{}
	defer func() { <-j.turn }()
	j.ledger = nil
}

// Evaluate answers every waiting instance of a request. It never fails: what goes wrong is a
// deferred decision with its reason. The answer is given before ctx ends, if evaluation heeds it.
func (j *Judge) Evaluate(ctx context.Context, s *decision.State) decision.Answer {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return j.Refuse(s, 0, &decision.MachineryError{
			Code: decision.CodeACMTimeout, Message: "the request's deadline passed while an earlier request was being decided",
		})
	}
	if fault := s.Check(); fault != nil {
		return j.Refuse(s, j.epoch(), fault)
	}
	if j.ledger == nil {
		return j.Refuse(s, 0, &decision.MachineryError{
			Code: decision.CodeACMNotDeciding, Message: "this ACM replica does not hold the application's Lease",
		})
	}
	j.disarm()
	now := j.Clock.Now()
	opening := j.ledger.Open(s, now)
	if opening.Repeat != nil {
		j.arm(s, *opening.Repeat)
		return *opening.Repeat
	}
	j.lastAsk = now
	answer := j.decide(ctx, s, opening, now)
	j.ledger.Close(&answer)
	j.arm(s, answer)
	return answer
}

func (j *Judge) epoch() int64 {
	if j.ledger == nil {
		return 0
	}
	return j.ledger.Epoch()
}

// decide makes the answer to a request that has not been answered before.
func (j *Judge) decide(ctx context.Context, s *decision.State, opening decision.Opening, now time.Time) decision.Answer {
	j.based = nil
	if opening.Refused != nil {
		return j.Refuse(s, j.ledger.Epoch(), opening.Refused)
	}
	policy, fault := j.Policies.Policy(s.Application.Policy)
	if fault != nil {
		return j.Refuse(s, j.ledger.Epoch(), fault)
	}
	j.Facts.Configure(policy.Manifest())
	s = j.reopen(s, policy.Revision(), now)
	j.last = s
	snapshot := j.Facts.Apply(facts.Changes{At: decision.Unix(now), Expect: s.Expectations()})
	j.based = snapshot
	if j.flight.observe(s, opening.Flight, now) {
		j.Facts.Refresh()
	}
	b := j.newBatch(s, policy, snapshot, opening.Flight, now)
	return decision.Answer{
		SessionID: s.Session.ID, RequestNumber: s.RequestNumber, Epoch: j.ledger.Epoch(), Decisions: b.run(ctx),
	}
}

// reopen makes those denied instances wait that are looked at again now, because the bundle, an override or the instance
// changed: as denied ones they would count as nobody's peers, and a leader could go before the others are judged anew.
func (j *Judge) reopen(s *decision.State, revision string, now time.Time) *decision.State {
	copied := false
	for n := range s.Instances {
		i := &s.Instances[n]
		if i.State != decision.Denied || j.ledger.Parked(i, revision, s.OverridesOf(i.Set, now), now) != nil {
			continue
		}
		if !copied {
			c := *s
			c.Instances = slices.Clone(s.Instances)
			s, copied = &c, true
		}
		s.Instances[n].State = decision.Waiting
	}
	return s
}

// Refuse answers every instance that waits with the machinery's defer.
func (j *Judge) Refuse(s *decision.State, epoch int64, fault *decision.MachineryError) decision.Answer {
	a := decision.Answer{SessionID: s.Session.ID, RequestNumber: s.RequestNumber, Epoch: epoch}
	for i := range s.Instances {
		if s.Instances[i].State.InFlight() {
			continue
		}
		d := decision.Decision{ID: j.NewID(), Step: s.Instances[i].Step, Judgement: decision.Failed(fault)}
		a.Decisions = append(a.Decisions, d)
		j.Log.Decided(Entry{
			Time: j.Clock.Now(), Application: s.Application, Session: s.Session.ID, Request: s.RequestNumber, Epoch: epoch, Decision: d,
		})
	}
	return a
}

// Inspection is what tools may see of a judge.
type Inspection struct {
	Deciding     bool
	Epoch        int64
	LastEvaluate time.Time
	Reservations []decision.Reservation
	Facts        *facts.Snapshot
}

// Inspect looks without changing anything; it waits for a running request.
func (j *Judge) Inspect(ctx context.Context) (Inspection, error) {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return Inspection{}, ctx.Err()
	}
	i := Inspection{Deciding: j.ledger != nil, Epoch: j.epoch(), LastEvaluate: j.lastAsk, Facts: j.Facts.Snapshot()}
	if j.ledger != nil {
		i.Reservations = j.ledger.Reservations()
	}
	return i, nil
}
