package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { Main(m) }

func clients(t *testing.T, cfg *rest.Config) *kubernetes.Clientset {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	return c
}

func TestAFakeNodeRunsAPodToReady(t *testing.T) {
	cp := ForTest(t)
	c := clients(t, cp.Config())
	ctx := t.Context()
	_, err := c.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fake-1", Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		pod, err := c.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != ""
	}, 30*time.Second, 50*time.Millisecond)
	require.NoError(t, c.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool {
		_, err := c.CoreV1().Pods("default").Get(ctx, "p", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}, 30*time.Second, 50*time.Millisecond)
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

// TestKilledPredecessorHelper is not a test: it is the predecessor, in a process of its own.
func TestKilledPredecessorHelper(t *testing.T) {
	out := os.Getenv("ASSENT_TEST_PREDECESSOR")
	if out == "" {
		return
	}
	// A child that survives its parent: it is started as a component is, but without the death signal.
	r, err := newRecord(filepath.Join(out, "data"))
	require.NoError(t, err)
	child := exec.Command("tail", "-f", "/dev/null")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, child.Start())
	require.NoError(t, r.add("tail", child.Process.Pid))
	text, err := json.Marshal(r.Children["tail"])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(out, "child.json"), text, 0o600))
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGKILL))
}

func TestAKilledPredecessorIsCleanedUp(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "data", "etcd"), 0o755))
	predecessor := exec.Command(os.Args[0], "-test.run=TestKilledPredecessorHelper")
	predecessor.Env = append(os.Environ(), "ASSENT_TEST_PREDECESSOR="+dir)
	require.Error(t, predecessor.Run(), "it must have been killed")
	text, err := os.ReadFile(filepath.Join(dir, "child.json"))
	require.NoError(t, err)
	child := identity{}
	require.NoError(t, json.Unmarshal(text, &child))
	require.True(t, child.alive())
	_, err = sweep()
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !child.alive() }, 10*time.Second, 10*time.Millisecond)
	require.NoDirExists(t, filepath.Join(dir, "data"))
}

func TestAReusedProcessNumberIsNotKilled(t *testing.T) {
	self, err := identify(os.Getpid())
	require.NoError(t, err)
	require.True(t, self.alive())
	self.Start = "1"
	require.False(t, self.alive())
}

func TestStopLeavesNothingBehind(t *testing.T) {
	cp, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	dir, record := cp.Dir(), cp.record.path
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
}

func TestGivenAssetsAreUsedAndNotBuilt(t *testing.T) {
	assets, cache := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(assets, "etcd"), []byte("#!/bin/sh\necho given\n"), 0o755)) //nolint:gosec // a program must be executable
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("ASSENT_CACHE", cache)
	dir, err := Ensure(t.Context(), nil, "etcd")
	require.NoError(t, err)
	out, err := exec.Command(filepath.Join(dir, "etcd")).Output()
	require.NoError(t, err)
	require.Equal(t, "given\n", string(out))
}

func TestTheSecondBuilderWaitsAndSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var said bytes.Buffer
	_, err = lock(ctx, path, &said)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, said.String(), "another process is building")
	unlock()
	again, err := lock(t.Context(), path, nil)
	require.NoError(t, err)
	again()
}

func TestAnUnknownProgramIsRefusedByName(t *testing.T) {
	_, err := (&ControlPlane{}).Binary("kubelet")
	require.ErrorContains(t, err, `no program "kubelet"`)
}
