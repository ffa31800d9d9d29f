package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// verdictOf gives the only decision's verdict and first reason.
func verdictOf(t *testing.T, r *acmv1.EvaluateResponse) (string, string) {
	t.Helper()
	require.Len(t, r.GetDecisions(), 1)
	d := r.GetDecisions()[0]
	if len(d.GetReasons()) == 0 {
		return d.GetVerdict().Code(), ""
	}
	return d.GetVerdict().Code(), d.GetReasons()[0].GetCode()
}

// opened asks once, so that the application is known, and publishes its pods.
func opened(t *testing.T, w *world) {
	t.Helper()
	first := request(1)
	first.Instances = nil
	w.evaluate(first)
	w.available()
}

func TestAnApprovalCarriesEverythingTheOperatorNeeds(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	opened(t, w)
	r := w.evaluate(request(2))
	require.Equal(t, "s-1", r.GetSessionId())
	require.Equal(t, uint64(2), r.GetRequestNumber())
	require.Zero(t, r.GetEpoch())
	require.Len(t, r.GetDecisions(), 1)
	d := r.GetDecisions()[0]
	require.Equal(t, acmv1.Verdict_VERDICT_APPROVE, d.GetVerdict())
	require.Equal(t, acmv1.Stage_STAGE_REMOVE, d.GetStage())
	require.Equal(t, "op-1", d.GetOperation())
	require.Equal(t, "etcd-1", d.GetPod())
	require.Equal(t, 30*time.Second, d.GetExpiresAfter().AsDuration())
	require.Equal(t, "test-1", d.GetBundleRevision())
	require.NotEmpty(t, d.GetDecisionId())
	require.NotEmpty(t, d.GetFactsVersion())
	require.Equal(t, map[string]string{"note": "go"}, d.GetParameters())
}

func TestReasonsNeedsAndRetryCrossTheWire(t *testing.T) {
	p := &policy{outcome: decision.Outcome{
		Defer: []any{map[string]any{"code": "quorum.majority", "message": "1 of 3", "retry_after": 7.5,
			"details": map[string]any{"up": 1.0, "pods": []any{"etcd-2"}}, "need": map[string]any{"action": "leader.transfer", "subject": "etcd-1"}}},
		Warn: []any{map[string]any{"code": "own.note", "message": "n"}},
	}}
	w := acm(t, "a", newLeases(), p)
	opened(t, w)
	d := w.evaluate(request(2)).GetDecisions()[0]
	require.Equal(t, acmv1.Verdict_VERDICT_DEFER, d.GetVerdict())
	require.Equal(t, "quorum.majority", d.GetReasons()[0].GetCode())
	require.Equal(t, map[string]any{"up": 1.0, "pods": []any{"etcd-2"}}, d.GetReasons()[0].GetDetails().AsMap())
	require.Equal(t, 7500*time.Millisecond, d.GetRetryAfter().AsDuration())
	require.Equal(t, "leader.transfer", d.GetNeeds()[0].GetAction())
	require.Equal(t, "own.note", d.GetWarnings()[0].GetCode())
	require.Nil(t, d.GetExpiresAfter())
}

func TestGR09_TheSameRequestTwiceIsOneAnswerAndOneSlotAndAHigherNumberVoidsIt(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	opened(t, w)
	two := request(2)
	two.Instances = []*acmv1.Instance{waiting(1), waiting(2)}
	first := w.evaluate(two)
	require.Len(t, first.GetDecisions(), 2)
	asked := w.policy.asked.Load()
	again := w.evaluate(two)
	require.True(t, proto.Equal(first, again), "want %v, have %v", first, again)
	require.Equal(t, asked, w.policy.asked.Load(), "the policy is not asked again")
	approved := first.GetDecisions()[0]
	require.Equal(t, acmv1.Verdict_VERDICT_APPROVE, approved.GetVerdict())
	require.Equal(t, "cap.full", first.GetDecisions()[1].GetReasons()[0].GetCode(), "one slot, and it is taken")
	require.Len(t, w.reservations(), 1)

	// The answer never arrived: the next request does not hold it, so its slot is free for the other pod.
	next := request(3)
	next.Instances = []*acmv1.Instance{waiting(2)}
	if approved.GetPod() == "etcd-2" {
		next.Instances = []*acmv1.Instance{waiting(1)}
	}
	v, _ := verdictOf(t, w.evaluate(next))
	require.Equal(t, "approve", v)
	require.Len(t, w.reservations(), 1)
}

func (w *world) reservations() []*acmv1.Reservation {
	w.t.Helper()
	r, err := w.inspect.GetApplication(w.t.Context(), &acmv1.GetApplicationRequest{Application: request(0).GetApplication()})
	require.NoError(w.t, err)
	return r.GetReservations()
}

func TestBU12_CallsBeforeEverythingIsLoadedAreUnavailableAndHealthSaysSo(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	w.ready.Store(false)
	_, err := w.acm.Evaluate(t.Context(), request(1))
	require.Equal(t, codes.Unavailable, status.Code(err))
	stream, err := w.acm.Watch(t.Context(), &acmv1.WatchRequest{Application: request(1).GetApplication()})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Empty(t, w.leases.objects, "no Lease is taken before anything can be decided")

	check := healthpb.NewHealthClient(w.conn)
	for _, service := range []string{"", "acm.v1.ClusterManagerService", "acm.v1.InspectService"} {
		h, err := check.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, h.GetStatus())
	}
	w.ready.Store(true)
	w.health.SetServing(true)
	for _, service := range []string{"", "acm.v1.ClusterManagerService", "acm.v1.InspectService"} {
		h, err := check.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, h.GetStatus())
	}
	w.evaluate(request(1))
}

func TestGR01_AfterStopNothingIsAnsweredAndTheLeaseIsFree(t *testing.T) {
	l := newLeases()
	w := acm(t, "a", l, approving())
	w.evaluate(request(1))
	require.Equal(t, "a", l.holder("acm-default.etcd"))
	s := w.server
	w.stop()
	require.Empty(t, l.holder("acm-default.etcd"))
	require.True(t, w.source("etcd").closed.Load(), "collectors end")
	_, err := s.Evaluate(t.Context(), request(2))
	require.Equal(t, codes.Unavailable, status.Code(err))
}

func TestPO11_EveryWayOfNotDecidingHasACodeOfItsOwnAndNeverApproves(t *testing.T) {
	yes := func() *policy { return approving() }
	cases := map[string]struct {
		policies judge.Policies
		change   func(*acmv1.EvaluateRequest)
		lease    error
		want     string
	}{
		"no opinion":    {policies: &policy{}, want: decision.CodePolicyNoApproval},
		"no bundle":     {policies: missing(decision.CodeBundleMissing), want: decision.CodeBundleMissing},
		"bad bundle":    {policies: missing(decision.CodeBundleInvalid), want: decision.CodeBundleInvalid},
		"undefined":     {policies: failing(decision.CodePolicyUndefined), want: decision.CodePolicyUndefined},
		"conflict":      {policies: failing(decision.CodePolicyConflict), want: decision.CodePolicyConflict},
		"built-in":      {policies: failing(decision.CodePolicyError), want: decision.CodePolicyError},
		"timeout":       {policies: failing(decision.CodePolicyTimeout), want: decision.CodePolicyTimeout},
		"not a reason":  {policies: &policy{outcome: decision.Outcome{Defer: []any{"text"}, Approve: true}}, want: decision.CodePolicyMalformed},
		"not a boolean": {policies: &policy{outcome: decision.Outcome{Approve: "yes"}}, want: decision.CodePolicyMalformed},
		"no lease":      {policies: yes(), lease: errors.New("api server away"), want: decision.CodeACMNotDeciding},
		"no session":    {policies: yes(), change: func(r *acmv1.EvaluateRequest) { r.Session = nil }, want: decision.CodeACMMalformed},
		"unknown type":  {policies: yes(), change: func(r *acmv1.EvaluateRequest) { r.Instances[0].Type = 99 }, want: decision.CodeACMMalformed},
		"unknown stage": {policies: yes(), change: func(r *acmv1.EvaluateRequest) { r.Instances[0].Stage = 0 }, want: decision.CodeACMMalformed},
		"no maximum":    {policies: yes(), change: func(r *acmv1.EvaluateRequest) { r.ApplicationMaxUnavailable = 0 }, want: decision.CodeACMMalformed},
		"unknown set":   {policies: yes(), change: func(r *acmv1.EvaluateRequest) { r.Instances[0].Set = "x" }, want: decision.CodeACMMalformed},
	}
	seen := map[string]bool{}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newLeases()
			w := acm(t, "a", l, approving(), func(o *Options) { o.Policies = c.policies })
			if c.lease == nil {
				opened(t, w)
			}
			l.failing(c.lease)
			r := request(2)
			if c.change != nil {
				c.change(r)
			}
			v, code := verdictOf(t, w.evaluate(r))
			require.Equal(t, "defer", v)
			require.Equal(t, c.want, code)
			seen[code] = true
		})
	}
	require.Len(t, seen, 10)
}

// missing has no bundle.
type missing string

func (m missing) Policy(string) (judge.Policy, *decision.MachineryError) {
	return nil, &decision.MachineryError{Code: string(m), Message: "none"}
}

func failing(code string) *policy {
	return &policy{outcome: decision.Outcome{Approve: true, Err: &decision.MachineryError{Code: code, Message: "m"}}}
}

func TestARequestWithoutAnApplicationIsAnError(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	_, err := w.acm.Evaluate(t.Context(), &acmv1.EvaluateRequest{})
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}

func TestAPanicCostsOneAnswerAndNotTheProcess(t *testing.T) {
	p := approving()
	p.gate = func(context.Context) { panic("oops") }
	w := acm(t, "a", newLeases(), p)
	opened(t, w)
	_, err := w.acm.Evaluate(t.Context(), request(2))
	require.Equal(t, codes.Internal, status.Code(err))
	p.gate = nil
	v, _ := verdictOf(t, w.evaluate(request(3)))
	require.Equal(t, "approve", v)
}

func TestTheAnswerComesBeforeTheCallersDeadline(t *testing.T) {
	p := approving()
	p.gate = func(ctx context.Context) { <-ctx.Done() }
	p.outcome = decision.Outcome{Err: &decision.MachineryError{Code: decision.CodePolicyTimeout, Message: "slow"}}
	w := acm(t, "a", newLeases(), p)
	opened(t, w)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r, err := w.acm.Evaluate(ctx, request(2))
	require.NoError(t, err)
	_, code := verdictOf(t, r)
	require.Equal(t, decision.CodePolicyTimeout, code)
}

func watch(t *testing.T, w *world) (<-chan *acmv1.WatchResponse, <-chan error) {
	t.Helper()
	stream, err := w.acm.Watch(t.Context(), &acmv1.WatchRequest{Application: request(0).GetApplication()})
	require.NoError(t, err)
	_, err = stream.Header()
	require.NoError(t, err)
	nudges, ended := make(chan *acmv1.WatchResponse, 10), make(chan error, 1)
	go func() {
		for {
			n, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			nudges <- n
		}
	}()
	return nudges, ended
}

func next(t *testing.T, nudges <-chan *acmv1.WatchResponse) *acmv1.WatchResponse {
	t.Helper()
	select {
	case n := <-nudges:
		return n
	case <-time.After(patience):
		t.Fatal("no nudge came")
		return nil
	}
}

func TestNewFactsAndNewBundlesNudgeWhoeverWaits(t *testing.T) {
	w := acm(t, "a", newLeases(), &policy{})
	nudges, ended := watch(t, w)
	opened(t, w)
	require.Equal(t, judge.CauseLease, next(t, nudges).GetCause())
	v, _ := verdictOf(t, w.evaluate(request(2)))
	require.Equal(t, "defer", v)
	w.source("etcd").Apply(facts.Changes{At: decision.Unix(start), Pods: map[string]*facts.Pod{"etcd-2": nil}})
	require.Equal(t, judge.CauseFacts, next(t, nudges).GetCause())
	w.server.BundleChanged("other")
	w.server.BundleChanged("test")
	require.Equal(t, judge.CauseBundle, next(t, nudges).GetCause())
	w.stop()
	require.Equal(t, codes.Unavailable, status.Code(<-ended))
	require.Empty(t, nudges)
}

func TestAReplicaThatDoesNotDecideSendsWatchersToAnother(t *testing.T) {
	l := newLeases()
	one, two := acm(t, "a", l, approving()), acm(t, "b", l, approving())
	opened(t, one)
	_, ended := watch(t, two)
	two.evaluate(request(1))
	require.Equal(t, codes.Unavailable, status.Code(<-ended), "it has learnt that another decides")
	stream, err := two.acm.Watch(t.Context(), &acmv1.WatchRequest{Application: request(0).GetApplication()})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	nudges, _ := watch(t, one)
	one.server.BundleChanged("test")
	require.Equal(t, judge.CauseBundle, next(t, nudges).GetCause())
}

func TestInspectShowsApplicationsFactsAndReservations(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	_, err := w.inspect.GetApplication(t.Context(), &acmv1.GetApplicationRequest{Application: request(0).GetApplication()})
	require.Equal(t, codes.NotFound, status.Code(err))
	opened(t, w)
	w.source("etcd").Apply(facts.Changes{Reports: []facts.Report{{Collector: "etcd", OK: false, Error: "timeout", AsOf: decision.Unix(start)}}})
	w.evaluate(request(2))

	list, err := w.inspect.ListApplications(t.Context(), &acmv1.ListApplicationsRequest{})
	require.NoError(t, err)
	require.Len(t, list.GetApplications(), 1)
	s := list.GetApplications()[0]
	require.True(t, s.GetDeciding())
	require.Equal(t, "test-1", s.GetBundleRevision())
	require.Equal(t, "test/policy.rego:3: oops", s.GetBundleError())
	require.Equal(t, start, s.GetLastEvaluate().AsTime().Local())

	one, err := w.inspect.GetApplication(t.Context(), &acmv1.GetApplicationRequest{Application: request(0).GetApplication()})
	require.NoError(t, err)
	require.Equal(t, "etcd-1", one.GetReservations()[0].GetPod())
	require.Equal(t, start.Add(30*time.Second).UTC(), one.GetReservations()[0].GetExpiresAt().AsTime())
	require.Equal(t, "timeout", one.GetCollectors()[0].GetError())
	require.Len(t, one.GetFacts().AsMap()["pods"], 3)
}

func TestDecisionsCanBeReadAlong(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	opened(t, w)
	other, err := w.inspect.WatchDecisions(t.Context(), &acmv1.WatchDecisionsRequest{Application: &acmv1.Application{Namespace: "default", Name: "kafka"}})
	require.NoError(t, err)
	_, err = other.Header()
	require.NoError(t, err)
	all, err := w.inspect.WatchDecisions(t.Context(), &acmv1.WatchDecisionsRequest{})
	require.NoError(t, err)
	_, err = all.Header()
	require.NoError(t, err)
	answer := w.evaluate(request(2))
	got, err := all.Recv()
	require.NoError(t, err)
	require.True(t, proto.Equal(answer.GetDecisions()[0], got.GetDecision()))
	require.Equal(t, "etcd", got.GetApplication().GetName())
	w.stop()
	_, err = other.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err), "nothing of another application came before the end")
}

func TestMetricsCountVerdictsAndShowStandings(t *testing.T) {
	w := acm(t, "a", newLeases(), &policy{})
	opened(t, w)
	w.source("etcd").Apply(facts.Changes{Reports: []facts.Report{{Collector: "etcd", OK: true, AsOf: decision.Unix(start) - 4}}})
	w.evaluate(request(2))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.server.Metrics())
	web := httptest.NewServer(MetricsHandler(registry))
	defer web.Close()
	answer, err := web.Client().Get(web.URL + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	for _, want := range []string{
		`assent_acm_decisions_total{policy="test",type="deployment",verdict="defer"} 1`,
		`assent_acm_reasons_total{code="policy.no_approval",policy="test"} 1`,
		`assent_acm_evaluation_seconds_count{policy="test"} 1`,
		`assent_acm_request_seconds_count{code="OK",method="Evaluate"} 2`,
		`assent_acm_lease_held{application="etcd",namespace="default"} 1`,
		`assent_acm_facts_age_seconds{application="etcd",collector="etcd",namespace="default"} 4`,
		`assent_acm_collector_ok{application="etcd",collector="etcd",namespace="default"} 1`,
	} {
		require.Contains(t, string(text), want)
	}
}

func TestHealthOverHTTPTellsReadinessAndBundleProblems(t *testing.T) {
	ready := false
	web := httptest.NewServer(HealthHandler(func() bool { return ready }, func() []string { return []string{"redis/policy.rego:3: oops"} }))
	defer web.Close()
	get := func(path string) (int, string) {
		answer, err := web.Client().Get(web.URL + path)
		require.NoError(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	code, text := get("/readyz")
	require.Equal(t, 503, code)
	require.Contains(t, text, "not loaded yet")
	ready = true
	code, text = get("/readyz")
	require.Equal(t, 200, code)
	require.Equal(t, "ok\nredis/policy.rego:3: oops\n", text)
	code, _ = get("/healthz")
	require.Equal(t, 200, code)
}

func TestManyApplicationsAtOnceDoNotDisturbEachOther(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	failed := make(chan error, 50)
	for i := range 50 {
		go func() {
			r := request(1)
			r.Application.Name = fmt.Sprintf("app-%d", i%10)
			r.Session.Id = fmt.Sprintf("s-%d", i)
			_, err := w.acm.Evaluate(t.Context(), r)
			failed <- err
		}()
	}
	for range 50 {
		require.NoError(t, <-failed)
	}
	require.Len(t, w.leases.objects, 10)
}

func TestPreviewAnswersInOrderAndReservesNothing(t *testing.T) {
	w := acm(t, "a", newLeases(), approving())
	opened(t, w)
	ask := &acmv1.PreviewRequest{Application: &acmv1.Application{Namespace: "default", Name: "etcd"}, Type: acmv1.OperationType_OPERATION_TYPE_DISRUPTION,
		Pods: []string{"etcd-1", "etcd-2", "no-such-pod"}}
	for range 2 {
		r, err := w.acm.Preview(t.Context(), ask)
		require.NoError(t, err)
		require.Len(t, r.GetDecisions(), 2)
		require.Equal(t, acmv1.Verdict_VERDICT_APPROVE, r.GetDecisions()[0].GetVerdict())
		require.Equal(t, "cap.full", r.GetDecisions()[1].GetReasons()[0].GetCode(), "as if the one before it were in flight")
		require.Empty(t, w.reservations())
	}
	ask.Pods = nil
	_, err := w.acm.Preview(t.Context(), ask)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
	ask.Node, ask.Type = "n", 0
	_, err = w.acm.Preview(t.Context(), ask)
	require.Equal(t, codes.InvalidArgument, status.Code(err))
}
