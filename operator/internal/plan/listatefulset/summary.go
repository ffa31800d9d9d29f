package listatefulset

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// States of the summary.
const (
	stateStable     = "Stable"
	stateScalingOut = "ScalingOut"
	stateScalingIn  = "ScalingIn"
	stateUpdating   = "Updating"
	stateRestoring  = "Restoring"
	stateWaiting    = "Waiting"
	stateDenied     = "Denied"
	statePaused     = "Paused"
	stateInvalid    = "Invalid"
)

// notAsked is the reason code of an Operation that nobody was asked about yet.
const notAsked = "acm.not_asked"

var workingStates = map[v1alpha1.OperationType]string{
	v1alpha1.ScaleIn:    stateScalingIn,
	v1alpha1.Deployment: stateUpdating,
	v1alpha1.ScaleOut:   stateScalingOut,
	v1alpha1.Disrupt:    stateRestoring,
	v1alpha1.SwapPods:   stateUpdating,
}

// summary derives the one line for people; Since stays while the state, the pod and the code do.
func (v *view) summary(old v1alpha1.Summary) v1alpha1.Summary {
	s := v.headline()
	if s.State == old.State && subject(s.WaitingFor) == subject(old.WaitingFor) && old.Since != nil {
		s.Since = old.Since
		return s
	}
	if s.Since == nil {
		now := metav1.NewTime(v.in.Now.Truncate(1e9))
		s.Since = &now
	}
	return s
}

func (v *view) headline() v1alpha1.Summary {
	if v.facts.template != nil {
		return v1alpha1.Summary{State: stateInvalid, WaitingFor: v.facts.template.Error()}
	}
	working := v.firstOpen(func(o *v1alpha1.Operation) bool { return v1alpha1.InstanceState(o.Status.State).InFlight() })
	if pod, reason, op := v.denied(); op != nil {
		state := stateDenied
		if working != nil {
			state = workingStates[working.Spec.Type]
		}
		return v1alpha1.Summary{State: state, WaitingFor: fmt.Sprintf("%s: %s: %s", pod, reason.Code, reason.Message)}
	}
	if working != nil {
		return v1alpha1.Summary{State: workingStates[working.Spec.Type], WaitingFor: line(working), Since: working.Status.Since}
	}
	return v.idle()
}

// idle is the headline while nothing is in flight.
func (v *view) idle() v1alpha1.Summary {
	waiting := v.firstOpen(func(*v1alpha1.Operation) bool { return true })
	switch {
	case v.paused():
		return v1alpha1.Summary{State: statePaused, WaitingFor: "spec.paused: " + string(v.in.Set.Spec.Paused) + "; remove it to go on"}
	case waiting != nil && (waiting.Status.Reason == "" || waiting.Status.Reason == notAsked):
		return v1alpha1.Summary{State: workingStates[waiting.Spec.Type], WaitingFor: line(waiting)}
	case waiting != nil:
		return v1alpha1.Summary{State: stateWaiting, WaitingFor: line(waiting), Since: waiting.Status.Since}
	case v.pending:
		return v1alpha1.Summary{State: v.direction(), WaitingFor: "Operations to be made"}
	case v.avail < v.wanted:
		return v1alpha1.Summary{State: stateRestoring, WaitingFor: v.unavailable()}
	}
	return v1alpha1.Summary{State: stateStable}
}

// direction is where a set goes whose Operations are not made yet.
func (v *view) direction() string {
	switch {
	case v.exist < v.wanted:
		return stateScalingOut
	case v.exist > v.wanted:
		return stateScalingIn
	}
	return stateUpdating
}

// paused says whether every open Operation is held by the set's pause.
func (v *view) paused() bool {
	switch v.in.Set.Spec.Paused {
	case v1alpha1.PausedAll:
		return len(v.open) > 0
	case v1alpha1.PausedRollout:
		return len(v.open) > 0 && !slices.ContainsFunc(v.open, func(o *v1alpha1.Operation) bool {
			return o.Spec.Type != v1alpha1.Deployment
		})
	}
	return false
}

// firstOpen is the first open Operation that matches: scale-in before deployment before scale-out, then by name.
func (v *view) firstOpen(match func(*v1alpha1.Operation) bool) *v1alpha1.Operation {
	for _, t := range []v1alpha1.OperationType{v1alpha1.ScaleIn, v1alpha1.SwapPods, v1alpha1.Disrupt, v1alpha1.Deployment, v1alpha1.ScaleOut} {
		for _, o := range v.open {
			if o.Spec.Type == t && match(o) {
				return o
			}
		}
	}
	return nil
}

// denied is the first denied pod with its reason; a nil Operation when there is none.
func (v *view) denied() (string, v1alpha1.Reason, *v1alpha1.Operation) {
	for _, o := range v.open {
		for _, i := range o.Status.Instances {
			if i.State != v1alpha1.Denied {
				continue
			}
			reason := v1alpha1.Reason{Code: "denied", Message: "no reason was given"}
			if len(i.Reasons) > 0 {
				reason = i.Reasons[0]
			}
			return i.Pod, reason, o
		}
	}
	return "", v1alpha1.Reason{}, nil
}

// line is what an Operation waits for, with the same words as its own columns: "etcd-1: quorum.majority: 1 of 3 ...".
func line(o *v1alpha1.Operation) string {
	if o.Status.Message == "" {
		return fmt.Sprintf("%s: %s: nobody was asked yet", o.Name, notAsked)
	}
	pod, text, ok := strings.Cut(o.Status.Message, ": ")
	if !ok || o.Status.Reason == "" || strings.HasPrefix(text, o.Status.Reason) {
		return o.Status.Message
	}
	return fmt.Sprintf("%s: %s: %s", pod, o.Status.Reason, text)
}

// subject is the pod and the code of a line, without its words.
func subject(line string) string {
	parts := strings.SplitN(line, ": ", 3)
	return strings.Join(parts[:min(2, len(parts))], ": ")
}

// unavailable says which wanted pods are missing, at most three by name.
func (v *view) unavailable() string {
	pods := podsByIndex(v.in.Pods)
	var lines []string
	for i := range v.wanted {
		if p := pods[i]; p != nil && !available(p) {
			message := p.Status.Message
			if message == "" {
				message = "not available"
			}
			lines = append(lines, p.Name+": "+message)
		}
	}
	if len(lines) > 3 {
		lines = append(lines[:3], fmt.Sprintf("and %d more", len(lines)-3))
	}
	return strings.Join(lines, "; ")
}
