package event

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Recorder takes events. The manager's GetEventRecorder returns one.
type Recorder interface {
	events.EventRecorder
}

// Reasons of events. Each belongs to the function of the same name.
const (
	ReasonTemplateInvalid          = "TemplateInvalid"
	ReasonApplicationConflict      = "ApplicationConflict"
	ReasonServiceTaken             = "ServiceTaken"
	ReasonNameTaken                = "NameTaken"
	ReasonRevisionCreated          = "RevisionCreated"
	ReasonRevisionRemoved          = "RevisionRemoved"
	ReasonStaged                   = "Staged"
	ReasonOperationCreated         = "OperationCreated"
	ReasonOperationRemoved         = "OperationRemoved"
	ReasonDecision                 = "Decision"
	ReasonGranted                  = "Granted"
	ReasonGrantReturned            = "GrantReturned"
	ReasonActed                    = "Acted"
	ReasonEnded                    = "Ended"
	ReasonPodRestored              = "PodRestored"
	ReasonPodLost                  = "PodLost"
	ReasonPodWaits                 = "PodWaits"
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// maxNote is what the events API accepts, in bytes.
const maxNote = 1024

// TemplateInvalid tells which field of the set's template cannot be used.
func TemplateInvalid(r Recorder, set *v1alpha1.LiStatefulSet, problem string) {
	warn(r, set, nil, ReasonTemplateInvalid, "Stage", problem)
}

// ApplicationConflict tells in what the sets of one application differ.
func ApplicationConflict(r Recorder, set *v1alpha1.LiStatefulSet, problem string) {
	warn(r, set, nil, ReasonApplicationConflict, "Stage", problem)
}

// ServiceTaken tells that the governing Service's name belongs to somebody else.
func ServiceTaken(r Recorder, set *v1alpha1.LiStatefulSet, problem string) {
	warn(r, set, nil, ReasonServiceTaken, "ApplyService", problem)
}

// NameTaken tells that an object of a predecessor still has a name that is needed; it is waited for.
func NameTaken(r Recorder, owner client.Object, problem string) {
	warn(r, owner, nil, ReasonNameTaken, "Create", problem+"; waits until the one that has the name is gone")
}

// RevisionCreated tells of a template seen for the first time.
func RevisionCreated(r Recorder, set *v1alpha1.LiStatefulSet, rev *v1alpha1.Revision) {
	tell(r, set, rev, ReasonRevisionCreated, "CreateRevision", "created Revision "+rev.Name)
}

// RevisionRemoved tells that the history limit removed an unused Revision.
func RevisionRemoved(r Recorder, set *v1alpha1.LiStatefulSet, rev *v1alpha1.Revision) {
	tell(r, set, rev, ReasonRevisionRemoved, "RemoveRevision", "removed unused Revision "+rev.Name+" beyond the history limit")
}

// Staged tells what is wanted from now on of a block of indices.
func Staged(r Recorder, set *v1alpha1.LiStatefulSet, index *v1alpha1.PodIndex, what string) {
	tell(r, set, index, ReasonStaged, "Stage", what)
}

// OperationCreated tells of an order to be asked about.
func OperationCreated(r Recorder, index *v1alpha1.PodIndex, op *v1alpha1.Operation) {
	tell(r, index, op, ReasonOperationCreated, "CreateOperation",
		fmt.Sprintf("created Operation %s: %s of %d pods, cause %s", op.Name, op.Spec.Type, len(op.Spec.Instances), op.Spec.Cause))
}

// OperationRemoved tells that a complete Operation was kept long enough.
func OperationRemoved(r Recorder, index *v1alpha1.PodIndex, op *v1alpha1.Operation) {
	tell(r, index, op, ReasonOperationRemoved, "RemoveOperation", "removed complete Operation "+op.Name)
}

// Decision tells a changed verdict or reason code about one pod: a warning for a denial.
func Decision(r Recorder, op *v1alpha1.Operation, pod, verdict, code, message string) {
	note := fmt.Sprintf("%s: %s: %s: %s", pod, verdict, code, message)
	if verdict == "deny" {
		warn(r, op, nil, ReasonDecision, "Ask", note)
		return
	}
	tell(r, op, nil, ReasonDecision, "Ask", note)
}

// Granted tells that an approval was recorded for a pod.
func Granted(r Recorder, op *v1alpha1.Operation, pod *v1alpha1.StatefulPod, stage v1alpha1.Stage, decision string) {
	tell(r, op, pod, ReasonGranted, "Grant", fmt.Sprintf("%s: %s granted by decision %s", pod.Name, stage, decision))
}

// GrantReturned tells that a grant was taken back because nobody can act on it anymore.
func GrantReturned(r Recorder, pod *v1alpha1.StatefulPod, decision, why string) {
	tell(r, pod, nil, ReasonGrantReturned, "ReturnGrant", fmt.Sprintf("decision %s was not acted on: %s", decision, why))
}

// Acted tells that the API server accepted the act that a decision allows.
func Acted(r Recorder, pod *v1alpha1.StatefulPod, verb, decision string) {
	tell(r, pod, nil, ReasonActed, "Act", fmt.Sprintf("%s under decision %s", verb, decision))
}

// Ended tells how one pod's part of an Operation ended.
func Ended(r Recorder, op *v1alpha1.Operation, pod string, state v1alpha1.InstanceState) {
	tell(r, op, nil, ReasonEnded, "Project", fmt.Sprintf("%s: %s", pod, state))
}

// PodRestored tells that a missing Pod was created again, for which nobody is asked.
func PodRestored(r Recorder, pod *v1alpha1.StatefulPod) {
	tell(r, pod, nil, ReasonPodRestored, "Restore", "created the missing Pod "+pod.Name)
}

// PodLost tells that somebody else removed the Pod.
func PodLost(r Recorder, pod *v1alpha1.StatefulPod, cause string) {
	warn(r, pod, nil, ReasonPodLost, "Observe", cause)
}

// PodWaits tells what keeps the Pod from being made.
func PodWaits(r Recorder, pod *v1alpha1.StatefulPod, message string) {
	warn(r, pod, nil, ReasonPodWaits, "CreatePod", message)
}

// ProgressDeadlineExceeded tells that a pod takes too long to become available.
func ProgressDeadlineExceeded(r Recorder, set *v1alpha1.LiStatefulSet, message string) {
	warn(r, set, nil, ReasonProgressDeadlineExceeded, "Observe", message)
}

func tell(r Recorder, regarding, related client.Object, reason, action, note string) {
	emit(r, regarding, related, corev1.EventTypeNormal, reason, action, note)
}

func warn(r Recorder, regarding, related client.Object, reason, action, note string) {
	emit(r, regarding, related, corev1.EventTypeWarning, reason, action, note)
}

func emit(r Recorder, regarding, related client.Object, kind, reason, action, note string) {
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	if related == nil {
		r.Eventf(regarding, nil, kind, reason, action, "%s", note)
		return
	}
	r.Eventf(regarding, related, kind, reason, action, "%s", note)
}
