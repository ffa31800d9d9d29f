package server

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/decisionlog"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// answerMargin is kept of a caller's deadline for the way back.
const answerMargin = 100 * time.Millisecond

// DefaultIdle is how long an application that nobody asks about keeps its collectors and its Lease.
const DefaultIdle = time.Hour

var leaseLabels = map[string]string{"app.kubernetes.io/managed-by": "assent-acm"}

// OpenFacts begins to collect the facts of an application. published is called after each publication, and never
// before OpenFacts returned or after stop did.
type OpenFacts func(a decision.ApplicationRef, published func(*facts.Snapshot)) (source judge.Facts, stop func())

// Options of a Server. All but Log are needed; zero durations mean the defaults.
type Options struct {
	Policies judge.Policies
	// BundleStatus tells the revision in force of a bundle and what is wrong with its newest content.
	BundleStatus func(policy string) (revision, problem string)
	Facts        OpenFacts
	Leases       LeaseAPI
	LeaseTimes   LeaseTimes
	// Identity names this process in Leases. It must be new for each process: what was approved is in memory.
	Identity string
	Clock    clock.WithTicker
	Log      logr.Logger
	// Decisions takes every decision, for example to write it down.
	Decisions judge.Log
	NewID     func() string
	// Ready tells whether bundles and caches are loaded; before that every call is Unavailable.
	Ready        func() bool
	ExpiresAfter time.Duration
	BatchBudget  time.Duration
	Idle         time.Duration
}

// Server is both services of acm.v1. Safe for concurrent use.
type Server struct {
	acmv1.UnimplementedClusterManagerServiceServer
	acmv1.UnimplementedInspectServiceServer

	o       Options
	log     judge.Log
	taps    *taps
	metrics *metrics
	ctx     context.Context //nolint:containedctx // the server's own life, which ends every stream and every Lease
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu           sync.Mutex
	applications map[key]*application
	hubs         map[key]*hub
}

// New makes a server; Stop ends it.
func New(o Options) *Server {
	o = withDefaults(o)
	s := &Server{o: o, taps: &taps{}, applications: map[key]*application{}, hubs: map[key]*hub{}}
	s.metrics = newMetrics(s)
	s.log = decisionlog.Tee{o.Decisions, s.taps, s.metrics}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func withDefaults(o Options) Options {
	if o.LeaseTimes == (LeaseTimes{}) {
		o.LeaseTimes = DefaultLeaseTimes
	}
	if o.ExpiresAfter == 0 {
		o.ExpiresAfter = judge.DefaultExpiresAfter
	}
	if o.BatchBudget == 0 {
		o.BatchBudget = judge.DefaultBatchBudget
	}
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	return o
}

// Metrics are the server's metrics, for a registry.
func (s *Server) Metrics() prometheus.Collector { return s.metrics }

// Stop ends all streams, decides nothing more and gives up all Leases.
func (s *Server) Stop() {
	s.cancel()
	s.running.Wait()
	for _, a := range s.all() {
		a.stop()
	}
}

// BundleChanged nudges the applications of a bundle; it is the bundle manager's callback.
func (s *Server) BundleChanged(policy string) {
	for _, a := range s.all() {
		if ref, _ := a.reference(); ref.Policy == policy {
			a.judge.BundleChanged()
		}
	}
}

// Evaluate answers every instance that waits. The only errors are Unavailable, before everything is loaded, and
// InvalidArgument for a request that names no application; all else is a defer with its code.
func (s *Server) Evaluate(ctx context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
	if err := s.admit(r.GetApplication()); err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerMargin))
		defer cancel()
	}
	state := stateOf(r)
	a := s.open(state.Application)
	term, held := a.touch(ctx, state.Application, s.o.Clock.Now())
	if !held {
		return responseOf(a.judge.Refuse(state, a.lease.Seen(), notDeciding())), nil
	}
	answer := a.judge.Evaluate(ctx, state)
	if now, still := a.lease.Held(); !still || now != term {
		// The term ended meanwhile: another process may be deciding already.
		return responseOf(a.judge.Refuse(state, a.lease.Seen(), notDeciding())), nil
	}
	return responseOf(answer), nil
}

func notDeciding() *decision.MachineryError {
	return &decision.MachineryError{Code: decision.CodeACMNotDeciding, Message: "this ACM replica does not hold the application's Lease"}
}

func (s *Server) admit(a *acmv1.Application) error {
	if !s.o.Ready() {
		return status.Error(codes.Unavailable, "bundles and caches are not loaded yet")
	}
	if s.ctx.Err() != nil {
		return status.Error(codes.Unavailable, "the ACM is stopping")
	}
	if a.GetName() == "" || a.GetNamespace() == "" {
		return status.Error(codes.InvalidArgument, "application.namespace and application.name are needed")
	}
	return nil
}

// errElsewhere has the caller try another replica.
var errElsewhere = status.Error(codes.Unavailable, "another replica decides for the application")

// Watch streams nudges until the caller leaves, the server stops, or another replica is known to decide.
func (s *Server) Watch(r *acmv1.WatchRequest, stream acmv1.ClusterManagerService_WatchServer) error {
	if err := s.admit(r.GetApplication()); err != nil {
		return err
	}
	k := keyOf(applicationOf(r.GetApplication()))
	s.mu.Lock()
	a, h := s.applications[k], s.hubOf(k)
	s.mu.Unlock()
	if a != nil && a.lease.Other() {
		return errElsewhere
	}
	nudges := h.join()
	defer h.leave(nudges)
	// The caller may ask as soon as it knows that no nudge can be lost any more.
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.ctx.Done():
			return status.Error(codes.Unavailable, "the ACM is stopping")
		case n := <-nudges:
			if n == nil {
				return errElsewhere
			}
			if err := stream.Send(n); err != nil {
				return err
			}
		}
	}
}
