package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/child"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
	"assent.dev/assent/test/wrap"
	"assent.dev/assent/test/wrap/live"
)

const (
	// runAsOperator makes this test's own binary the operator.
	runAsOperator = "ASSENT_TEST_RUN_AS_OPERATOR"
	namespace     = "assent-system"
	account       = "assent-operator"
	// patience is how long one thing may take on a busy machine; tick is how often it is looked for.
	patience = time.Minute
	tick     = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	if os.Getenv(runAsOperator) != "" {
		main()
		os.Exit(0)
	}
	controlplane.Main(m)
}

// replica is the operator as a process, with the rights of its service account and nobody to ask.
type replica struct {
	health, metrics string
	cmd             *exec.Cmd
	log             child.Buffer
	running         *child.Running
}

// cluster is an API server with accounts and roles as config/ grants them.
func cluster(t *testing.T) (*controlplane.ControlPlane, client.Client) {
	t.Helper()
	cp, c := live.Cluster(t)
	dir, err := live.Config("overlays/out-of-cluster")
	require.NoError(t, err)
	require.NoError(t, install.Apply(t.Context(), cp.Config(), dir))
	return cp, c
}

func start(t *testing.T, cp *controlplane.ControlPlane) *replica {
	t.Helper()
	kubeconfig, err := cp.KubeconfigFor(t.Context(), namespace, account)
	require.NoError(t, err)
	r := &replica{health: freeAddress(t), metrics: freeAddress(t)}
	r.cmd = exec.Command(os.Args[0], "--kubeconfig", kubeconfig, "--acm", "default=127.0.0.1:1", "--leader-elect",
		"--metrics-bind-address", r.metrics, "--health-probe-bind-address", r.health)
	r.cmd.Env = append(os.Environ(), runAsOperator+"=1")
	r.cmd.Stdout, r.cmd.Stderr = &r.log, &r.log
	r.running, err = child.Start(r.cmd)
	require.NoError(t, err)
	t.Cleanup(func() {
		ended := r.stop(t)
		if t.Failed() {
			t.Logf("the replica ended with %v; its log:\n%s", ended, r.log.String())
		}
	})
	return r
}

// stop ends the replica as a kubelet does and returns how it ended.
func (r *replica) stop(t *testing.T) error {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stopping the operator: %v", err)
	}
	return r.wait(t)
}

func (r *replica) wait(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-r.running.Exited:
	case <-ctx.Done():
		t.Errorf("the operator does not end: %v", r.cmd.Process.Kill())
		<-r.running.Exited
	}
	return r.running.Ended()
}

func (r *replica) leads(want bool) func() bool {
	line := "\nassent_operator_leading 0\n"
	if want {
		line = "\nassent_operator_leading 1\n"
	}
	return func() bool { return strings.Contains(page("http://"+r.metrics+"/metrics"), line) }
}

func (r *replica) ready() bool { return page("http://"+r.health+"/readyz") != "" }

// page is what a page says; nothing when it does not answer with 200.
func page(url string) string {
	response, err := http.Get(url)
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(response.Body)
	if errors.Join(err, response.Body.Close()) != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := child.FreeAddress()
	require.NoError(t, err)
	return address
}

func TestTwoReplicasOneActsAndTheOtherTakesOverInAHigherTerm(t *testing.T) {
	cp, c := cluster(t)
	ns := live.Namespace(t, c)
	first := start(t, cp)
	require.Eventually(t, first.leads(true), patience, tick)
	require.Eventually(t, first.ready, patience, tick)
	second := start(t, cp)
	require.Eventually(t, second.ready, patience, tick, "a replica in waiting has its caches warm")
	require.True(t, second.leads(false)())

	require.NoError(t, c.Create(t.Context(), wrap.LiStatefulSet(ns, "db").Replicas(2).Obj()))
	op := &v1alpha1.Operation{}
	key := client.ObjectKey{Namespace: ns, Name: "db-0-out-1"}
	require.Eventually(t, func() bool {
		return c.Get(t.Context(), key, op) == nil && op.Status.Reason == "acm.unavailable"
	}, patience, tick, "every controller runs, and the wait for the ACM is visible")
	pods := &corev1.PodList{}
	require.NoError(t, c.List(t.Context(), pods, client.InNamespace(ns)))
	require.Empty(t, pods.Items, "nobody approved anything")

	require.NoError(t, first.stop(t), "an ordered end is no error")
	require.Eventually(t, second.leads(true), patience, tick, "the Lease was given back")
	require.Contains(t, first.log.String(), `"term":1`)
	require.Contains(t, second.log.String(), `"term":2`)
	set := &v1alpha1.LiStatefulSet{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "db"}, set))
	three := int32(3)
	set.Spec.Replicas = &three
	require.NoError(t, c.Update(t.Context(), set))
	require.Eventually(t, func() bool {
		return c.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "db-0-out-2"}, op) == nil
	}, patience, tick, "the second one acts")

	for _, r := range []*replica{first, second} {
		require.NotContains(t, strings.ToLower(r.log.String()), "forbidden")
	}
}

func TestCR02_ALeaderThatLosesItsLeaseEndsAtOnce(t *testing.T) {
	cp, c := cluster(t)
	r := start(t, cp)
	require.Eventually(t, r.leads(true), patience, tick)
	lease := &coordinationv1.Lease{}
	require.Eventually(t, func() bool {
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: leaseName}, lease))
		other, now, seconds := "somebody-else", metav1.NowMicro(), int32(3600)
		lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &other, &now, &seconds
		return c.Update(t.Context(), lease) == nil
	}, patience, tick, "the holder may renew it in between")
	t.Cleanup(func() { require.NoError(t, c.Delete(context.Background(), lease)) })
	require.Error(t, r.wait(t), "nothing of a lost term may go on")
	require.Contains(t, r.log.String(), "leader election lost")
	require.Equal(t, "somebody-else", *lease.Spec.HolderIdentity)
}

func TestTheCacheHoldsOnlyOurPodsAndOnlyTheNamespaceAskedFor(t *testing.T) {
	cp, c := cluster(t)
	config, err := cp.ServiceAccountConfig(t.Context(), namespace, account)
	require.NoError(t, err)
	ours, others := live.Namespace(t, c), live.Namespace(t, c)
	for _, p := range []struct{ namespace, name, set string }{
		{ours, "db-0", "db"}, {ours, "web", ""}, {others, "db-0", "db"},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:1"}}},
		}
		if p.set != "" {
			pod.Labels = map[string]string{v1alpha1.LabelSet: p.set}
		}
		// There is no controller that makes the account that admission looks for.
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "default"}}
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), sa)))
		require.NoError(t, c.Create(t.Context(), pod))
	}

	for wanted, o := range map[int]*options{2: {}, 1: {namespace: ours}} {
		o.metricsAddress, o.healthAddress = "0", "0"
		mgr, err := newManager(config, o)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- mgr.Start(ctx) }()
		require.Eventually(t, func() bool { return cachesReady(mgr)(request(t)) == nil }, patience, tick)
		pods := &corev1.PodList{}
		require.NoError(t, mgr.GetCache().List(ctx, pods))
		var names []string
		for _, p := range pods.Items {
			if p.Namespace == ours || p.Namespace == others {
				names = append(names, p.Name)
			}
		}
		require.Len(t, names, wanted)
		require.NotContains(t, names, "web")
		cancel()
		require.NoError(t, <-ended)
	}
}

func request(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil)
	require.NoError(t, err)
	return r
}
