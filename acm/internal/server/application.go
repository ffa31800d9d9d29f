package server

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
)

// key identifies an application; its policy may change.
type key struct{ cluster, namespace, name string }

func keyOf(a decision.ApplicationRef) key { return key{a.Cluster, a.Namespace, a.Name} }

// application is one application that this process has been asked about.
type application struct {
	judge *judge.Judge
	facts judge.Facts
	lease *lease
	hub   *hub
	stop  func()

	mu sync.Mutex
	// begun is the term under which the judge decides.
	begun *Term
	ref   decision.ApplicationRef
	asked time.Time
}

// open makes the application and keeps its Lease, once taken, until the server stops or nobody asks any more.
func (s *Server) open(ref decision.ApplicationRef) *application {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := keyOf(ref)
	if a := s.applications[k]; a != nil {
		return a
	}
	a := &application{ref: ref, asked: s.o.Clock.Now(), hub: s.hubOf(k)}
	a.lease = &lease{
		api: s.o.Leases, name: LeaseName(ref), labels: leaseLabels, identity: s.o.Identity, times: s.o.LeaseTimes,
		clock: s.o.Clock, log: s.o.Log,
	}
	var ready atomic.Pointer[judge.Judge]
	source, closeSource := s.o.Facts(ref, func(snapshot *facts.Snapshot) {
		if j := ready.Load(); j != nil {
			j.Published(snapshot)
		}
	})
	a.facts = source
	a.judge = judge.New(judge.Deps{
		Policies: s.o.Policies, Facts: source, Clock: s.o.Clock, Log: s.log, NewID: s.o.NewID, Nudge: a.nudge,
		ExpiresAfter: s.o.ExpiresAfter, BatchBudget: s.o.BatchBudget,
	})
	ready.Store(a.judge)
	ctx, cancel := context.WithCancel(s.ctx)
	a.stop = func() { cancel(); closeSource() }
	s.applications[k] = a
	s.running.Go(func() { s.keep(ctx, k, a) })
	return a
}

// keep renews the Lease while the application is asked about, and gives it up in the end.
func (s *Server) keep(ctx context.Context, k key, a *application) {
	ticker := s.o.Clock.NewTicker(s.o.LeaseTimes.Renew)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.giveUp(a)
			return
		case <-ticker.C():
			if s.retire(k, a) {
				s.giveUp(a)
				return
			}
			a.lease.attempt(ctx)
			a.follow()
		}
	}
}

// giveUp ends the term so that another process may begin one at once.
func (s *Server) giveUp(a *application) {
	a.judge.End()
	a.mu.Lock()
	a.begun = nil
	a.mu.Unlock()
	if err := a.lease.Release(context.WithoutCancel(s.ctx)); err != nil {
		s.o.Log.Error(err, "lease not given up")
	}
}

// retire forgets an application that nobody has asked about for long, so that its collectors rest.
func (s *Server) retire(k key, a *application) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.mu.Lock()
	idle := s.o.Clock.Since(a.asked)
	a.mu.Unlock()
	if idle < s.o.Idle {
		return false
	}
	delete(s.applications, k)
	a.stop()
	return true
}

// touch notes a request and makes sure of the term, if it can be had.
func (a *application) touch(ctx context.Context, ref decision.ApplicationRef, now time.Time) (Term, bool) {
	a.mu.Lock()
	a.ref, a.asked = ref, now
	a.mu.Unlock()
	a.lease.Ensure(ctx)
	return a.follow()
}

// follow has the judge begin and end with the Lease's terms.
func (a *application) follow() (Term, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	term, held := a.lease.Held()
	switch {
	case held && (a.begun == nil || *a.begun != term):
		a.judge.Begin(term.Epoch, term.First)
		a.begun = &term
		a.hub.send(judge.CauseLease, term.Epoch)
	case !held && a.begun != nil:
		a.judge.End()
		a.begun = nil
		a.hub.send(judge.CauseLease, a.lease.Seen())
	case !held && a.lease.Other():
		a.hub.expel()
	}
	return term, held
}

func (a *application) nudge(cause string) { a.hub.send(cause, a.lease.Seen()) }

func (a *application) reference() (decision.ApplicationRef, time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ref, a.asked
}

func (s *Server) all() map[key]*application {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[key]*application, len(s.applications))
	for k, a := range s.applications {
		all[k] = a
	}
	return all
}
