package collect

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
)

// Collector asks one application's processes how they are. One goroutine at a time uses it.
type Collector interface {
	// Collect asks every target in parallel, each within a time-out of its own, and gives all that is
	// known now. What a target does not tell is unknown, with the reason. An error means that nothing
	// can be said at all, for example because the settings are wrong. Now is when the collection begins.
	Collect(ctx context.Context, pods *facts.Snapshot, now time.Time) (*facts.Facts, error)
	// Close frees connections.
	Close()
}

// Kind makes the collector of one application. Settings are the manifest's; they may be nil.
type Kind func(a decision.ApplicationRef, settings map[string]any) Collector

// Kubernetes delivers the pods and nodes of applications.
type Kubernetes interface {
	// Open sends all that is known of the application at once, and then every change, to the sink, one
	// after the other, until closed. Groups are the manifest's label groupings.
	Open(namespace, application string, groups map[string][]string, sink func(facts.Changes)) (closing func())
}

// Options of an Application. All are needed but Kinds; zero durations mean the defaults.
type Options struct {
	Kubernetes Kubernetes
	Kinds      map[string]Kind
	Clock      clock.WithTicker
	Log        logr.Logger
	// Interval is between the beginnings of two collections; MostBackOff bounds it while a collector fails.
	Interval    time.Duration
	MostBackOff time.Duration
}

// Defaults of Options.
const (
	DefaultInterval    = time.Second
	DefaultMostBackOff = 10 * time.Second
)

// Application is one application's facts and what keeps them fresh. It is a judge.Facts.
type Application struct {
	o     Options
	ref   decision.ApplicationRef
	store *facts.Store
	ctx   context.Context //nolint:containedctx // the application's own life, which ends its loops
	end   context.CancelFunc

	mu       sync.Mutex
	manifest *judge.Manifest
	closePod func()
	loops    map[string]*loop
	running  sync.WaitGroup
}

var _ judge.Facts = (*Application)(nil)

// Open makes an application's facts; nothing is collected before Configure. Published is called
// after each publication.
func Open(o Options, ref decision.ApplicationRef, published func(*facts.Snapshot)) *Application {
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	if o.MostBackOff == 0 {
		o.MostBackOff = DefaultMostBackOff
	}
	a := &Application{o: o, ref: ref, store: facts.NewStore(published), loops: map[string]*loop{}}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a
}

// Snapshot is the newest state.
func (a *Application) Snapshot() *facts.Snapshot { return a.store.Snapshot() }

// Apply publishes changes.
func (a *Application) Apply(c facts.Changes) *facts.Snapshot { return a.store.Apply(c) }

// Configure starts what the manifest declares and stops what it does not declare any more.
func (a *Application) Configure(m judge.Manifest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil || a.manifest != nil && reflect.DeepEqual(*a.manifest, m) {
		return
	}
	if a.manifest == nil || !reflect.DeepEqual(a.manifest.Groups, m.Groups) {
		if a.closePod != nil {
			a.closePod()
		}
		a.closePod = a.o.Kubernetes.Open(a.ref.Namespace, a.ref.Name, m.Groups, func(c facts.Changes) { a.store.Apply(c) })
	}
	a.manifest = &m
	for name, l := range a.loops {
		if spec, declared := m.Collectors[name]; !declared || !reflect.DeepEqual(spec.Settings, l.settings) {
			l.stop()
			delete(a.loops, name)
			a.store.Apply(facts.Changes{Forget: []string{name}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Collectors)) {
		if a.loops[name] == nil && name != facts.Kubernetes {
			a.start(name, m.Collectors[name].Settings)
		}
	}
}

func (a *Application) start(name string, settings map[string]any) {
	kind := a.o.Kinds[name]
	if kind == nil {
		a.store.Apply(facts.Changes{Reports: []facts.Report{{
			Collector: name, Error: fmt.Sprintf("this ACM has no collector %q; it has: %v", name, slices.Sorted(maps.Keys(a.o.Kinds))),
		}}})
		return
	}
	ctx, cancel := context.WithCancel(a.ctx)
	l := &loop{Application: a, name: name, settings: settings, kick: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{})}
	a.loops[name] = l
	a.running.Go(func() { l.run(ctx, kind(a.ref, settings)) })
}

// Refresh has every collector begin a new collection, at the latest when the running one ends.
func (a *Application) Refresh() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.loops {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// Close stops everything and waits for it.
func (a *Application) Close() {
	a.end()
	a.mu.Lock()
	if a.closePod != nil {
		a.closePod()
		a.closePod = nil
	}
	a.mu.Unlock()
	a.running.Wait()
}
