package worker

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// view is everything the status of a pod is made of.
type view struct {
	pod            *corev1.Pod
	hostIP, podIP  string
	mounted        bool
	inits, mains   []facts
	initialized    bool
	refused        bool
	reason, detail string
	// over says that the pod is being deleted and every process is gone.
	over bool
}

// podStatus makes the status; previous is the last one made, for the times that must not move.
func podStatus(v view, previous *corev1.PodStatus, now time.Time) corev1.PodStatus {
	s := corev1.PodStatus{
		ObservedGeneration: v.pod.Generation,
		Phase:              phase(v),
		Reason:             v.reason,
		Message:            v.detail,
		HostIP:             v.hostIP,
		HostIPs:            []corev1.HostIP{{IP: v.hostIP}},
		StartTime:          previous.StartTime,
	}
	if s.StartTime == nil {
		t := metav1.NewTime(now)
		s.StartTime = &t
	}
	if v.podIP != "" {
		s.PodIP, s.PodIPs = v.podIP, []corev1.PodIP{{IP: v.podIP}}
	}
	for _, f := range v.inits {
		s.InitContainerStatuses = append(s.InitContainerStatuses, containerStatus(f))
	}
	for _, f := range v.mains {
		s.ContainerStatuses = append(s.ContainerStatuses, containerStatus(f))
	}
	for _, c := range conditions(v, s.Phase) {
		c.LastTransitionTime = metav1.NewTime(now)
		if old := condition(previous.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		c.ObservedGeneration = v.pod.Generation
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

func containerStatus(f facts) corev1.ContainerStatus {
	started := f.started
	cs := corev1.ContainerStatus{
		Name: f.spec.Name, Image: f.spec.Image, State: f.state, LastTerminationState: f.last,
		Ready: f.ready, Started: &started, RestartCount: max(f.runs-1, 0), ContainerID: f.id,
	}
	if f.id != "" {
		cs.ImageID = "localnode://" + f.spec.Image
	}
	if f.role == initContainer {
		cs.Ready = f.state.Terminated != nil && f.state.Terminated.ExitCode == 0
	}
	return cs
}

// phase follows the kubelet's rules.
func phase(v view) corev1.PodPhase {
	policy := v.pod.Spec.RestartPolicy
	if v.over {
		return finalPhase(v)
	}
	for _, f := range v.inits {
		if t := f.state.Terminated; f.role == initContainer && t != nil && t.ExitCode != 0 && policy == corev1.RestartPolicyNever {
			return corev1.PodFailed
		}
	}
	if !v.initialized || v.refused {
		return corev1.PodPending
	}
	var unstarted, running, stopped, succeeded int
	for _, f := range v.mains {
		switch {
		case f.state.Running != nil:
			running++
		case f.state.Terminated != nil:
			stopped++
			if f.state.Terminated.ExitCode == 0 {
				succeeded++
			}
		case f.last.Terminated != nil:
			stopped++
		default:
			unstarted++
		}
	}
	switch {
	case unstarted > 0:
		return corev1.PodPending
	case running > 0 || policy == corev1.RestartPolicyAlways:
		return corev1.PodRunning
	case stopped == succeeded:
		return corev1.PodSucceeded
	case policy == corev1.RestartPolicyNever:
		return corev1.PodFailed
	}
	return corev1.PodRunning
}

// finalPhase is the phase of a deleted pod without processes: a stop that went as ordered is a success.
func finalPhase(v view) corev1.PodPhase {
	ran := false
	for _, f := range v.mains {
		t := f.state.Terminated
		if t == nil {
			t = f.last.Terminated
		}
		if t == nil {
			continue
		}
		ran = true
		if t.ExitCode != 0 && (!f.stoppedByUs || !sigtermed(t)) {
			return corev1.PodFailed
		}
	}
	if !ran {
		return corev1.PodPending
	}
	return corev1.PodSucceeded
}

func conditions(v view, p corev1.PodPhase) []corev1.PodCondition {
	return []corev1.PodCondition{
		yesNo(corev1.PodReadyToStartContainers, v.podIP != "" && v.mounted && !v.over, "", ""),
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		initializedCondition(v, p),
		containersReady(v, p),
		podReady(v, p),
	}
}

func yesNo(t corev1.PodConditionType, ok bool, reason, message string) corev1.PodCondition {
	if ok {
		return corev1.PodCondition{Type: t, Status: corev1.ConditionTrue}
	}
	return corev1.PodCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

func initializedCondition(v view, p corev1.PodPhase) corev1.PodCondition {
	var missing []string
	for _, f := range v.inits {
		done := f.role == sidecar && f.started || f.state.Terminated != nil && f.state.Terminated.ExitCode == 0
		if !done {
			missing = append(missing, f.spec.Name)
		}
	}
	ok := v.initialized || len(v.inits) == 0 || p == corev1.PodSucceeded
	return yesNo(corev1.PodInitialized, ok, "ContainersNotInitialized",
		fmt.Sprintf("containers with incomplete status: [%s]", strings.Join(missing, " ")))
}

func containersReady(v view, p corev1.PodPhase) corev1.PodCondition {
	if c, ended := endedCondition(corev1.ContainersReady, p); ended {
		return c
	}
	unready := unreadyContainers(v)
	return yesNo(corev1.ContainersReady, len(unready) == 0, "ContainersNotReady",
		fmt.Sprintf("containers with unready status: [%s]", strings.Join(unready, " ")))
}

func podReady(v view, p corev1.PodPhase) corev1.PodCondition {
	if c, ended := endedCondition(corev1.PodReady, p); ended {
		return c
	}
	if c := containersReady(v, p); c.Status != corev1.ConditionTrue {
		c.Type = corev1.PodReady
		return c
	}
	var closed []string
	for _, g := range v.pod.Spec.ReadinessGates {
		c := condition(v.pod.Status.Conditions, g.ConditionType)
		switch {
		case c == nil:
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", g.ConditionType))
		case c.Status != corev1.ConditionTrue:
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", g.ConditionType, c.Status))
		}
	}
	return yesNo(corev1.PodReady, len(closed) == 0, "ReadinessGatesNotReady", strings.Join(closed, ", "))
}

func endedCondition(t corev1.PodConditionType, p corev1.PodPhase) (corev1.PodCondition, bool) {
	switch p {
	case corev1.PodSucceeded:
		return yesNo(t, false, "PodCompleted", ""), true
	case corev1.PodFailed:
		return yesNo(t, false, "PodFailed", ""), true
	}
	return corev1.PodCondition{}, false
}

func unreadyContainers(v view) []string {
	var unready []string
	for _, f := range v.inits {
		if f.role == sidecar && !f.ready {
			unready = append(unready, f.spec.Name)
		}
	}
	for _, f := range v.mains {
		if !f.ready {
			unready = append(unready, f.spec.Name)
		}
	}
	return unready
}

func condition(all []corev1.PodCondition, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range all {
		if all[i].Type == t {
			return &all[i]
		}
	}
	return nil
}
