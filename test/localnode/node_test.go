package localnode

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"assent.dev/assent/test/controlplane"
)

// labeled makes nodes that scheduled pods of the world choose from.
func labeled(world string, names ...string) []Node {
	var out []Node
	for i, n := range names {
		out = append(out, Node{Name: world + "-" + n, Zone: string(rune('a' + i)), Labels: map[string]string{"world": world}})
	}
	return out
}

func TestAClaimBecomesADirectoryThatOutlivesThePodAndDiesWithTheClaim(t *testing.T) {
	w := newWorld(t, "claims", labeled("claims", "a", "b"))
	ctx := t.Context()
	data := w.claim("data-p")
	script := []string{"sh", "-c", "echo run >> /data/log; wc -l < /data/log; exec sleep 600"}
	w.create(pod("p", "", script, data, w.scheduled))
	first := w.until("p", "ready", ready)
	w.log("p", "1")
	pvc, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Get(ctx, "data-p", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, corev1.ClaimBound, pvc.Status.Phase)
	pv, err := w.client.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(pv.Spec.Local.Path, "log"))

	w.delete("p")
	w.gone("p")
	w.create(pod("p", "", script, data, w.scheduled))
	second := w.until("p", "ready", ready)
	require.Equal(t, first.Spec.NodeName, second.Spec.NodeName)
	require.Equal(t, first.Status.PodIP, second.Status.PodIP)
	w.log("p", "2")

	w.delete("p")
	w.gone("p")
	require.NoError(t, w.client.CoreV1().PersistentVolumeClaims(w.namespace).Delete(ctx, "data-p", metav1.DeleteOptions{}))
	w.eventually("the volume is gone", func() bool {
		_, err := w.client.CoreV1().PersistentVolumes().Get(ctx, pv.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	require.NoDirExists(t, pv.Spec.Local.Path)
}

func TestPowerOffKillsAtOnceWritesNothingAndPowerOnBootsThePodsAgain(t *testing.T) {
	w := newWorld(t, "power", labeled("power", "a"))
	ctx := t.Context()
	data := w.claim("data-p")
	w.create(pod("p", "", []string{"sh", "-c", "echo run >> /data/log; wc -l < /data/log; exec sleep 600"}, data, w.scheduled))
	w.create(pod("deleted", "power-a", as("stubborn"), grace(600)))
	w.create(pod("removed", "power-a", as("stubborn"), grace(600)))
	before := w.until("p", "ready", ready)
	for _, name := range []string{"deleted", "removed"} {
		w.log(name, "started")
		w.until(name, "ready", ready)
	}
	node := w.agent.Node("power-a")
	node.PowerOff()
	require.False(t, node.On())
	require.Empty(t, processesOf(w.dir))
	// Another write makes it certain that one of the agent would have come before.
	require.Equal(t, before.ResourceVersion, w.get("p").ResourceVersion)
	lease, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "power-a", metav1.GetOptions{})
	require.NoError(t, err)

	require.NoError(t, node.ReportLost(ctx))
	w.until("p", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	w.eventually("the node is tainted as unreachable", func() bool {
		n, err := w.client.CoreV1().Nodes().Get(ctx, "power-a", metav1.GetOptions{})
		require.NoError(t, err)
		for _, taint := range n.Spec.Taints {
			if taint.Key == corev1.TaintNodeUnreachable {
				return true
			}
		}
		return false
	})
	w.delete("deleted")
	require.NotNil(t, w.get("deleted").DeletionTimestamp)
	now := int64(0)
	require.NoError(t, w.client.CoreV1().Pods(w.namespace).Delete(ctx, "removed", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	same, err := w.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, "power-a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, lease.ResourceVersion, same.ResourceVersion)

	require.NoError(t, node.PowerOn(ctx))
	after := w.until("p", "ready", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
	require.Equal(t, before.UID, after.UID)
	require.Equal(t, before.Status.PodIP, after.Status.PodIP)
	require.Equal(t, "NodeLost", main0(after).LastTerminationState.Terminated.Reason)
	w.log("p", "2")
	w.gone("deleted")
	w.eventually("the node is Ready and not tainted", func() bool {
		n, err := w.client.CoreV1().Nodes().Get(ctx, "power-a", metav1.GetOptions{})
		return err == nil && len(n.Spec.Taints) == 0 && nodeReady(n)
	})
	require.Len(t, processesOf(w.dir), 1)
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestNodesComeAndGo(t *testing.T) {
	w := newWorld(t, "comego", []Node{{Name: "comego-a", Zone: "a"}})
	ctx := t.Context()
	_, err := w.agent.Add(ctx, Node{Name: "comego-b", Zone: "b"})
	require.NoError(t, err)
	n, err := w.client.CoreV1().Nodes().Get(ctx, "comego-b", metav1.GetOptions{})
	require.NoError(t, err)
	require.True(t, nodeReady(n))
	require.Equal(t, "b", n.Labels[corev1.LabelTopologyZone])
	_, err = w.agent.Add(ctx, Node{Name: "comego-b"})
	require.ErrorContains(t, err, "adding node comego-b")
	w.create(pod("p", "comego-b", as("polite")))
	w.until("p", "ready", ready)
	require.NoError(t, w.agent.Remove(ctx, "comego-b"))
	require.Empty(t, processesOf(w.dir))
	_, err = w.client.CoreV1().Nodes().Get(ctx, "comego-b", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err))
	require.ErrorIs(t, w.agent.Node("comego-b").PowerOn(ctx), ErrUnknownNode)
	require.ErrorContains(t, w.agent.Node("comego-a").ReportLost(ctx), "it has power")
}

func TestAnAgentOnTheFolderOfAKilledOneTakesOver(t *testing.T) {
	w := newWorld(t, "takeover", []Node{{Name: "takeover-a"}})
	w.create(pod("p", "takeover-a", as("waiting")))
	w.until("p", "ready", ready)
	_, err := Start(t.Context(), Options{Config: w.cp.Config(), Dir: w.dir})
	require.ErrorContains(t, err, "does another agent use it?")
	require.NoError(t, w.agent.Stop())
	require.Empty(t, processesOf(w.dir))
	w.start(w.cp.Config(), []Node{{Name: "takeover-a"}})
	w.until("p", "ready again", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
}

func TestTheAgentNeedsNoMoreRightsThanItsClusterRole(t *testing.T) {
	w := newWorld(t, "rights", nil)
	ctx := t.Context()
	require.NoError(t, w.agent.Stop())
	_, err := w.client.CoreV1().ServiceAccounts(w.namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "agent"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.client.RbacV1().ClusterRoles().Create(ctx, ClusterRole(w.namespace), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: w.namespace},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.namespace, Name: "agent"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	cfg, err := w.cp.ServiceAccountConfig(ctx, w.namespace, "agent")
	require.NoError(t, err)
	w.start(cfg, labeled("rights", "a"))
	w.create(pod("p", "", as("polite"), w.claim("data-p"), w.scheduled, func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }))
	w.until("p", "ready", ready)
	node := w.agent.Node("rights-a")
	node.PowerOff()
	require.NoError(t, node.ReportLost(ctx))
	require.NoError(t, node.PowerOn(ctx))
	w.until("p", "ready again", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
	w.delete("p")
	w.gone("p")
	require.NoError(t, w.client.CoreV1().PersistentVolumeClaims(w.namespace).Delete(ctx, "data-p", metav1.DeleteOptions{}))
	w.eventually("the volume is gone", func() bool {
		all, err := w.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		for _, pv := range all.Items {
			if pv.Spec.ClaimRef.Namespace == w.namespace {
				return false
			}
		}
		return true
	})
	require.NoError(t, w.agent.Remove(ctx, "rights-a"))
}

func TestKubectlLogsReachesTheNode(t *testing.T) {
	w := newWorld(t, "logs", []Node{{Name: "logs-a"}})
	w.create(pod("p", "logs-a", []string{"sh", "-c", "echo one; echo two; exec sleep 600"}))
	w.until("p", "ready", ready)
	w.log("p", "two")
	read := func(o corev1.PodLogOptions) string {
		stream, err := w.client.CoreV1().Pods(w.namespace).GetLogs("p", &o).Stream(t.Context())
		require.NoError(t, err)
		defer func() { require.NoError(t, stream.Close()) }()
		raw, err := io.ReadAll(stream)
		require.NoError(t, err)
		return string(raw)
	}
	one := int64(1)
	require.Equal(t, "one\ntwo\n", read(corev1.PodLogOptions{}))
	require.Equal(t, "two\n", read(corev1.PodLogOptions{TailLines: &one}))
	require.NoError(t, w.agent.Kill(w.namespace, "p", ""))
	w.until("p", "restarted", func(p *corev1.Pod) bool { return main0(p).RestartCount == 1 })
	require.Equal(t, "one\ntwo\n", read(corev1.PodLogOptions{Previous: true}))
}

// TestThreeEtcdProcessesFormAClusterAndSurviveTheLossOfANode is what the package is for.
func TestThreeEtcdProcessesFormAClusterAndSurviveTheLossOfANode(t *testing.T) {
	const subnet = "127.0.63.0/24"
	w := newWorld(t, "etcds", labeled("etcds", "a", "b", "c"), func(o *Options) {
		binary, err := controlplane.ForTest(t).Binary("etcd")
		require.NoError(t, err)
		o.Path = []string{filepath.Dir(binary)}
	})
	var peers, endpoints []string
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("etcd-%d=http://127.0.63.%d:2380", i, i+1))
		endpoints = append(endpoints, fmt.Sprintf("http://127.0.63.%d:2379", i+1))
	}
	for i := range 3 {
		name := fmt.Sprintf("etcd-%d", i)
		command := []string{
			"etcd", "--name=$(POD_NAME)", "--data-dir=/data/etcd", "--log-level=warn",
			"--listen-client-urls=http://$(POD_IP):2379", "--advertise-client-urls=http://$(POD_IP):2379",
			"--listen-peer-urls=http://$(POD_IP):2380", "--initial-advertise-peer-urls=http://$(POD_IP):2380",
			"--initial-cluster=" + strings.Join(peers, ","), "--initial-cluster-state=new", "--initial-cluster-token=$(POD_NAMESPACE)",
		}
		w.create(pod(name, "", command, w.claim("data-"+name), w.scheduled, at(subnet, i), spread, etcdEnv))
	}
	for i := range 3 {
		w.until(fmt.Sprintf("etcd-%d", i), "ready", ready)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	put := func(key, value string) {
		w.eventually("writing "+key, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := client.Put(ctx, key, value)
			return err == nil
		})
	}
	put("k1", "before")
	lost := w.get("etcd-1")
	node := w.agent.Node(lost.Spec.NodeName)
	node.PowerOff()
	put("k2", "while away")
	require.NoError(t, node.PowerOn(t.Context()))
	w.until("etcd-1", "ready again", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
	direct, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoints[1]}, DialTimeout: 5 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, direct.Close()) }()
	w.eventually("the member that was away has both keys", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		got, err := direct.Get(ctx, "k", clientv3.WithPrefix())
		return err == nil && len(got.Kvs) == 2
	})
	w.delete("etcd-0")
	p := w.until("etcd-0", "ended", func(p *corev1.Pod) bool { return main0(p).State.Terminated != nil })
	require.EqualValues(t, 143, main0(p).State.Terminated.ExitCode)
	require.Equal(t, corev1.PodSucceeded, p.Status.Phase)
	w.gone("etcd-0")
}

func etcdEnv(p *corev1.Pod) {
	c := &p.Spec.Containers[0]
	for name, path := range map[string]string{"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"} {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}})
	}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(2379)}}}
}

// spread puts one pod of the app a zone.
func spread(p *corev1.Pod) {
	p.Labels["app"] = "etcd"
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd"}},
	}}
}

// TestAProcessOfAKilledAgentIsKilledByTheNext runs an agent in a process of its own and kills that one.
func TestAProcessOfAKilledAgentIsKilledByTheNext(t *testing.T) {
	w := newWorld(t, "orphans", nil)
	require.NoError(t, w.agent.Stop())
	cmd := exec.Command(as()[0], "as", "agent", w.cp.Kubeconfig(), w.dir, "orphans-a")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	require.NoError(t, cmd.Start())
	// The grandchild leaves its parent's group, so that no parent-death signal reaches it.
	w.create(pod("p", "orphans-a", []string{"sh", "-c", "setsid sleep 600 & echo up; exec sleep 600"}))
	w.until("p", "ready", ready)
	w.eventually("both run", func() bool { return len(processesOf(w.dir)) >= 2 })
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	require.ErrorContains(t, cmd.Wait(), "killed")
	w.eventually("only the grandchild is left over", func() bool { return len(processesOf(w.dir)) == 1 })
	w.start(w.cp.Config(), []Node{{Name: "orphans-a"}})
	w.until("p", "ready again", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
	w.eventually("only the new ones run", func() bool { return len(processesOf(w.dir)) == 2 })
}
