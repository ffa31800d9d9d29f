package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) { Main(m) }

func clients(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return c
}

// soon is for what real components do by themselves, on a busy machine.
func soon(t *testing.T, what string, done func(ctx context.Context) (bool, error)) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		var ok bool
		ok, last = done(ctx)
		return ok && last == nil, nil
	})
	require.NoError(t, err, "%s: %v", what, last)
}

// fakeNode makes a node that kwok plays, and waits until pods can go there.
func fakeNode(t *testing.T, c *kubernetes.Clientset, name string) {
	t.Helper()
	_, err := c.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, Annotations: map[string]string{FakeNodeAnnotation: FakeNodeValue},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	soon(t, "the fake node gets ready", func(ctx context.Context) (bool, error) {
		node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), err
	})
}

func podReady(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != "" && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func onePod(name string, labels map[string]string, finalizers ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: labels, Finalizers: finalizers},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func TestAFakeNodeRunsAPodToReadyAndLetsItGo(t *testing.T) {
	c, ctx := clients(t, ForTest(t).Config()), t.Context()
	fakeNode(t, c, "fake-pods")
	pods := c.CoreV1().Pods("default")
	_, err := pods.Create(ctx, onePod("free", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = pods.Create(ctx, onePod("held", nil, "example.com/held"), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"free", "held"} {
		soon(t, name+" gets ready", func(ctx context.Context) (bool, error) {
			pod, err := pods.Get(ctx, name, metav1.GetOptions{})
			return err == nil && podReady(pod), err
		})
		require.NoError(t, pods.Delete(ctx, name, metav1.DeleteOptions{}))
	}
	gone := func(name string) {
		soon(t, name+" goes", func(ctx context.Context) (bool, error) {
			_, err := pods.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
	}
	gone("free")
	soon(t, "held is as dead as it can be", func(ctx context.Context) (bool, error) {
		pod, err := pods.Get(ctx, "held", metav1.GetOptions{})
		return err == nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0, err
	})
	_, err = pods.Patch(ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	gone("held")
}

func TestAFakeNodeKeepsItsHeartbeat(t *testing.T) {
	c := clients(t, ForTest(t).Config())
	fakeNode(t, c, "fake-lease")
	var first *metav1.MicroTime
	soon(t, "its Lease is renewed", func(ctx context.Context) (bool, error) {
		lease, err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "fake-lease", metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return false, err
		}
		if first == nil {
			first = lease.Spec.RenewTime
		}
		return lease.Spec.RenewTime.After(first.Time), nil
	})
}

func TestANodeWithoutTheAnnotationIsLeftAlone(t *testing.T) {
	c, ctx := clients(t, ForTest(t).Config()), t.Context()
	_, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	fakeNode(t, c, "fake-after-other") // kwok has seen both by then
	node, err := c.CoreV1().Nodes().Get(ctx, "other", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, node.Status.Addresses)
}

func TestAServiceAccountHasExactlyItsRights(t *testing.T) {
	cp := ForTest(t)
	admin, ctx := clients(t, cp.Config()), t.Context()
	_, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "reader"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cfg, err := cp.ServiceAccountConfig(ctx, "default", "reader")
	require.NoError(t, err)
	reader := clients(t, cfg)
	require.Eventually(t, func() bool {
		_, err := reader.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil
	}, 10*time.Second, 50*time.Millisecond)
	_, err = reader.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	path, err := cp.KubeconfigFor(ctx, "default", "reader")
	require.NoError(t, err)
	other, err := Start(ctx, Options{Kubeconfig: path})
	require.NoError(t, err)
	_, err = clients(t, other.Config()).CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "an existing kubeconfig is used as it is: %v", err)
	require.NoError(t, other.Stop())
	_, err = admin.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	require.NoError(t, err, "stopping the handle of an existing cluster stops nothing")
}

func TestAFailedComponentShowsTheEndOfItsLog(t *testing.T) {
	_, err := Start(t.Context(), Options{APIServerArgs: []string{"--no-such-flag"}})
	require.ErrorContains(t, err, "kube-apiserver ended while starting")
	require.ErrorContains(t, err, "no-such-flag")
}

func TestAComponentThatEndsAtOnceShowsItsLogToo(t *testing.T) {
	giveAssets(t, map[string]string{"etcd": "echo there is no disk >&2; exit 3", "kube-apiserver": "exit 0"})
	_, err := Start(t.Context(), Options{})
	require.ErrorContains(t, err, "etcd ended while starting (exit status 3)")
	require.ErrorContains(t, err, "there is no disk")
}

func TestAComponentThatNeverGetsReadyIsGivenUpWithItsLog(t *testing.T) {
	giveAssets(t, map[string]string{"etcd": "echo waiting for nobody; exec tail -f /dev/null", "kube-apiserver": "exit 0"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	before := runs(t)
	_, err := Start(ctx, Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "waiting for nobody")
	require.Equal(t, before, runs(t), "what was started is stopped and forgotten")
}

// runs are the records of this process.
func runs(t *testing.T) (mine []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(stateDir(), "run-*.json"))
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, fmt.Appendf(nil, `"owner":{"pid":%d,`, os.Getpid())) {
			mine = append(mine, path)
		}
	}
	return mine
}

// TestPredecessorHelper is not a test: it is the predecessor, in a process of its own. It has a control plane, and a
// child that outlives it as none should: one without the death signal.
func TestPredecessorHelper(t *testing.T) {
	out := os.Getenv("ASSENT_TEST_PREDECESSOR")
	if out == "" {
		return
	}
	cp, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	child := exec.Command("tail", "-f", "/dev/null")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, child.Start())
	require.NoError(t, cp.record.add("tail", child.Process.Pid))
	require.NoError(t, os.WriteFile(out, []byte(cp.record.path), 0o600))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
}

func TestAKilledPredecessorIsCleanedUp(t *testing.T) {
	out := filepath.Join(t.TempDir(), "record")
	predecessor := exec.Command(os.Args[0], "-test.run=^TestPredecessorHelper$")
	predecessor.Env = append(os.Environ(), "ASSENT_TEST_PREDECESSOR="+out)
	text, err := predecessor.CombinedOutput()
	require.Error(t, err, "it must have been killed")
	path, err := os.ReadFile(out)
	require.NoError(t, err, "%s", text)
	left := record{}
	text, err = os.ReadFile(string(path))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &left))
	require.Len(t, left.Children, 3)
	require.True(t, left.Children["tail"].alive())
	require.DirExists(t, left.Dir)
	_, err = sweep()
	require.NoError(t, err)
	for name, child := range left.Children {
		require.False(t, child.alive(), name)
	}
	require.NoDirExists(t, left.Dir)
	require.NoFileExists(t, string(path))
}

func TestALivingRunIsNotSwept(t *testing.T) {
	r, err := newRecord(t.TempDir())
	require.NoError(t, err)
	_, err = sweep()
	require.NoError(t, err)
	require.DirExists(t, r.Dir)
	require.FileExists(t, r.path)
	require.NoError(t, r.remove())
}

func TestAReusedProcessNumberIsNotKilled(t *testing.T) {
	child := exec.Command("tail", "-f", "/dev/null")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	require.NoError(t, child.Start())
	now, err := identify(child.Process.Pid)
	require.NoError(t, err)
	for _, former := range []identity{{now.PID, "1", now.Boot}, {now.PID, now.Start, "another"}} {
		require.False(t, former.alive())
		require.NoError(t, former.kill())
		require.True(t, now.alive())
	}
	require.NoError(t, now.kill())
	require.Error(t, child.Wait())
}

func TestStopLeavesNothingBehind(t *testing.T) {
	cp, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	dir, record, port := cp.Dir(), cp.record.path, cp.port(etcdPort)
	var pids []identity
	for _, p := range cp.record.Children {
		require.True(t, p.alive())
		pids = append(pids, p)
	}
	require.Len(t, pids, 2)
	require.NoError(t, cp.Stop())
	require.NoError(t, cp.Stop())
	require.NoDirExists(t, dir)
	require.NoFileExists(t, record)
	for _, p := range pids {
		require.False(t, p.alive())
	}
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	require.True(t, unused(number))
}

func TestTwoControlPlanesNeverChooseTheSamePorts(t *testing.T) {
	one, err := claimPorts(6)
	require.NoError(t, err)
	two, err := claimPorts(6)
	require.NoError(t, err)
	for _, port := range one.free {
		require.NotContains(t, two.free, port)
	}
	require.NoError(t, one.release())
	three, err := claimPorts(6)
	require.NoError(t, err)
	require.Equal(t, one.free, three.free, "what is given back can be had again")
	require.NoError(t, errors.Join(two.release(), three.release()))
}

func TestAFolderOfTheCallersIsKeptAndCanBeUsedAgain(t *testing.T) {
	o, ctx := Options{Dir: t.TempDir()}, t.Context()
	cp, err := Start(ctx, o)
	require.NoError(t, err)
	_, err = clients(t, cp.Config()).CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, cp.Stop())
	require.FileExists(t, filepath.Join(o.Dir, "kube-apiserver.log"))
	// Keys are new each time. The same process on the same ports must not go on trusting the old ones.
	again, err := Start(ctx, o)
	require.NoError(t, err)
	_, err = clients(t, again.Config()).CoreV1().ConfigMaps("default").Get(ctx, "kept", metav1.GetOptions{})
	require.NoError(t, err)
	require.NoError(t, again.Stop())
}
