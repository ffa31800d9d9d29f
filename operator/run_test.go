package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/wrap"
	"assent.dev/assent/test/wrap/live"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

func get(url string) (int, string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// A process leads once in its life, so this is one test: it waits while another leads, takes over, works, and ends when
// the Lease is taken away.
func TestCR02TheProcessLeadsWorksAndEndsWhenItsLeaseIsLost(t *testing.T) {
	cp, c := live.Cluster(t)
	ns := live.Namespace(t, c)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: leaseName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("predecessor"), LeaseDurationSeconds: ptr.To(int32(3)), LeaseTransitions: ptr.To(int32(6)),
			AcquireTime: ptr.To(metav1.NowMicro()), RenewTime: ptr.To(metav1.NowMicro()),
		},
	}
	require.NoError(t, c.Create(t.Context(), lease))
	o := &options{
		acms: []string{"default=" + freeAddress(t)}, cluster: "test", namespace: ns, leaderElect: true, leaderNamespace: ns,
		metricsAddress: freeAddress(t), healthAddress: freeAddress(t), evaluateTimeout: time.Second, kubeconfig: cp.Kubeconfig(),
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { ended <- run(ctx, logr.Discard(), o) }()

	require.Eventually(t, func() bool { code, _ := get("http://" + o.healthAddress + "/readyz"); return code == http.StatusOK },
		20*time.Second, 50*time.Millisecond, "a replica in waiting is ready: its caches are warm")
	require.Eventually(t, func() bool {
		_, text := get("http://" + o.metricsAddress + "/metrics")
		return has(text, "assent_operator_leading 0")
	}, 10*time.Second, 50*time.Millisecond)

	require.Eventually(t, func() bool {
		_, text := get("http://" + o.metricsAddress + "/metrics")
		return has(text, "assent_operator_leading 1")
	}, 60*time.Second, 100*time.Millisecond, "the predecessor's Lease runs out")
	term, err := termOf(t.Context(), c, o)
	require.NoError(t, err)
	require.Equal(t, int64(8), term, "one more than the predecessor's")

	require.NoError(t, c.Create(t.Context(), wrap.LiStatefulSet(ns, "db").Obj()))
	require.Eventually(t, func() bool {
		op := &v1alpha1.Operation{}
		return c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "db-0-out-1"}, op) == nil && op.Status.Reason == "acm.unavailable"
	}, 20*time.Second, 50*time.Millisecond, "it works, and nobody answers")

	steal(t, c, lease)
	select {
	case err := <-ended:
		require.ErrorContains(t, err, "leader election lost")
	case <-time.After(60 * time.Second):
		require.Fail(t, "the process goes on without its Lease")
	}
}

func has(text, line string) bool {
	return slices.Contains(strings.Split(text, "\n"), line)
}

// steal gives the Lease to somebody else who keeps it.
func steal(t *testing.T, c client.Client, lease *coordinationv1.Lease) {
	t.Helper()
	require.Eventually(t, func() bool {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(lease), lease); err != nil {
			return false
		}
		lease.Spec.HolderIdentity = ptr.To("successor")
		lease.Spec.LeaseDurationSeconds = ptr.To(int32(3600))
		lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
		return c.Update(t.Context(), lease) == nil
	}, 10*time.Second, 10*time.Millisecond)
}

func TestWithoutLeaderElectionTheTermIsTheTime(t *testing.T) {
	term, err := termOf(t.Context(), nil, &options{})
	require.NoError(t, err)
	require.InDelta(t, time.Now().Unix(), term, 2, fmt.Sprint(term))
}
