package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// LiStatefulSet is the only object a user edits: how many pods of a stateful application should
// exist, from which template, and which policy decides when one may be touched.
//
// Written by: the user (spec), the listatefulset controller (status).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lss,categories=assent
// +kubebuilder:printcolumn:name="Wanted",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.updateRevision`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.summary.state`
// +kubebuilder:printcolumn:name="Waiting for",type=string,JSONPath=`.status.summary.waitingFor`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.summary.since`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 40",message="metadata.name: at most 40 characters, so that pod and claim names fit; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: must be a DNS label (lower case letters, digits and '-', starting with a letter), because pods and Services are named after it"
type LiStatefulSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LiStatefulSetSpec   `json:"spec"`
	Status LiStatefulSetStatus `json:"status,omitempty"`
}

// LiStatefulSetList is a list of LiStatefulSets.
//
// +kubebuilder:object:root=true
type LiStatefulSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LiStatefulSet `json:"items"`
}

// LiStatefulSetSpec is what the user wants.
//
// +kubebuilder:validation:XValidation:rule="has(self.application) == has(oldSelf.application) && (!has(self.application) || self.application == oldSelf.application)",message="spec.application: cannot be changed, since promises already made are kept under it; create a new LiStatefulSet instead"
// +kubebuilder:validation:XValidation:rule="has(self.identity) == has(oldSelf.identity) && (!has(self.identity) || self.identity == oldSelf.identity)",message="spec.identity: cannot be changed, since it decides pod names; create a new LiStatefulSet instead"
// +kubebuilder:validation:XValidation:rule="!has(self.canaries) || self.canaries.size() == 0",message="spec.canaries: not available in this version; remove it and roll the whole set with spec.template"
// +kubebuilder:validation:XValidation:rule="!has(self.restart)",message="spec.restart: not available in this version; remove it and change an annotation in spec.template.metadata to restart all pods"
// +kubebuilder:validation:XValidation:rule="!has(self.update) || self.update == 'Replace'",message="spec.update: only Replace is available in this version; write Replace or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.reservedIndices) || self.reservedIndices.size() == 0",message="spec.reservedIndices: not available in this version; remove it (scale-in removes the highest index)"
// +kubebuilder:validation:XValidation:rule="!has(self.restore) || self.restore == 'Auto'",message="spec.restore: only Auto is available in this version; write Auto or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.swap)",message="spec.swap: not available in this version; remove it (no pod is moved to another node by the operator yet)"
// +kubebuilder:validation:XValidation:rule="!has(self.disruption)",message="spec.disruption: not available in this version; remove it (node maintenance is not handled yet)"
// +kubebuilder:validation:XValidation:rule="!has(self.eviction)",message="spec.eviction: not available in this version; remove it (evictions are not handled yet)"
// +kubebuilder:validation:XValidation:rule="!has(self.trafficDrain)",message="spec.trafficDrain: not available in this version; remove it and use a preStop hook"
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || !has(self.retention.whenScaled) || self.retention.whenScaled == 'Retain'",message="spec.retention.whenScaled: only Retain is available in this version; write Retain or remove the field, and delete claims by hand"
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || !has(self.retention.whenDeleted) || self.retention.whenDeleted == 'Retain'",message="spec.retention.whenDeleted: only Retain is available in this version; write Retain or remove the field, and delete claims by hand"
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || !has(self.retention.reuse) || self.retention.reuse",message="spec.retention.reuse: only true is available in this version; write true or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.identity) || self.identity == 'Incarnation'",message="spec.identity: only Incarnation is available in this version; write Incarnation or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.deletionProtection) || !self.deletionProtection",message="spec.deletionProtection: not available in this version; write false or remove the field"
// +kubebuilder:validation:XValidation:rule="!has(self.scaleIn)",message="spec.scaleIn: not available in this version; remove it (indices are removed one at a time, the highest first)"
// +kubebuilder:validation:XValidation:rule="has(self.volumeClaimTemplates) == has(oldSelf.volumeClaimTemplates) && (!has(self.volumeClaimTemplates) || self.volumeClaimTemplates.size() == oldSelf.volumeClaimTemplates.size() && oldSelf.volumeClaimTemplates.all(o, self.volumeClaimTemplates.exists(n, n == o)))",message="spec.volumeClaimTemplates: cannot be changed in this version; keep the old templates, and create a new LiStatefulSet for other volumes"
type LiStatefulSetSpec struct {
	// Application that this set belongs to. All sets of one application share one decision stream and one
	// budget. Default: the set's own name.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Application string `json:"application,omitempty"`

	// Policy names the bundle that decides (the last segment of its root, apps/<policy>). "default" looks at pods only.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z][a-z0-9_]*$`
	Policy string `json:"policy"`

	// ACM names an entry of the operator's configuration. Default: "default".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ACM string `json:"acm,omitempty"`

	// Replicas is the number of pods wanted.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	// +kubebuilder:default=1
	Replicas *int32 `json:"replicas,omitempty"`

	// Template of the pods, a PodTemplateSpec. It is stored as written: no defaults are added, so that an
	// upgrade never changes its hash. Unknown fields are reported in the condition TemplateValid.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template runtime.RawExtension `json:"template"`

	// VolumeClaimTemplates make one PersistentVolumeClaim a pod and template, named <template>-<pod>.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`

	// MaxUnavailable is the operator's own hard cap for this set, whatever the policy says: a number, or a
	// percentage of replicas rounded up. Default 1.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="maxUnavailable: want a number of at least 1, or 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// ApplicationMaxUnavailable is the same cap over all sets of the application. Default: the largest of its sets'.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	ApplicationMaxUnavailable *int32 `json:"applicationMaxUnavailable,omitempty"`

	// MinReadySeconds is how long a pod must be Ready before it counts as available.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// ProgressDeadlineSeconds is how long a pod may take to become available before a condition says so. Default 600.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	ProgressDeadlineSeconds *int32 `json:"progressDeadlineSeconds,omitempty"`

	// Paused stops new grants: Rollout those of deployments, All every one. Running steps finish; restoring goes on.
	//
	// +optional
	// +kubebuilder:validation:Enum=Rollout;All
	Paused PauseMode `json:"paused,omitempty"`

	// RevisionHistoryLimit is how many unused Revisions are kept. Default 10.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// Canaries run other Revisions on some of the indices.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Canaries []Canary `json:"canaries,omitempty"`

	// Restart restarts pods once for every new id.
	//
	// +optional
	Restart *Restart `json:"restart,omitempty"`

	// Update: Replace pods, or change them InPlaceIfPossible. Default Replace.
	//
	// +optional
	// +kubebuilder:validation:Enum=Replace;InPlaceIfPossible
	Update UpdateMode `json:"update,omitempty"`

	// ReservedIndices are never used.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	ReservedIndices []int32 `json:"reservedIndices,omitempty"`

	// Identity: Incarnation gives a pod that moves to another node a new name, Index keeps the hostname. Default Incarnation.
	//
	// +optional
	// +kubebuilder:validation:Enum=Index;Incarnation
	Identity IdentityMode `json:"identity,omitempty"`

	// Restore: Auto recreates a missing pod at once, RequireApproval asks first. Default Auto.
	//
	// +optional
	// +kubebuilder:validation:Enum=Auto;RequireApproval
	Restore RestoreMode `json:"restore,omitempty"`

	// Retention of claims. Default: retain.
	//
	// +optional
	Retention *Retention `json:"retention,omitempty"`

	// Swap says how a pod moves to another node for good.
	//
	// +optional
	Swap *Swap `json:"swap,omitempty"`

	// Disruption says how temporary node maintenance is handled.
	//
	// +optional
	Disruption *Disruption `json:"disruption,omitempty"`

	// Eviction says how the Eviction API is answered.
	//
	// +optional
	Eviction *Eviction `json:"eviction,omitempty"`

	// ScaleIn limits and confirms removals.
	//
	// +optional
	ScaleIn *ScaleInRules `json:"scaleIn,omitempty"`

	// TrafficDrain takes a pod out of its client Service before it is stopped.
	//
	// +optional
	TrafficDrain *TrafficDrain `json:"trafficDrain,omitempty"`

	// DeletionProtection refuses deleting the set.
	//
	// +optional
	DeletionProtection bool `json:"deletionProtection,omitempty"`
}

// VolumeClaimTemplate is the template of one PersistentVolumeClaim a pod.
type VolumeClaimTemplate struct {
	// Name of the template; the volume's name in the pod template.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Labels of the claim.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the claim.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// Spec of the claim.
	Spec corev1.PersistentVolumeClaimSpec `json:"spec"`
}

// PauseMode is how far a set is paused.
type PauseMode string

// Pause modes.
const (
	PausedRollout PauseMode = "Rollout"
	PausedAll     PauseMode = "All"
)

// UpdateMode is how pods reach a new Revision.
type UpdateMode string

// Update modes.
const (
	UpdateReplace           UpdateMode = "Replace"
	UpdateInPlaceIfPossible UpdateMode = "InPlaceIfPossible"
)

// IdentityMode is what stays when a pod moves for good.
type IdentityMode string

// Identity modes.
const (
	IdentityIndex       IdentityMode = "Index"
	IdentityIncarnation IdentityMode = "Incarnation"
)

// RestoreMode is whether a lost pod returns without asking.
type RestoreMode string

// Restore modes.
const (
	RestoreAuto            RestoreMode = "Auto"
	RestoreRequireApproval RestoreMode = "RequireApproval"
)

// RetentionPolicy is what happens to claims.
type RetentionPolicy string

// Retention policies.
const (
	RetentionRetain RetentionPolicy = "Retain"
	RetentionDelete RetentionPolicy = "Delete"
)

// Canary runs another Revision on some indices. Exactly one of indices, count and percent.
type Canary struct {
	// Name of the canary.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Indices []int32 `json:"indices,omitempty"`
	// +optional
	Count *int32 `json:"count,omitempty"`
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// Template of the canary pods.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Template runtime.RawExtension `json:"template"`
}

// Restart asks for one restart of pods.
type Restart struct {
	// ID of this restart; a new one restarts again.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ID string `json:"id"`
	// Indices to restart; all when empty.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Indices []int32 `json:"indices,omitempty"`
}

// Retention of claims.
type Retention struct {
	// WhenScaled: after a scale-in.
	// +optional
	// +kubebuilder:validation:Enum=Retain;Delete
	WhenScaled RetentionPolicy `json:"whenScaled,omitempty"`
	// WhenDeleted: after the set was deleted.
	// +optional
	// +kubebuilder:validation:Enum=Retain;Delete
	WhenDeleted RetentionPolicy `json:"whenDeleted,omitempty"`
	// Reuse an index's old claims when it comes back. Default true.
	// +optional
	Reuse *bool `json:"reuse,omitempty"`
}

// Swap says how a pod moves to another node for good.
type Swap struct {
	// +optional
	// +kubebuilder:validation:Enum=AddFirst;RemoveFirst
	Order string `json:"order,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=Recreate;Reattach
	Volumes string `json:"volumes,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxOpen *int32 `json:"maxOpen,omitempty"`
}

// Disruption says how temporary node maintenance is handled.
type Disruption struct {
	// +optional
	// +kubebuilder:validation:Enum=Strict;Together;Swap
	NodeGroup string `json:"nodeGroup,omitempty"`
	// +optional
	// +kubebuilder:validation:Enum=Auto;SameNode;AnyNode
	Return string `json:"return,omitempty"`
}

// Eviction says how the Eviction API is answered.
type Eviction struct {
	// +optional
	// +kubebuilder:validation:Enum=Managed;None
	PDB string `json:"pdb,omitempty"`
}

// ScaleInRules limit and confirm removals.
type ScaleInRules struct {
	// Indices to remove before higher ones.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	Indices []int32 `json:"indices,omitempty"`
	// MaxPercent of the pods that one edit may remove without confirmation.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxPercent *int32 `json:"maxPercent,omitempty"`
}

// TrafficDrain takes a pod out of its client Service before it is stopped.
type TrafficDrain struct {
	// +optional
	// +kubebuilder:validation:Minimum=0
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`
}

// LiStatefulSetStatus is what is.
type LiStatefulSetStatus struct {
	// ObservedGeneration of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Replicas that exist (have a StatefulPod).
	// +optional
	Replicas int32 `json:"replicas"`
	// ReadyReplicas have a Ready pod.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// AvailableReplicas have been Ready for minReadySeconds on their approved revision.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`
	// UpdatedReplicas are available at updateRevision.
	// +optional
	UpdatedReplicas int32 `json:"updatedReplicas"`
	// CurrentRevision: the one all pods last had in common.
	// +optional
	CurrentRevision string `json:"currentRevision,omitempty"`
	// UpdateRevision: the one the spec asks for.
	// +optional
	UpdateRevision string `json:"updateRevision,omitempty"`
	// Selector of the set's pods, as text.
	// +optional
	Selector string `json:"selector,omitempty"`
	// EverAvailable are the ranges of indices that have been available at least once, such as "0-2,5".
	// +optional
	EverAvailable string `json:"everAvailable,omitempty"`
	// Summary for people.
	// +optional
	Summary Summary `json:"summary,omitempty"`
	// Conditions: Ready, Progressing, TemplateValid, Stalled, ApplicationAgreed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Summary answers "how far, and what is it waiting for". It is derived for people and never read by a controller.
type Summary struct {
	// State in one word: Stable, ScalingOut, ScalingIn, Updating, Restoring, Waiting, Denied, Paused, Invalid.
	// +optional
	State string `json:"state,omitempty"`
	// WaitingFor says who waits for what: "etcd-1: quorum.majority: 1 of 3 voters would be up, 2 needed".
	// +optional
	WaitingFor string `json:"waitingFor,omitempty"`
	// Since when the state holds.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}
