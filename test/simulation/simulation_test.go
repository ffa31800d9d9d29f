package simulation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/acm/inprocess"
	"assent.dev/assent/operator/api/v1alpha1"
)

const (
	// troubled is how many steps of a run have faults; patience is how many more everything may take to settle.
	troubled = 1500
	patience = 20000
)

// TestMain trades memory for time: the worlds are small and make much garbage.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// shipped is an ACM with the shipped bundles, loaded once for all worlds.
var shipped = sync.OnceValues(func() (*inprocess.ACM, error) {
	root, err := filepath.Abs("../../bundles")
	if err != nil {
		return nil, err
	}
	return inprocess.New(context.Background(), inprocess.Options{
		Bundles: root, Clock: clocktesting.NewFakeClock(epoch), EvaluationBudget: time.Minute,
	})
})

// epoch is when every world begins.
var epoch = time.Unix(1_764_547_200, 0)

// begin makes a world that runs on one of the shipped bundles.
func begin(t testing.TB, seed uint64, policy string) *World {
	t.Helper()
	loaded, err := shipped()
	require.NoError(t, err)
	require.Empty(t, loaded.Problems())
	clock, hooks := clocktesting.NewFakeClock(epoch), &acmHooks{}
	acm := loaded.Sibling(inprocess.Options{Clock: clock, Nudge: hooks.nudge, Refresh: hooks.refresh})
	w, err := newWorld(seed, policy, acm, clock, hooks)
	require.NoError(t, err)
	return w
}

// settle steps until the set is settled. It fails with the end of the log.
func (w *World) settle(ctx context.Context, t testing.TB, limit int) {
	t.Helper()
	var missing error
	for range limit {
		w.Step(ctx)
		require.Empty(t, w.watch.violations, "%s", w.Tail(120))
		if missing = w.settled(); missing == nil {
			return
		}
	}
	require.NoError(t, missing, "not settled after %d steps; the end of the log:\n%s", limit, w.Tail(120))
}

// quiet steps on for a while and requires that the operator writes nothing.
func (w *World) quiet(ctx context.Context, t testing.TB) {
	t.Helper()
	// What is under way, such as the removal of a claim from the ledger, may end first.
	for range 400 {
		w.Step(ctx)
	}
	writes := w.writes
	for range 400 {
		w.Step(ctx)
	}
	require.Equal(t, writes, w.writes, "a settled world is written to:\n%s", w.Tail(20))
}

func seeds(t *testing.T, many uint64) []uint64 {
	t.Helper()
	number := func(name string, fallback uint64) uint64 {
		text := os.Getenv(name)
		if text == "" {
			return fallback
		}
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, "%s", name)
		return n
	}
	if one := number("ASSENT_SEED", 0); one > 0 {
		return []uint64{one}
	}
	var all []uint64
	for n := range number("ASSENT_SEEDS", many) {
		all = append(all, n+1)
	}
	return all
}

// TestSimulation is the world under random faults: invariants after every step, and an end that is as wished.
func TestSimulation(t *testing.T) {
	for _, seed := range seeds(t, 200) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			policy := "etcd"
			if seed%4 == 0 {
				policy = "default"
			}
			trouble(t, begin(t, seed, policy), seed)
		})
	}
}

// TestSimulationWithACarelessACM is the same with an ACM that approves everything: the operator's own guarantees hold.
func TestSimulationWithACarelessACM(t *testing.T) {
	for _, seed := range seeds(t, 100) {
		t.Run(fmt.Sprintf("seed-%d", seed), func(t *testing.T) {
			t.Parallel()
			w := begin(t, seed, "default")
			w.careless = &careless{w: w, last: map[string]string{}}
			trouble(t, w, seed)
		})
	}
}

func trouble(t *testing.T, w *World, seed uint64) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Logf("replay it with: make simulate SEED=%d", seed)
		}
		if path := os.Getenv("ASSENT_LOG"); path != "" {
			require.NoError(t, os.WriteFile(path, []byte(w.Tail(len(w.log))), 0o600))
		}
	}()
	ctx := context.Background()
	w.create(ctx, 3, "v1")
	w.settle(ctx, t, patience)
	w.faults = Faults{Refuse: 20, Lose: 20, Late: 30, Crash: 10, RestartACM: 4, Drop: 30, Double: 50, Kill: 4, Slow: 300, Zombie: 2}
	for i := range troubled {
		if i%150 == 0 {
			w.whim(ctx)
		}
		if w.operator != nil && w.chance(5) {
			w.operator.frozenUntil = w.Clock.Now().Add(time.Duration(w.Rand.IntN(40)) * time.Second)
		}
		w.Step(ctx)
		require.Empty(t, w.watch.violations, "%s", w.Tail(120))
	}
	w.faults = Faults{}
	w.edit(ctx, "three replicas of v9, not paused", func(s *v1alpha1.LiStatefulSetSpec) {
		replicas := int32(3)
		s.Paused, s.Replicas, s.Template = "", &replicas, template("v9")
	})
	w.settle(ctx, t, patience)
	w.quiet(ctx, t)
	require.Positive(t, w.watch.approvals)
}
