package simulation

import (
	"context"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden logs anew")

// TestALogOfARollingUpdateThatAPersonCanRead: what everybody does, from the edit to rest, in order.
func TestALogOfARollingUpdateThatAPersonCanRead(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 1, "etcd", 3)
	w.log, w.began = nil, w.Clock.Now()
	w.roll(ctx, "v2")
	w.settle(ctx, t, patience)
	w.rest(ctx, t)
	got := w.Tail(len(w.log)) + "\n"
	const golden = "testdata/rolling-update.golden"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(got, "\n"), "write it anew with: go test ./test/simulation -run %s -update", t.Name())
}

func TestOneSeedHasOneLog(t *testing.T) {
	run := func(seed uint64, policy string, kind func(*World)) string {
		w := begin(t, seed, policy)
		kind(w)
		trouble(t, w, seed)
		return w.Tail(len(w.log))
	}
	for _, seed := range []uint64{3, 4, 5} {
		for name, kind := range map[string]func(*World){"etcd": func(*World) {}, "default": func(w *World) { w.careless = &careless{w: w, last: map[string]string{}} }} {
			first := run(seed, name, kind)
			require.NotEmpty(t, first)
			require.Equal(t, first, run(seed, name, kind), "seed %d on %s", seed, name)
		}
	}
}

// A log is only worth reading if an invariant that is broken ends up in it.
func TestAViolationIsSeenAndLogged(t *testing.T) {
	w := atRest(t, 2, "default", 2)
	operator := w.API.Client(w.operator.actor)
	require.NoError(t, operator.Delete(context.Background(), w.pod("db-1")))
	require.Len(t, w.watch.violations, 1)
	require.Contains(t, w.Tail(3), "VIOLATION operator-1 deletes Pod db-1")
}
