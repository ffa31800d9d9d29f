package decision

import (
	"encoding/json"

	"assent.dev/assent/acm/internal/facts"
)

// Question is the input document of one evaluation: one operation, pod and stage, with everything
// already promised counted in. Times are Unix seconds with an optional fraction, durations seconds.
// An unknown or inapplicable key is absent.
type Question struct {
	Now         float64     `json:"now"`
	Operation   Operation   `json:"operation"`
	Application Application `json:"application"`
	// Options are the thresholds in force for this question.
	Options *Options `json:"options"`
	Target  Target   `json:"target"`
	Totals  Totals   `json:"totals"`
	// Election is the fact's copy; nil when unknown.
	Election *facts.Election `json:"election,omitempty"`
	// InFlight is keyed by pod and never holds the pod asked about. Entries are shared between the
	// questions of a batch, so a pointer identifies its content.
	InFlight map[string]*InFlight `json:"in_flight"`
	History  *History             `json:"history"`
	Disabled map[string]*Disabled `json:"disabled"`
}

// Options are a bundle's checks with their thresholds, merged for one (set, type, stage, ...).
// Compiled is the evaluator's own form of the same, opaque to everybody else. Never changed once made.
type Options struct {
	Checks   map[string]any
	Compiled any
}

// MarshalJSON writes the checks alone; no options are an empty object.
func (o *Options) MarshalJSON() ([]byte, error) {
	if o == nil || o.Checks == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(o.Checks)
}

// OptionsKey selects the overrides that apply to a question.
type OptionsKey struct {
	Application, Namespace, Set, Type, Stage, Pod, Cause string
}

// Operation is input.operation.
type Operation struct {
	ID           string   `json:"id"`
	Type         Type     `json:"type"`
	Stage        Stage    `json:"stage"`
	Pod          string   `json:"pod"`
	Set          string   `json:"set"`
	Index        int      `json:"index"`
	Incarnation  int      `json:"incarnation"`
	TakesDown    bool     `json:"takes_down"`
	Leaves       bool     `json:"leaves"`
	Joins        bool     `json:"joins"`
	DeletesData  bool     `json:"deletes_data"`
	RevisionFrom string   `json:"revision_from,omitempty"`
	RevisionTo   string   `json:"revision_to,omitempty"`
	Cause        string   `json:"cause,omitempty"`
	Node         string   `json:"node,omitempty"`
	WaitingSince float64  `json:"waiting_since"`
	Deadline     *float64 `json:"deadline,omitempty"`
	Canary       bool     `json:"canary"`
	// CanariesDoneAt is nil while not every canary has been available.
	CanariesDoneAt *float64 `json:"canaries_done_at,omitempty"`
	Progress       Progress `json:"progress"`
}

// Progress counts the instances of one Operation.
type Progress struct {
	Total   int `json:"total"`
	Done    int `json:"done"`
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	Denied  int `json:"denied"`
}

// Application is input.application. Policy names the bundle.
type Application struct {
	Name          string             `json:"name"`
	Namespace     string             `json:"namespace"`
	Policy        string             `json:"policy"`
	Bootstrapping bool               `json:"bootstrapping"`
	Sets          map[string]*SetRef `json:"sets"`
}

// SetRef is one set of input.application.sets.
type SetRef struct {
	Replicas       int    `json:"replicas"`
	MaxUnavailable int    `json:"max_unavailable"`
	Revision       string `json:"revision,omitempty"`
}

// Target is input.target: the pod asked about and what the step does to everybody around it.
type Target struct {
	Pod    string `json:"pod"`
	Exists bool   `json:"exists"`

	Set         string   `json:"set,omitempty"`
	Index       *int     `json:"index,omitempty"`
	Incarnation *int     `json:"incarnation,omitempty"`
	Revision    string   `json:"revision,omitempty"`
	Node        string   `json:"node,omitempty"`
	Zone        string   `json:"zone,omitempty"`
	Ready       *bool    `json:"ready,omitempty"`
	Available   *bool    `json:"available,omitempty"`
	Terminating *bool    `json:"terminating,omitempty"`
	Since       *float64 `json:"since,omitempty"`

	Down     bool `json:"down"`
	GoesDown bool `json:"goes_down"`
	// IsLeader is false while leadership is unknown.
	IsLeader bool                    `json:"is_leader"`
	Member   *facts.Member           `json:"member,omitempty"`
	Groups   map[string][]Membership `json:"groups"`
	Custom   map[string][]Membership `json:"custom"`
	Quorum   *TargetQuorum           `json:"quorum,omitempty"`
	Leaders  *TargetLeaders          `json:"leaders,omitempty"`
	Shards   *TargetShards           `json:"shards,omitempty"`
	Others   *Others                 `json:"others,omitempty"`
	Peers    Names                   `json:"peers"`
}

// Membership is the target's place in one group; "others" never include the target.
type Membership struct {
	Name            string   `json:"name"`
	Size            int      `json:"size"`
	OthersDown      int      `json:"others_down"`
	Others          []string `json:"others"`
	OtherGroupsDown int      `json:"other_groups_down"`
	OtherGroups     []string `json:"other_groups"`
}

// Quorum counts voters: Up are healthy, known and not promised; Needed is floor(Voters/2)+1.
type Quorum struct {
	Voters int `json:"voters"`
	Up     int `json:"up"`
	Needed int `json:"needed"`
}

// TargetQuorum adds the step's effect. UpSeen ignores promises.
type TargetQuorum struct {
	Quorum
	UpSeen      int `json:"up_seen"`
	VotersAfter int `json:"voters_after"`
	UpAfter     int `json:"up_after"`
	NeededAfter int `json:"needed_after"`
}

// Leaders counts shards that should have a leader (Expected) and those whose leader is available
// and not promised (Up); Needed is the majority of Expected.
type Leaders struct {
	Expected int `json:"expected"`
	Up       int `json:"up"`
	Needed   int `json:"needed"`
}

// TargetLeaders adds the step's effect.
type TargetLeaders struct {
	Leaders
	UpAfter int `json:"up_after"`
}

// TargetShards is what the target holds and leads, and what the step would do to it.
type TargetShards struct {
	Count         int         `json:"count"`
	Leading       int         `json:"leading"`
	BelowMin      ShardEffect `json:"below_min"`
	LastCopy      ShardEffect `json:"last_copy"`
	OthersBehind  ShardEffect `json:"others_behind"`
	Unsatisfiable ShardEffect `json:"unsatisfiable"`
	Peers         Names       `json:"peers"`
}

// ShardEffect counts the shards concerned; at most facts.MaxExamples are shown.
type ShardEffect struct {
	Count    int            `json:"count"`
	Examples []ShardExample `json:"examples"`
}

// ShardExample is one shard concerned; After is how many copies are in sync after the step.
type ShardExample struct {
	Shard     string `json:"shard"`
	InSync    int    `json:"in_sync"`
	MinInSync int    `json:"min_in_sync"`
	After     int    `json:"after"`
	Replicas  int    `json:"replicas"`
}

// Others are the other members that lag or are unhealthy, and those not known.
type Others struct {
	Lagging Names `json:"lagging"`
	Unknown Names `json:"unknown"`
}

// Names is a count with at most facts.MaxExamples examples, sorted.
type Names struct {
	Count    int      `json:"count"`
	Examples []string `json:"examples"`
}

// Totals is input.totals: the whole application, promises counted.
type Totals struct {
	Pods       int      `json:"pods"`
	Down       Names    `json:"down"`
	Unexpected Names    `json:"unexpected"`
	LastChange float64  `json:"last_change"`
	Quorum     *Quorum  `json:"quorum,omitempty"`
	Leaders    *Leaders `json:"leaders,omitempty"`
	Leaderless *Names   `json:"leaderless,omitempty"`
}

// InFlight is one executing or approved step. State is "running" or "approved"; only approved ones expire.
type InFlight struct {
	Operation   string   `json:"operation"`
	Type        Type     `json:"type"`
	Stage       Stage    `json:"stage"`
	Set         string   `json:"set"`
	State       string   `json:"state"`
	Since       float64  `json:"since"`
	ExpiresAt   *float64 `json:"expires_at,omitempty"`
	Cause       string   `json:"cause,omitempty"`
	TakesDown   bool     `json:"takes_down"`
	Leaves      bool     `json:"leaves"`
	Joins       bool     `json:"joins"`
	DeletesData bool     `json:"deletes_data"`
}

// States of an InFlight entry.
const (
	Running  = "running"
	Approved = "approved"
)

// History lists approval times, newest first, at most 1,000 of the last 24 hours, complete from Since on.
type History struct {
	Since    float64   `json:"since"`
	Approved []float64 `json:"approved"`
}

// Disabled switches a check or a reason code off until a time.
type Disabled struct {
	Until float64 `json:"until"`
	By    string  `json:"by"`
	Why   string  `json:"why"`
}
