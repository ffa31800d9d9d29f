package operation

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/question"
)

// Ref names one instance: one pod of one Operation.
type Ref struct{ Operation, Pod string }

// Word is the last word about an instance. It is newer than what the Operation's status shows, or the same.
type Word struct {
	Verdict question.Verdict
	// DecisionID of a denial or of the approval that was recorded.
	DecisionID string
	Reasons    []v1alpha1.Reason
	Needs      []v1alpha1.Need
	// Key that a denial holds for, and when it is looked at again.
	Key     string
	RetryAt time.Time
	// WaitingSince is when it was first asked about.
	WaitingSince time.Time
}

// Code is the first reason's code; empty when there is none.
func (w Word) Code() string {
	if len(w.Reasons) == 0 {
		return ""
	}
	return w.Reasons[0].Code
}

// Input is one look at an application. Nothing in it is changed. Objects that belong to none of the sets by owner
// references, such as left-overs of a deleted set of the same name, are ignored.
type Input struct {
	Application types.NamespacedName
	Sets        []v1alpha1.LiStatefulSet
	Indexes     []v1alpha1.PodIndex
	Operations  []v1alpha1.Operation
	Identities  []v1alpha1.StatefulPod
	Pods        []corev1.Pod
	// Absent names identities that a live read proved absent; OperationsGone the same of Operations.
	Absent         map[string]bool
	OperationsGone map[string]bool
	// Session, Term and Age of it.
	Session string
	Term    int64
	Age     time.Duration
	// Held are the session's approvals for the application.
	Held  []approval.Held
	Words map[Ref]Word
	Now   time.Time
}

// Plan is what to write, in the order of its fields, what is shown, and what to ask.
type Plan struct {
	// Returns take grants back that nobody can act on anymore.
	Returns []Return
	// Removals are identities to delete, once a live read shows that they have no Pod.
	Removals []Removal
	// Grants to record.
	Grants []Grant
	// Recorded are decisions whose grants are seen to be stored.
	Recorded []string
	// Void are decisions whose approvals were not used: they are released by not being held.
	Void []string
	// Forget are decisions that are done with.
	Forget []string
	// Statuses that differ from what is stored.
	Statuses []StatusWrite
	// Words for the next look.
	Words map[Ref]Word
	// Count of live instances by type and state.
	Count map[Kind]int
	// Open: there is something to ask or to report.
	Open bool
	// Question to ask, without its number.
	Question question.Question
	// About is what the question says of the pods it asks for.
	About map[Ref]About
	// Wake is when to look again if nothing happens; zero for never.
	Wake time.Time
}

// Kind of live instance.
type Kind struct {
	Type  v1alpha1.OperationType
	State v1alpha1.InstanceState
}

// Return takes a grant back: what was approved before is approved again.
type Return struct {
	// Identity as it is to be stored.
	Identity *v1alpha1.StatefulPod
	Decision string
	// Certain: no act can be on its way. Otherwise the approval has to be revoked first.
	Certain bool
	// WithoutPod: only if a live read shows no Pod, since there should be none.
	WithoutPod bool
	Ref        Ref
	Why        v1alpha1.Reason
}

// Removal deletes an identity whose Pod is gone.
type Removal struct {
	Identity *v1alpha1.StatefulPod
	Why      string
}

// Grant records an approval.
type Grant struct {
	// Identity as it is to be stored; without a resourceVersion it is to be created.
	Identity  *v1alpha1.StatefulPod
	Operation *v1alpha1.Operation
	Ref       Ref
	Stage     v1alpha1.Stage
	Decision  string
	// ConfirmAbsent: only if live reads of the PodIndex and of the set agree that the index is not wanted.
	ConfirmAbsent bool
	Set           string
	Index         int32
	// Deadline for the write.
	Deadline time.Time
}

// StatusWrite is an Operation with its new status.
type StatusWrite struct {
	Operation *v1alpha1.Operation
	Before    v1alpha1.OperationStatus
	// Urgent: not to be delayed, because it is complete or somebody waits for an end to be recorded.
	Urgent bool
}

// About is what a question says of a pod.
type About struct {
	PodUID string
	Down   bool
	Key    string
}
