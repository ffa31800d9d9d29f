package probe

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnHTTPProbeJudgesByTheStatus(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "app.example" || r.Header.Get("X-K") != "v" || r.URL.RawQuery != "a=1" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	mux.HandleFunc("/bad", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/bad", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://127.255.255.254/", http.StatusFound)
	})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for _, server := range []*httptest.Server{httptest.NewServer(mux), httptest.NewTLSServer(mux)} {
		defer server.Close()
		addr, ok := server.Listener.Addr().(*net.TCPAddr)
		require.True(t, ok)
		scheme := corev1.URISchemeHTTP
		if server.TLS != nil {
			scheme = corev1.URISchemeHTTPS
		}
		target := Target{Address: "127.0.0.1", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: int32(addr.Port)}}}
		try := func(path string) Result {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return Try(ctx, corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Path: path, Port: intstr.FromString("web"), Scheme: scheme, HTTPHeaders: []corev1.HTTPHeader{{Name: "Host", Value: "app.example"}, {Name: "X-K", Value: "v"}},
			}}, target)
		}
		require.Equal(t, Result{OK: true}, try("/ok?a=1"))
		require.Equal(t, "HTTP status 503", try("/bad").Message)
		require.Equal(t, "HTTP status 503", try("/here").Message)
		require.True(t, try("/away").OK)
		require.Contains(t, try("/slow").Message, "deadline exceeded")
	}
}

func TestTCPAndGRPCProbes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr, ok := l.Addr().(*net.TCPAddr)
	require.True(t, ok)
	server, state := grpc.NewServer(), health.NewServer()
	healthpb.RegisterHealthServer(server, state)
	done := make(chan error)
	go func() { done <- server.Serve(l) }()
	target := Target{Address: "127.0.0.1"}
	tcp := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(strconv.Itoa(addr.Port))}}
	rpc := corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(addr.Port)}}
	require.True(t, Try(t.Context(), tcp, target).OK)
	require.True(t, Try(t.Context(), rpc, target).OK)
	state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	require.Equal(t, "gRPC health is NOT_SERVING", Try(t.Context(), rpc, target).Message)
	server.Stop()
	require.NoError(t, <-done)
	require.Contains(t, Try(t.Context(), tcp, target).Message, "refused")
	require.False(t, Try(t.Context(), rpc, target).OK)
	named := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
	require.Equal(t, `no port is named "web"`, Try(t.Context(), named, target).Message)
	require.False(t, Try(t.Context(), corev1.ProbeHandler{}, target).OK)
}

func TestExecProbesTellCodeOutputAndTimeOut(t *testing.T) {
	exec := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"check"}}}
	with := func(code int32, out string, err error) Result {
		return Try(t.Context(), exec, Target{Exec: func(_ context.Context, argv []string) (int32, string, error) {
			require.Equal(t, []string{"check"}, argv)
			return code, out, err
		}})
	}
	require.True(t, with(0, "", nil).OK)
	require.Equal(t, "command exited with 2: no", with(2, "no", nil).Message)
	require.Equal(t, "command timed out", with(137, "", context.DeadlineExceeded).Message)
}

// script runs a loop on a fake clock; next answers one try and returns what was reported after it.
type script struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	asked   chan struct{}
	answers chan bool
	mu      sync.Mutex
	reports []bool
}

func start(t *testing.T, spec *corev1.Probe, eager bool) *script {
	s := &script{t: t, clock: clocktesting.NewFakeClock(time.Unix(0, 0)), asked: make(chan struct{}), answers: make(chan bool)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		Loop(ctx, s.clock, spec, eager, func(ctx context.Context) Result {
			select {
			case s.asked <- struct{}{}:
				return Result{OK: <-s.answers}
			case <-ctx.Done():
				return Result{}
			}
		}, func(r Result) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.reports = append(s.reports, r.OK)
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

// after advances the clock by exactly d, before which no try may come, and answers the try that is then due.
func (s *script) after(d time.Duration, ok bool) []bool {
	s.t.Helper()
	if d > 0 {
		require.Eventually(s.t, s.clock.HasWaiters, 5*time.Second, time.Millisecond)
		s.clock.Step(d - time.Millisecond)
		select {
		case <-s.asked:
			require.Fail(s.t, "a try came too early")
		default:
		}
		require.True(s.t, s.clock.HasWaiters())
		s.clock.Step(time.Millisecond)
	}
	<-s.asked
	s.answers <- ok
	require.Eventually(s.t, s.clock.HasWaiters, 5*time.Second, time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]bool(nil), s.reports...)
}

func TestDelaysPeriodsAndThresholdsAreExact(t *testing.T) {
	s := start(t, &corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 3, SuccessThreshold: 2, FailureThreshold: 2, TimeoutSeconds: 60}, false)
	const period = 3 * time.Second
	require.Empty(t, s.after(5*time.Second, true))
	require.Empty(t, s.after(period, false))
	require.Equal(t, []bool{false}, s.after(period, false))
	require.Equal(t, []bool{false}, s.after(period, false))
	require.Equal(t, []bool{false}, s.after(period, true))
	require.Equal(t, []bool{false, true}, s.after(period, true))
	require.Equal(t, []bool{false, true}, s.after(period, true))
	require.Equal(t, []bool{false, true}, s.after(period, false))
	require.Equal(t, []bool{false, true, false}, s.after(period, false))
}

func TestDefaultsAreTheKubelets(t *testing.T) {
	s := start(t, &corev1.Probe{TimeoutSeconds: 60}, false)
	require.Empty(t, s.after(0, false))
	require.Empty(t, s.after(10*time.Second, false))
	require.Equal(t, []bool{false}, s.after(10*time.Second, false))
	require.Equal(t, []bool{false, true}, s.after(10*time.Second, true))
}

func TestAnEagerProbeAsksSoonerUntilTheFirstSuccessOnly(t *testing.T) {
	s := start(t, &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 60}, true)
	s.after(0, false)
	s.after(100*time.Millisecond, false)
	s.after(200*time.Millisecond, false)
	s.after(400*time.Millisecond, false)
	s.after(800*time.Millisecond, false)
	s.after(time.Second, true)
	s.after(time.Second, false)
	s.after(time.Second, false)
}
