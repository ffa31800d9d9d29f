package question

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/indexrange"
)

// Question is the whole live state of one application: question, heartbeat and release of unused approvals in one.
type Question struct {
	// Application is its namespace and name.
	Application types.NamespacedName
	// Policy names the bundle.
	Policy string
	// ACM names the entry of the operator's configuration that is asked.
	ACM string
	// Session, Term and Age (of the session) say who asks.
	Session string
	Term    int64
	Age     time.Duration
	// Number within the session and application, growing from 1.
	Number uint64
	Sets   []Set
	// MaxUnavailable pods of the whole application; at least 1.
	MaxUnavailable int32
	Operations     []Summary
	Instances      []Instance
	Holding        []Holding
	Pods           []Pod
}

// Set is one LiStatefulSet.
type Set struct {
	Name string
	// Wanted indices, and those of them that have been available at least once.
	Wanted        []indexrange.Range
	EverAvailable []indexrange.Range
	// MaxUnavailable as a number; at least 1.
	MaxUnavailable int32
	// Revision that the set is moving to.
	Revision string
}

// Summary counts one live Operation's instances, ended ones included.
type Summary struct {
	Name                                  string
	Type                                  v1alpha1.OperationType
	Total, Done, Running, Waiting, Denied int32
}

// Step names what is to be done to which pod.
type Step struct {
	Operation   string
	Type        v1alpha1.OperationType
	Stage       v1alpha1.Stage
	Set         string
	Pod         string
	Index       int32
	Incarnation int32
}

// Instance is one live instance of an Operation.
type Instance struct {
	Step
	State        v1alpha1.InstanceState
	Cause        string
	RevisionFrom string
	RevisionTo   string
	Node         string
	Canary       bool
	DeletesData  bool
	WaitingSince time.Time
	// Deadline of maintenance; zero for none.
	Deadline   time.Time
	StateSince time.Time
	// Decision whose approval is the pod's grant; empty while Waiting or Denied.
	Decision string
	// Key changes whenever a parked instance deserves a new answer.
	Key string
}

// Holding is an approval without a visible grant, or an act of unknown outcome.
type Holding struct {
	Step
	Decision       string
	OutcomeUnknown bool
}

// Pod is what the operator has seen of a pod.
type Pod struct {
	Name            string
	UID             string
	ResourceVersion string
	Ready           bool
}

// Answer is how a question ended.
type Answer struct {
	// Session and Number of the question.
	Session string
	Number  uint64
	// Failure is the reason code when there was no answer that can be used: acm.unavailable, acm.timeout,
	// acm.malformed. Decisions are empty then.
	Failure string
	// Message explains the failure.
	Message string
	// Epoch of the ACM's ledger.
	Epoch     int64
	Decisions []Decision
}

// NotDeciding says whether the answer came from a replica that decides nothing, so that another one is to be asked.
func (a Answer) NotDeciding() bool {
	return len(a.Decisions) > 0 && !slices.ContainsFunc(a.Decisions, func(d Decision) bool {
		return len(d.Reasons) == 0 || d.Reasons[0].Code != CodeNotDeciding
	})
}

// Verdict of a decision.
type Verdict string

// Verdicts.
const (
	Approve Verdict = "approve"
	Defer   Verdict = "defer"
	Deny    Verdict = "deny"
)

// Decision answers one instance and stage.
type Decision struct {
	ID        string
	Operation string
	Pod       string
	Stage     v1alpha1.Stage
	Verdict   Verdict
	Reasons   []v1alpha1.Reason
	Needs     []v1alpha1.Need
	// Parameters of an approval, annotations without the assent.dev/ prefix.
	Parameters map[string]string
	// ExpiresAfter is how long an approval may be acted on, from the send of the question.
	ExpiresAfter time.Duration
	// RetryAfter: nothing can change before, unless a nudge says so; zero when not said.
	RetryAfter time.Duration
}
