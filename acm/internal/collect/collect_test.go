package collect

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 10 * time.Second

var t0 = time.Unix(1764547200, 0)

// scripted is a collector whose attempts the test releases one by one.
type scripted struct {
	begun   chan time.Time
	release chan error
	closed  atomic.Bool
	setting any
}

func (s *scripted) Collect(ctx context.Context, _ *facts.Snapshot, now time.Time) (*facts.Facts, error) {
	s.begun <- now
	select {
	case err := <-s.release:
		return &facts.Facts{Replace: true, Raw: map[string]any{"x": 1.0}}, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *scripted) Close() { s.closed.Store(true) }

type fakeKubernetes struct {
	mu     sync.Mutex
	opened []map[string][]string
	closed int
}

func (k *fakeKubernetes) Open(_, _ string, groups map[string][]string, sink func(facts.Changes)) func() {
	k.mu.Lock()
	k.opened = append(k.opened, groups)
	k.mu.Unlock()
	sink(facts.Changes{Reports: []facts.Report{{Collector: facts.Kubernetes, OK: true, AsOf: 1}}})
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.closed++
	}
}

type bench struct {
	t          *testing.T
	clock      *clocktesting.FakeClock
	kubernetes *fakeKubernetes
	made       chan *scripted
	app        *Application
	published  chan struct{}
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, clock: clocktesting.NewFakeClock(t0), kubernetes: &fakeKubernetes{}, made: make(chan *scripted, 8), published: make(chan struct{}, 64)}
	b.app = Open(Options{
		Kubernetes: b.kubernetes, Clock: b.clock, Log: logr.Discard(),
		Kinds: map[string]Kind{"x": func(_ decision.ApplicationRef, settings map[string]any) Collector {
			s := &scripted{begun: make(chan time.Time, 8), release: make(chan error), setting: settings["port"]}
			b.made <- s
			return s
		}},
	}, decision.ApplicationRef{Namespace: "d", Name: "a"}, func(*facts.Snapshot) { b.published <- struct{}{} })
	t.Cleanup(b.app.Close)
	return b
}

func get[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

func none[T any](t *testing.T, from <-chan T) {
	t.Helper()
	select {
	case v := <-from:
		require.FailNow(t, "something came", "%v", v)
	default:
	}
}

// pass lets time go on once the loop waits for it.
func (b *bench) pass(d time.Duration) {
	require.Eventually(b.t, b.clock.HasWaiters, patience, time.Millisecond)
	b.clock.Step(d)
}

func (b *bench) finish(s *scripted, err error) {
	select {
	case s.release <- err:
	case <-time.After(patience):
		require.FailNow(b.t, "nobody collects")
	}
	get(b.t, b.published)
}

func declaring(settings map[string]any, names ...string) judge.Manifest {
	m := judge.Manifest{Collectors: map[string]judge.CollectorSpec{facts.Kubernetes: {MaxAge: time.Second}}}
	for _, n := range names {
		m.Collectors[n] = judge.CollectorSpec{MaxAge: time.Second, Settings: settings}
	}
	return m
}

func TestACollectorRunsAtItsIntervalAndAtOnceWhenAsked(t *testing.T) {
	b := newBench(t)
	b.app.Configure(declaring(nil, "x"))
	get(t, b.published)
	s := get(t, b.made)
	require.Equal(t, t0, get(t, s.begun))
	b.app.Refresh() // while it collects: what it finds may be from before, so another one follows
	b.finish(s, nil)
	require.Equal(t, t0, get(t, s.begun))
	b.finish(s, nil)
	b.pass(DefaultInterval - time.Millisecond)
	none(t, s.begun)
	b.pass(time.Millisecond)
	require.Equal(t, t0.Add(DefaultInterval), get(t, s.begun))
	b.finish(s, nil)
	require.InDelta(t, decision.Unix(t0.Add(DefaultInterval)), b.app.Snapshot().Collectors()["x"].AsOf, 0, "as of the beginning")
	b.app.Refresh()
	require.Equal(t, t0.Add(DefaultInterval), get(t, s.begun))
	b.finish(s, nil)
}

func TestAFailingCollectorBacksOffAndKeepsItsOldFacts(t *testing.T) {
	b := newBench(t)
	b.app.Configure(declaring(nil, "x"))
	get(t, b.published)
	s := get(t, b.made)
	get(t, s.begun)
	b.finish(s, nil)
	wait := DefaultInterval
	for range 6 {
		b.pass(wait)
		get(t, s.begun)
		b.finish(s, errors.New("bad settings"))
		wait = min(2*wait, DefaultMostBackOff)
	}
	source := b.app.Snapshot().Collectors()["x"]
	require.False(t, source.OK)
	require.Equal(t, "bad settings", source.Error)
	require.InDelta(t, decision.Unix(t0), source.AsOf, 0)
	require.NotNil(t, b.app.Snapshot().Raw()["x"])
	b.pass(DefaultMostBackOff - time.Millisecond)
	none(t, s.begun)
	b.app.Refresh()
	get(t, s.begun)
	b.finish(s, nil)
	require.True(t, b.app.Snapshot().Collectors()["x"].OK)
	b.pass(DefaultInterval)
	get(t, s.begun)
}

func TestOtherSettingsOrGroupsReplaceACollectorAndNothingElseDoes(t *testing.T) {
	b := newBench(t)
	m := declaring(map[string]any{"port": 1}, "x")
	b.app.Configure(m)
	b.app.Configure(m)
	first := get(t, b.made)
	get(t, first.begun)
	get(t, b.published)
	b.finish(first, nil)
	require.Contains(t, b.app.Snapshot().Raw(), "x")
	older := declaring(map[string]any{"port": 1}, "x")
	older.Collectors["x"] = judge.CollectorSpec{MaxAge: time.Hour, Settings: map[string]any{"port": 1}}
	b.app.Configure(older)
	none(t, b.made)
	b.app.Configure(declaring(map[string]any{"port": 2}, "x"))
	require.Equal(t, 2, get(t, b.made).setting)
	require.True(t, first.closed.Load())
	require.NotContains(t, b.app.Snapshot().Collectors(), "x", "what the other port said does not count any more")
	require.Len(t, b.kubernetes.opened, 1)
	grouped := declaring(map[string]any{"port": 2}, "x")
	grouped.Groups = map[string][]string{"tier": {"tier"}}
	b.app.Configure(grouped)
	require.Len(t, b.kubernetes.opened, 2)
	require.Equal(t, 1, b.kubernetes.closed)
	b.app.Configure(declaring(nil))
	none(t, b.made)
}

func TestACollectorThatThisACMDoesNotHaveIsToldAsAFailure(t *testing.T) {
	b := newBench(t)
	b.app.Configure(declaring(nil, "redis"))
	source := b.app.Snapshot().Collectors()["redis"]
	require.False(t, source.OK)
	require.Contains(t, source.Error, `no collector "redis"; it has: [x]`)
}

func TestCloseEndsARunningCollection(t *testing.T) {
	b := newBench(t)
	b.app.Configure(declaring(nil, "x"))
	s := get(t, b.made)
	get(t, s.begun)
	b.app.Close()
	require.True(t, s.closed.Load())
	require.Equal(t, 1, b.kubernetes.closed)
	b.app.Configure(declaring(map[string]any{"port": 3}, "x"))
	none(t, b.made)
}
