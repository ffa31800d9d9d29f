package localnode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestEnvironmentArgumentsAndFilesTellAPodWhoItIs(t *testing.T) {
	w := newWorld(t, "whoami", []Node{{Name: "whoami-a", Zone: "a"}})
	ctx := t.Context()
	_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cm"}, Data: map[string]string{"COLOR": "red", "app.conf": "one"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = w.client.CoreV1().Secrets(w.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"password": "xyzzy"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	p := w.create(pod("p-2", "whoami-a", as("env", "--listen=$(POD_IP):80", "--data=/data/x", "$(NOPE)", "$$(POD_IP)"),
		at("127.0.61.0/24", 2),
		mount("data", "/data", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		mount("conf", "/etc/conf", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}),
		mount("who", "/etc/who", corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{
			{Path: "labels", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}),
		func(p *corev1.Pod) {
			c := &p.Spec.Containers[0]
			c.EnvFrom = []corev1.EnvFromSource{{Prefix: "FROM_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}
			c.Env = []corev1.EnvVar{
				{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "POD_NAMESPACE", ValueFrom: field("metadata.namespace")},
				{Name: "POD_UID", ValueFrom: field("metadata.uid")}, {Name: "POD_IP", ValueFrom: field("status.podIP")},
				{Name: "HOST_IP", ValueFrom: field("status.hostIP")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
				{Name: "INDEX", ValueFrom: field("metadata.labels['assent.dev/index']")},
				{Name: "SUBNET", ValueFrom: field("metadata.annotations['localnode.assent.dev/subnet']")},
				{Name: "URL", Value: "http://$(POD_IP):2380"}, {Name: "CONFIG", Value: "/etc/conf/app.conf"},
				{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "password"}}},
			}
		}))
	require.Equal(t, "127.0.61.3", w.until("p-2", "ready", ready).Status.PodIP)
	volumes := filepath.Join(w.dir, "nodes", "whoami-a", "pods", string(p.UID), "volumes")
	out := w.log("p-2", "args:")
	for _, line := range []string{
		"POD_NAME=p-2", "POD_NAMESPACE=" + w.namespace, "POD_UID=" + string(p.UID), "POD_IP=127.0.61.3", "HOST_IP=127.0.0.1", "NODE=whoami-a",
		"INDEX=2", "SUBNET=127.0.61.0/24", "URL=http://127.0.61.3:2380", "FROM_COLOR=red", "PASSWORD=xyzzy", "HOSTNAME=p-2",
		"CONFIG=" + volumes + "/conf/app.conf", "ASSENT_MOUNT_DATA=" + volumes + "/data",
		"args: --listen=127.0.61.3:80 --data=" + volumes + "/data/x $(NOPE) $(POD_IP)",
	} {
		require.Contains(t, out, line+"\n")
	}
	read := func(path string) string {
		raw, err := os.ReadFile(filepath.Join(volumes, path))
		require.NoError(t, err)
		return string(raw)
	}
	require.Equal(t, "one", read("conf/app.conf"))
	// The API server may add the labels of the node's zone to the pod's.
	require.Contains(t, strings.Split(read("who/labels"), "\n"), `assent.dev/index="2"`)

	_, err = w.client.CoreV1().Pods(w.namespace).Patch(ctx, "p-2", types.MergePatchType, []byte(`{"metadata":{"labels":{"more":"yes"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.eventually("the file follows the labels", func() bool { return strings.Contains(read("who/labels"), `more="yes"`) })
}

func TestAMissingConfigMapHoldsThePodBackUntilItComes(t *testing.T) {
	w := newWorld(t, "latecm", []Node{{Name: "latecm-a"}}, func(o *Options) { o.Refresh = patience })
	source := corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "late"}}}
	p := w.create(pod("p", "latecm-a", as("polite"), mount("conf", "/conf", source)))
	w.until("p", "waiting for its volume", func(p *corev1.Pod) bool {
		return p.Status.Reason == "FailedMount" && strings.Contains(p.Status.Message, `configmaps "late" not found`)
	})
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Data: map[string]string{"k": "1"}}
	_, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), cm, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Empty(t, w.until("p", "ready", ready).Status.Reason)
	require.FileExists(t, filepath.Join(w.dir, "nodes", "latecm-a", "pods", string(p.UID), "volumes", "conf", "k"))
}

func TestATokenOfThePodsServiceAccountIsProjected(t *testing.T) {
	w := newWorld(t, "token", []Node{{Name: "token-a"}})
	p := w.create(pod("p", "token-a", as("polite"), func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }))
	w.until("p", "ready", ready)
	files, err := filepath.Glob(filepath.Join(w.dir, "nodes", "token-a", "pods", string(p.UID), "volumes", "kube-api-access-*", "token"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	raw, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Len(t, strings.Split(string(raw), "."), 3)
}

func TestProbesOpenReadinessAndRestartWhatIsNotAlive(t *testing.T) {
	w := newWorld(t, "probes", []Node{{Name: "probes-a"}})
	flag := func(name string) string { return filepath.Join(w.dir, name) }
	touch := func(name string) { require.NoError(t, os.WriteFile(flag(name), nil, 0o600)) }
	overHTTP := func(name string, threshold int32) *corev1.Probe {
		return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: threshold, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/file" + flag(name), Port: intstr.FromString("web")}}}
	}
	byExec := &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{Command: []string{"test", "-e", flag("ready")}}}}
	touch("alive")
	w.create(pod("p", "probes-a", as("serving", "$(IP):8080"), func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}
		c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		c.StartupProbe, c.ReadinessProbe, c.LivenessProbe = overHTTP("started", 20), byExec, overHTTP("alive", 1)
	}))
	p := w.until("p", "running", func(p *corev1.Pod) bool { return main0(p).State.Running != nil })
	require.False(t, *main0(p).Started)
	touch("started")
	p = w.until("p", "started", func(p *corev1.Pod) bool { return *main0(p).Started })
	require.False(t, ready(p))
	touch("ready")
	w.until("p", "ready", ready)
	require.NoError(t, os.Remove(flag("ready")))
	p = w.until("p", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	require.Zero(t, main0(p).RestartCount)
	touch("ready")
	w.until("p", "ready", ready)
	require.NoError(t, os.Remove(flag("alive")))
	w.until("p", "restarted", func(p *corev1.Pod) bool { return main0(p).RestartCount == 1 })
	touch("alive")
	w.until("p", "ready", ready)
}

func TestAPreStopHookRunsBeforeTheSignalAndWithinTheGracePeriod(t *testing.T) {
	w := newWorld(t, "prestop", []Node{{Name: "prestop-a"}})
	hook := func(script string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", script}}}}
		}
	}
	record := "trap 'cp /s/hook " + w.dir + "/seen; exit 0' TERM; echo up; while :; do sleep 0.02; done"
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	w.create(pod("p", "prestop-a", []string{"sh", "-c", record}, mount("s", "/s", empty), hook("sleep 0.2; echo ran > $ASSENT_MOUNT_S/hook")))
	w.create(pod("hanging", "prestop-a", as("polite"), grace(1), hook("exec sleep 600")))
	w.log("p", "up")
	w.log("hanging", "started")
	w.until("p", "ready", ready)
	w.delete("p")
	w.gone("p")
	seen, err := os.ReadFile(filepath.Join(w.dir, "seen"))
	require.NoError(t, err)
	require.Equal(t, "ran\n", string(seen))
	w.delete("hanging")
	w.gone("hanging")
	w.log("hanging", "goodbye")
	require.Empty(t, processesOf(w.dir))
}

func TestReadinessGatesHoldThePodBackAndOthersConditionsAndAnnotationsStay(t *testing.T) {
	w := newWorld(t, "gates", []Node{{Name: "gates-a"}})
	w.create(pod("p", "gates-a", as("polite"), func(p *corev1.Pod) {
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/serving"}}
	}))
	p := w.until("p", "containers ready", func(p *corev1.Pod) bool { return is(p, corev1.ContainersReady, corev1.ConditionTrue) })
	require.False(t, ready(p))
	set := func(status string) {
		body := []byte(`{"metadata":{"annotations":{"note":"` + status + `"}},"status":{"conditions":[{"type":"example.com/serving","status":"` + status + `"}]}}`)
		_, err := w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	set("True")
	w.until("p", "ready", ready)
	require.NoError(t, w.agent.Kill(w.namespace, "p", "main"))
	p = w.until("p", "ready again", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
	require.True(t, is(p, "example.com/serving", corev1.ConditionTrue))
	require.Equal(t, "True", p.Annotations["note"])
	set("False")
	p = w.until("p", "not ready", func(p *corev1.Pod) bool { return !ready(p) })
	require.True(t, is(p, corev1.ContainersReady, corev1.ConditionTrue))
}

func TestTwoPodsOnOneAddressTellWhoHasItAndTheSecondWaits(t *testing.T) {
	w := newWorld(t, "clash", []Node{{Name: "clash-a"}, {Name: "clash-b"}})
	w.create(pod("first", "clash-a", as("polite"), at("127.0.62.0/24", 0)))
	w.until("first", "ready", ready)
	w.create(pod("second", "clash-b", as("polite"), at("127.0.62.0/24", 0)))
	p := w.until("second", "blocked", func(p *corev1.Pod) bool { return p.Status.Reason == "AddressInUse" })
	require.Equal(t, "address 127.0.62.1 is in use by pod "+w.namespace+"/first", p.Status.Message)
	require.Equal(t, corev1.PodPending, p.Status.Phase)
	w.delete("first")
	p = w.until("second", "ready", ready)
	require.Equal(t, "127.0.62.1", p.Status.PodIP)
	require.Empty(t, p.Status.Reason)
}
