package localnode

import (
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestAPodRunsIsReadyAndTerminatesGracefully(t *testing.T) {
	w := newWorld(t, "graceful", []Node{{Name: "graceful-a", Zone: "a"}})
	w.create(pod("p", "graceful-a", as("polite")))
	p := w.until("p", "ready", ready)
	require.Equal(t, corev1.PodRunning, p.Status.Phase)
	require.NotNil(t, p.Status.StartTime)
	require.Equal(t, p.Generation, p.Status.ObservedGeneration)
	require.True(t, netip.MustParseAddr(p.Status.PodIP).IsLoopback())
	require.Equal(t, hostIP, p.Status.HostIP)
	for _, c := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady} {
		require.True(t, is(p, c, corev1.ConditionTrue), c)
	}
	c := main0(p)
	require.NotNil(t, c.State.Running)
	require.True(t, *c.Started)
	require.Zero(t, c.RestartCount)
	w.log("p", "started")

	w.delete("p")
	p = w.until("p", "ended", func(p *corev1.Pod) bool { return main0(p).State.Terminated != nil })
	require.Zero(t, main0(p).State.Terminated.ExitCode)
	require.False(t, ready(p))
	w.gone("p")
	w.log("p", "goodbye")
	require.NoDirExists(t, filepath.Join(w.dir, "nodes", "graceful-a", "pods", string(p.UID)))
}

func TestAProcessThatEndsBySIGTERMIsNoCrash(t *testing.T) {
	w := newWorld(t, "sigterm", []Node{{Name: "sigterm-a"}})
	w.create(pod("p", "sigterm-a", as("waiting")))
	w.log("p", "started")
	w.until("p", "ready", ready)
	w.delete("p")
	p := w.until("p", "ended", func(p *corev1.Pod) bool { return main0(p).State.Terminated != nil })
	end := main0(p).State.Terminated
	require.EqualValues(t, 143, end.ExitCode)
	require.EqualValues(t, syscall.SIGTERM, end.Signal)
	require.Equal(t, "Terminated", end.Reason)
	require.Equal(t, corev1.PodSucceeded, p.Status.Phase)
	w.gone("p")
}

func TestAStubbornProcessIsKilledAfterTheGracePeriodAndTheObjectStaysUntilThen(t *testing.T) {
	w := newWorld(t, "stubborn", []Node{{Name: "stubborn-a"}})
	created := w.create(pod("p", "stubborn-a", as("stubborn"), grace(1)))
	w.log("p", "started")
	w.until("p", "ready", ready)
	require.NotEmpty(t, processesOf(w.dir))
	w.delete("p")
	// While the object exists it must not be replaced, and when it is gone so are the processes.
	_, err := w.client.CoreV1().Pods(w.namespace).Create(t.Context(), pod("p", "stubborn-a", as("polite")), metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
	p := w.until("p", "killed", func(p *corev1.Pod) bool { return p.UID == created.UID && main0(p).State.Terminated != nil })
	require.EqualValues(t, 137, main0(p).State.Terminated.ExitCode)
	require.Equal(t, corev1.PodFailed, p.Status.Phase)
	w.gone("p")
	require.Empty(t, processesOf(w.dir))
}

func TestAForceDeletedPodLosesItsProcessesBeforeItsSuccessorStarts(t *testing.T) {
	w := newWorld(t, "forced", []Node{{Name: "forced-a"}})
	w.create(pod("p", "forced-a", as("stubborn"), grace(60)))
	w.log("p", "started")
	first := w.until("p", "ready", ready)
	now := int64(0)
	require.NoError(t, w.client.CoreV1().Pods(w.namespace).Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	w.create(pod("p", "forced-a", as("polite")))
	second := w.until("p", "ready", ready)
	require.NotEqual(t, first.UID, second.UID)
	require.Equal(t, first.Status.PodIP, second.Status.PodIP)
	require.Len(t, processesOf(w.dir), 1)
}

func TestACrashingContainerIsRestartedWithBackOffAndCounted(t *testing.T) {
	w := newWorld(t, "crashloop", []Node{{Name: "crashloop-a"}})
	w.create(pod("p", "crashloop-a", as("failing", "3")))
	p := w.until("p", "in back-off", func(p *corev1.Pod) bool {
		s := main0(p).State.Waiting
		return s != nil && s.Reason == "CrashLoopBackOff" && main0(p).RestartCount >= 2
	})
	c := main0(p)
	require.Contains(t, c.State.Waiting.Message, "restarting failed container=main pod=p_"+w.namespace)
	require.EqualValues(t, 3, c.LastTerminationState.Terminated.ExitCode)
	require.Equal(t, "Error", c.LastTerminationState.Terminated.Reason)
	require.Equal(t, corev1.PodRunning, p.Status.Phase)
	require.False(t, ready(p))
	w.until("p", "more restarts", func(p *corev1.Pod) bool { return main0(p).RestartCount > c.RestartCount })
	w.delete("p")
	w.gone("p")
}

func TestAKilledProcessIsRestarted(t *testing.T) {
	w := newWorld(t, "killed", []Node{{Name: "killed-a"}})
	w.create(pod("p", "killed-a", as("polite")))
	w.until("p", "ready", ready)
	require.NoError(t, w.agent.Kill(w.namespace, "p", ""))
	p := w.until("p", "restarted", func(p *corev1.Pod) bool { return ready(p) && main0(p).RestartCount == 1 })
	require.EqualValues(t, 137, main0(p).LastTerminationState.Terminated.ExitCode)
	require.EqualValues(t, 9, main0(p).LastTerminationState.Terminated.Signal)
	require.ErrorIs(t, w.agent.Kill(w.namespace, "other", ""), ErrUnknownPod)
}

func TestRunToCompletionPodsEndInTheRightPhase(t *testing.T) {
	w := newWorld(t, "phases", []Node{{Name: "phases-a"}})
	onFailure := func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }
	w.create(pod("good", "phases-a", as("failing", "0"), never))
	w.create(pod("bad", "phases-a", as("failing", "7"), never))
	w.create(pod("retried", "phases-a", []string{"sh", "-c", `test -e /state/seen || { touch /state/seen; exit 5; }`}, onFailure,
		mount("state", "/state", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})))
	w.until("good", "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	bad := w.until("bad", "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
	require.EqualValues(t, 7, main0(bad).State.Terminated.ExitCode)
	retried := w.until("retried", "succeeded", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	require.EqualValues(t, 1, main0(retried).RestartCount)
	for _, name := range []string{"good", "bad", "retried"} {
		w.delete(name)
		w.gone(name)
	}
}

func TestInitContainersRunInOrderAndASidecarStaysUntilTheMainContainerHasEnded(t *testing.T) {
	w := newWorld(t, "inits", []Node{{Name: "inits-a"}})
	always := corev1.ContainerRestartPolicyAlways
	shared := corev1.VolumeMount{Name: "state", MountPath: "/state"}
	w.create(pod("p", "inits-a", []string{"sh", "-c", "echo main >> /state/order; trap 'echo main-end >> /state/order; exit 0' TERM; while :; do sleep 0.05; done"},
		mount("state", "/state", corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}),
		func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "one", Image: "any", Command: []string{"sh", "-c", "sleep 0.1; echo one >> /state/order"}, VolumeMounts: []corev1.VolumeMount{shared}},
				{Name: "side", Image: "any", RestartPolicy: &always, VolumeMounts: []corev1.VolumeMount{shared}, Command: []string{
					"sh", "-c", "echo side >> /state/order; trap 'echo side-end >> /state/order; cp /state/order " + w.dir + "/order; exit 0' TERM; while :; do sleep 0.05; done"},
				},
				{Name: "two", Image: "any", Command: []string{"sh", "-c", "while ! grep -q side /state/order; do sleep 0.01; done; echo two >> /state/order"}, VolumeMounts: []corev1.VolumeMount{shared}},
			}
		}))
	p := w.until("p", "ready", ready)
	require.True(t, p.Status.InitContainerStatuses[1].Ready)
	require.NotNil(t, p.Status.InitContainerStatuses[0].State.Terminated)
	w.eventually("main has begun", func() bool {
		raw, err := os.ReadFile(filepath.Join(w.dir, "nodes", "inits-a", "pods", string(p.UID), "volumes", "state", "order"))
		return err == nil && string(raw) == "one\nside\ntwo\nmain\n"
	})
	w.delete("p")
	w.gone("p")
	order, err := os.ReadFile(filepath.Join(w.dir, "order"))
	require.NoError(t, err)
	require.Equal(t, "one\nside\ntwo\nmain\nmain-end\nside-end\n", string(order))
}

func TestAPodDeletedWhileAnInitContainerRunsStaysUntilItsProcessIsGone(t *testing.T) {
	w := newWorld(t, "initdelete", []Node{{Name: "initdelete-a"}})
	w.create(pod("p", "initdelete-a", as("polite"), grace(1), func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "any", Command: as("stubborn")}}
	}))
	w.until("p", "its init container running", func(p *corev1.Pod) bool {
		return len(p.Status.InitContainerStatuses) == 1 && p.Status.InitContainerStatuses[0].State.Running != nil
	})
	w.eventually("it ignores SIGTERM", func() bool {
		out, err := w.agent.Logs(w.namespace, "p", "setup")
		return err == nil && out == "started\n"
	})
	w.delete("p")
	p := w.until("p", "killed", func(p *corev1.Pod) bool { return p.Status.InitContainerStatuses[0].State.Terminated != nil })
	require.EqualValues(t, 137, p.Status.InitContainerStatuses[0].State.Terminated.ExitCode)
	w.gone("p")
	require.Empty(t, processesOf(w.dir))
}

func TestABadImageWaitsAndIsCuredByTheNextOne(t *testing.T) {
	w := newWorld(t, "badimage", []Node{{Name: "badimage-a"}})
	w.create(pod("p", "badimage-a", as("polite"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "registry.example/app:missing" }))
	p := w.until("p", "image pull back-off", func(p *corev1.Pod) bool {
		s := main0(p).State.Waiting
		return s != nil && s.Reason == "ImagePullBackOff"
	})
	require.Equal(t, corev1.PodPending, p.Status.Phase)
	patch := []byte(`{"spec":{"containers":[{"name":"main","image":"registry.example/app:v2"}]}}`)
	_, err := w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), "p", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	p = w.until("p", "ready", ready)
	require.Equal(t, "registry.example/app:v2", main0(p).Image)
	require.Zero(t, main0(p).RestartCount)
	// A new image in place restarts the container, and is no crash.
	_, err = w.client.CoreV1().Pods(w.namespace).Patch(t.Context(), "p", types.StrategicMergePatchType,
		[]byte(`{"spec":{"containers":[{"name":"main","image":"registry.example/app:v3"}]}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	w.until("p", "restarted", func(p *corev1.Pod) bool {
		return ready(p) && main0(p).Image == "registry.example/app:v3" && main0(p).RestartCount == 1
	})
}

func TestWhatCannotBeHonoredIsRefusedInTheStatus(t *testing.T) {
	w := newWorld(t, "refused", []Node{{Name: "refused-a"}})
	w.create(pod("p", "refused-a", nil, mount("etc", "/etc", corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "s", Path: "/"}})))
	p := w.until("p", "refused", func(p *corev1.Pod) bool {
		s := main0(p).State.Waiting
		return s != nil && s.Reason == "CreateContainerConfigError"
	})
	require.Contains(t, main0(p).State.Waiting.Message, "container main: no command")
	require.Contains(t, main0(p).State.Waiting.Message, "volume etc: only emptyDir")
	require.Equal(t, corev1.PodPending, p.Status.Phase)
	w.eventually("an event", func() bool {
		events, err := w.client.CoreV1().Events(w.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=p,reason=Unsupported"})
		return err == nil && len(events.Items) == 1
	})
	w.create(pod("host", "refused-a", as("polite"), mount("etc", "/etc", corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}})))
	w.until("host", "refused", func(p *corev1.Pod) bool {
		return p.Status.Reason == "FailedMount" && p.Status.Message == "volume etc: path /etc is outside the folders this node may use"
	})
	w.create(pod("typo", "refused-a", []string{"no-such-program"}))
	w.until("typo", "a start error", func(p *corev1.Pod) bool {
		last := main0(p).LastTerminationState.Terminated
		return last != nil && last.Reason == "StartError" && last.ExitCode == 128
	})
	for _, name := range []string{"p", "host", "typo"} {
		w.delete(name)
		w.gone(name)
	}
}
