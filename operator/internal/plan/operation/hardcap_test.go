package operation

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/operator/api/v1alpha1"
)

func TestAHealthyPodIsTakenOnlyWithinTheBudgetAndADownOneIsRepairedWithoutSpendingItTwice(t *testing.T) {
	for name, c := range map[string]struct {
		limit                int32
		unavailable, repairs int
		down, want           bool
	}{
		"nothing is down":      {1, 0, 0, false, true},
		"one is down":          {1, 1, 0, false, false},
		"the one that is down": {1, 1, 0, true, true},
		"one is down and repaired, a second repair": {1, 2, 1, true, false},
		"all are down, first repair":                {1, 3, 0, true, true},
		"two of two repaired":                       {2, 3, 2, true, false},
		"a repair with room left":                   {3, 1, 3, true, true},
		"one of two is down":                        {2, 1, 0, false, true},
		"a budget of zero counts as one":            {0, 0, 0, false, true},
	} {
		b := newBudget(c.limit)
		for i := range c.unavailable {
			b.unavailable[at{"db", int32(i)}] = true
		}
		for i := range c.repairs {
			b.repairs[at{"db", int32(i)}] = true
		}
		require.Equal(t, c.want, b.allows(c.down), name)
	}
}

func TestBothTheSetsAndTheApplicationsBudgetHaveToAllow(t *testing.T) {
	c := &caps{sets: map[string]*budget{"a": newBudget(2), "b": newBudget(2)}, application: newBudget(2)}
	ok, _ := c.allows(at{"a", 0}, false)
	require.True(t, ok)
	c.spend(at{"a", 0}, false)
	c.miss(at{"b", 0})
	ok, why := c.allows(at{"b", 1}, false)
	require.False(t, ok)
	require.Equal(t, "2 of at most 2 pods of the application are unavailable or in flight; granted once one is available again", why)
	c.miss(at{"b", 1})
	_, why = c.allows(at{"b", 2}, false)
	require.Equal(t, "2 of at most 2 pods of set b are unavailable or in flight; granted once one is available again", why)
	ok, _ = c.allows(at{"c", 0}, false)
	require.False(t, ok, "a set that nobody knows has no budget")
}

// fleet is any application of two sets, with any of its pods down or never started, and all of them to be updated.
func fleet(t *rapid.T) *store {
	w := app()
	for _, set := range []string{"a", "b"} {
		n := int32(rapid.IntRange(1, 6).Draw(t, "replicas "+set))
		limit := rapid.SampledFrom([]string{"1", "2", "3", "20%", "100%"}).Draw(t, "limit "+set)
		w.set(set, n, "r1", maxUnavailable(limit))
		for i := range n {
			switch rapid.IntRange(0, 4).Draw(t, "pod") {
			case 0:
				w.running(set, "r1", i).fail(v1alpha1.PodName(set, i, 0))
			case 1:
				w.running(set, "r1", i).fail(v1alpha1.PodName(set, i, 0))
				w.identity(v1alpha1.PodName(set, i, 0)).Status.EverAvailable = false
			case 2:
				w.running(set, "r1", i).stop(v1alpha1.PodName(set, i, 0))
			default:
				w.running(set, "r1", i)
			}
		}
		w.stage(set, "r2")
		indices := make([]int32, n)
		for i := range n {
			indices[i] = i
		}
		w.order(set, v1alpha1.Deployment, 1, "r2", indices...)
	}
	return w
}

// down counts, per set and over all, the pods that were available once and are not, or are being taken down.
func down(w *store) (bySet map[string]int, all int) {
	bySet = map[string]int{}
	world := newWorld(w.Input)
	for i := range w.Identities {
		s := &w.Identities[i]
		if s.Status.EverAvailable && (!world.up(s) || world.inFlight(s)) {
			bySet[s.Spec.Set]++
			all++
		}
	}
	return bySet, all
}

func TestWhateverTheACMApprovesNoHealthyPodIsTakenBeyondTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := fleet(t)
		for i := range w.Operations {
			for _, inst := range w.Operations[i].Spec.Instances {
				w.approve("d-"+inst.Pod, w.Operations[i].Name, inst.Pod)
			}
		}
		before := newWorld(w.Input)
		p := w.step()
		bySet, all := down(w)
		repairs := map[string]int32{}
		for _, g := range p.Grants {
			if g.Identity.Spec.Grant.Repair {
				repairs[g.Set]++
				require.False(t, before.available(at{g.Set, g.Index}))
				continue
			}
			require.LessOrEqual(t, bySet[g.Set], int(before.maxUnavailable(g.Set)))
			require.LessOrEqual(t, all, int(before.applicationMaxUnavailable()))
		}
		for set, n := range repairs {
			require.LessOrEqual(t, n, before.maxUnavailable(set))
		}
		require.Empty(t, Make(w.Input).Grants, "a plan after it was carried out is empty")
	})
}

func TestEveryFleetIsUpdatedInTheEndWithoutEverPassingTheCap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := fleet(t)
		sequence := 0
		for range 60 {
			p := Make(w.Input)
			waiting := asks(p)
			if len(waiting) == 0 && !p.Open {
				break
			}
			for _, i := range p.Question.Instances {
				if i.State == v1alpha1.Waiting {
					sequence++
					w.approve(rapid.StringMatching("[a-z]{8}").Draw(t, "decision"), i.Operation, i.Pod)
				}
			}
			p = w.step()
			for _, g := range p.Grants {
				w.act(g.Identity.Name)
			}
			w.step()
		}
		for i := range w.Operations {
			require.True(t, w.Operations[i].Ended(), states(Make(w.Input), w, w.Operations[i].Name))
		}
		for i := range w.Identities {
			require.Equal(t, "r2", w.Identities[i].Spec.Revision)
		}
	})
}
