package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"assent.dev/assent/acm/internal/bundle/bundletest"
	acmv1 "assent.dev/assent/proto/acm/v1"
	"assent.dev/assent/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

const patience = 30 * time.Second

// log is a buffer that a process may write while a test reads.
type log struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// served is `acm serve` as it runs, against a real API server.
type served struct {
	acm     acmv1.ClusterManagerServiceClient
	health  healthpb.HealthClient
	web     string
	metrics string
	out     *log
	stop    func() error
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func startServe(t *testing.T, kubeconfig, namespace, id string, dir string) *served {
	t.Helper()
	listen, health, metrics, out := free(t), free(t), free(t), &log{}
	ctx, cancel := context.WithCancel(t.Context())
	ids, ended := 0, make(chan error, 1)
	var mu sync.Mutex
	env := Env{Stdout: out, Stderr: out, NewID: func() string {
		mu.Lock()
		defer mu.Unlock()
		ids++
		return fmt.Sprintf("%s-%d", id, ids)
	}}
	go func() {
		ended <- serve(ctx, serveOptions{bundles: dir, listen: listen, health: health, metrics: metrics, kubeconfig: kubeconfig,
			namespace: namespace, decisionLog: "-"}, env, logr.FromSlogHandler(slog.NewJSONHandler(out, nil)))
	}()
	conn, err := grpc.NewClient(listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	s := &served{acm: acmv1.NewClusterManagerServiceClient(conn), health: healthpb.NewHealthClient(conn), web: "http://" + health, metrics: "http://" + metrics, out: out}
	s.stop = sync.OnceValue(func() error {
		cancel()
		err := <-ended
		require.NoError(t, conn.Close())
		return err
	})
	t.Cleanup(func() { require.NoError(t, s.stop(), out) })
	require.Eventually(t, func() bool {
		h, err := s.health.Check(ctx, &healthpb.HealthCheckRequest{})
		return err == nil && h.GetStatus() == healthpb.HealthCheckResponse_SERVING
	}, patience, 20*time.Millisecond, out)
	return s
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url) //nolint:noctx // a test's own server
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode, string(text)
}

// evaluate asks for a deployment of app-0 and gives its only decision.
func (s *served) evaluate(t *testing.T, number uint64) (*acmv1.Decision, int64) {
	t.Helper()
	r, err := s.acm.Evaluate(t.Context(), &acmv1.EvaluateRequest{
		Application: &acmv1.Application{Namespace: "default", Name: "app", Policy: "redis"}, RequestNumber: number,
		Session:                   &acmv1.Session{Id: "s", Term: 1, Age: durationpb.New(time.Hour)},
		ApplicationMaxUnavailable: 1,
		Sets:                      []*acmv1.PodSet{{Name: "app", MaxUnavailable: 1, Wanted: []*acmv1.IndexRange{{}}, EverAvailable: []*acmv1.IndexRange{{}}}},
		Instances: []*acmv1.Instance{{Operation: "op", Type: acmv1.OperationType_OPERATION_TYPE_DEPLOYMENT, Stage: acmv1.Stage_STAGE_REMOVE,
			State: acmv1.InstanceState_INSTANCE_STATE_WAITING, Set: "app", Pod: "app-0", Key: "k"}},
	})
	require.NoError(t, err)
	require.Len(t, r.GetDecisions(), 1)
	return r.GetDecisions()[0], r.GetEpoch()
}

func TestServeDecidesFromARealClusterAndHandsItsLeaseOver(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{})
	client, err := kubernetes.NewForConfig(cp.Config())
	require.NoError(t, err)
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "leases-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	runningPod(t, client)
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", bundletest.Bundle("redis"))

	one := startServe(t, cp.Kubeconfig(), ns.Name, "one", dir)
	code, text := get(t, one.web+"/readyz")
	require.Equal(t, "200 ok\n", fmt.Sprintf("%d %s", code, text))
	var d *acmv1.Decision
	number := uint64(0)
	decided := func(s *served, verdict acmv1.Verdict, reason string) {
		t.Helper()
		require.Eventually(t, func() bool {
			number++
			d, _ = s.evaluate(t, number)
			return d.GetVerdict() == verdict && (reason == "" || d.GetReasons()[0].GetCode() == reason)
		}, patience, 50*time.Millisecond, "%v\n%s", d, s.out)
	}
	decided(one, acmv1.Verdict_VERDICT_APPROVE, "")
	lease, err := client.CoordinationV1().Leases(ns.Name).Get(t.Context(), "acm-default.app", metav1.GetOptions{})
	require.NoError(t, err)
	require.Contains(t, *lease.Spec.HolderIdentity, "one-1")
	require.Zero(t, *lease.Spec.LeaseTransitions)

	// The policy is edited on disk: live, without a restart; and one that is bad changes nothing but is told.
	denying := "package apps.redis\n\ndeny contains {\"code\": \"redis.frozen\", \"message\": \"no deployments this week\"}\n\ndefer := set()\n\napprove if input.operation.type == \"deployment\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis", "policy_test.rego"), []byte("package apps.redis_test\n\ntest_frozen if count(data.apps.redis.deny) == 1\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis", "policy.rego"), []byte(denying), 0o600))
	decided(one, acmv1.Verdict_VERDICT_DENY, "redis.frozen")
	require.Equal(t, "no deployments this week", d.GetReasons()[0].GetMessage())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis", "policy.rego"), []byte("package apps.redis\n\nx := ]\n"), 0o600))
	require.Eventually(t, func() bool {
		code, text = get(t, one.web+"/readyz")
		return code == http.StatusOK && len(text) > len("ok\n")
	}, patience, 50*time.Millisecond)
	require.Contains(t, text, "redis/policy.rego:3:")
	decided(one, acmv1.Verdict_VERDICT_DENY, "redis.frozen")
	_, text = get(t, one.metrics+"/metrics")
	require.Contains(t, text, `assent_acm_bundle_invalid{policy="redis"} 1`)
	require.Contains(t, text, `assent_acm_lease_held{application="app",namespace="default"} 1`)
	bundletest.Write(t, dir, "redis", bundletest.Bundle("redis"))
	decided(one, acmv1.Verdict_VERDICT_APPROVE, "")

	// A second process waits; the first ends and hands over at once.
	two := startServe(t, cp.Kubeconfig(), ns.Name, "two", dir)
	decided(two, acmv1.Verdict_VERDICT_DEFER, "acm.not_deciding")
	require.NoError(t, one.stop())
	require.Contains(t, one.out.String(), `"verdict":"deny"`, "the decision log is written to its end")
	decided(two, acmv1.Verdict_VERDICT_APPROVE, "")
	_, epoch := two.evaluate(t, number+1)
	require.Equal(t, int64(1), epoch)
}

// runningPod makes the pod app-0, which its node says is ready.
func runningPod(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	pods := client.CoreV1().Pods("default")
	p, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "app-0", Labels: map[string]string{
			"assent.dev/application": "app", "assent.dev/set": "app", "assent.dev/index": "0", "assent.dev/incarnation": "0"}},
		Spec: corev1.PodSpec{NodeName: "n-0", Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	_, err = pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	require.NoError(t, err)
}

func TestServeTellsWhatItLacks(t *testing.T) {
	code, out := acm("serve")
	require.Equal(t, 1, code)
	require.Contains(t, out, `required flag(s) "bundles" not set`)
	code, out = acm("serve", "--bundles", t.TempDir(), "--kubeconfig", "/nowhere")
	require.Equal(t, 1, code)
	require.Contains(t, out, "finding the Kubernetes API")
	code, out = acm("serve", "--bundles", t.TempDir(), "--decision-log", "/nowhere/log")
	require.Equal(t, 1, code)
	require.Contains(t, out, "opening the decision log")
}
