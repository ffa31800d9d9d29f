package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"assent.dev/assent/acm/internal/decision"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=assent-system

// LeaseAPI is the part of client-go's LeaseInterface, of the ACM's own namespace, that is used.
type LeaseAPI interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// LeaseTimes are how long a Lease lasts without renewal, how often it is renewed, and how long one call may take.
type LeaseTimes struct {
	Duration, Renew, Call time.Duration
}

// DefaultLeaseTimes take over from a killed holder within ten seconds at one write every three seconds.
var DefaultLeaseTimes = LeaseTimes{Duration: 10 * time.Second, Renew: 3 * time.Second, Call: 2 * time.Second}

// Term is one time that this process holds an application's Lease.
type Term struct {
	// Epoch is the number of the Lease's transitions; it grows with every term, also of the same process.
	Epoch int64
	// First: the Lease never had an earlier term, so nobody can have approved anything before.
	First bool
}

// lease keeps one application's Lease. Every term is a transition, with one replica too, since what was approved is
// remembered in memory only.
type lease struct {
	api      LeaseAPI
	name     string
	labels   map[string]string
	identity string
	times    LeaseTimes
	clock    clock.WithTicker
	log      logr.Logger

	// calling serializes calls to the API; mu guards what follows and is never held during a call.
	calling sync.Mutex
	mu      sync.Mutex
	record  *coordinationv1.Lease
	// changed is when record was last seen to differ: how another holder's silence is measured, without its clock.
	changed time.Time
	term    *Term
	// valid is when the term ends unless it is renewed.
	valid time.Time
	tried time.Time
}

// LeaseName is acm-<namespace>.<application>: the dot keeps "a-b" of "c" and "b" of "c-a" apart. An application of
// a named cluster, and one whose name would be too long or no object name, ends in a hash instead.
func LeaseName(a decision.ApplicationRef) string {
	name := "acm-" + a.Namespace + "." + a.Name
	if a.Cluster == "" && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{a.Cluster, a.Namespace, a.Name}, "\x00")))
	return "acm-" + hex.EncodeToString(sum[:16])
}

// Held gives the term in force at this moment, without any call.
func (l *lease) Held() (Term, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term == nil || !l.clock.Now().Before(l.valid) {
		return Term{}, false
	}
	return *l.term, true
}

// Seen is the newest epoch that is known, whoever holds the Lease.
func (l *lease) Seen() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return 0
	}
	return int64(ptr.Deref(l.record.Spec.LeaseTransitions, 0))
}

// Other tells whether another process is known to hold the Lease.
func (l *lease) Other() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil || l.term != nil {
		return false
	}
	holder := ptr.Deref(l.record.Spec.HolderIdentity, "")
	return holder != "" && holder != l.identity && l.clock.Since(l.changed) < l.lasts(l.record)
}

// Ensure gives the term, and tries to begin one when there is none: at most once in a renewal's time.
func (l *lease) Ensure(ctx context.Context) (Term, bool) {
	if t, ok := l.Held(); ok {
		return t, true
	}
	l.mu.Lock()
	early := !l.tried.IsZero() && l.clock.Since(l.tried) < l.times.Renew
	l.mu.Unlock()
	if !early {
		l.attempt(ctx)
	}
	return l.Held()
}

// attempt takes or renews the Lease once. Failures leave everything as it was; the term then runs out by itself.
func (l *lease) attempt(ctx context.Context) {
	l.calling.Lock()
	defer l.calling.Unlock()
	ctx, cancel := context.WithTimeout(ctx, l.times.Call)
	defer cancel()
	began := l.clock.Now()
	l.mu.Lock()
	l.tried = began
	term, known := l.term, l.record
	if !began.Before(l.valid) {
		// What was not renewed in time is over, though nobody may have taken it.
		l.term, term = nil, nil
	}
	l.mu.Unlock()
	if err := l.write(ctx, began, term, known); err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
		l.log.Error(err, "lease not renewed", "lease", l.name)
	}
}

// write renews the term, or takes the Lease when it is free.
func (l *lease) write(ctx context.Context, began time.Time, term *Term, known *coordinationv1.Lease) error {
	if term != nil {
		if err := l.renew(ctx, known, *term, began); !apierrors.IsConflict(err) {
			return err
		}
	}
	found, err := l.api.Get(ctx, l.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		made, err := l.api.Create(ctx, l.fresh(began), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		l.keep(made, Term{First: true}, began)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading lease %s: %w", l.name, err)
	}
	if term != nil && l.ours(found, *term) {
		// A renewal whose answer was lost: the term goes on.
		return l.renew(ctx, found, *term, began)
	}
	l.lose()
	if !l.free(found, began) {
		return nil
	}
	next := found.DeepCopy()
	transitions := ptr.Deref(found.Spec.LeaseTransitions, 0) + 1
	next.Spec = l.fresh(began).Spec
	next.Spec.LeaseTransitions = &transitions
	return l.update(ctx, next, Term{Epoch: int64(transitions)}, began)
}

func (l *lease) renew(ctx context.Context, known *coordinationv1.Lease, term Term, began time.Time) error {
	next := known.DeepCopy()
	next.Spec.RenewTime = ptr.To(metav1.NewMicroTime(began))
	return l.update(ctx, next, term, began)
}

func (l *lease) update(ctx context.Context, next *coordinationv1.Lease, term Term, began time.Time) error {
	written, err := l.api.Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		l.lose()
	}
	if err != nil {
		return fmt.Errorf("writing lease %s: %w", l.name, err)
	}
	l.keep(written, term, began)
	return nil
}

func (l *lease) ours(found *coordinationv1.Lease, term Term) bool {
	return ptr.Deref(found.Spec.HolderIdentity, "") == l.identity && int64(ptr.Deref(found.Spec.LeaseTransitions, 0)) == term.Epoch
}

// free tells whether the Lease may be taken: given up, or silent for its whole duration on our own clock. A record with
// our identity is of a term that ran out.
func (l *lease) free(found *coordinationv1.Lease, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil || l.record.ResourceVersion != found.ResourceVersion {
		l.record, l.changed = found, now
	}
	holder := ptr.Deref(found.Spec.HolderIdentity, "")
	if holder == "" || holder == l.identity {
		return true
	}
	return now.Sub(l.changed) >= l.lasts(found)
}

func (l *lease) lasts(record *coordinationv1.Lease) time.Duration {
	return time.Duration(ptr.Deref(record.Spec.LeaseDurationSeconds, int32(l.times.Duration/time.Second))) * time.Second
}

func (l *lease) fresh(now time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: l.name, Labels: l.labels},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &l.identity, LeaseDurationSeconds: ptr.To(int32((l.times.Duration + time.Second - 1) / time.Second)),
			AcquireTime: ptr.To(metav1.NewMicroTime(now)), RenewTime: ptr.To(metav1.NewMicroTime(now)), LeaseTransitions: ptr.To[int32](0),
		},
	}
}

func (l *lease) keep(written *coordinationv1.Lease, term Term, began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.record, l.changed, l.term = written, began, &term
	// From before the call: others count from when they see the write, which is later.
	l.valid = began.Add(l.times.Duration)
}

func (l *lease) lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term, l.valid = nil, time.Time{}
}

// Release gives the Lease up so that another process may take it at once.
func (l *lease) Release(ctx context.Context) error {
	l.calling.Lock()
	defer l.calling.Unlock()
	if _, held := l.Held(); !held {
		return nil
	}
	l.mu.Lock()
	next := l.record.DeepCopy()
	l.mu.Unlock()
	l.lose()
	next.Spec.HolderIdentity = ptr.To("")
	ctx, cancel := context.WithTimeout(ctx, l.times.Call)
	defer cancel()
	if _, err := l.api.Update(ctx, next, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("giving up lease %s: %w", l.name, err)
	}
	return nil
}
