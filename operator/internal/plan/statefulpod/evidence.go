package statefulpod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Owned says whether the Pod belongs to this very identity, not to a predecessor of the same name. A nil Pod does not.
func Owned(identity *v1alpha1.StatefulPod, pod *corev1.Pod) bool {
	return pod != nil && metav1.IsControlledBy(pod, identity)
}

// Open says whether the identity's grant is not finished: it is in flight, or waits to be acted on.
func Open(identity *v1alpha1.StatefulPod) bool {
	g := identity.Spec.Grant
	return g != nil && identity.Status.Finished != g.Decision
}

// Evidence of what became of a grant.
type Evidence string

// Evidence, from the Pod as seen and the recorded status.
const (
	// NotActed: the pod is as it was when the grant was made.
	NotActed Evidence = "NotActed"
	// Acted: the API server accepted what the grant allows, or the pod went by itself, which is the same to everybody.
	Acted Evidence = "Acted"
	// Changed: another pod than the one judged stands in its place, not at what was approved. The grant is void.
	Changed Evidence = "Changed"
)

// EvidenceOf tells what became of the identity's grant; pod is the owned Pod or nil. Without a grant it is Acted.
func EvidenceOf(identity *v1alpha1.StatefulPod, pod *corev1.Pod) Evidence {
	g := identity.Spec.Grant
	if g == nil || identity.Status.Finished == g.Decision {
		return Acted
	}
	if g.Stage == v1alpha1.StageAdd {
		if pod != nil || identity.Status.Acted == g.Decision {
			return Acted
		}
		return NotActed
	}
	switch {
	case pod == nil:
		return Acted
	case string(pod.UID) == g.PodUID:
		if pod.DeletionTimestamp != nil {
			return Acted
		}
		return NotActed
	case g.Type != v1alpha1.ScaleIn && AtApproved(identity, pod):
		return Acted
	}
	return Changed
}

// Removing says whether the grant takes a pod away.
func Removing(g *v1alpha1.Grant) bool {
	return g != nil && (g.Stage == v1alpha1.StageRemove || g.Stage == v1alpha1.StageUpdate)
}

// AtApproved says whether the Pod was made from what the identity's spec approves.
func AtApproved(identity *v1alpha1.StatefulPod, pod *corev1.Pod) bool {
	return madeFrom(pod, identity.Spec.Revision, identity.Spec.Restart)
}

func madeFrom(pod *corev1.Pod, revision, restart string) bool {
	return pod.Labels[v1alpha1.LabelRevision] == revision && pod.Labels[v1alpha1.LabelRestart] == restart
}

// Availability of one identity.
type Availability struct {
	Available bool
	// Message says why not.
	Message string
	// In is when it will be available if nothing happens; zero when that is not known.
	In time.Duration
}

// AvailabilityOf judges the owned Pod, or nil: not terminating, made from the revision of the last acted grant, seen in
// its present form by its node, and Ready for minReadySeconds.
func AvailabilityOf(identity *v1alpha1.StatefulPod, pod *corev1.Pod, now time.Time) Availability {
	revision, restart, state := standing(identity, pod)
	switch {
	case state == v1alpha1.Stopped:
		return unavailable("stopped as approved")
	case pod == nil:
		return unavailable("its Pod does not exist")
	case pod.DeletionTimestamp != nil:
		return unavailable("its Pod terminates")
	case !madeFrom(pod, revision, restart):
		return unavailable(fmt.Sprintf("its Pod runs revision %s, approved is %s", pod.Labels[v1alpha1.LabelRevision], revision))
	case pod.Status.ObservedGeneration != 0 && pod.Status.ObservedGeneration < pod.Generation:
		return unavailable("its node has not taken up the Pod's last change")
	}
	ready := readyCondition(pod)
	if ready == nil || ready.Status != corev1.ConditionTrue {
		return unavailable(notReady(pod, ready))
	}
	wait := time.Duration(identity.Spec.MinReadySeconds) * time.Second
	if left := ready.LastTransitionTime.Add(wait).Sub(now); wait > 0 && left > 0 {
		return Availability{Message: fmt.Sprintf("ready, and available once it is for %s", wait), In: left}
	}
	return Availability{Available: true}
}

func unavailable(message string) Availability { return Availability{Message: message} }

// standing is what the pod is approved to be as far as grants have been acted on.
func standing(identity *v1alpha1.StatefulPod, pod *corev1.Pod) (revision, restart string, state v1alpha1.ApprovedState) {
	s := &identity.Spec
	if s.Grant != nil && s.Grant.Previous != nil && EvidenceOf(identity, pod) != Acted {
		return s.Grant.Previous.Revision, s.Grant.Previous.Restart, s.Grant.Previous.State
	}
	return s.Revision, s.Restart, s.State
}

func readyCondition(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == corev1.PodReady {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Ready says whether the Pod reports itself Ready and is not terminating.
func Ready(pod *corev1.Pod) bool {
	if pod == nil || pod.DeletionTimestamp != nil {
		return false
	}
	c := readyCondition(pod)
	return c != nil && c.Status == corev1.ConditionTrue
}

// notReady finds the most telling reason in a Pod's status.
func notReady(pod *corev1.Pod, ready *corev1.PodCondition) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			switch {
			case w == nil, w.Reason == "", w.Reason == "PodInitializing":
			case w.Reason == "CrashLoopBackOff":
				// Its message counts the seconds of the back-off, which would be a write each time.
				return fmt.Sprintf("container %s: %s", list[i].Name, w.Reason)
			default:
				return fmt.Sprintf("container %s: %s", list[i].Name, reasonText(w.Reason, w.Message))
			}
		}
	}
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "not scheduled: " + reasonText(c.Reason, c.Message)
		}
	}
	if ready != nil && ready.Reason != "" {
		return "not ready: " + reasonText(ready.Reason, ready.Message)
	}
	if pod.Status.Phase != "" && pod.Status.Phase != corev1.PodRunning {
		return "its Pod is " + string(pod.Status.Phase)
	}
	return "its Pod is not ready"
}

func reasonText(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// terminal says whether the Pod has ended for good and runs nothing anymore, as after an eviction by its node.
func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}
