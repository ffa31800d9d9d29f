package judge

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// situation is everything but time on which a verdict depends.
type situation struct {
	content  uint64
	revision string
	state    *decision.State
	flight   *decision.Flight
	// approved: the answer approved something, so the next question differs in any case.
	approved bool
}

func (s situation) same(o situation) bool {
	return s.state != nil && o.state != nil && !s.approved && s.content == o.content && s.revision == o.revision &&
		reflect.DeepEqual(s.flight, o.flight) && reflect.DeepEqual(s.state, o.state)
}

// timeless is the state without what changes in every request.
func timeless(s *decision.State) *decision.State {
	c := *s
	c.RequestNumber, c.Session.Age = 0, 0
	return &c
}

// memo is a defer that holds while the situation does, until its retry_after has passed.
type memo struct {
	decision decision.Decision
	until    time.Time
	unknown  string
}

// seen is a snapshot without some collectors, and its meaning.
type seen struct {
	snapshot *facts.Snapshot
	view     *decision.View
}

// batch is the work on one request.
type batch struct {
	*Judge
	questions decision.Batch
	policy    Policy
	snapshot  *facts.Snapshot
	fresh     freshness
	cap       *decision.Cap
	// unchanged: the situation is that of the request before.
	unchanged bool
	approved  bool
	without   map[string]seen
	memos     map[decision.Step]memo
	deadline  time.Time
}

func (j *Judge) newBatch(s *decision.State, p Policy, snapshot *facts.Snapshot, flight *decision.Flight, now time.Time) *batch {
	j.view = decision.NewView(snapshot, j.view)
	is := situation{content: snapshot.Content(), revision: p.Revision(), state: timeless(s), flight: flight.Clone()}
	b := &batch{
		Judge: j, policy: p, snapshot: snapshot, fresh: newFreshness(p.Manifest(), s, j.flight.changedAt, now),
		cap: decision.NewCap(s, snapshot, flight), unchanged: j.before.same(is), without: map[string]seen{},
		memos: map[decision.Step]memo{}, deadline: now.Add(j.BatchBudget),
		questions: decision.Batch{
			Now: now, State: s, View: j.view, Flight: flight, History: j.ledger.History(now), Options: p.Options,
		},
	}
	j.before = is
	return b
}

// run decides one instance after the other; each sees the approvals before it.
func (b *batch) run(ctx context.Context) []decision.Decision {
	var out []decision.Decision
	for _, i := range decision.Order(b.questions.State, b.snapshot, b.questions.Flight) {
		if d := b.instance(ctx, i); d != nil {
			out = append(out, *d)
		}
	}
	b.Judge.memos, b.before.approved = b.memos, b.approved
	return out
}

// instance decides one; nil when a parked denial stands and needs no answer.
func (b *batch) instance(ctx context.Context, i *decision.Instance) *decision.Decision {
	now, s := b.questions.Now, b.questions.State
	if fault := s.CheckInstance(i); fault != nil {
		return b.machinery(i, fault)
	}
	if d := b.ledger.Held(i.Step, now); d != nil {
		return d
	}
	if d := b.ledger.Parked(i, b.policy.Revision(), s.OverridesOf(i.Set, now), now); d != nil {
		if i.State == decision.Denied {
			return nil
		}
		return d
	}
	if why := b.questions.Flight.Busy(s, b.snapshot, i.Step); why != "" {
		return b.machinery(i, &decision.MachineryError{Code: decision.CodePodBusy, Message: why})
	}
	fault, unknown := b.fresh.gate(i, b.snapshot)
	if fault != nil {
		return b.machinery(i, fault)
	}
	p := b.snapshot.Pods().Get(i.Pod)
	blocked, first := b.cap.Blocks(i.Step, p != nil && !p.Available)
	if blocked != "" && !first {
		return b.machinery(i, capFull(blocked))
	}
	key := strings.Join(unknown, ",")
	if m, ok := b.Judge.memos[i.Step]; ok && b.unchanged && m.unknown == key && now.Before(m.until) {
		b.memos[i.Step] = m
		return &m.decision
	}
	if !b.Clock.Now().Before(b.deadline) || ctx.Err() != nil {
		return b.machinery(i, &decision.MachineryError{
			Code: decision.CodePolicyTimeout, Message: "the time for one request was spent before this pod's turn",
		})
	}
	return b.ask(ctx, i, unknown, blocked)
}

// ask lets the policy answer, and makes of it what stands.
func (b *batch) ask(ctx context.Context, i *decision.Instance, unknown []string, blocked string) *decision.Decision {
	began := b.Clock.Now()
	at := b.seenWithout(unknown)
	b.questions.View = at.view
	q := b.questions.Derive(i)
	j := decision.Combine(b.policy.Evaluate(ctx, q, at.snapshot), q.Disabled)
	if blocked != "" {
		j = j.Blocked(capFull(blocked))
	}
	d := b.decision(i)
	if j.Verdict == decision.Approve {
		given, fault := b.policy.Parameters(ctx, q, at.snapshot)
		if fault == nil {
			d.Parameters, fault = decision.Parameters(given)
		}
		if fault != nil {
			j = decision.Failed(fault)
		}
	}
	d.Judgement = j
	b.record(i, &d, strings.Join(unknown, ","))
	b.log(d, q, b.Clock.Now().Sub(began))
	return &d
}

// record reserves an approval, parks a deny and remembers a defer.
func (b *batch) record(i *decision.Instance, d *decision.Decision, unknown string) {
	now, s := b.questions.Now, b.questions.State
	switch d.Verdict {
	case decision.Approve:
		d.ExpiresAfter = b.ledger.ExpiresAfter()
		p := b.snapshot.Pods().Get(i.Pod)
		repair := p != nil && !p.Available
		b.ledger.Reserve(b.questions.Flight, i, d.ID, repair, now)
		b.questions.History = b.ledger.History(now)
		if i.TakesDown() {
			b.cap.Take(i.Step, repair)
		}
		b.approved = true
	case decision.Deny:
		b.ledger.Park(i, *d, b.policy.Revision(), s.OverridesOf(i.Set, now), now)
		if d.RetryAfter == 0 {
			d.RetryAfter = decision.DenyRetry
		}
	default:
		b.memos[i.Step] = memo{decision: *d, until: now.Add(d.RetryAfter), unknown: unknown}
	}
}

func (b *batch) decision(i *decision.Instance) decision.Decision {
	return decision.Decision{
		ID: b.NewID(), Step: i.Step, BundleRevision: b.policy.Revision(),
		FactsVersion: b.snapshot.Version(), FactsAge: b.fresh.oldest(b.snapshot),
	}
}

// machinery is a decision without the policy.
func (b *batch) machinery(i *decision.Instance, fault *decision.MachineryError) *decision.Decision {
	d := b.decision(i)
	d.Judgement = decision.Failed(fault)
	b.log(d, nil, 0)
	return &d
}

func (b *batch) log(d decision.Decision, q *decision.Question, took time.Duration) {
	s := b.questions.State
	b.Log.Decided(Entry{
		Time: b.questions.Now, Application: s.Application, Session: s.Session.ID, Request: s.RequestNumber,
		Epoch: b.ledger.Epoch(), Question: q, Decision: d, Took: took,
	})
}

// seenWithout is the snapshot as if some collectors had never delivered.
func (b *batch) seenWithout(unknown []string) seen {
	if len(unknown) == 0 {
		return seen{b.snapshot, b.view}
	}
	key := strings.Join(unknown, ",")
	if at, ok := b.without[key]; ok {
		return at
	}
	s := b.snapshot.Without(slices.Clone(unknown)...)
	at := seen{s, decision.NewView(s, b.view)}
	b.without[key] = at
	return at
}

func capFull(why string) *decision.MachineryError {
	return &decision.MachineryError{Code: decision.CodeCapFull, Message: why}
}
