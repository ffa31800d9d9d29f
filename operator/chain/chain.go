// Package chain wires the four controllers between what a user wants and what runs. It is the one place that knows them
// all: the binary runs them under a manager, the simulated world steps them by hand.
package chain

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/internal/acm"
	"assent.dev/assent/operator/internal/controller/listatefulset"
	"assent.dev/assent/operator/internal/controller/operation"
	"assent.dev/assent/operator/internal/controller/podindex"
	"assent.dev/assent/operator/internal/controller/statefulpod"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	"assent.dev/assent/operator/internal/metrics"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/operator/internal/session"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// What passes between the operator and whoever asks an ACM for it.
type (
	// Asker asks an ACM.
	Asker = operation.Asker
	// Question is the whole live state of one application.
	Question = question.Question
	// Answer is how a question ended.
	Answer = question.Answer
)

// Options of a chain. All fields but Events and Metrics are needed.
type Options struct {
	// Cached reads may lag; Live reads come from the API server.
	Cached, Live client.Reader
	Writer       client.Client
	Clock        clock.PassiveClock
	// Session is unique for ever, Term grows with each one.
	Session string
	Term    int64
	Asker   Asker
	// Timeout of one question; what comes later is dropped.
	Timeout time.Duration
	// Events are dropped when nil.
	Events events.EventRecorder
	// Metrics are only counted when nil.
	Metrics *metrics.Metrics
}

// Controller is one link of the chain.
type Controller interface {
	reconcile.Reconciler
	// Requests are what has to be reconciled when an object changes.
	Requests(client.Object) []reconcile.Request
	// SetupWithManager starts it and its watches.
	SetupWithManager(ctrl.Manager) error
}

// Link is a controller with its name.
type Link struct {
	Name string
	Controller
}

// New makes the links for one session, from the left of the chain to the right.
func New(o Options) ([]Link, error) {
	m := o.Metrics
	if m == nil {
		var err error
		if m, err = metrics.New(nil); err != nil {
			return nil, fmt.Errorf("making the metrics: %w", err)
		}
	}
	var recorder event.Recorder = event.Discard{}
	if o.Events != nil {
		recorder = o.Events
	}
	deps := kube.Deps{
		Cached: o.Cached, Live: o.Live, Writer: metrics.CountWrites(o.Writer, m), Clock: o.Clock,
		Session: session.New(o.Session, o.Term, o.Clock), Approvals: session.NewApprovals(o.Clock), Events: recorder, Metrics: m,
	}
	return []Link{
		{"listatefulset", listatefulset.New(deps)},
		{"podindex", podindex.New(deps)},
		{"operation", operation.New(deps, o.Asker, o.Timeout)},
		{"statefulpod", statefulpod.New(deps)},
	}, nil
}

// Encode is a question as it goes to an ACM.
func Encode(cluster string, q Question) *acmv1.EvaluateRequest { return acm.Encode(cluster, q) }

// Decode is what a response means as the end of a question; what does not fit it is a failure.
func Decode(r *acmv1.EvaluateResponse, q Question) Answer { return acm.Decode(r, q) }
