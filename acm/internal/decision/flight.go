package decision

import (
	"maps"
	"time"

	"assent.dev/assent/acm/internal/facts"
)

// Flight is everything that executes or is approved in one application: what the operator reports
// plus approvals that it does not show yet. The entries are the questions' in_flight.
type Flight struct {
	byPod map[string]*InFlight
	steps map[string]Step
	// repairs marks steps that were approved for a pod that was down already.
	repairs map[string]bool
	// shared: a question holds byPod, so it must not change anymore.
	shared bool
}

// NewFlight is an empty one.
func NewFlight() *Flight {
	return &Flight{byPod: map[string]*InFlight{}, steps: map[string]Step{}, repairs: map[string]bool{}}
}

// Clone copies it so that the copy can take more steps.
func (f *Flight) Clone() *Flight {
	return &Flight{byPod: maps.Clone(f.byPod), steps: maps.Clone(f.steps), repairs: maps.Clone(f.repairs)}
}

// add puts a step in flight; the first entry of a pod stays, because one pod executes one step.
func (f *Flight) add(step Step, entry *InFlight, repair bool) {
	if f.byPod[step.Pod] != nil {
		return
	}
	if f.shared {
		f.byPod, f.shared = maps.Clone(f.byPod), false
	}
	f.byPod[step.Pod], f.steps[step.Pod] = entry, step
	if repair {
		f.repairs[step.Pod] = true
	}
}

// around is in_flight for a question about the pod: everybody else's entries, which stay as they are now. The decision log
// reads them later, while further steps are taken.
func (f *Flight) around(pod string) map[string]*InFlight {
	if f.byPod[pod] == nil {
		f.shared = true
		return f.byPod
	}
	others := maps.Clone(f.byPod)
	delete(others, pod)
	return others
}

// Steps are the steps in flight by pod. Callers must not change it.
func (f *Flight) Steps() map[string]Step { return f.steps }

// Len is how many pods are in flight.
func (f *Flight) Len() int { return len(f.byPod) }

func entryOf(step Step, cause string, deletesData bool) InFlight {
	return InFlight{
		Operation: step.Operation, Type: step.Type, Stage: step.Stage, Set: step.Set, Cause: cause,
		TakesDown: step.TakesDown(), Leaves: step.Leaves(), Joins: step.Joins(), DeletesData: deletesData && step.Leaves(),
	}
}

func runningEntry(i *Instance) *InFlight {
	e := entryOf(i.Step, i.Cause, i.DeletesData)
	e.State, e.Since = Running, Unix(i.StateSince)
	return &e
}

func approvedEntry(r *Reservation) *InFlight {
	e := entryOf(r.Step, r.Cause, r.DeletesData)
	e.State, e.Since = Approved, Unix(r.ApprovedAt)
	if r.ExpiresAt.IsZero() {
		e.State = Running
		return &e
	}
	expires := Unix(r.ExpiresAt)
	e.ExpiresAt = &expires
	return &e
}

// Busy explains why another operation's step keeps this one from starting on the same index; ""
// when none does. It is the lock rule: never in Granted or Acting or with an unacted approval;
// Holding yields to swap and scale-in; Verifying yields while the pod is unavailable.
func (f *Flight) Busy(s *State, snapshot *facts.Snapshot, step Step) string {
	for i := range s.Instances {
		other := &s.Instances[i]
		if !other.State.InFlight() || other.Operation == step.Operation || other.Set != step.Set || other.Index != step.Index {
			continue
		}
		if !yields(other, snapshot, step) {
			return other.Operation + " is " + string(other.State) + " on " + other.Pod
		}
	}
	for pod, other := range f.steps {
		entry := f.byPod[pod]
		if other.Operation != step.Operation && other.Set == step.Set && other.Index == step.Index && entry.State == Approved {
			return other.Operation + " is approved on " + pod
		}
	}
	return ""
}

func yields(holder *Instance, snapshot *facts.Snapshot, step Step) bool {
	switch holder.State {
	case Holds:
		return step.Type == Swap || step.Type == ScaleIn
	case Verifying:
		p := snapshot.Pods().Get(holder.Pod)
		return p == nil || !p.Available
	default:
		return false
	}
}

// Reservation is an approval that counts as in flight. A zero ExpiresAt never expires: its act was
// sent and the outcome is unknown.
type Reservation struct {
	Step
	DecisionID  string
	Cause       string
	DeletesData bool
	ApprovedAt  time.Time
	ExpiresAt   time.Time
	// Repair: the pod was down when the step was approved.
	Repair bool

	// decision is the answer that gave it; nil when an earlier ACM did.
	decision *Decision
}
