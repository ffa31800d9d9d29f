package decision

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"assent.dev/assent/acm/internal/facts"
)

// State is one Evaluate request: the whole live state of one application as the operator knows it.
type State struct {
	Application   ApplicationRef
	Session       Session
	RequestNumber uint64
	Sets          []Set
	// MaxUnavailable is how many pods of the whole application may be unavailable at once.
	MaxUnavailable int
	Operations     []Summary
	Instances      []Instance
	Holding        []Holding
	Pods           []PodVersion
	Disabled       []DisabledCheck
}

// ApplicationRef identifies an application; Policy names its bundle.
type ApplicationRef struct{ Cluster, Namespace, Name, Policy string }

// Session is one leadership term of an operator.
type Session struct {
	ID   string
	Term int64
	// Age is the time since the term began, on the operator's clock.
	Age time.Duration
}

// Set is one set of the application.
type Set struct {
	Name           string
	Wanted         []facts.Range
	EverAvailable  []facts.Range
	MaxUnavailable int
	Revision       string
	// CanariesDoneAt is the zero time while not every canary has been available.
	CanariesDoneAt time.Time
}

// Summary counts one live Operation's instances.
type Summary struct {
	Name     string
	Type     Type
	Progress Progress
}

// InstanceState is where one pod of an Operation stands.
type InstanceState string

// Instance states that a request may hold.
const (
	Waiting   InstanceState = "Waiting"
	Denied    InstanceState = "Denied"
	Granted   InstanceState = "Granted"
	Acting    InstanceState = "Acting"
	Holds     InstanceState = "Holding"
	Verifying InstanceState = "Verifying"
)

// InFlight says whether the instance counts as in flight.
func (s InstanceState) InFlight() bool {
	return s == Granted || s == Acting || s == Holds || s == Verifying
}

// Step is what is to be done to which pod.
type Step struct {
	Operation   string
	Type        Type
	Stage       Stage
	Set         string
	Pod         string
	Index       int
	Incarnation int
}

// TakesDown says whether the step costs the pod's availability.
func (s Step) TakesDown() bool { return s.Stage == StageRemove || s.Stage == StageUpdate }

// Leaves says whether the identity, or this copy of its data, goes.
func (s Step) Leaves() bool {
	return s.Stage == StageRemove && (s.Type == ScaleIn || s.Type == Swap)
}

// Joins says whether a new process appears.
func (s Step) Joins() bool {
	return s.Stage == StageAdd && (s.Type == ScaleOut || s.Type == Swap)
}

// Instance is one live instance of an Operation.
type Instance struct {
	Step
	State        InstanceState
	Cause        string
	RevisionFrom string
	RevisionTo   string
	Node         string
	Canary       bool
	// DeletesData says that retention deletes the claims once the identity or copy is gone.
	DeletesData  bool
	WaitingSince time.Time
	// Deadline is the zero time when there is none.
	Deadline   time.Time
	StateSince time.Time
	// DecisionID is the recorded grant's; empty while Waiting or Denied.
	DecisionID string
	// Key changes whenever a parked instance deserves a new answer.
	Key string
}

// Holding is an approval whose grant is not visible yet, or an act of unknown outcome.
type Holding struct {
	Step
	DecisionID string
	// OutcomeUnknown: the act was sent; it does not expire.
	OutcomeUnknown bool
}

// PodVersion is what the operator has seen of a pod.
type PodVersion struct {
	Name            string
	UID             string
	ResourceVersion string
	Ready           bool
}

// DisabledCheck switches a check or a reason code off for a set, or for all when Set is empty.
type DisabledCheck struct {
	Set   string
	Name  string
	Until time.Time
	By    string
	Why   string
}

// Unix gives a time as the contract's Unix seconds with a fraction of microseconds.
func Unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// set finds the set by name; nil when the request does not name it.
func (s *State) set(name string) *Set {
	for i := range s.Sets {
		if s.Sets[i].Name == name {
			return &s.Sets[i]
		}
	}
	return nil
}

func (s *State) progress(operation string) Progress {
	for i := range s.Operations {
		if s.Operations[i].Name == operation {
			return s.Operations[i].Progress
		}
	}
	return Progress{}
}

// OverridesOf is a text that changes when the overrides in force for a set do.
func (s *State) OverridesOf(set string, now time.Time) string {
	text := ""
	for _, d := range s.Disabled {
		if (d.Set == "" || d.Set == set) && now.Before(d.Until) {
			text += d.Name + "@" + d.Until.UTC().Format(time.RFC3339Nano) + ";"
		}
	}
	return text
}

// Check finds what makes a whole request unfit to be judged; nil when it is sound. An instance that
// waits and is unsound spoils only its own answer: see CheckInstance.
func (s *State) Check() *MachineryError {
	malformed := func(format string, args ...any) *MachineryError {
		return &MachineryError{Code: CodeACMMalformed, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case s.Application.Name == "" || s.Application.Namespace == "":
		return malformed("the request names no application")
	case s.Session.ID == "":
		return malformed("the request names no session")
	case s.RequestNumber == 0:
		return malformed("requests are numbered from 1")
	case s.MaxUnavailable < 1:
		return malformed("application_max_unavailable is %d, at least 1 is needed", s.MaxUnavailable)
	}
	sets := map[string]bool{}
	for _, set := range s.Sets {
		switch {
		case set.Name == "" || sets[set.Name]:
			return malformed("set %q is named twice or not at all", set.Name)
		case set.MaxUnavailable < 1:
			return malformed("max_unavailable of set %s is %d, at least 1 is needed", set.Name, set.MaxUnavailable)
		}
		sets[set.Name] = true
	}
	for i := range s.Instances {
		if fault := s.Instances[i].check(sets); fault != "" && s.Instances[i].State.InFlight() {
			return malformed("%s of %s is in flight: %s", s.Instances[i].Pod, s.Instances[i].Operation, fault)
		}
	}
	for i := range s.Holding {
		if fault := s.Holding[i].check(sets); fault != "" || s.Holding[i].DecisionID == "" {
			return malformed("holding of %s: %s", s.Holding[i].Pod, cmp.Or(fault, "no decision id"))
		}
	}
	return nil
}

// CheckInstance finds what makes a waiting instance unfit to be judged; nil when it is sound.
func (s *State) CheckInstance(i *Instance) *MachineryError {
	sets := map[string]bool{}
	for _, set := range s.Sets {
		sets[set.Name] = true
	}
	fault := i.check(sets)
	if fault == "" && i.State != Waiting && i.State != Denied {
		fault = fmt.Sprintf("unknown state %q", i.State)
	}
	if fault == "" {
		return nil
	}
	return &MachineryError{Code: CodeACMMalformed, Message: fault}
}

var stagesOf = map[Type][]Stage{
	ScaleOut:   {StageAdd},
	ScaleIn:    {StageRemove, StageRelease},
	Deployment: {StageRemove, StageUpdate},
	Disruption: {StageRemove},
	Swap:       {StageAdd, StageRemove, StageRelease},
}

func (s Step) check(sets map[string]bool) string {
	switch {
	case s.Operation == "" || s.Pod == "":
		return "operation or pod is empty"
	case !sets[s.Set]:
		return fmt.Sprintf("its set %q is not in the request", s.Set)
	case stagesOf[s.Type] == nil:
		return fmt.Sprintf("unknown type %q", s.Type)
	case !slices.Contains(stagesOf[s.Type], s.Stage):
		return fmt.Sprintf("%s has no stage %q", s.Type, s.Stage)
	}
	return ""
}

// Bootstrapping says whether no wanted index of any set has ever been available.
func (s *State) Bootstrapping() bool {
	for i := range s.Sets {
		for _, r := range s.Sets[i].EverAvailable {
			for index := r.First; index <= r.Last; index++ {
				if facts.Contains(s.Sets[i].Wanted, index) {
					return false
				}
			}
		}
	}
	return true
}

// Expectations are the sets as the fact store wants to know them.
func (s *State) Expectations() map[string]facts.Expectation {
	expect := make(map[string]facts.Expectation, len(s.Sets))
	for i := range s.Sets {
		expect[s.Sets[i].Name] = facts.Expectation{Wanted: s.Sets[i].Wanted, EverAvailable: s.Sets[i].EverAvailable}
	}
	return expect
}
