package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/test/controlplane"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

const patience = 30 * time.Second

// cluster is a real API server without controllers or nodes; the test plays them.
type cluster struct {
	t      *testing.T
	client kubernetes.Interface
	plane  *controlplane.ControlPlane
	ns     string
}

var numbered struct {
	sync.Mutex
	n int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, plane: controlplane.ForTest(t, controlplane.Options{})}
	client, err := kubernetes.NewForConfig(c.plane.Config())
	require.NoError(t, err)
	c.client = client
	numbered.Lock()
	numbered.n++
	c.ns = fmt.Sprintf("facts-%d", numbered.n)
	numbered.Unlock()
	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.ns}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.CoreV1().ServiceAccounts(c.ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

func (c *cluster) node(name, zone string) {
	_, err := c.client.CoreV1().Nodes().Create(c.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() {
		require.NoError(c.t, c.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}))
	})
}

func (c *cluster) pod(app string, index int, node string) *corev1.Pod {
	grace, mount := int64(30), false
	p, err := c.client.CoreV1().Pods(c.ns).Create(c.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", app, index), Labels: map[string]string{
			labelApplication: app, labelSet: app, labelIndex: fmt.Sprint(index), labelIncarnation: "0", labelRevision: "r1", "tier": "hot", "rack": "7",
		}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &mount,
			Containers: []corev1.Container{{Name: "x", Image: "x"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	return p
}

func (c *cluster) ready(p *corev1.Pod, ready bool, restarts int32) *corev1.Pod {
	value := corev1.ConditionFalse
	if ready {
		value = corev1.ConditionTrue
	}
	p = p.DeepCopy()
	p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, "127.0.70.1", []corev1.PodIP{{IP: "127.0.70.1"}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: value, LastTransitionTime: metav1.Now()}}
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "x", RestartCount: restarts}}
	p, err := c.client.CoreV1().Pods(c.ns).UpdateStatus(c.t.Context(), p, metav1.UpdateOptions{})
	require.NoError(c.t, err)
	return p
}

// run starts a source and waits until it has listed.
func (c *cluster) run(client kubernetes.Interface) *Source {
	s := New(client, clock.RealClock{}, testr.New(c.t))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// eventually waits for a publication that fits.
func eventually(t *testing.T, store *facts.Store, published <-chan struct{}, what string, ok func(*facts.Snapshot) bool) {
	t.Helper()
	deadline := time.After(patience)
	for !ok(store.Snapshot()) {
		select {
		case <-published:
		case <-deadline:
			text, err := store.Snapshot().MarshalJSON()
			require.NoError(t, err)
			require.FailNow(t, what+": did not come", string(text))
		}
	}
}

func watched() (*facts.Store, chan struct{}) {
	published := make(chan struct{}, 1)
	return facts.NewStore(func(*facts.Snapshot) {
		select {
		case published <- struct{}{}:
		default:
		}
	}), published
}

func wait(t *testing.T, what <-chan struct{}) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(patience):
		require.FailNow(t, "it did not come in time")
	}
}

func TestPodsAndNodesOfARealAPIServerBecomeFactsOfTheirApplication(t *testing.T) {
	c := newCluster(t)
	c.node("facts-n1", "z1")
	first := c.ready(c.pod("db", 0, "facts-n1"), true, 3)
	c.pod("other", 0, "")
	s := c.run(c.client)
	wait(t, s.Synced())
	store, published := watched()
	closing := s.Open(c.ns, "db", map[string][]string{"place": {"tier", "rack"}, "none": {"absent"}}, func(ch facts.Changes) { store.Apply(ch) })

	got := store.Snapshot()
	require.Equal(t, 1, got.Pods().Len(), "all that is known comes at once, and of this application only")
	p := got.Pods().Get("db-0")
	require.Equal(t, "z1", p.Zone)
	require.Equal(t, map[string]string{"place": "hot/7"}, p.Groups)
	require.True(t, p.Available)
	require.Equal(t, 3, p.Restarts)
	require.Equal(t, "127.0.70.1", p.IP)
	require.InDelta(t, float64(first.Status.Conditions[0].LastTransitionTime.Unix()), p.Since, 1)
	require.Equal(t, "z1", got.Nodes().Get("facts-n1").Zone)
	require.GreaterOrEqual(t, got.Seen(), version(first.ResourceVersion))

	second := c.ready(c.pod("db", 1, "facts-n1"), true, 0)
	eventually(t, store, published, "a new pod", func(s *facts.Snapshot) bool { return s.Seen() >= version(second.ResourceVersion) })
	require.True(t, store.Snapshot().Pods().Get("db-1").Available)

	second = c.ready(second, false, 1)
	eventually(t, store, published, "it is not ready any more", func(s *facts.Snapshot) bool { return !s.Pods().Get("db-1").Ready })

	require.NoError(t, c.client.CoreV1().Pods(c.ns).Delete(t.Context(), "db-0", metav1.DeleteOptions{}))
	eventually(t, store, published, "it terminates", func(s *facts.Snapshot) bool { return s.Pods().Get("db-0").Terminating })
	require.False(t, store.Snapshot().Pods().Get("db-0").Available, "ready, but terminating")
	zero := int64(0)
	require.NoError(t, c.client.CoreV1().Pods(c.ns).Delete(t.Context(), "db-0", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	eventually(t, store, published, "it is gone", func(s *facts.Snapshot) bool { return s.Pods().Get("db-0") == nil })

	n, err := c.client.CoreV1().Nodes().Get(t.Context(), "facts-n1", metav1.GetOptions{})
	require.NoError(t, err)
	n.Annotations = map[string]string{maintenanceMark: "temporary"}
	n.Spec.Unschedulable = true
	n.Labels[corev1.LabelTopologyZone] = "z2"
	_, err = c.client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
	require.NoError(t, err)
	eventually(t, store, published, "the node is marked", func(s *facts.Snapshot) bool {
		return s.Nodes().Get("facts-n1").Maintenance == "temporary" && !s.Nodes().Get("facts-n1").Schedulable && s.Pods().Get("db-1").Zone == "z2"
	})

	asOf := store.Snapshot().Collectors()[facts.Kubernetes].AsOf
	eventually(t, store, published, "the facts stay young without any event", func(s *facts.Snapshot) bool {
		source := s.Collectors()[facts.Kubernetes]
		return source.OK && source.AsOf > asOf
	})
	closing()
	before := store.Snapshot().Version()
	third := c.pod("db", 2, "")
	other, published := watched()
	s.Open(c.ns, "db", nil, func(ch facts.Changes) { other.Apply(ch) })
	eventually(t, other, published, "the pod is seen", func(s *facts.Snapshot) bool { return s.Seen() >= version(third.ResourceVersion) })
	require.Equal(t, before, store.Snapshot().Version(), "a closed view is told nothing")
}

func TestCO09_WithoutTheRightToListNothingIsKnownAndItIsSaid(t *testing.T) {
	c := newCluster(t)
	config, err := c.plane.ServiceAccountConfig(t.Context(), c.ns, "default")
	require.NoError(t, err)
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	s := c.run(client)
	store, published := watched()
	s.Open(c.ns, "db", nil, func(ch facts.Changes) { store.Apply(ch) })
	eventually(t, store, published, "the failure is told", func(*facts.Snapshot) bool { return s.Problem() != "" })
	source := store.Snapshot().Collectors()[facts.Kubernetes]
	require.False(t, source.OK)
	require.False(t, source.Delivered())
	eventually(t, store, published, "it names the right", func(s *facts.Snapshot) bool {
		return s.Collectors()[facts.Kubernetes].Error != "pods and nodes are not listed yet"
	})

	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: c.ns}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "nodes"}, Verbs: []string{"get", "list", "watch"}}}}
	_, err = c.client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: c.ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.ns},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: c.ns, Name: "default"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	wait(t, s.Synced())
	eventually(t, store, published, "it heals by itself", func(s *facts.Snapshot) bool { return s.Collectors()[facts.Kubernetes].OK })
	require.Empty(t, s.Problem())
}
