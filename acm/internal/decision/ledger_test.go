package decision

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/facts"
)

const expires = 30 * time.Second

var t0 = unix(1764547200)

func step(pod string) Step {
	return Step{Operation: "dep-" + pod, Type: Deployment, Stage: StageRemove, Set: "a", Pod: pod, Index: int(pod[len(pod)-1] - '0')}
}

func waitingFor(pod string) Instance {
	return Instance{Step: step(pod), State: Waiting, WaitingSince: t0, Key: "k"}
}

// request of session 1 with the pods waiting.
func request(number uint64, instances ...Instance) *State {
	return &State{
		Application: ApplicationRef{Name: "a", Namespace: "d", Policy: "a"}, Session: Session{ID: "s1", Term: 1, Age: time.Hour},
		RequestNumber: number, MaxUnavailable: 1, Instances: instances,
		Sets: []Set{{Name: "a", Wanted: []facts.Range{{First: 0, Last: 4}}, EverAvailable: []facts.Range{{First: 0, Last: 4}}, MaxUnavailable: 1}},
	}
}

// approve opens the request and approves its first instance.
func approve(t *testing.T, l *Ledger, s *State, id string, now time.Time) *Answer {
	t.Helper()
	o := l.Open(s, now)
	require.NotNil(t, o.Flight, "%+v", o)
	l.Reserve(o.Flight, &s.Instances[0], id, false, now)
	a := &Answer{SessionID: s.Session.ID, RequestNumber: s.RequestNumber, Decisions: []Decision{{ID: id, Step: s.Instances[0].Step, Judgement: Judgement{Verdict: Approve}, ExpiresAfter: expires}}}
	l.Close(a)
	return a
}

func podsInFlight(o Opening) []string {
	out := []string{}
	for pod := range o.Flight.Steps() {
		out = append(out, pod)
	}
	return out
}

func TestGR09_TheSameNumberGetsTheSameAnswerAndOneReservedSlot(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	a := approve(t, l, request(1, waitingFor("a-1")), "d1", t0)
	again := l.Open(request(1, waitingFor("a-1")), t0.Add(10*time.Second))
	require.Same(t, a, again.Repeat)
	require.Len(t, l.Reservations(), 1)
	require.Equal(t, t0.Add(10*time.Second).Add(expires), l.Reservations()[0].ExpiresAt, "the operator counts from its later send")
}

func TestGR02_AHigherNumberReleasesWhatNobodyHolds(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	approve(t, l, request(1, waitingFor("a-1")), "d1", t0)
	o := l.Open(request(2, waitingFor("a-2")), t0.Add(time.Second))
	require.Empty(t, podsInFlight(o))
	require.Empty(t, l.Reservations())
	late := l.Open(request(1, waitingFor("a-1")), t0.Add(2*time.Second))
	require.Equal(t, CodeSessionSuperseded, late.Refused.Code, "an older number is not answered any more")
	l.Close(&Answer{SessionID: "s1", RequestNumber: 1})
	require.Nil(t, l.Open(request(2), t0).Repeat, "a late answer to an older request is not the newer one's")
}

func TestAHeldApprovalStaysInFlightUntilItIsAGrant(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	approve(t, l, request(1, waitingFor("a-1")), "d1", t0)
	s := request(2, waitingFor("a-1"), waitingFor("a-2"))
	s.Holding = []Holding{{Step: step("a-1"), DecisionID: "d1"}}
	o := l.Open(s, t0.Add(time.Second))
	require.Equal(t, []string{"a-1"}, podsInFlight(o))
	require.Equal(t, Approved, o.Flight.byPod["a-1"].State)
	require.InDelta(t, Unix(t0.Add(expires)), *o.Flight.byPod["a-1"].ExpiresAt, 0)
	held := l.Held(step("a-1"), t0.Add(time.Second))
	require.Equal(t, "d1", held.ID)
	require.Equal(t, expires-time.Second, held.ExpiresAfter, "answered again with the time that is left")
	require.Nil(t, l.Held(step("a-1"), t0.Add(expires)), "an expired approval is judged anew")
	l.Close(&Answer{SessionID: "s1", RequestNumber: 2})

	granted := waitingFor("a-1")
	granted.State, granted.DecisionID, granted.StateSince = Granted, "d1", t0
	o = l.Open(request(3, granted), t0.Add(2*time.Second))
	require.Equal(t, Running, o.Flight.byPod["a-1"].State)
	require.Nil(t, o.Flight.byPod["a-1"].ExpiresAt)
	require.Empty(t, l.Reservations(), "a reported grant needs no reservation")
}

func TestAnActOfUnknownOutcomeDoesNotExpire(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	approve(t, l, request(1, waitingFor("a-1")), "d1", t0)
	s := request(2)
	s.Holding = []Holding{{Step: step("a-1"), DecisionID: "d1", OutcomeUnknown: true}}
	o := l.Open(s, t0.Add(time.Hour))
	require.Equal(t, []string{"a-1"}, podsInFlight(o))
	require.Equal(t, Running, o.Flight.byPod["a-1"].State)
}

func TestAnEarlierSessionsApprovalCountsUntilItExpires(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	approve(t, l, request(1, waitingFor("a-1")), "d1", t0)
	next := request(1, waitingFor("a-2"))
	next.Session = Session{ID: "s2", Term: 2, Age: time.Second}
	o := l.Open(next, t0.Add(time.Second))
	require.Equal(t, []string{"a-1"}, podsInFlight(o), "the old leader may still act on it")
	next.RequestNumber = 2
	o = l.Open(next, t0.Add(expires))
	require.Empty(t, podsInFlight(o))
	old := l.Open(request(2, waitingFor("a-1")), t0.Add(expires))
	require.Equal(t, CodeSessionSuperseded, old.Refused.Code)
}

func TestAnEarlierSessionsApprovalOutlivesANewOneOfTheSamePod(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	approve(t, l, request(1, waitingFor("a-1")), "d1", t0)
	next := request(1, waitingFor("a-1"))
	next.Session = Session{ID: "s2", Term: 2, Age: time.Second}
	approve(t, l, next, "d2", t0.Add(time.Second))
	withdrawn := request(2, waitingFor("a-2"))
	withdrawn.Session = next.Session
	require.Equal(t, []string{"a-1"}, podsInFlight(l.Open(withdrawn, t0.Add(2*time.Second))), "d1 is still good")
}

func TestOfTwoSessionsInOneTermTheOlderDoesNotComeBack(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	l.Open(request(1), t0)
	other := request(1)
	other.Session.ID = "s1b"
	require.NotNil(t, l.Open(other, t0).Flight)
	require.Equal(t, CodeSessionSuperseded, l.Open(request(2), t0).Refused.Code)
}

func TestALedgerThatMayMissApprovalsWaitsForThemToExpire(t *testing.T) {
	young := func(age time.Duration) *State {
		s := request(1, waitingFor("a-1"))
		s.Session.Age = age
		return s
	}
	enough := expires + LedgerMargin
	for name, c := range map[string]struct {
		first    bool
		age, old time.Duration
		starting bool
	}{
		"the Lease's first term":         {true, 0, 0, false},
		"a young session":                {false, enough - time.Second, 0, true},
		"an old session":                 {false, enough, 0, false},
		"a young session, an old ledger": {false, time.Second, enough, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(expires, 3, c.first, t0)
			o := l.Open(young(c.age), t0.Add(c.old))
			if c.starting {
				require.Equal(t, CodeACMStarting, o.Refused.Code)
			} else {
				require.NotNil(t, o.Flight)
			}
		})
	}
}

func TestAnApprovalOfAnEarlierACMIsLearnedFromHolding(t *testing.T) {
	l := NewLedger(expires, 2, false, t0)
	s := request(7, waitingFor("a-2"))
	s.Holding = []Holding{{Step: step("a-1"), DecisionID: "before"}}
	require.Equal(t, []string{"a-1"}, podsInFlight(l.Open(s, t0)))
	require.Nil(t, l.Held(step("a-1"), t0), "it was not this ledger's answer")
}

func TestADenyIsParkedUntilKeyRevisionOverridesOrTimeChange(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	i := waitingFor("a-1")
	l.Open(request(1, i), t0)
	l.Park(&i, Decision{ID: "d", Judgement: Judgement{Verdict: Deny}}, "r1", "", t0)
	parked := l.Parked(&i, "r1", "", t0.Add(time.Minute))
	require.NotNil(t, parked)
	require.Equal(t, DenyRetry-time.Minute, parked.RetryAfter)
	require.Nil(t, l.Parked(&i, "r2", "", t0.Add(time.Minute)))
	require.Nil(t, l.Parked(&i, "r1", "quorum@x", t0.Add(time.Minute)))
	require.Nil(t, l.Parked(&i, "r1", "", t0.Add(DenyRetry)))
	changed := i
	changed.Key = "k2"
	require.Nil(t, l.Parked(&changed, "r1", "", t0.Add(time.Minute)))
	l.Park(&i, Decision{Judgement: Judgement{Verdict: Deny, RetryAfter: 30 * time.Second}}, "r1", "", t0)
	require.Nil(t, l.Parked(&i, "r1", "", t0.Add(30*time.Second)), "the policy's own retry_after counts")
	l.Open(request(2), t0)
	require.Nil(t, l.Parked(&i, "r1", "", t0), "an instance that is gone is forgotten")
}

func TestHistoryIsNewestFirstBoundedAndTellsFromWhenItIsComplete(t *testing.T) {
	l := NewLedger(expires, 1, true, t0)
	o := l.Open(request(1), t0)
	for n := range historyLimit + 5 {
		i := waitingFor("a-1")
		l.Reserve(o.Flight, &i, fmt.Sprint(n), false, t0.Add(time.Duration(n)*time.Second))
	}
	now := t0.Add((historyLimit + 5) * time.Second)
	h := l.History(now)
	require.Len(t, h.Approved, historyLimit)
	require.Greater(t, h.Approved[0], h.Approved[1])
	require.InDelta(t, h.Approved[historyLimit-1], h.Since, 0)
	later := l.History(now.Add(historyLength - 3*time.Second))
	require.Len(t, later.Approved, 3)
	require.InDelta(t, Unix(now.Add(-3*time.Second)), later.Since, 0)
}
