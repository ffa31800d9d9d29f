package judge

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

var t0 = time.Unix(1764547200, 0)

// fakePolicy answers as the test says; by default it approves while nobody else is down or promised.
type fakePolicy struct {
	mu       sync.Mutex
	revision string
	manifest Manifest
	answer   func(*decision.Question, *facts.Snapshot) decision.Outcome
	params   any
	fault    *decision.MachineryError
	asked    atomic.Int32
}

func oneAtATime(q *decision.Question, _ *facts.Snapshot) decision.Outcome {
	for _, e := range q.InFlight {
		if e.TakesDown {
			return decision.Outcome{Defer: []any{map[string]any{"code": "budget.application", "message": "another is in flight"}}}
		}
	}
	if q.Target.GoesDown && q.Totals.Down.Count > 0 {
		return decision.Outcome{Defer: []any{map[string]any{"code": "budget.application", "message": "another is down"}}}
	}
	return decision.Outcome{Approve: true}
}

func (p *fakePolicy) Revision() string { return p.revision }

func (p *fakePolicy) Manifest() Manifest { return p.manifest }

func (p *fakePolicy) Options(decision.OptionsKey) *decision.Options { return nil }

func (p *fakePolicy) Evaluate(_ context.Context, q *decision.Question, s *facts.Snapshot) decision.Outcome {
	p.asked.Add(1)
	p.mu.Lock()
	answer := p.answer
	p.mu.Unlock()
	return answer(q, s)
}

func (p *fakePolicy) Parameters(context.Context, *decision.Question, *facts.Snapshot) (any, *decision.MachineryError) {
	return p.params, p.fault
}

// Policy makes a fakePolicy the only bundle.
func (p *fakePolicy) Policy(string) (Policy, *decision.MachineryError) { return p, nil }

type noPolicy struct{ fault decision.MachineryError }

func (n noPolicy) Policy(string) (Policy, *decision.MachineryError) { return nil, &n.fault }

// pushed are facts that the test brings in.
type pushed struct {
	*facts.Store
	refreshed atomic.Int32
}

func (p *pushed) Configure(Manifest) {}
func (p *pushed) Refresh()           { p.refreshed.Add(1) }

// court is a judge with everything around it.
type court struct {
	t      require.TestingT
	judge  *Judge
	policy *fakePolicy
	facts  *pushed
	clock  *clocktesting.FakeClock
	number uint64
	mu     sync.Mutex
	log    []Entry
	nudges []string
	down   map[int]bool
	wanted int
	cap    int
	rv     int
}

func (c *court) Decided(e Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, e)
}

// convene has a judge of five pods, in the Lease's first term, with fresh facts.
func convene(t require.TestingT) *court {
	c := &court{t: t, clock: clocktesting.NewFakeClock(t0), down: map[int]bool{}, wanted: 5, cap: 1}
	c.policy = &fakePolicy{revision: "r1", answer: oneAtATime, manifest: Manifest{Collectors: map[string]CollectorSpec{
		facts.Kubernetes: {MaxAge: 10 * time.Second}, "x": {MaxAge: 5 * time.Second},
	}}}
	c.facts = &pushed{Store: facts.NewStore(func(s *facts.Snapshot) {
		if c.judge != nil {
			c.judge.Published(s)
		}
	})}
	var ids atomic.Int64
	c.judge = New(Deps{
		Policies: c.policy, Facts: c.facts, Clock: c.clock, Log: c, NewID: func() string { return fmt.Sprintf("d%d", ids.Add(1)) },
		Nudge: func(cause string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.nudges = append(c.nudges, cause)
		},
		ExpiresAfter: DefaultExpiresAfter, BatchBudget: DefaultBatchBudget,
	})
	c.judge.Begin(0, true)
	c.collect()
	return c
}

// collect pushes fresh facts of everything.
func (c *court) collect() {
	now := decision.Unix(c.clock.Now())
	pods := map[string]*facts.Pod{}
	for i := range 5 {
		pods[pod(i)] = &facts.Pod{Set: "a", Index: i, Phase: "Running", Ready: !c.down[i], Available: !c.down[i], Since: now - 100, UID: fmt.Sprint(i)}
	}
	c.facts.Apply(facts.Changes{At: now, Pods: pods, Seen: uint64(c.rv), Reports: []facts.Report{
		{Collector: facts.Kubernetes, OK: true, AsOf: now},
		{Collector: "x", OK: true, AsOf: now, Facts: &facts.Facts{Replace: true}},
	}})
}

func pod(i int) string { return fmt.Sprintf("a-%d", i) }

func step(i int) decision.Step {
	return decision.Step{Operation: "op-" + pod(i), Type: decision.Deployment, Stage: decision.StageRemove, Set: "a", Pod: pod(i), Index: i}
}

func waits(i int) decision.Instance {
	return decision.Instance{Step: step(i), State: decision.Waiting, WaitingSince: t0, Key: "k"}
}

func runs(i int, id string) decision.Instance {
	in := waits(i)
	in.State, in.DecisionID, in.StateSince = decision.Acting, id, t0
	return in
}

func (c *court) request(instances ...decision.Instance) *decision.State {
	c.number++
	s := &decision.State{
		Application: decision.ApplicationRef{Namespace: "d", Name: "a", Policy: "a"}, Session: decision.Session{ID: "s1", Term: 1, Age: time.Hour},
		RequestNumber: c.number, MaxUnavailable: c.cap, Instances: instances,
		Sets: []decision.Set{{Name: "a", Wanted: []facts.Range{{First: 0, Last: c.wanted - 1}}, EverAvailable: []facts.Range{{First: 0, Last: c.wanted - 1}}, MaxUnavailable: c.cap}},
	}
	for i := range 5 {
		s.Pods = append(s.Pods, decision.PodVersion{Name: pod(i), UID: fmt.Sprint(i), ResourceVersion: fmt.Sprint(c.rv), Ready: !c.down[i]})
	}
	return s
}

// settle makes the judge know the flight, then brings facts from after it.
func (c *court) settle(instances ...decision.Instance) {
	c.judge.Evaluate(context.Background(), c.request(instances...))
	c.clock.Step(time.Millisecond)
	c.collect()
}

// ask asks about all, brings facts from after that, and asks again.
func (c *court) ask(instances ...decision.Instance) []decision.Decision {
	c.settle(instances...)
	return c.judge.Evaluate(context.Background(), c.request(instances...)).Decisions
}

func codes(d decision.Decision) []string {
	out := []string{}
	for _, r := range d.Reasons {
		out = append(out, r.Code)
	}
	return out
}

func verdicts(ds []decision.Decision) map[string]decision.Verdict {
	out := map[string]decision.Verdict{}
	for _, d := range ds {
		out[d.Pod] = d.Verdict
	}
	return out
}

func one(t *testing.T, ds []decision.Decision) decision.Decision {
	t.Helper()
	require.Len(t, ds, 1)
	return ds[0]
}
