package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ApprovedState is the state that a pod is approved to be in.
//
// +kubebuilder:validation:Enum=Running;Stopped
type ApprovedState string

// Approved states.
const (
	Running ApprovedState = "Running"
	Stopped ApprovedState = "Stopped"
)

// StatefulPod is one identity: an index and an incarnation. The Pod and the claims follow it and nothing else. Its
// grant is the approval's record: write-ahead record, lock and instruction in one.
//
// Written by: the operation controller (spec), the statefulpod controller (status).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=spod,categories=assent
// +kubebuilder:printcolumn:name="Approved",type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name="Available",type=boolean,JSONPath=`.status.available`
// +kubebuilder:printcolumn:name="Operation",type=string,JSONPath=`.spec.grant.operation`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.node`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.set == oldSelf.spec.set && self.spec.application == oldSelf.spec.application && self.spec.index == oldSelf.spec.index && self.spec.incarnation == oldSelf.spec.incarnation",message="spec.set, spec.application, spec.index and spec.incarnation: an identity never changes"
type StatefulPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   StatefulPodSpec   `json:"spec"`
	Status StatefulPodStatus `json:"status,omitempty"`
}

// StatefulPodList is a list of StatefulPods.
//
// +kubebuilder:object:root=true
type StatefulPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []StatefulPod `json:"items"`
}

// StatefulPodSpec is what is approved.
type StatefulPodSpec struct {
	Set         string `json:"set"`
	Application string `json:"application"`
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
	// +kubebuilder:validation:Minimum=0
	Incarnation int32 `json:"incarnation"`
	// Revision approved.
	Revision string `json:"revision"`
	// Restart id approved.
	// +optional
	Restart string `json:"restart,omitempty"`
	// State approved.
	State ApprovedState `json:"state"`
	// Grant is the last approval. It holds the pod's lock until status.finished names its decision.
	// +optional
	Grant *Grant `json:"grant,omitempty"`
	// Claims of this identity, fixed at its creation from the set's volumeClaimTemplates.
	// +optional
	// +listType=map
	// +listMapKey=name
	Claims []VolumeClaimTemplate `json:"claims,omitempty"`
	// Parameters of the approval under which the pod starts: annotations without the assent.dev/ prefix.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
	// MinReadySeconds as in the set when the grant was made.
	// +optional
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
}

// Grant is an approval's record.
type Grant struct {
	// Operation that it is for.
	Operation string        `json:"operation"`
	Type      OperationType `json:"type"`
	Stage     Stage         `json:"stage"`
	// Decision id of the approval.
	Decision string `json:"decision"`
	// Session of the operator that received it, the only one that may act on it.
	Session string `json:"session"`
	// PodUID of the pod to be removed or updated; empty when there was none.
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// Repair: the pod was not available when the grant was made, so that the step costs no availability.
	// +optional
	Repair bool `json:"repair,omitempty"`
	// Previous is what was approved before, to go back to if the grant is never acted on.
	// +optional
	Previous *Approved `json:"previous,omitempty"`
}

// Approved is what a pod was approved to be.
type Approved struct {
	Revision string `json:"revision"`
	// +optional
	Restart string        `json:"restart,omitempty"`
	State   ApprovedState `json:"state"`
	// Parameters of the approval before.
	// +optional
	Parameters map[string]string `json:"parameters,omitempty"`
}

// StatefulPodStatus is what is.
type StatefulPodStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Acted names the last decision whose act the API server accepted.
	// +optional
	Acted string `json:"acted,omitempty"`
	// Finished names the last decision that is done: the pod is as it was granted to become.
	// +optional
	Finished string `json:"finished,omitempty"`
	// PodUID of the pod that this status is about.
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// PodRevision that the pod was made from.
	// +optional
	PodRevision string `json:"podRevision,omitempty"`
	// Node that the pod is on, or was on last.
	// +optional
	Node string `json:"node,omitempty"`
	// Available: recorded UID, not terminating, Ready for minReadySeconds, at the approved revision. While a grant is
	// open (status.finished does not name it yet) this and the fields about the pod may be some seconds old, because a
	// pod that is replaced as approved is worth one write, not three; the Pod itself and the Operation tell more.
	// +optional
	Available bool `json:"available"`
	// EverAvailable: it was available at least once.
	// +optional
	EverAvailable bool `json:"everAvailable,omitempty"`
	// Since when Available has its value.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Message says what the pod waits for, or why it is not available.
	// +optional
	Message string `json:"message,omitempty"`
	// Conditions: Available, PodLost, ClaimsReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
