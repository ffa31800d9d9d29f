// Package inprocess composes an ACM without listener, Lease and collectors, for tests and
// simulations: the caller pushes facts, owns the clock, and decides when the process "restarts".
// Loading, judging and evaluating are the product's own code. Nothing runs in the background, so a
// run is repeatable.
package inprocess

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/engine"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
	"assent.dev/assent/acm/internal/server"
	"assent.dev/assent/policies"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

type (
	// Changes are pushed as facts; the policy contract gives the meaning of each field.
	Changes = facts.Changes
	// Report is what a collector says.
	Report = facts.Report
	// Facts are what a collector found.
	Facts = facts.Facts
	// Pod is one pod.
	Pod = facts.Pod
	// Node is one node.
	Node = facts.Node
	// Member is one process of the application.
	Member = facts.Member
	// Shard is one piece of its data.
	Shard = facts.Shard
	// Election is the state of its leadership.
	Election = facts.Election
	// Entry is one decision with the question it answers.
	Entry = judge.Entry
)

// Kubernetes is the name of the collector of pods and nodes.
const Kubernetes = facts.Kubernetes

// Options of an ACM. Bundles and Clock are needed.
type Options struct {
	// Bundles is the directory of bundles.
	Bundles string
	Clock   clock.WithTicker
	// Decided, if set, is told every decision.
	Decided func(Entry)
	// Nudge, if set, is told when asking again about an application is worth it.
	Nudge func(namespace, application, cause string)
	// Refresh, if set, is told when an application's facts are wanted anew, because its flight changed.
	Refresh func(namespace, application string)
	// ExpiresAfter is how long an approval may be acted on; 0 means the product's default.
	ExpiresAfter time.Duration
	// EvaluationBudget bounds one evaluation; 0 means the product's default. Simulations on a busy machine want more.
	EvaluationBudget time.Duration
}

// ACM is one Application Cluster Manager. Safe for concurrent use.
type ACM struct {
	o       Options
	bundles *bundle.Manager

	mu           sync.Mutex
	decisions    int
	starts       int
	applications map[name]*application
}

type name struct{ namespace, application string }

type application struct {
	acm   *ACM
	name  name
	store *facts.Store
	judge *judge.Judge
	// epoch counts the terms in which this application was decided, over restarts.
	epoch int64
	begun bool
}

// New loads the bundles through the load gate. A bundle that fails is deferred with bundle.invalid,
// as in the product; see Problems.
func New(ctx context.Context, o Options) (*ACM, error) {
	library, err := bundle.LoadLibrary(policies.Files())
	if err != nil {
		return nil, fmt.Errorf("loading the library: %w", err)
	}
	gate := bundle.Gate{Library: library, Build: func(ctx context.Context, b *bundle.Bundle) (judge.Policy, error) {
		return engine.New(ctx, b, o.EvaluationBudget)
	}}
	a := &ACM{o: o, applications: map[name]*application{}}
	a.bundles = bundle.NewManager(bundle.Options{Dir: o.Bundles, Gate: gate, Clock: o.Clock, Log: logr.Discard(), Changed: a.bundleChanged})
	if err := a.Reload(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// Sibling is another ACM over the bundles that this one has loaded: loading runs a bundle's tests, which takes longer than
// most simulations. Options.Bundles and EvaluationBudget stay as they are here.
func (a *ACM) Sibling(o Options) *ACM {
	return &ACM{o: o, bundles: a.bundles, applications: map[name]*application{}}
}

// Reload reads the bundles again, as the product does when a file changes.
func (a *ACM) Reload(ctx context.Context) error {
	if err := a.bundles.Scan(ctx, true); err != nil {
		return fmt.Errorf("reading bundles of %s: %w", a.o.Bundles, err)
	}
	return nil
}

// Problems tells what is wrong with each bundle's newest content; empty when all is well.
func (a *ACM) Problems() map[string]string {
	out := map[string]string{}
	for _, s := range a.bundles.Statuses() {
		if len(s.Problems) > 0 {
			out[s.Policy] = s.Problems.Error()
		}
	}
	return out
}

func (a *ACM) bundleChanged(string) {
	for _, app := range a.all() {
		app.judge.BundleChanged()
	}
}

func (a *ACM) all() []*application {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]*application, 0, len(a.applications))
	for _, app := range a.applications {
		out = append(out, app)
	}
	return out
}

// Push brings in facts of an application.
func (a *ACM) Push(namespace, app string, c Changes) { a.open(name{namespace, app}).store.Apply(c) }

// Facts is the facts document of an application as JSON.
func (a *ACM) Facts(namespace, app string) ([]byte, error) {
	return a.open(name{namespace, app}).store.Snapshot().MarshalJSON()
}

// Evaluate answers a request as the product would that holds the application's Lease.
func (a *ACM) Evaluate(ctx context.Context, r *acmv1.EvaluateRequest) *acmv1.EvaluateResponse {
	app := a.open(name{r.GetApplication().GetNamespace(), r.GetApplication().GetName()})
	a.mu.Lock()
	begin := !app.begun
	app.begun = true
	a.mu.Unlock()
	if begin {
		app.judge.Begin(app.epoch, app.epoch == 0)
	}
	answer := app.judge.Evaluate(ctx, server.StateOf(r))
	return server.ResponseOf(answer)
}

// Restart forgets everything that a process keeps in memory: ledgers and facts. The next term of
// each application that was ever decided has a higher epoch.
func (a *ACM) Restart() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n, app := range a.applications {
		next := a.newApplication(n)
		next.epoch = app.epoch
		if app.begun {
			next.epoch++
		}
		a.applications[n] = next
	}
	a.starts++
}

func (a *ACM) open(n name) *application {
	a.mu.Lock()
	defer a.mu.Unlock()
	app := a.applications[n]
	if app == nil {
		app = a.newApplication(n)
		a.applications[n] = app
	}
	return app
}

func (a *ACM) newApplication(n name) *application {
	app := &application{acm: a, name: n}
	app.store = facts.NewStore(func(s *facts.Snapshot) { app.judge.Published(s) })
	expires := a.o.ExpiresAfter
	if expires == 0 {
		expires = judge.DefaultExpiresAfter
	}
	app.judge = judge.New(judge.Deps{
		Policies: a.bundles, Facts: app, Clock: a.o.Clock, Log: a, NewID: a.newID, ExpiresAfter: expires,
		BatchBudget: judge.DefaultBatchBudget,
		Nudge: func(cause string) {
			if a.o.Nudge != nil {
				a.o.Nudge(n.namespace, n.application, cause)
			}
		},
	})
	return app
}

// newID numbers decisions, so that a run can be repeated.
func (a *ACM) newID() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decisions++
	return fmt.Sprintf("d%d-%d", a.starts, a.decisions)
}

// Decided passes a decision on; it makes the ACM a judge.Log.
func (a *ACM) Decided(e Entry) {
	if a.o.Decided != nil {
		a.o.Decided(e)
	}
}

// Snapshot is the newest state. With the next three methods an application is a judge.Facts.
func (app *application) Snapshot() *facts.Snapshot { return app.store.Snapshot() }

// Apply publishes changes.
func (app *application) Apply(c facts.Changes) *facts.Snapshot { return app.store.Apply(c) }

// Configure starts nothing: facts are pushed.
func (app *application) Configure(judge.Manifest) {}

// Refresh tells whoever pushes.
func (app *application) Refresh() {
	if app.acm.o.Refresh != nil {
		app.acm.o.Refresh(app.name.namespace, app.name.application)
	}
}
