package decision

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/acm/internal/facts"
)

// seen is a snapshot of set a with indices 0..4; those named down are not available.
func seen(t require.TestingT, down ...int) *facts.Snapshot {
	pods := map[string]*facts.Pod{}
	for i := range 5 {
		p := &facts.Pod{Set: "a", Index: i, Phase: "Running", Ready: true, Available: true, Since: 1}
		for _, d := range down {
			if d == i {
				p.Ready, p.Available = false, false
			}
		}
		pods[step("a-"+string(rune('0'+i))).Pod] = p
	}
	s := facts.NewStore(nil).Apply(facts.Changes{At: 1, Pods: pods, Expect: request(1).Expectations()})
	require.Equal(t, len(down), s.Index().Unavailable.Len())
	return s
}

func asked(pod string, t Type, cause string, since, deadline time.Duration) Instance {
	i := waitingFor(pod)
	i.Type, i.Cause, i.WaitingSince = t, cause, t0.Add(since)
	i.Operation = string(t) + "-" + pod
	if t == ScaleOut {
		i.Stage = StageAdd
	}
	if deadline > 0 {
		i.Deadline = t0.Add(deadline)
	}
	return i
}

func TestTheOrderOfABatchIsTheProtocols(t *testing.T) {
	want := []Instance{
		asked("a-4", Deployment, "rollout", 9, 0), // its pod is in flight
		asked("a-3", Deployment, "rollout", 9, 0), // its pod is down
		asked("a-0", Disruption, "maintenance", 9, time.Minute),
		asked("a-1", Disruption, "maintenance", 1, time.Hour),
		asked("a-1", Disruption, "eviction", 1, 0),
		asked("a-2", ScaleIn, "edit", 9, 0),
		asked("a-2", Swap, "edit", 9, 0),
		asked("a-0", Deployment, "rollout", 1, 0),
		asked("a-2", Deployment, "rollout", 2, 0),
		asked("a-1", Deployment, "rollout", 2, 0),
		asked("b-0", ScaleOut, "edit", 0, 0),
	}
	flight := NewFlight()
	flight.add(step("a-4"), &InFlight{}, false)
	snapshot := seen(t, 3)
	rapid.Check(t, func(t *rapid.T) {
		s := request(1, rapid.Permutation(want).Draw(t, "as requested")...)
		var got, pods []string
		for _, i := range Order(s, snapshot, flight) {
			got = append(got, i.Operation+i.Cause)
		}
		for _, i := range want {
			pods = append(pods, i.Operation+i.Cause)
		}
		require.Equal(t, pods, got)
	})
}

func TestWhatIsInFlightIsNotAskedAgain(t *testing.T) {
	running, denied := waitingFor("a-1"), waitingFor("a-2")
	running.State, denied.State = Verifying, Denied
	got := Order(request(1, running, denied), seen(t), NewFlight())
	require.Len(t, got, 1)
	require.Equal(t, "a-2", got[0].Pod)
}

func TestTheCapCountsTheUnavailableAndTheInFlightOnce(t *testing.T) {
	for name, c := range map[string]struct {
		down    []int
		flight  []string
		repairs []string
		limit   int
		pod     string
		podDown bool
		blocked bool
	}{
		"all well":                              {pod: "a-1", limit: 1},
		"another is down":                       {down: []int{2}, pod: "a-1", limit: 1, blocked: true},
		"another is in flight":                  {flight: []string{"a-2"}, pod: "a-1", limit: 1, blocked: true},
		"down and in flight is one":             {down: []int{2}, flight: []string{"a-2"}, pod: "a-1", limit: 2},
		"two of two are gone":                   {down: []int{2}, flight: []string{"a-3"}, pod: "a-1", limit: 2, blocked: true},
		"a pod that is down may be repaired":    {down: []int{1, 2}, pod: "a-1", podDown: true, limit: 1},
		"but not more repairs than the limit":   {down: []int{1, 2}, flight: []string{"a-2"}, repairs: []string{"a-2"}, pod: "a-1", podDown: true, limit: 1, blocked: true},
		"its own promise costs nothing further": {flight: []string{"a-1"}, pod: "a-1", limit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			flight := NewFlight()
			for _, pod := range c.flight {
				repair := false
				for _, r := range c.repairs {
					repair = repair || r == pod
				}
				e := entryOf(step(pod), "", false)
				flight.add(step(pod), &e, repair)
			}
			s := request(1)
			s.MaxUnavailable, s.Sets[0].MaxUnavailable = c.limit, c.limit
			why, first := NewCap(s, seen(t, c.down...), flight).Blocks(step(c.pod), c.podDown)
			require.Equal(t, c.blocked, why != "", why)
			require.Equal(t, c.blocked, first)
		})
	}
}

func TestOnlyTheFirstInstanceThatASpentCapMeetsIsShown(t *testing.T) {
	s := request(1)
	c := NewCap(s, seen(t, 2), NewFlight())
	_, first := c.Blocks(step("a-1"), false)
	require.True(t, first)
	why, first := c.Blocks(step("a-3"), false)
	require.False(t, first)
	require.Contains(t, why, "1 of set a's pods")
	out := step("a-4")
	out.Type, out.Stage = ScaleOut, StageAdd
	why, _ = c.Blocks(out, false)
	require.Empty(t, why, "an addition takes nobody down")
}

func TestThePodLockIsToldBeforeThePolicyIsAsked(t *testing.T) {
	other := func(t Type, state InstanceState) Instance {
		i := waitingFor("a-1")
		i.Operation, i.Type, i.State = "other", t, state
		return i
	}
	for name, c := range map[string]struct {
		holder Instance
		asks   Type
		down   bool
		busy   bool
	}{
		"granted never yields":                     {other(Deployment, Granted), Disruption, true, true},
		"acting never yields":                      {other(Deployment, Acting), Swap, true, true},
		"holding yields to a swap":                 {other(Disruption, Holds), Swap, true, false},
		"holding yields to a scale-in":             {other(Disruption, Holds), ScaleIn, true, false},
		"holding keeps a deployment out":           {other(Disruption, Holds), Deployment, true, true},
		"verifying and unavailable yields":         {other(Deployment, Verifying), Deployment, true, false},
		"verifying and available finishes first":   {other(Deployment, Verifying), Deployment, false, true},
		"what only waits keeps nobody from asking": {other(Deployment, Waiting), Disruption, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := request(1, c.holder)
			l := NewLedger(expires, 1, true, t0)
			snapshot := seen(t)
			if c.down {
				snapshot = seen(t, 1)
			}
			ask := step("a-1")
			ask.Type = c.asks
			require.Equal(t, c.busy, l.Flight(s).Busy(s, snapshot, ask) != "")
		})
	}
}

func TestARequestThatCannotBeJudgedIsMalformed(t *testing.T) {
	for name, spoil := range map[string]func(*State){
		"no application":             func(s *State) { s.Application.Name = "" },
		"no session":                 func(s *State) { s.Session.ID = "" },
		"no number":                  func(s *State) { s.RequestNumber = 0 },
		"no application cap":         func(s *State) { s.MaxUnavailable = 0 },
		"no set cap":                 func(s *State) { s.Sets[0].MaxUnavailable = 0 },
		"a set twice":                func(s *State) { s.Sets = append(s.Sets, s.Sets[0]) },
		"an unknown step in flight":  func(s *State) { s.Instances[0].State, s.Instances[0].Stage = Acting, "" },
		"a holding without decision": func(s *State) { s.Holding = []Holding{{Step: step("a-2")}} },
	} {
		t.Run(name, func(t *testing.T) {
			s := request(1, waitingFor("a-1"))
			require.Nil(t, s.Check())
			spoil(s)
			require.NotNil(t, s.Check())
			require.Equal(t, CodeACMMalformed, s.Check().Code)
		})
	}
	s := request(1, waitingFor("a-1"))
	require.Nil(t, s.CheckInstance(&s.Instances[0]))
	for name, spoil := range map[string]func(*Instance){
		"type": func(i *Instance) { i.Type = "deploy" }, "stage": func(i *Instance) { i.Stage = StageAdd },
		"set": func(i *Instance) { i.Set = "b" }, "state": func(i *Instance) { i.State = "Failed" }, "pod": func(i *Instance) { i.Pod = "" },
	} {
		i := waitingFor("a-1")
		spoil(&i)
		require.NotNil(t, s.CheckInstance(&i), name)
	}
}
