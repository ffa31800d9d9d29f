package acm

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/metrics"
	"assent.dev/assent/operator/internal/plan/question"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

var etcd = types.NamespacedName{Namespace: "default", Name: "etcd"}

// scripted is an ACM whose answers a test writes.
type scripted struct {
	acmv1.UnimplementedClusterManagerServiceServer
	evaluate func(context.Context, *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error)
	nudges   chan string
	watches  atomic.Int32
}

func (s *scripted) Evaluate(ctx context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
	return s.evaluate(ctx, r)
}

func (s *scripted) Watch(_ *acmv1.WatchRequest, stream grpc.ServerStreamingServer[acmv1.WatchResponse]) error {
	s.watches.Add(1)
	for {
		select {
		case cause, more := <-s.nudges:
			if !more {
				return status.Error(codes.Unavailable, "going away")
			}
			if err := stream.Send(&acmv1.WatchResponse{Cause: cause}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

func serve(t *testing.T, s *scripted) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	acmv1.RegisterClusterManagerServiceServer(server, s)
	go func() { _ = server.Serve(listener) }() //nolint:errcheck // ends with Stop
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func newClient(t *testing.T, address string, c clock.WithTicker) *Client {
	t.Helper()
	m, err := metrics.New(nil)
	require.NoError(t, err)
	connections, closeAll, err := Dial(map[string]string{"default": address})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		require.NoError(t, closeAll())
	})
	return New(ctx, Options{Cluster: "c", Connections: connections, Timeout: 2 * time.Second, Clock: c, Metrics: m})
}

func ask(number uint64) question.Question {
	return question.Question{
		Application: etcd, Policy: "etcd", ACM: "default", Session: "s", Term: 3, Number: number,
		Instances: []question.Instance{{
			Step:  question.Step{Operation: "etcd-0-dep-1", Type: v1alpha1.Deployment, Stage: v1alpha1.StageRemove, Set: "etcd", Pod: "etcd-2", Index: 2},
			State: v1alpha1.Waiting,
		}},
	}
}

func approve(r *acmv1.EvaluateRequest, epoch int64) *acmv1.EvaluateResponse {
	return &acmv1.EvaluateResponse{SessionId: r.GetSession().GetId(), RequestNumber: r.GetRequestNumber(), Epoch: epoch, Decisions: []*acmv1.Decision{{
		DecisionId: "d", Operation: r.GetInstances()[0].GetOperation(), Pod: r.GetInstances()[0].GetPod(), Stage: r.GetInstances()[0].GetStage(),
		Verdict: acmv1.Verdict_VERDICT_APPROVE, ExpiresAfter: durationpb.New(30 * time.Second),
	}}}
}

// take waits for the answer that Changed announces.
func take(t *testing.T, c *Client) question.Answer {
	t.Helper()
	select {
	case e := <-c.Changed():
		require.Equal(t, etcd, e.Object)
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing came")
	}
	a, ok := c.Answer(etcd)
	require.True(t, ok)
	_, again := c.Answer(etcd)
	require.False(t, again, "an answer is taken once")
	return a
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnApprovalComesBackAsAsked(t *testing.T) {
	var seen *acmv1.EvaluateRequest
	c := newClient(t, serve(t, &scripted{evaluate: func(_ context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
		seen = r
		return approve(r, 1), nil
	}}), clock.RealClock{})
	c.Ask(ask(7))
	a := take(t, c)
	require.Empty(t, a.Failure, a.Message)
	require.Equal(t, []question.Decision{{
		ID: "d", Operation: "etcd-0-dep-1", Pod: "etcd-2", Stage: v1alpha1.StageRemove, Verdict: question.Approve, ExpiresAfter: 30 * time.Second,
	}}, a.Decisions)
	require.Equal(t, "c", seen.GetApplication().GetCluster())
	require.Equal(t, acmv1.OperationType_OPERATION_TYPE_DEPLOYMENT, seen.GetInstances()[0].GetType())
	require.Equal(t, acmv1.InstanceState_INSTANCE_STATE_WAITING, seen.GetInstances()[0].GetState())
}

func TestGR01_NoEndpointIsUnavailable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	c := newClient(t, listener.Addr().String(), clock.RealClock{})
	c.Ask(ask(1))
	require.Equal(t, question.CodeUnavailable, take(t, c).Failure)
}

func TestGR02_ALateApprovalIsDroppedAndNobodyIsKeptWaiting(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	clk := clocktesting.NewFakeClock(time.Unix(0, 0))
	c := newClient(t, serve(t, &scripted{evaluate: func(_ context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
		close(asked)
		<-release
		return approve(r, 1), nil
	}}), clk)
	c.Ask(ask(1)) // returns at once: the worker is free
	<-asked
	clk.Step(2 * time.Second)
	require.Equal(t, question.CodeTimeout, take(t, c).Failure)
	close(release)
	_, late := c.Answer(etcd)
	require.False(t, late)
}

func TestGR09_TheAnswerToAReplacedQuestionIsDropped(t *testing.T) {
	first := make(chan struct{})
	c := newClient(t, serve(t, &scripted{evaluate: func(_ context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
		if r.GetRequestNumber() == 1 {
			<-first
		}
		return approve(r, 1), nil
	}}), clock.RealClock{})
	c.Ask(ask(1))
	c.Ask(ask(2))
	require.EqualValues(t, 2, take(t, c).Number)
	close(first)
	_, more := c.Answer(etcd)
	require.False(t, more)
}

func TestAnAnswerForAnotherQuestionOrWithoutReasonsIsMalformed(t *testing.T) {
	spoil := map[string]func(*acmv1.EvaluateResponse){
		"another number":              func(r *acmv1.EvaluateResponse) { r.RequestNumber++ },
		"another session":             func(r *acmv1.EvaluateResponse) { r.SessionId = "other" },
		"no verdict":                  func(r *acmv1.EvaluateResponse) { r.Decisions[0].Verdict = 0 },
		"an unknown verdict":          func(r *acmv1.EvaluateResponse) { r.Decisions[0].Verdict = 77 },
		"an approval that never ends": func(r *acmv1.EvaluateResponse) { r.Decisions[0].ExpiresAfter = nil },
		"a negative expiry":           func(r *acmv1.EvaluateResponse) { r.Decisions[0].ExpiresAfter = durationpb.New(-time.Second) },
		"no decision id":              func(r *acmv1.EvaluateResponse) { r.Decisions[0].DecisionId = "" },
		"a defer without a reason":    func(r *acmv1.EvaluateResponse) { r.Decisions[0].Verdict = acmv1.Verdict_VERDICT_DEFER },
		"no stage":                    func(r *acmv1.EvaluateResponse) { r.Decisions[0].Stage = 0 },
		"a bad parameter":             func(r *acmv1.EvaluateResponse) { r.Decisions[0].Parameters = map[string]string{"A/b": ""} },
	}
	for name, how := range spoil {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, serve(t, &scripted{evaluate: func(_ context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
				response := approve(r, 1)
				how(response)
				return response, nil
			}}), clock.RealClock{})
			c.Ask(ask(1))
			a := take(t, c)
			require.Equal(t, question.CodeMalformed, a.Failure)
			require.Empty(t, a.Decisions)
		})
	}
}

func TestTheEpochComesWithTheAnswer(t *testing.T) {
	c := newClient(t, serve(t, &scripted{evaluate: func(_ context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
		return approve(r, 5), nil
	}}), clock.RealClock{})
	c.Ask(ask(1))
	require.EqualValues(t, 5, take(t, c).Epoch)
}

func TestAReplicaThatDoesNotDecideIsFollowedByAnother(t *testing.T) {
	var calls atomic.Int32
	c := newClient(t, serve(t, &scripted{evaluate: func(_ context.Context, r *acmv1.EvaluateRequest) (*acmv1.EvaluateResponse, error) {
		response := approve(r, 1)
		if calls.Add(1) == 1 {
			response.Decisions[0].Verdict = acmv1.Verdict_VERDICT_DEFER
			response.Decisions[0].Reasons = []*acmv1.Reason{{Code: question.CodeNotDeciding}}
		}
		return response, nil
	}}), clock.RealClock{})
	c.Ask(ask(1))
	require.Equal(t, question.Approve, take(t, c).Decisions[0].Verdict)
	require.EqualValues(t, 2, calls.Load())
}

func TestAnUnknownACMIsNamedTogetherWithTheKnown(t *testing.T) {
	c := newClient(t, "127.0.0.1:1", clock.RealClock{})
	q := ask(1)
	q.ACM = "other"
	c.Ask(q)
	a := take(t, c)
	require.Equal(t, question.CodeUnavailable, a.Failure)
	require.Contains(t, a.Message, `no ACM "other" is configured; the operator knows "default"`)
}

func TestNudgesArriveAndABrokenStreamIsOpenedAgain(t *testing.T) {
	s := &scripted{nudges: make(chan string)}
	c := newClient(t, serve(t, s), clock.RealClock{})
	c.Follow(etcd, "etcd", "default")
	c.Follow(etcd, "etcd", "default")
	s.nudges <- "facts"
	<-c.Changed()
	require.True(t, c.Nudged(etcd))
	require.False(t, c.Nudged(etcd), "a nudge is taken once")
	close(s.nudges)
	require.Eventually(t, func() bool { return s.watches.Load() >= 3 }, 20*time.Second, 5*time.Millisecond)
	c.Unfollow(etcd)
	require.False(t, c.Nudged(etcd))
}
