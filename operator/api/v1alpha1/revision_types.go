package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Revision is one immutable pod template, named <set>-<content hash>. An equal template is the same Revision.
//
// Written by: the listatefulset controller.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rev,categories=assent
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.set`
// +kubebuilder:printcolumn:name="In use",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="spec: a Revision never changes; edit the LiStatefulSet's spec.template, which makes another Revision"
type Revision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RevisionSpec   `json:"spec"`
	Status RevisionStatus `json:"status,omitempty"`
}

// RevisionList is a list of Revisions.
//
// +kubebuilder:object:root=true
type RevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Revision `json:"items"`
}

// RevisionSpec is the template.
type RevisionSpec struct {
	// Set that the template is of.
	Set string `json:"set"`
	// Template exactly as the user's, in canonical JSON (keys sorted, nulls dropped).
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template runtime.RawExtension `json:"template"`
}

// RevisionStatus counts the users of a Revision.
type RevisionStatus struct {
	// Pods whose staged or approved revision this is.
	// +optional
	Pods int32 `json:"pods"`
	// LastUsed is when it was last the set's update revision; the history limit removes the oldest unused first.
	// +optional
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}
