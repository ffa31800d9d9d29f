package acm

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"assent.dev/assent/operator/internal/metrics"
	"assent.dev/assent/operator/internal/plan/question"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// replicas is how many answers "not deciding" are followed by another try within one question's deadline: round-robin
// brings it to the next replica of an ACM.
const replicas = 2

// Options of a Client.
type Options struct {
	// Cluster is the name by which this cluster is known to the ACMs.
	Cluster string
	// Connections by the name that a set's spec.acm says.
	Connections map[string]grpc.ClientConnInterface
	// Timeout of one question.
	Timeout time.Duration
	Clock   clock.WithTicker
	Metrics *metrics.Metrics
}

// Client asks. Make it with New; it works until its context ends.
type Client struct {
	o       Options
	ctx     context.Context
	changed chan event.TypedGenericEvent[types.NamespacedName]

	mu           sync.Mutex
	applications map[types.NamespacedName]*application
}

// application is what is known of one application's question.
type application struct {
	// pending question; answers to any other are dropped.
	pending *question.Question
	cancel  context.CancelFunc
	answer  *question.Answer

	followed follow
	unfollow context.CancelFunc
	nudged   bool
}

type follow struct{ policy, acm string }

// New makes a client that works until ctx ends.
func New(ctx context.Context, o Options) *Client {
	return &Client{
		o: o, ctx: ctx, changed: make(chan event.TypedGenericEvent[types.NamespacedName]),
		applications: map[types.NamespacedName]*application{},
	}
}

// Changed names applications for which Answer or Nudged has something.
func (c *Client) Changed() <-chan event.TypedGenericEvent[types.NamespacedName] { return c.changed }

// Ask sends a question and returns at once.
func (c *Client) Ask(q question.Question) {
	ctx, cancel := context.WithCancel(c.ctx)
	c.mu.Lock()
	a := c.application(q.Application)
	if a.cancel != nil {
		a.cancel()
	}
	a.pending, a.cancel, a.answer = &q, cancel, nil
	c.mu.Unlock()
	go c.ask(ctx, q)
}

// Answer takes the end of the last question, once.
func (c *Client) Answer(application types.NamespacedName) (question.Answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.applications[application]
	if a == nil || a.answer == nil {
		return question.Answer{}, false
	}
	taken := *a.answer
	a.answer = nil
	return taken, true
}

// application must be called with the lock held.
func (c *Client) application(name types.NamespacedName) *application {
	a := c.applications[name]
	if a == nil {
		a = &application{}
		c.applications[name] = a
	}
	return a
}

func (c *Client) ask(ctx context.Context, q question.Question) {
	began := c.o.Clock.Now()
	result := make(chan question.Answer, 1)
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { result <- c.call(call, q) }()
	timeout := c.o.Clock.NewTimer(c.o.Timeout)
	defer timeout.Stop()
	var answer question.Answer
	select {
	case <-ctx.Done():
		return
	case answer = <-result:
	case <-timeout.C():
		answer = failed(q, question.CodeTimeout, fmt.Sprintf("ACM %q did not answer within %s; asked again until it does", q.ACM, c.o.Timeout))
	}
	c.measure(q.ACM, answer.Failure, c.o.Clock.Since(began))
	c.deliver(q, answer)
}

func (c *Client) measure(acm, failure string, took time.Duration) {
	outcome := "answered"
	switch failure {
	case "":
	case question.CodeTimeout:
		outcome = "timeout"
	case question.CodeUnavailable:
		outcome = "unavailable"
	default:
		outcome = "malformed"
	}
	c.o.Metrics.Request(acm, outcome, took.Seconds())
}

// call asks one ACM, and its other replicas when the first does not decide for this application.
func (c *Client) call(ctx context.Context, q question.Question) question.Answer {
	conn := c.o.Connections[q.ACM]
	if conn == nil {
		return failed(q, question.CodeUnavailable, fmt.Sprintf("spec.acm: no ACM %q is configured; the operator knows %s", q.ACM, c.names()))
	}
	client, request := acmv1.NewClusterManagerServiceClient(conn), Encode(c.o.Cluster, q)
	for try := 1; ; try++ {
		response, err := client.Evaluate(ctx, request)
		if err != nil {
			return failedCall(q, err)
		}
		answer := Decode(response, q)
		if try > replicas || !answer.NotDeciding() {
			return answer
		}
	}
}

func (c *Client) names() string {
	names := make([]string, 0, len(c.o.Connections))
	for name := range c.o.Connections {
		names = append(names, fmt.Sprintf("%q", name))
	}
	sort.Strings(names)
	return strings.Join(names, ", ")
}

func failed(q question.Question, code, message string) question.Answer {
	return question.Answer{Session: q.Session, Number: q.Number, Failure: code, Message: message}
}

func failedCall(q question.Question, err error) question.Answer {
	s := status.Convert(err)
	switch s.Code() {
	case codes.DeadlineExceeded:
		return failed(q, question.CodeTimeout, fmt.Sprintf("ACM %q did not answer in time: %s", q.ACM, s.Message()))
	case codes.InvalidArgument, codes.Unimplemented, codes.ResourceExhausted, codes.OutOfRange:
		return failed(q, question.CodeMalformed, fmt.Sprintf("ACM %q refuses the question (%s): %s", q.ACM, s.Code(), s.Message()))
	}
	return failed(q, question.CodeUnavailable, fmt.Sprintf("ACM %q cannot be reached, so nothing is disrupted until it can: %s", q.ACM, plain(s)))
}

// plain is what went wrong without the layers through which it was passed on.
func plain(s *status.Status) string {
	text := s.Message()
	for _, layer := range []string{"connection error: desc = ", "transport: Error while dialing: "} {
		if i := strings.LastIndex(text, layer); i >= 0 {
			text = text[i+len(layer):]
		}
	}
	return fmt.Sprintf("%s (%s)", strings.Trim(text, `"`), s.Code())
}

// deliver keeps an answer for whoever asked, unless a newer question has been asked. What the answer is worth, its epoch
// among it, is for the planner to say.
func (c *Client) deliver(q question.Question, answer question.Answer) {
	c.mu.Lock()
	a := c.applications[q.Application]
	if a == nil || a.pending == nil || a.pending.Session != q.Session || a.pending.Number != q.Number {
		c.mu.Unlock()
		return
	}
	a.cancel()
	a.pending, a.cancel, a.answer = nil, nil, &answer
	c.mu.Unlock()
	c.signal(q.Application)
}

func (c *Client) signal(application types.NamespacedName) {
	go func() {
		select {
		case c.changed <- event.TypedGenericEvent[types.NamespacedName]{Object: application}:
		case <-c.ctx.Done():
		}
	}()
}
