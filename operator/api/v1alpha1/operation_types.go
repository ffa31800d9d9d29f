package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// OperationType is what is to be done to pods.
//
// +kubebuilder:validation:Enum=scale-out;scale-in;deployment;disruption;swap
type OperationType string

// Operation types.
const (
	ScaleOut   OperationType = "scale-out"
	ScaleIn    OperationType = "scale-in"
	Deployment OperationType = "deployment"
	Disrupt    OperationType = "disruption"
	SwapPods   OperationType = "swap"
)

// Short is the type's part of an Operation's name.
func (t OperationType) Short() string {
	switch t {
	case ScaleOut:
		return "out"
	case ScaleIn:
		return "in"
	case Deployment:
		return "dep"
	case Disrupt:
		return "dis"
	case SwapPods:
		return "swap"
	}
	return string(t)
}

// Stage is one part of an operation that needs an approval of its own.
//
// +kubebuilder:validation:Enum=add;update;remove;release
type Stage string

// Stages.
const (
	StageAdd     Stage = "add"
	StageUpdate  Stage = "update"
	StageRemove  Stage = "remove"
	StageRelease Stage = "release"
)

// InstanceState is where one pod of an Operation stands. Granted, Acting, Holding and Verifying are in flight.
//
// +kubebuilder:validation:Enum=Waiting;Denied;Granted;Acting;Holding;Verifying;Succeeded;Withdrawn;Superseded
type InstanceState string

// Instance states.
const (
	Waiting    InstanceState = "Waiting"
	Denied     InstanceState = "Denied"
	Granted    InstanceState = "Granted"
	Acting     InstanceState = "Acting"
	Holding    InstanceState = "Holding"
	Verifying  InstanceState = "Verifying"
	Succeeded  InstanceState = "Succeeded"
	Withdrawn  InstanceState = "Withdrawn"
	Superseded InstanceState = "Superseded"
)

// InFlight says whether the state counts against budgets.
func (s InstanceState) InFlight() bool {
	return s == Granted || s == Acting || s == Holding || s == Verifying
}

// Ended says whether the state is terminal.
func (s InstanceState) Ended() bool {
	return s == Succeeded || s == Withdrawn || s == Superseded
}

// Operation is one type of change and the pods it concerns. Its spec is sealed; approval is per pod. Its status is
// a projection of the StatefulPods' grants.
//
// Written by: the podindex controller (spec), the operation controller (status).
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=op,categories=assent
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Set",type=string,JSONPath=`.spec.set`,priority=1
// +kubebuilder:printcolumn:name="Done",type=string,JSONPath=`.status.progress`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Waiting for",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="spec: an Operation is sealed once made; edit the LiStatefulSet, which withdraws it and makes another"
type Operation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   OperationSpec   `json:"spec"`
	Status OperationStatus `json:"status,omitempty"`
}

// Ended says whether every instance of the order has ended.
func (o *Operation) Ended() bool {
	if len(o.Status.Instances) < len(o.Spec.Instances) {
		return false
	}
	for i := range o.Status.Instances {
		if !o.Status.Instances[i].State.Ended() {
			return false
		}
	}
	return true
}

// OperationList is a list of Operations.
//
// +kubebuilder:object:root=true
type OperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Operation `json:"items"`
}

// Target is what the pods of an Operation should become.
type Target struct {
	// Revision wanted (scale-out, deployment).
	// +optional
	Revision string `json:"revision,omitempty"`
	// Restart id wanted (deployment).
	// +optional
	Restart string `json:"restart,omitempty"`
	// Node under maintenance (disruption, swap).
	// +optional
	Node string `json:"node,omitempty"`
}

// OperationSpec is the order, sealed once made.
type OperationSpec struct {
	Set         string        `json:"set"`
	Application string        `json:"application"`
	PodIndex    string        `json:"podIndex"`
	Type        OperationType `json:"type"`
	// Cause: rollout, canary, restart, edit, maintenance, eviction, node-lost, restore.
	Cause string `json:"cause"`
	// +optional
	Target Target `json:"target,omitempty"`
	// Generation of the PodIndex that asked for it.
	Generation int64 `json:"generation"`
	// Deadline by which maintenance happens anyway.
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
	// +listType=map
	// +listMapKey=index
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	Instances []OperationInstance `json:"instances"`
}

// OperationInstance names one pod of the order.
type OperationInstance struct {
	Index       int32 `json:"index"`
	Incarnation int32 `json:"incarnation"`
	// Pod is the StatefulPod's and the Pod's name.
	Pod string `json:"pod"`
	// +optional
	RevisionFrom string `json:"revisionFrom,omitempty"`
	// +optional
	Canary string `json:"canary,omitempty"`
}

// OperationStatus is where each pod stands.
type OperationStatus struct {
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Progress for people, such as "1/3".
	// +optional
	Progress string `json:"progress,omitempty"`
	// State for people: that of the instance furthest on the way, or Complete.
	// +optional
	State string `json:"state,omitempty"`
	// Reason code of the instance shown.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message: "etcd-1: 1 of 3 voters would be up, 2 needed".
	// +optional
	Message string `json:"message,omitempty"`
	// Since when State and Reason hold.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// CompletedAt is when the last instance ended.
	// +optional
	CompletedAt *metav1.Time `json:"completedAt,omitempty"`
	// Instances: one a pod, in the order of the spec.
	// +optional
	// +listType=atomic
	Instances []InstanceStatus `json:"instances,omitempty"`
	// Conditions: Complete.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// InstanceStatus is one pod's place in the operation and the last word about it.
type InstanceStatus struct {
	Index int32  `json:"index"`
	Pod   string `json:"pod"`
	// +optional
	Stage Stage         `json:"stage,omitempty"`
	State InstanceState `json:"state"`
	// Since when the state holds.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// WaitingSince is when the first question about this instance was asked.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`
	// Verdict of the last answer: approve, defer, deny.
	// +optional
	Verdict string `json:"verdict,omitempty"`
	// DecisionID of the last answer that was acted on, or of the denial.
	// +optional
	DecisionID string `json:"decisionID,omitempty"`
	// Key that a denial holds for.
	// +optional
	Key string `json:"key,omitempty"`
	// RetryAt is when a denial is looked at again.
	// +optional
	RetryAt *metav1.Time `json:"retryAt,omitempty"`
	// Reasons of the last answer; at most 8.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Reasons []Reason `json:"reasons,omitempty"`
	// Needs: what would make it safe.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Needs []Need `json:"needs,omitempty"`
	// SupersededBy names the Operation that took over.
	// +optional
	SupersededBy string `json:"supersededBy,omitempty"`
}

// Reason is one argument of a policy or of the machinery.
type Reason struct {
	Code string `json:"code"`
	// +optional
	Message string `json:"message,omitempty"`
}

// Need names an action that would make a deferred step safe.
type Need struct {
	Action string `json:"action"`
	// +optional
	Subject string `json:"subject,omitempty"`
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
}
