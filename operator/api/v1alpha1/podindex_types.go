package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BlockSize is how many indices one PodIndex covers: index i is in block i/BlockSize, for ever.
const BlockSize = 256

// PodIndex is the staged pod set: for each index of a block what is wanted. It is named <set>-<block> and
// lives as long as its set, so that sequence numbers and incarnations never repeat.
//
// Written by: the listatefulset controller (spec; spec.maintenance by the maintenance controller), the
// podindex controller (status).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=podindices,shortName=pidx,categories=assent
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.set`
// +kubebuilder:printcolumn:name="Block",type=integer,JSONPath=`.spec.block`
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.status.wanted`
// +kubebuilder:printcolumn:name="Settled",type=integer,JSONPath=`.status.settled`
// +kubebuilder:printcolumn:name="Open",type=integer,JSONPath=`.status.open`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.set == oldSelf.spec.set && self.spec.block == oldSelf.spec.block && self.spec.application == oldSelf.spec.application",message="spec.set, spec.application and spec.block: never change"
type PodIndex struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PodIndexSpec   `json:"spec"`
	Status PodIndexStatus `json:"status,omitempty"`
}

// PodIndexList is a list of PodIndexes.
//
// +kubebuilder:object:root=true
type PodIndexList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodIndex `json:"items"`
}

// Presence is whether an index should exist.
type Presence string

// Presences.
const (
	Present Presence = "Present"
	Absent  Presence = "Absent"
)

// PodIndexSpec is what is wanted of the block's indices.
type PodIndexSpec struct {
	// Set that the block belongs to.
	Set string `json:"set"`
	// Application of the set.
	Application string `json:"application"`
	// Block number: this object covers the indices 256*block to 256*block+255.
	// +kubebuilder:validation:Minimum=0
	Block int32 `json:"block"`
	// SetGeneration of the LiStatefulSet that this staging was made from. Staging never goes back to an older one.
	// +kubebuilder:validation:Minimum=0
	SetGeneration int64 `json:"setGeneration"`
	// Indices: one entry an index that is wanted, or was once and is absent now.
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=256
	Indices []StagedIndex `json:"indices,omitempty"`
	// Maintenance wishes, written by the maintenance controller only.
	// +optional
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MaxItems=256
	Maintenance []MaintenanceWish `json:"maintenance,omitempty"`
}

// StagedIndex is what is wanted of one index.
type StagedIndex struct {
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
	// +kubebuilder:validation:Enum=Present;Absent
	Presence Presence `json:"presence"`
	// Revision wanted; empty when absent.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Restart id wanted.
	// +optional
	Restart string `json:"restart,omitempty"`
	// Canary names the canary that this index belongs to.
	// +optional
	Canary string `json:"canary,omitempty"`
}

// MaintenanceWish is a wish to take a pod away because of its node.
type MaintenanceWish struct {
	Index int32 `json:"index"`
	// +kubebuilder:validation:Enum=temporary;permanent
	Mode string `json:"mode"`
	// Cause: maintenance, eviction, node-lost.
	Cause string `json:"cause"`
	// +optional
	Node string `json:"node,omitempty"`
	// +optional
	PodUID string `json:"podUID,omitempty"`
	// +optional
	RequestID string `json:"requestID,omitempty"`
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}

// PodIndexStatus is the podindex controller's ledger of claims.
type PodIndexStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Sequence of the last Operation claimed; never goes back.
	// +optional
	Sequence int64 `json:"sequence,omitempty"`
	// Claims of live Operations. An index is in at most one claim a type.
	// +optional
	// +listType=atomic
	Claims []Claim `json:"claims,omitempty"`
	// Incarnations: the highest incarnation each index ever had.
	// +optional
	// +listType=map
	// +listMapKey=index
	Incarnations []IndexIncarnation `json:"incarnations,omitempty"`
	// Wanted indices in this block.
	// +optional
	Wanted int32 `json:"wanted"`
	// Settled indices are as wanted.
	// +optional
	Settled int32 `json:"settled"`
	// Open Operations.
	// +optional
	Open int32 `json:"open"`
}

// IndexIncarnation is the highest incarnation of an index.
type IndexIncarnation struct {
	Index       int32 `json:"index"`
	Incarnation int32 `json:"incarnation"`
}

// Claim reserves indices for one Operation. It is written before the Operation is created, so that a crash in
// between is repaired by creating the Operation exactly as claimed.
type Claim struct {
	// Name of the Operation.
	Name string        `json:"name"`
	Type OperationType `json:"type"`
	// Cause of the Operation.
	Cause string `json:"cause"`
	// Target of the Operation.
	// +optional
	Target Target `json:"target,omitempty"`
	// Instances claimed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Instances []ClaimedInstance `json:"instances"`
	// Generation of the PodIndex that the claim was made from.
	Generation int64 `json:"generation"`
}

// ClaimedInstance is one index of a claim.
type ClaimedInstance struct {
	Index       int32 `json:"index"`
	Incarnation int32 `json:"incarnation"`
	// RevisionFrom is what the pod had when the claim was made.
	// +optional
	RevisionFrom string `json:"revisionFrom,omitempty"`
	// Released: the instance has ended; it no longer holds its index and stays only until the claim goes.
	// +optional
	Released bool `json:"released,omitempty"`
}
