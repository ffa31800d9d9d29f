package judge

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

func TestDI02_OfTwoStepsThatAreSafeAloneOneIsApproved(t *testing.T) {
	c := convene(t)
	drain := waits(1)
	drain.Type, drain.Operation = decision.Disruption, "drain"
	got := verdicts(c.ask(waits(2), drain))
	require.Equal(t, map[string]decision.Verdict{"a-1": decision.Approve, "a-2": decision.Defer}, got)
}

// A thousand times, two callers at once repeat one question while facts change: one approval.
func TestDI02_AThousandParallelRepeatsReserveOneSlot(t *testing.T) {
	for range 1000 {
		c := convene(t)
		c.settle(waits(1), waits(2))
		s := c.request(waits(1), waits(2))
		answers := make([]decision.Answer, 4)
		var all sync.WaitGroup
		for n := range answers {
			all.Go(func() { answers[n] = c.judge.Evaluate(context.Background(), s) })
		}
		all.Go(c.collect)
		all.Go(func() {
			c.judge.Preview(context.Background(), Query{Application: s.Application, Type: decision.Disruption, Pods: []string{"a-3"}})
		})
		all.Wait()
		approved := 0
		for _, d := range answers[0].Decisions {
			if d.Verdict == decision.Approve {
				approved++
			}
		}
		require.Equal(t, 1, approved)
		for _, a := range answers[1:] {
			require.Equal(t, answers[0], a, "GR-09: the same number gets the same answer")
		}
		seen, err := c.judge.Inspect(context.Background())
		require.NoError(t, err)
		require.Len(t, seen.Reservations, 1)
	}
}

func TestDI02_TwoRequestsAtOnceNeverLeaveTwoApprovalsInForce(t *testing.T) {
	for range 200 {
		c := convene(t)
		c.settle(waits(2), waits(1))
		first, second := c.request(waits(2), waits(1)), c.request(waits(2))
		var a, b decision.Answer
		var all sync.WaitGroup
		all.Go(func() { a = c.judge.Evaluate(context.Background(), first) })
		all.Go(func() { b = c.judge.Evaluate(context.Background(), second) })
		all.Wait()
		require.Equal(t, decision.Approve, b.Decisions[0].Verdict)
		seen, err := c.judge.Inspect(context.Background())
		require.NoError(t, err)
		require.Len(t, seen.Reservations, 1)
		require.Equal(t, b.Decisions[0].ID, seen.Reservations[0].DecisionID, "the higher number voids %v", a.Decisions)
	}
}

func TestDI12_CaughtUpIsWhatCountsAndReachesThePolicyAsAFact(t *testing.T) {
	c := convene(t)
	c.settle(waits(1))
	yes, no := true, false
	members := map[string]*facts.Member{}
	for i := range 5 {
		members[pod(i)] = &facts.Member{Voter: &yes, Healthy: &yes, CaughtUp: &yes, Unknown: map[string]string{}}
	}
	members["a-3"].CaughtUp = &no
	c.facts.Apply(facts.Changes{Reports: []facts.Report{{Collector: "x", OK: true, AsOf: decision.Unix(c.clock.Now()), Facts: &facts.Facts{Members: members}}}})
	var q *decision.Question
	c.policy.answer = func(got *decision.Question, _ *facts.Snapshot) decision.Outcome {
		q = got
		return decision.Outcome{Approve: true}
	}
	c.judge.Evaluate(context.Background(), c.request(waits(1)))
	require.Equal(t, decision.Names{Count: 1, Examples: []string{"a-3"}}, q.Target.Others.Lagging)
	require.Equal(t, 5, q.Target.Quorum.Up, "Ready and healthy, all the same")
}

func TestDI11_TheElectionReachesThePolicyAsItStands(t *testing.T) {
	c := convene(t)
	c.settle(waits(1))
	var q *decision.Question
	c.policy.answer = func(got *decision.Question, _ *facts.Snapshot) decision.Outcome {
		q = got
		return decision.Outcome{}
	}
	for _, e := range []*facts.Election{nil, {InProgress: true, Since: 3}, {Since: 4}, {Leader: "a-1", Since: 5}} {
		c.facts.Apply(facts.Changes{Reports: []facts.Report{{Collector: "x", OK: true, AsOf: decision.Unix(c.clock.Now()), Facts: &facts.Facts{Replace: true, Election: e}}}})
		c.judge.Evaluate(context.Background(), c.request(waits(1)))
		require.Equal(t, e, q.Election)
		require.Equal(t, e != nil && e.Leader == "a-1", q.Target.IsLeader)
	}
}

func TestAnApprovalNeedsFactsFromAfterTheLastStep(t *testing.T) {
	c := convene(t)
	c.cap = 2
	c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome { return decision.Outcome{Approve: true} }
	c.settle()
	c.clock.Step(time.Second)
	before := c.facts.refreshed.Load()
	d := one(t, c.judge.Evaluate(context.Background(), c.request(runs(4, "d0"), waits(1))).Decisions)
	require.Equal(t, []string{decision.CodeFactsBehind}, codes(d))
	require.Equal(t, before+1, c.facts.refreshed.Load(), "and they are collected at once")
	require.Empty(t, c.nudges)
	c.clock.Step(time.Millisecond)
	c.collect()
	require.Equal(t, []string{CauseFacts}, c.nudges, "and the operator is told")
	d = one(t, c.judge.Evaluate(context.Background(), c.request(runs(4, "d0"), waits(1))).Decisions)
	require.Equal(t, decision.Approve, d.Verdict)
}

// A node loses power while the set is paused and nothing is asked: what was seen before the question must not answer it.
func TestDI13_AQuestionIsNotAnsweredByFactsFromBeforeItWasAsked(t *testing.T) {
	c := convene(t)
	c.settle()
	first := one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	require.Equal(t, []string{decision.CodeFactsBehind}, codes(first))
	require.Positive(t, c.facts.refreshed.Load(), "new facts are collected at once")
	c.clock.Step(time.Millisecond)
	c.collect()
	require.Equal(t, decision.Approve, one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions).Verdict)
	c.judge.Evaluate(context.Background(), c.request())
	c.clock.Step(time.Millisecond)
	again := one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	require.Equal(t, []string{decision.CodeFactsBehind}, codes(again), "asked anew after a pause")
}

func TestAPodsReadinessOrUIDIsAFlightChangeToo(t *testing.T) {
	for name, change := range map[string]func(*decision.State){
		"uid":   func(s *decision.State) { s.Pods[3].UID = "new" },
		"ready": func(s *decision.State) { s.Pods[3].Ready = false },
	} {
		t.Run(name, func(t *testing.T) {
			c := convene(t)
			c.settle()
			c.clock.Step(time.Second)
			s := c.request(waits(1))
			change(s)
			require.Equal(t, []string{decision.CodeFactsBehind}, codes(one(t, c.judge.Evaluate(context.Background(), s).Decisions)))
		})
	}
}

func TestKubernetesFactsMustReachWhatTheOperatorHasSeen(t *testing.T) {
	c := convene(t)
	c.settle(waits(1))
	s := c.request(waits(1))
	s.Pods[2].ResourceVersion = "77"
	require.Equal(t, []string{decision.CodeFactsBehind}, codes(one(t, c.judge.Evaluate(context.Background(), s).Decisions)))
	c.rv = 77
	c.collect()
	require.Subset(t, []string{CauseFacts}, c.nudges)
	require.NotEmpty(t, c.nudges)
	require.Equal(t, decision.Approve, one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions).Verdict)
}

// What keeps a verdict from being given, and with which code.
func TestPO06_FactsThatAreMissingStaleOrFailingDeferBeforeThePolicyIsAsked(t *testing.T) {
	report := func(c *court, r facts.Report) { c.facts.Apply(facts.Changes{Reports: []facts.Report{r}}) }
	for name, c := range map[string]struct {
		spoil     func(*court)
		available string
		whenDown  string
	}{
		"an application collector that never came": {func(c *court) { c.policy.manifest.Collectors["y"] = CollectorSpec{MaxAge: time.Hour} }, decision.CodeFactsMissing, ""},
		"one that fails":             {func(c *court) { report(c, facts.Report{Collector: "x", Error: "boom"}) }, decision.CodeFactsMissing, ""},
		"one that is too old":        {func(c *court) { c.clock.Step(6 * time.Second) }, decision.CodeFactsStale, ""},
		"kubernetes that fails":      {func(c *court) { report(c, facts.Report{Collector: facts.Kubernetes, Error: "forbidden"}) }, decision.CodeFactsMissing, decision.CodeFactsMissing},
		"kubernetes that is too old": {func(c *court) { c.clock.Step(11 * time.Second) }, decision.CodeFactsStale, decision.CodeFactsStale},
	} {
		t.Run(name, func(t *testing.T) {
			court := convene(t)
			court.down[2] = true
			court.settle(waits(1), waits(2))
			c.spoil(court)
			asked := court.policy.asked.Load()
			got := map[string]decision.Decision{}
			for _, d := range court.judge.Evaluate(context.Background(), court.request(waits(1), waits(2))).Decisions {
				got[d.Pod] = d
			}
			require.Equal(t, []string{c.available}, codes(got["a-1"]))
			if c.whenDown != "" {
				require.Equal(t, []string{c.whenDown}, codes(got["a-2"]))
				require.Equal(t, asked, court.policy.asked.Load())
			} else {
				require.Equal(t, decision.Approve, got["a-2"].Verdict, "a pod that is down may be repaired without them: %v", got["a-2"].Reasons)
			}
		})
	}
}

func TestWhatAStaleCollectorKnewIsUnknownToARepair(t *testing.T) {
	c := convene(t)
	c.down[2] = true
	yes := true
	c.settle()
	c.facts.Apply(facts.Changes{Reports: []facts.Report{{Collector: "x", OK: true, AsOf: decision.Unix(c.clock.Now()), Facts: &facts.Facts{
		Replace: true, Members: map[string]*facts.Member{"a-2": {Voter: &yes, Unknown: map[string]string{}}}, Election: &facts.Election{Leader: "a-1"},
	}}}})
	c.clock.Step(6 * time.Second)
	var q *decision.Question
	c.policy.answer = func(got *decision.Question, s *facts.Snapshot) decision.Outcome {
		q = got
		require.Nil(t, s.Members())
		return decision.Outcome{}
	}
	c.judge.Evaluate(context.Background(), c.request(waits(2)))
	require.Nil(t, q.Target.Member)
	require.Nil(t, q.Target.Quorum)
	require.Nil(t, q.Election)
	require.NotNil(t, c.facts.Snapshot().Members(), "facts themselves stay as they are")
}

func TestAnAdditionIsAskedWithUnknownFacts(t *testing.T) {
	c := convene(t)
	c.clock.Step(time.Minute)
	in := waits(4)
	in.Type, in.Stage = decision.ScaleOut, decision.StageAdd
	require.Equal(t, decision.Approve, one(t, c.judge.Evaluate(context.Background(), c.request(in)).Decisions).Verdict)
	fresh := New(c.judge.Deps)
	fresh.Facts = &pushed{Store: facts.NewStore(nil)}
	fresh.Begin(0, true)
	d := one(t, fresh.Evaluate(context.Background(), c.request(in)).Decisions)
	require.Equal(t, []string{decision.CodeFactsMissing}, codes(d), "but nothing goes before pods have ever been listed")
}

func TestTheHardCapShowsThePolicysReasonsForTheFirstAndAnswersTheRestAlone(t *testing.T) {
	c := convene(t)
	c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome { return decision.Outcome{Approve: true} }
	c.settle(runs(0, "d0"), waits(1), waits(2), waits(3))
	asked := c.policy.asked.Load()
	ds := c.judge.Evaluate(context.Background(), c.request(runs(0, "d0"), waits(1), waits(2), waits(3))).Decisions
	require.Len(t, ds, 3)
	for _, d := range ds {
		require.Equal(t, decision.Defer, d.Verdict)
		require.Equal(t, []string{decision.CodeCapFull}, codes(d))
	}
	require.Equal(t, asked+1, c.policy.asked.Load())
}

func TestUnchangedQuestionsRepeatTheirDefersWithoutThePolicy(t *testing.T) {
	c := convene(t)
	c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome {
		return decision.Outcome{Defer: []any{map[string]any{"code": "pace.soak", "message": "soaking", "retry_after": 3.0}}}
	}
	c.settle(waits(1))
	first := one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	c.clock.Step(2 * time.Second)
	again := one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	require.Equal(t, first.ID, again.ID)
	c.clock.Step(time.Second)
	later := one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	require.NotEqual(t, first.ID, later.ID, "its retry_after has passed")
	c.policy.revision = "r2"
	other := one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	require.NotEqual(t, later.ID, other.ID, "the bundle changed")
}

func TestADenialIsParkedAndAnsweredAgainOnlyToWhoeverWaits(t *testing.T) {
	c := convene(t)
	c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome {
		return decision.Outcome{Deny: []any{map[string]any{"code": "a.never", "message": "no"}}}
	}
	d := one(t, c.ask(waits(1)))
	require.Equal(t, decision.Deny, d.Verdict)
	require.Equal(t, decision.DenyRetry, d.RetryAfter)
	asked := c.policy.asked.Load()
	parked := waits(1)
	parked.State = decision.Denied
	require.Empty(t, c.judge.Evaluate(context.Background(), c.request(parked)).Decisions)
	require.Equal(t, d.ID, one(t, c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions).ID, "the operator has lost the answer")
	require.Equal(t, asked, c.policy.asked.Load())
	c.policy.answer, c.policy.revision = oneAtATime, "r2"
	require.Equal(t, decision.Approve, one(t, c.judge.Evaluate(context.Background(), c.request(parked)).Decisions).Verdict, "a new bundle is a new answer")
}

func TestPO11_MachineryAndSilenceHaveCodesOfTheirOwnAndNoneApproves(t *testing.T) {
	given := map[string]decision.Decision{}
	take := func(ds []decision.Decision) {
		for _, d := range ds {
			for _, r := range d.Reasons {
				given[r.Code] = d
			}
		}
	}
	for _, code := range []string{decision.CodePolicyUndefined, decision.CodePolicyConflict, decision.CodePolicyError, decision.CodePolicyTimeout} {
		c := convene(t)
		c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome {
			return decision.Outcome{Approve: true, Err: &decision.MachineryError{Code: code, Message: "m"}}
		}
		take(c.ask(waits(1)))
	}
	for _, outcome := range []decision.Outcome{{}, {Approve: "yes"}} {
		c := convene(t)
		c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome { return outcome }
		take(c.ask(waits(1)))
	}
	for _, code := range []string{decision.CodeBundleMissing, decision.CodeBundleInvalid} {
		c := convene(t)
		c.judge.Policies = noPolicy{decision.MachineryError{Code: code, Message: "PO-10"}}
		take(c.ask(waits(1)))
	}
	c := convene(t)
	c.judge.End()
	take(c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	c.judge.Begin(1, false)
	young := c.request(waits(1))
	young.Session.Age = 0
	take(c.judge.Evaluate(context.Background(), young).Decisions)
	late, end := context.WithCancel(context.Background())
	end()
	c.judge.turn <- struct{}{}
	take(c.judge.Evaluate(late, c.request(waits(1))).Decisions)
	<-c.judge.turn
	bad := c.request(waits(1))
	bad.MaxUnavailable = 0
	take(c.judge.Evaluate(context.Background(), bad).Decisions)
	odd := waits(1)
	odd.Stage = "erase"
	take(c.ask(odd))
	c = convene(t)
	take(c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions) // behind: the first request of a term
	c.clock.Step(6 * time.Second)
	take(c.judge.Evaluate(context.Background(), c.request(waits(1))).Decisions)
	c = convene(t)
	c.policy.manifest.Collectors["y"] = CollectorSpec{}
	take(c.ask(waits(1)))
	c = convene(t)
	take(c.ask(runs(1, "d"), waits(2), waits(3)))
	busy := waits(1)
	busy.Operation = "other"
	take(c.ask(runs(1, "d"), busy))
	old := c.request(waits(1))
	old.Session = decision.Session{ID: "s0", Term: 0}
	take(c.judge.Evaluate(context.Background(), old).Decisions)

	operators := []acmv1.ReasonCode{ // the operator's own; an ACM never gives them
		acmv1.ReasonCode_REASON_CODE_ACM_UNAVAILABLE, acmv1.ReasonCode_REASON_CODE_APPLICATION_CONFLICT,
		acmv1.ReasonCode_REASON_CODE_SET_PAUSED, acmv1.ReasonCode_REASON_CODE_GRANT_EXPIRED, acmv1.ReasonCode_REASON_CODE_NOT_ASKED,
		acmv1.ReasonCode_REASON_CODE_STATE_CHANGED, acmv1.ReasonCode_REASON_CODE_POD_REFUSED,
	}
	for number := range acmv1.ReasonCode_name {
		code := acmv1.ReasonCode(number)
		if code == 0 || contains(operators, code) {
			continue
		}
		d, ok := given[code.Code()]
		require.True(t, ok, "no path of this test ends in %s", code.Code())
		require.Equal(t, decision.Defer, d.Verdict, code.Code())
	}
}

func contains(codes []acmv1.ReasonCode, code acmv1.ReasonCode) bool {
	for _, c := range codes {
		if c == code {
			return true
		}
	}
	return false
}

func TestParametersThatFailTakeTheApprovalBack(t *testing.T) {
	for name, spoil := range map[string]func(*fakePolicy){
		"malformed": func(p *fakePolicy) { p.params = map[string]any{"Bad Key": "x"} },
		"failing": func(p *fakePolicy) {
			p.fault = &decision.MachineryError{Code: decision.CodePolicyError, Message: "m"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := convene(t)
			spoil(c.policy)
			require.Equal(t, decision.Defer, one(t, c.ask(waits(1))).Verdict)
			seen, err := c.judge.Inspect(context.Background())
			require.NoError(t, err)
			require.Empty(t, seen.Reservations)
		})
	}
	c := convene(t)
	c.policy.params = map[string]any{"mode": "fast"}
	require.Equal(t, map[string]string{"mode": "fast"}, one(t, c.ask(waits(1))).Parameters)
}

func TestThePreviewReservesNothingAndCountsItsOwnApprovals(t *testing.T) {
	c := convene(t)
	c.settle()
	q := Query{Application: decision.ApplicationRef{Namespace: "d", Name: "a", Policy: "a"}, Type: decision.Disruption, Pods: []string{"a-1", "a-2"}}
	for range 2 {
		got := verdicts(c.judge.Preview(context.Background(), q).Decisions)
		require.Equal(t, map[string]decision.Verdict{"a-1": decision.Defer, "a-2": decision.Approve}, got)
	}
	seen, err := c.judge.Inspect(context.Background())
	require.NoError(t, err)
	require.Empty(t, seen.Reservations)
	require.True(t, c.log[len(c.log)-1].Preview)
	require.Equal(t, decision.Approve, one(t, c.ask(waits(1))).Verdict)
}

func TestABatchThatRunsOutOfTimeDefersTheRest(t *testing.T) {
	c := convene(t)
	c.cap = 5
	c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome {
		c.clock.Step(DefaultBatchBudget)
		return decision.Outcome{Approve: true}
	}
	ds := c.ask(waits(1), waits(2))
	require.Equal(t, decision.Approve, ds[0].Verdict)
	require.Equal(t, []string{decision.CodePolicyTimeout}, codes(ds[1]))
}

func TestEveryDecisionIsLoggedWithItsQuestion(t *testing.T) {
	c := convene(t)
	d := one(t, c.ask(waits(1)))
	e := c.log[len(c.log)-1]
	require.Equal(t, d, e.Decision)
	require.Equal(t, "a-1", e.Question.Target.Pod)
	require.Equal(t, c.number, e.Request)
}

// An answer that no fact can change must not be followed by "ask again": two processes would ask and answer without end.
func TestNobodyIsNudgedAboutWhatOnlyTimeOrABundleCanChange(t *testing.T) {
	starting := convene(t)
	starting.judge.End()
	starting.judge.Begin(2, false)
	young := func() *decision.State {
		s := starting.request(waits(1))
		s.Session.Age = time.Second
		return s
	}
	for range 5 {
		require.Equal(t, []string{decision.CodeACMStarting}, codes(one(t, starting.judge.Evaluate(context.Background(), young()).Decisions)))
		starting.collect()
	}
	require.Empty(t, starting.nudges)

	bare := convene(t)
	bare.judge.Policies = noPolicy{decision.MachineryError{Code: decision.CodeBundleMissing, Message: "none"}}
	for range 5 {
		bare.judge.Evaluate(context.Background(), bare.request(waits(1)))
		bare.collect()
	}
	require.Empty(t, bare.nudges)
	bare.judge.BundleChanged()
	require.Equal(t, []string{CauseBundle}, bare.nudges)
}

// A bundle that denied everything is mended: whoever is judged first must still see the others as waiting, or a leader goes
// before them.
func TestDI11_DeniedPeersThatAreJudgedAnewCountAsWaiting(t *testing.T) {
	c := convene(t)
	c.policy.answer = func(*decision.Question, *facts.Snapshot) decision.Outcome {
		return decision.Outcome{Deny: []any{map[string]any{"code": "a.freeze", "message": "frozen"}}}
	}
	c.ask(waits(1), waits(2))
	denied := func(i int) decision.Instance {
		in := waits(i)
		in.State = decision.Denied
		return in
	}
	peers := map[string]int{}
	c.policy.answer = func(q *decision.Question, _ *facts.Snapshot) decision.Outcome {
		peers[q.Target.Pod] = q.Target.Peers.Count
		return decision.Outcome{}
	}
	c.ask(denied(1), denied(2))
	require.Empty(t, peers, "the denials stand")
	c.policy.revision = "r2"
	c.ask(denied(1), denied(2))
	require.Equal(t, map[string]int{"a-1": 1, "a-2": 1}, peers)
}
