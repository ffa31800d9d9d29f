package localnode

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"assent.dev/assent/test/controlplane"
)

const patience = 30 * time.Second

// world is one agent on the shared control plane, with a namespace of its own.
type world struct {
	t         *testing.T
	cp        *controlplane.ControlPlane
	client    kubernetes.Interface
	prefix    string
	namespace string
	agent     *Agent
	dir       string
}

// newWorld starts an agent with the nodes; names get the test's prefix, so that tests do not meet.
func newWorld(t *testing.T, prefix string, nodes []Node, edit ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, cp: controlplane.ForTest(t), prefix: prefix}
	cfg := w.cp.Config()
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	require.NoError(t, err)
	w.client = client
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: prefix + "-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	w.namespace = ns.Name
	t.Cleanup(func() {
		// A later agent with a node of the same name would boot them.
		now := int64(0)
		require.NoError(t, client.CoreV1().Pods(w.namespace).DeleteCollection(context.Background(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}))
	})
	w.eventually("the default service account", func() bool {
		_, err := client.CoreV1().ServiceAccounts(w.namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	})
	// Short, because paths of sockets and the like are.
	w.dir, err = os.MkdirTemp("", "localnode-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(w.dir)) })
	w.start(w.cp.Config(), nodes, edit...)
	return w
}

// start starts the agent; at the end of the test it is stopped, and must leave no goroutine and no process.
func (w *world) start(cfg *rest.Config, nodes []Node, edit ...func(*Options)) {
	w.t.Helper()
	before := goleak.IgnoreCurrent()
	o := Options{Config: cfg, Dir: w.dir, Nodes: nodes, Backoff: Backoff{Initial: 100 * time.Millisecond, Max: time.Second}, Heartbeat: time.Second}
	for _, e := range edit {
		e(&o)
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	agent, err := Start(ctx, o)
	require.NoError(w.t, err)
	w.agent = agent
	w.t.Cleanup(func() {
		require.NoError(w.t, agent.Stop())
		require.Empty(w.t, processesOf(w.dir))
		goleak.VerifyNone(w.t, before,
			// Connections of clients to the API server outlive the clients.
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		)
	})
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 10*time.Millisecond, what)
}

func (w *world) create(p *corev1.Pod) *corev1.Pod {
	w.t.Helper()
	got, err := w.client.CoreV1().Pods(w.namespace).Create(w.t.Context(), p, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return got
}

func (w *world) get(name string) *corev1.Pod {
	w.t.Helper()
	p, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return p
}

// until waits until the pod is as wanted and returns it so. What the pod looked like last is in the failure.
func (w *world) until(name, what string, ok func(*corev1.Pod) bool) *corev1.Pod {
	w.t.Helper()
	var last *corev1.Pod
	deadline := time.Now().Add(patience)
	watch, err := w.client.CoreV1().Pods(w.namespace).Watch(w.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	require.NoError(w.t, err)
	defer watch.Stop()
	if p, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{}); err == nil {
		if last = p; ok(p) {
			return p
		}
	}
	for {
		select {
		case e, open := <-watch.ResultChan():
			require.True(w.t, open, "the watch ended while waiting for %s", what)
			if p, isPod := e.Object.(*corev1.Pod); isPod {
				if last = p; ok(p) {
					return p
				}
			}
		case <-time.After(time.Until(deadline)):
			text, err := json.MarshalIndent(last, "", " ")
			require.NoError(w.t, err)
			require.Fail(w.t, "pod "+name+" never came to: "+what, string(text))
		}
	}
}

func (w *world) gone(name string) {
	w.t.Helper()
	w.eventually("pod "+name+" is gone", func() bool {
		_, err := w.client.CoreV1().Pods(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (w *world) delete(name string) {
	w.t.Helper()
	require.NoError(w.t, w.client.CoreV1().Pods(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// log waits until the container has printed text and returns the whole log.
func (w *world) log(pod, text string) string {
	w.t.Helper()
	var out string
	w.eventually("the log of "+pod+" says "+text, func() bool {
		var err error
		out, err = w.agent.Logs(w.namespace, pod, "main")
		return err == nil && strings.Contains(out, text)
	})
	return out
}

func ready(p *corev1.Pod) bool { return is(p, corev1.PodReady, corev1.ConditionTrue) }

func is(p *corev1.Pod, t corev1.PodConditionType, s corev1.ConditionStatus) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c.Status == s
		}
	}
	return false
}

func main0(p *corev1.Pod) corev1.ContainerStatus {
	if len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[0]
}

// pod builds a pod of one container "main" on a node, without a token.
func pod(name, node string, command []string, edit ...func(*corev1.Pod)) *corev1.Pod {
	no, grace := false, int64(10)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: &no, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{Name: "main", Image: "any", Command: command}},
		},
	}
	for _, e := range edit {
		e(p)
	}
	return p
}

func never(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }

func grace(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

func at(subnet string, index int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[SubnetAnnotation] = subnet
		p.Labels["assent.dev/index"] = strconv.Itoa(index)
	}
}

// scheduled leaves the choice of the node to the scheduler, among those labeled with the world's name.
func (w *world) scheduled(p *corev1.Pod) {
	p.Spec.NodeName = ""
	p.Spec.NodeSelector = map[string]string{"world": w.prefix}
}

func (w *world) claim(name string) func(*corev1.Pod) {
	w.t.Helper()
	class := StorageClass
	_, err := w.client.CoreV1().PersistentVolumeClaims(w.namespace).Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	return mount("data", "/data", corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
}

func mount(volume, path string, source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: source})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: path})
	}
}

// processesOf lists the living processes that have dir in their environment.
func processesOf(dir string) []int {
	var out []int
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil || pid == os.Getpid() {
			continue
		}
		raw, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(raw), dir+"/") && syscall.Kill(pid, 0) == nil {
			out = append(out, pid)
		}
	}
	return out
}
