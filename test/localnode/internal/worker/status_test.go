package worker

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"pgregory.net/rapid"
)

var t0 = time.Unix(1_764_543_600, 0)

func running() facts {
	return facts{state: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, role: mainContainer, runs: 1, ready: true, started: true}
}

func ended(code int32) facts {
	return facts{state: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}, role: mainContainer, runs: 1}
}

func unstarted() facts { return facts{state: waiting("ContainerCreating", ""), role: mainContainer} }

func crashing() facts {
	f := ended(1)
	f.last, f.state = f.state, waiting("CrashLoopBackOff", "")
	return f
}

func onInit(f facts) facts { f.role = initContainer; return f }

func byUs(f facts) facts { f.stoppedByUs = true; return f }

func viewOf(policy corev1.RestartPolicy, mains ...facts) view {
	return view{pod: &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: policy}}, podIP: "127.0.0.9", mounted: true, initialized: true, mains: mains}
}

func TestThePhaseFollowsTheContainers(t *testing.T) {
	const always, onFailure, never = corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever
	for _, c := range []struct {
		name string
		view view
		want corev1.PodPhase
	}{
		{"all run", viewOf(always, running(), running()), corev1.PodRunning},
		{"one has not started", viewOf(always, running(), unstarted()), corev1.PodPending},
		{"one is in back-off", viewOf(always, running(), crashing()), corev1.PodRunning},
		{"all are in back-off", viewOf(always, crashing()), corev1.PodRunning},
		{"ended well, to be started again", viewOf(always, ended(0)), corev1.PodRunning},
		{"ended well for good", viewOf(never, ended(0), ended(0)), corev1.PodSucceeded},
		{"one failed for good", viewOf(never, ended(0), ended(1)), corev1.PodFailed},
		{"one failed, one runs", viewOf(never, running(), ended(1)), corev1.PodRunning},
		{"failed, to be started again", viewOf(onFailure, ended(0), ended(1)), corev1.PodRunning},
		{"all ended well", viewOf(onFailure, ended(0)), corev1.PodSucceeded},
	} {
		require.Equal(t, c.want, phase(c.view), c.name)
	}
	init := viewOf(never, unstarted())
	init.initialized, init.inits = false, []facts{onInit(running())}
	require.Equal(t, corev1.PodPending, phase(init))
	init.inits = []facts{onInit(ended(1))}
	require.Equal(t, corev1.PodFailed, phase(init))
	init.pod.Spec.RestartPolicy = always
	require.Equal(t, corev1.PodPending, phase(init))
}

func TestADeletedPodEndsAsASuccessIfItsStopWentAsOrdered(t *testing.T) {
	for _, c := range []struct {
		name  string
		mains []facts
		want  corev1.PodPhase
	}{
		{"ended well", []facts{ended(0)}, corev1.PodSucceeded},
		{"by our SIGTERM", []facts{byUs(ended(143))}, corev1.PodSucceeded},
		{"by somebody's SIGTERM", []facts{ended(143)}, corev1.PodFailed},
		{"by our SIGKILL", []facts{byUs(ended(137))}, corev1.PodFailed},
		{"with an error", []facts{byUs(ended(1)), ended(0)}, corev1.PodFailed},
		{"in back-off", []facts{crashing()}, corev1.PodFailed},
		{"never started", []facts{unstarted()}, corev1.PodPending},
	} {
		v := viewOf(corev1.RestartPolicyAlways, c.mains...)
		v.over = true
		require.Equal(t, c.want, phase(v), c.name)
	}
}

func TestConditionsAgreeWithEachOtherAndTimesMoveOnlyWithTheStatus(t *testing.T) {
	drawFacts := rapid.Custom(func(t *rapid.T) facts {
		f := rapid.SampledFrom([]facts{running(), ended(0), ended(1), byUs(ended(143)), unstarted(), crashing()}).Draw(t, "state")
		f.ready = f.state.Running != nil && rapid.Bool().Draw(t, "ready")
		return f
	})
	rapid.Check(t, func(t *rapid.T) {
		policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
		draw := func(label string) view {
			v := viewOf(rapid.SampledFrom(policies).Draw(t, label+" policy"), rapid.SliceOfN(drawFacts, 1, 3).Draw(t, label)...)
			v.initialized, v.over = rapid.Bool().Draw(t, label+" initialized"), rapid.Bool().Draw(t, label+" over")
			return v
		}
		first := podStatus(draw("first"), &corev1.PodStatus{}, t0)
		second := podStatus(draw("second"), &first, t0.Add(time.Minute))
		require.Equal(t, first.StartTime, second.StartTime)
		for _, c := range second.Conditions {
			old := condition(first.Conditions, c.Type)
			require.Equal(t, old.Status == c.Status, old.LastTransitionTime.Equal(&c.LastTransitionTime), c.Type)
		}
		isTrue := func(k corev1.PodConditionType) bool {
			return condition(second.Conditions, k).Status == corev1.ConditionTrue
		}
		if isTrue(corev1.PodReady) {
			require.True(t, isTrue(corev1.ContainersReady))
			for _, c := range second.ContainerStatuses {
				require.NotNil(t, c.State.Running)
			}
		}
	})
}

func TestTheSameFactsMakeTheSameStatusSoNothingIsWritten(t *testing.T) {
	v := viewOf(corev1.RestartPolicyAlways, running(), crashing())
	first := podStatus(v, &corev1.PodStatus{}, t0)
	second := podStatus(v, &first, t0.Add(time.Hour))
	require.True(t, equality.Semantic.DeepEqual(first, second))
}

func TestReadinessGatesAreNamedWhileTheyAreClosed(t *testing.T) {
	v := viewOf(corev1.RestartPolicyAlways, running())
	v.pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x/a"}, {ConditionType: "x/b"}}
	v.pod.Status.Conditions = []corev1.PodCondition{{Type: "x/b", Status: corev1.ConditionFalse}}
	s := podStatus(v, &corev1.PodStatus{}, t0)
	c := condition(s.Conditions, corev1.PodReady)
	require.Equal(t, "ReadinessGatesNotReady", c.Reason)
	require.Equal(t, `corresponding condition of pod readiness gate "x/a" does not exist., the status of pod readiness gate "x/b" is not "True", but False`, c.Message)
	require.Nil(t, condition(s.Conditions, "x/b"), "others' conditions are not ours to write")
	v.pod.Status.Conditions = []corev1.PodCondition{{Type: "x/a", Status: corev1.ConditionTrue}, {Type: "x/b", Status: corev1.ConditionTrue}}
	s = podStatus(v, &s, t0)
	require.Equal(t, corev1.ConditionTrue, condition(s.Conditions, corev1.PodReady).Status)
}

func TestThePatchLeavesOthersConditionsAndClearsWhatIsNoLongerSo(t *testing.T) {
	old := corev1.Pod{Status: corev1.PodStatus{
		Reason: "AddressInUse", Message: "m", Phase: corev1.PodPending,
		Conditions: []corev1.PodCondition{{Type: "x/theirs", Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "m"}},
	}}
	s := podStatus(viewOf(corev1.RestartPolicyAlways, running()), &corev1.PodStatus{}, t0)
	patch, err := patchBody("uid", &s)
	require.NoError(t, err)
	before, err := json.Marshal(old)
	require.NoError(t, err)
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	require.NoError(t, err)
	var got corev1.Pod
	require.NoError(t, json.Unmarshal(after, &got))
	require.NotNil(t, condition(got.Status.Conditions, "x/theirs"))
	require.Empty(t, got.Status.Reason)
	require.Empty(t, got.Status.Message)
	require.Equal(t, corev1.PodRunning, got.Status.Phase)
	ready := condition(got.Status.Conditions, corev1.PodReady)
	require.Equal(t, corev1.ConditionTrue, ready.Status)
	require.Empty(t, ready.Reason)
	require.Empty(t, ready.Message)
	require.EqualValues(t, "uid", got.UID)
}

func TestABackOffBeginsAtOnceDoublesAndIsForgottenAfterAQuietTime(t *testing.T) {
	b := Backoff{Initial: 10 * time.Second, Max: 5 * time.Minute}
	var r restarts
	now := t0
	for _, want := range []int{0, 10, 20, 40, 80, 160, 300, 300} {
		at := r.next(b, now)
		require.Equal(t, time.Duration(want)*time.Second, at.Sub(now))
		now = at.Add(time.Second)
	}
	now = now.Add(10*time.Minute - 2*time.Second)
	require.Equal(t, b.Max, r.next(b, now).Sub(now), "nearly quiet enough")
	now = now.Add(b.Max + 10*time.Minute + time.Second)
	require.Zero(t, r.next(b, now).Sub(now))
}

func TestTheRestartPolicyDecidesByRoleAndCode(t *testing.T) {
	for _, c := range []struct {
		policy corev1.RestartPolicy
		role   role
		code   int32
		want   bool
	}{
		{corev1.RestartPolicyAlways, mainContainer, 0, true}, {corev1.RestartPolicyOnFailure, mainContainer, 0, false},
		{corev1.RestartPolicyOnFailure, mainContainer, 1, true}, {corev1.RestartPolicyNever, mainContainer, 1, false},
		{corev1.RestartPolicyNever, sidecar, 0, true}, {corev1.RestartPolicyAlways, initContainer, 0, false},
		{corev1.RestartPolicyAlways, initContainer, 1, true}, {corev1.RestartPolicyNever, initContainer, 1, false},
	} {
		require.Equal(t, c.want, restartsAfter(c.policy, c.role, c.code), "%+v", c)
	}
}

func TestAContainerOfALostNodeIsRestoredWithItsCount(t *testing.T) {
	old := corev1.ContainerStatus{ContainerID: "id", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}}
	c := &container{facts: facts{role: mainContainer, state: waiting("ContainerCreating", "")}}
	c.restore(&old, corev1.RestartPolicyAlways, t0)
	require.EqualValues(t, 3, c.runs)
	require.NotNil(t, c.state.Waiting)
	require.Equal(t, "NodeLost", c.last.Terminated.Reason)
	c = &container{facts: facts{role: mainContainer}}
	c.restore(&old, corev1.RestartPolicyNever, t0)
	require.EqualValues(t, 137, c.state.Terminated.ExitCode)
	require.True(t, c.finished(corev1.RestartPolicyNever))
	c = &container{facts: facts{role: mainContainer, state: waiting("ContainerCreating", "")}}
	c.restore(&corev1.ContainerStatus{}, corev1.RestartPolicyAlways, t0)
	require.Zero(t, c.runs)
}

func TestImagesThatNoRegistryHas(t *testing.T) {
	for image, want := range map[string]bool{
		"app": false, "app:v1": false, "missing": true, "registry:5000/missing": true, "registry/missing:v1": true, "app:missing": true,
		"registry:5000/app": false, "missing/app": false, "app-missing": false, "missing:5000/app:v1": false,
	} {
		require.Equal(t, want, unpullable(image), image)
	}
}

func TestEveryUnsupportedFieldIsNamed(t *testing.T) {
	five := int64(5)
	policy := corev1.ContainerRestartPolicyAlways
	bad := &corev1.Pod{Spec: corev1.PodSpec{
		HostNetwork: true, ActiveDeadlineSeconds: &five, ResourceClaims: []corev1.PodResourceClaim{{}},
		Volumes: []corev1.Volume{{Name: "img", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}},
			{Name: "proj", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}}}}}},
		Containers: []corev1.Container{{
			Name: "c", VolumeDevices: []corev1.VolumeDevice{{}}, RestartPolicy: &policy,
			Lifecycle:    &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}},
			Env:          []corev1.EnvVar{{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{}}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "v", SubPathExpr: "$(X)"}},
		}},
	}}
	require.Len(t, Unsupported(bad), 11)
	good := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "side", Command: []string{"x"}, RestartPolicy: &policy}},
		Containers:     []corev1.Container{{Name: "c", Args: []string{"x"}, Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}}}},
	}}
	require.Empty(t, Unsupported(good))
}
