package statefulpod

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// patience is how long a step that goes as approved may take before the status tells of the time in between: most pods
// are back before, at the cost of one write.
const patience = 5 * time.Second

// Reasons of the conditions.
const (
	reasonAvailable   = "Available"
	reasonUnavailable = "Unavailable"
	reasonRemoved     = "RemovedByOthers"
	reasonBack        = "PodExists"
	reasonRefused     = "Refused"
	reasonClaimsReady = "AllExist"
	reasonClaimsWait  = "Waiting"
)

// toStatus projects what is seen. The grant's finish is recorded at once; changes in the middle of an approved step wait
// for patience to run out.
func toStatus(in Input, p *Plan) {
	old := in.Identity.Status
	next := *old.DeepCopy()
	pod := in.Pod
	if !Owned(in.Identity, pod) {
		pod = nil
	}
	a := AvailabilityOf(in.Identity, pod, in.Now)
	next.ObservedGeneration = in.Identity.Generation
	setGrant(in.Identity, pod, a, &next)
	if pod != nil {
		next.PodUID, next.PodRevision = string(pod.UID), pod.Labels[v1alpha1.LabelRevision]
		if pod.Spec.NodeName != "" {
			next.Node = pod.Spec.NodeName
		}
	}
	next.Message = message(in, p, a)
	if next.Available != a.Available || next.Since == nil {
		now := metav1.NewTime(in.Now.Truncate(time.Second))
		next.Available, next.Since = a.Available, &now
	}
	next.EverAvailable = next.EverAvailable || a.Available
	setConditions(in, pod, a, &next)
	p.Status = next
	if reflect.DeepEqual(old, next) {
		wake(p, a.In)
		return
	}
	if left := inTheMiddle(in, p, pod, old, next); left > 0 {
		wake(p, left)
		wake(p, a.In)
		return
	}
	p.WriteStatus = true
	wake(p, a.In)
}

func wake(p *Plan, in time.Duration) {
	if in > 0 && (p.Wake == 0 || in < p.Wake) {
		p.Wake = in
	}
}

// setGrant records how far the grant has come: acted on, and finished once the pod is available as approved.
func setGrant(identity *v1alpha1.StatefulPod, pod *corev1.Pod, a Availability, next *v1alpha1.StatefulPodStatus) {
	g := identity.Spec.Grant
	if g == nil || next.Finished == g.Decision || EvidenceOf(identity, pod) != Acted {
		return
	}
	next.Acted = g.Decision
	if g.Type != v1alpha1.ScaleIn && a.Available && AtApproved(identity, pod) {
		next.Finished = g.Decision
	}
}

func message(in Input, p *Plan, a Availability) string {
	switch {
	case in.Trouble != "":
		return in.Trouble
	case p.Wait != "":
		return p.Wait
	}
	return a.Message
}

func setConditions(in Input, pod *corev1.Pod, a Availability, next *v1alpha1.StatefulPodStatus) {
	set := func(kind string, yes bool, reason, text string) {
		status := metav1.ConditionFalse
		if yes {
			status = metav1.ConditionTrue
		}
		// The time of a transition is the observation's, not the library's clock.
		c := metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: text,
			ObservedGeneration: next.ObservedGeneration, LastTransitionTime: metav1.NewTime(in.Now.Truncate(time.Second)),
		}
		meta.SetStatusCondition(&next.Conditions, c)
	}
	if a.Available {
		set(v1alpha1.ConditionAvailable, true, reasonAvailable, "")
	} else {
		set(v1alpha1.ConditionAvailable, false, reasonUnavailable, a.Message)
	}
	if len(in.Identity.Spec.Claims) > 0 {
		c := toClaims(in.Identity, in.Claims)
		if len(c.missing) == 0 && c.waits == "" {
			set(v1alpha1.ConditionClaimsReady, true, reasonClaimsReady, "")
		} else {
			set(v1alpha1.ConditionClaimsReady, false, reasonClaimsWait, c.waits)
		}
	}
	if in.Trouble != "" {
		set(v1alpha1.ConditionPodAccepted, false, reasonRefused, in.Trouble)
	} else {
		meta.RemoveStatusCondition(&next.Conditions, v1alpha1.ConditionPodAccepted)
	}
	if cause := lost(in, next.PodUID, pod); cause != "" {
		set(v1alpha1.ConditionPodLost, true, reasonRemoved, cause)
	} else if a.Available && meta.FindStatusCondition(next.Conditions, v1alpha1.ConditionPodLost) != nil {
		set(v1alpha1.ConditionPodLost, false, reasonBack, "")
	}
}

// lost tells that the Pod with the recorded UID is going or gone though nobody was allowed to take it, and why.
func lost(in Input, uid string, pod *corev1.Pod) string {
	if uid == "" || in.Identity.Spec.State != v1alpha1.Running || allowed(in.Identity, uid) {
		return ""
	}
	switch {
	case pod == nil:
		return "the Pod is gone, removed by somebody else"
	case pod.DeletionTimestamp != nil, terminal(pod):
		return "the Pod was stopped by somebody else" + why(pod)
	}
	return ""
}

// allowed says whether an open grant takes this very Pod away, or took it.
func allowed(identity *v1alpha1.StatefulPod, uid string) bool {
	return Open(identity) && Removing(identity.Spec.Grant) && identity.Spec.Grant.PodUID == uid
}

func why(pod *corev1.Pod) string {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf(": %s", reasonText(c.Reason, c.Message))
		}
	}
	if pod.Status.Reason != "" {
		return ": " + reasonText(pod.Status.Reason, pod.Status.Message)
	}
	return ""
}

// inTheMiddle is how long the status need not be written yet: a step is going on as approved, for less than patience.
func inTheMiddle(in Input, p *Plan, pod *corev1.Pod, old, next v1alpha1.StatefulPodStatus) time.Duration {
	if !Open(in.Identity) || next.Finished != old.Finished || next.EverAvailable != old.EverAvailable ||
		in.Trouble != "" || p.Wait != "" {
		return 0
	}
	var began time.Time
	switch {
	case pod == nil:
		return patience
	case pod.DeletionTimestamp != nil:
		grace := time.Duration(0)
		if pod.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
		}
		began = pod.DeletionTimestamp.Add(-grace)
	case EvidenceOf(in.Identity, pod) == NotActed:
		return patience
	default:
		began = pod.CreationTimestamp.Time
	}
	return began.Add(patience).Sub(in.Now)
}
