package listatefulset

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Reasons of the set's conditions.
const (
	reasonAvailable        = "Available"
	reasonUnavailable      = "Unavailable"
	reasonTemplateInvalid  = "TemplateInvalid"
	reasonTemplateAccepted = "TemplateAccepted"
	reasonOperationsOpen   = "OperationsOpen"
	reasonStaging          = "Staging"
	reasonNothingOpen      = "NothingOpen"
	reasonConflict         = "ApplicationConflict"
	reasonAgreed           = "Agreed"
	reasonDenied           = "Denied"
	reasonPodRefused       = "PodRefused"
	reasonDeadline         = "ProgressDeadlineExceeded"
	reasonServiceTaken     = "ServiceTaken"
	reasonNotStalled       = "NotStalled"
)

// maxMessage keeps a condition's message readable; the API accepts 32 KiB.
const maxMessage = 1024

// conditions are the set's five, each always present, with transition times of Now.
func (v *view) conditions(old []metav1.Condition, waitingFor string) []metav1.Condition {
	next := slices.Clone(old)
	for _, c := range []metav1.Condition{
		v.isReady(), v.progressing(waitingFor), v.stalled(), v.templateValid(), v.agreed(),
	} {
		if len(c.Message) > maxMessage {
			c.Message = strings.ToValidUTF8(c.Message[:maxMessage-3], "") + "..."
		}
		c.ObservedGeneration = v.in.Set.Generation
		c.LastTransitionTime = metav1.NewTime(v.in.Now.Truncate(1e9))
		meta.SetStatusCondition(&next, c)
	}
	slices.SortFunc(next, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return next
}

func condition(kind string, isTrue bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func (v *view) isReady() metav1.Condition {
	counts := fmt.Sprintf("%d of %d available", v.avail, v.wanted)
	if r := v.facts.revisions.update; r != "" {
		counts += fmt.Sprintf(", %d at %s", v.updated, r)
	}
	switch {
	case v.facts.template != nil:
		return condition(v1alpha1.ConditionReady, false, reasonTemplateInvalid, counts+"; the template cannot be used")
	case len(v.open) > 0:
		return condition(v1alpha1.ConditionReady, false, reasonOperationsOpen, counts)
	case v.pending:
		return condition(v1alpha1.ConditionReady, false, reasonStaging, counts)
	case v.avail < v.wanted || v.updated < v.wanted || v.exist > v.wanted:
		return condition(v1alpha1.ConditionReady, false, reasonUnavailable, counts)
	}
	return condition(v1alpha1.ConditionReady, true, reasonAvailable, counts)
}

func (v *view) progressing(waitingFor string) metav1.Condition {
	switch {
	case len(v.open) > 0:
		return condition(v1alpha1.ConditionProgressing, true, reasonOperationsOpen, waitingFor)
	case v.pending:
		return condition(v1alpha1.ConditionProgressing, true, reasonStaging, "Operations to be made")
	}
	return condition(v1alpha1.ConditionProgressing, false, reasonNothingOpen, "no Operation is open")
}

// stalled is for what only a person can end.
func (v *view) stalled() metav1.Condition {
	pod, reason, denied := v.denied()
	switch {
	case v.facts.template != nil:
		return condition(v1alpha1.ConditionStalled, true, reasonTemplateInvalid, v.facts.template.Error())
	case v.conflict != "":
		return condition(v1alpha1.ConditionStalled, true, reasonConflict, v.conflict)
	case denied != nil:
		return condition(v1alpha1.ConditionStalled, true, reasonDenied, fmt.Sprintf("%s: %s: %s", pod, reason.Code, reason.Message))
	case v.refused() != "":
		return condition(v1alpha1.ConditionStalled, true, reasonPodRefused, v.refused())
	case len(v.late) > 0:
		return condition(v1alpha1.ConditionStalled, true, reasonDeadline,
			"not available in spec.progressDeadlineSeconds: "+strings.Join(v.late, ", "))
	case v.facts.serviceTaken != "":
		return condition(v1alpha1.ConditionStalled, true, reasonServiceTaken, v.facts.serviceTaken)
	}
	return condition(v1alpha1.ConditionStalled, false, reasonNotStalled, "nobody needs to do anything")
}

// refused is the first pod that the API server does not take, and why; empty when it takes all.
func (v *view) refused() string {
	pods := podsByIndex(v.in.Pods)
	for i := range v.wanted {
		p := pods[i]
		if p == nil {
			continue
		}
		if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPodAccepted); c != nil && c.Status == metav1.ConditionFalse {
			return p.Name + ": " + c.Message
		}
	}
	return ""
}

func (v *view) templateValid() metav1.Condition {
	if v.facts.template != nil {
		return condition(v1alpha1.ConditionTemplateValid, false, reasonTemplateInvalid, v.facts.template.Error())
	}
	return condition(v1alpha1.ConditionTemplateValid, true, reasonTemplateAccepted, "the template is Revision "+v.facts.revisions.update)
}

func (v *view) agreed() metav1.Condition {
	if v.conflict != "" {
		return condition(v1alpha1.ConditionApplicationAgreed, false, reasonConflict, v.conflict)
	}
	return condition(v1alpha1.ConditionApplicationAgreed, true, reasonAgreed,
		fmt.Sprintf("all sets of application %s have policy %s and ACM %s", v.in.Set.ApplicationName(), v.in.Set.Spec.Policy, v.in.Set.ACMName()))
}
