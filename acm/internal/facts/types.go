package facts

// Phase values of a Pod beyond Kubernetes' own.
const (
	// PhaseMissing marks an identity that should exist and has no Pod.
	PhaseMissing = "Missing"
)

// Pod is one pod as Kubernetes shows it, or a Missing identity. Times are Unix seconds.
type Pod struct {
	Set         string            `json:"set"`
	Index       int               `json:"index"`
	Incarnation int               `json:"incarnation"`
	Revision    string            `json:"revision"`
	Node        string            `json:"node,omitempty"`
	Zone        string            `json:"zone,omitempty"`
	Groups      map[string]string `json:"groups"`
	Phase       string            `json:"phase"`
	Ready       bool              `json:"ready"`
	Available   bool              `json:"available"`
	Terminating bool              `json:"terminating"`
	Restarts    int               `json:"restarts"`
	// Since is when Available last changed.
	Since float64 `json:"since"`

	// UID, ResourceVersion and IP identify the Pod for collectors and freshness; policies never see them.
	UID             string `json:"-"`
	ResourceVersion string `json:"-"`
	IP              string `json:"-"`
	// Labels feed the manifest's groups; policies see only Groups.
	Labels map[string]string `json:"-"`
	// Annotations whose key starts with "assent.dev/"; collectors read settings from them.
	Annotations map[string]string `json:"-"`
}

// Missing says whether the identity has no Pod.
func (p *Pod) Missing() bool { return p.Phase == PhaseMissing }

// Node is one node that carries pods of the application.
type Node struct {
	Ready       bool   `json:"ready"`
	Schedulable bool   `json:"schedulable"`
	Zone        string `json:"zone,omitempty"`
	// Maintenance is "none", "temporary" or "permanent".
	Maintenance  string `json:"maintenance"`
	OutOfService bool   `json:"out_of_service"`
}

// Role is a member's part in its system.
type Role string

// Roles of a member.
const (
	RoleLeader   Role = "leader"
	RoleFollower Role = "follower"
	RoleLearner  Role = "learner"
	RoleObserver Role = "observer"
	RoleArbiter  Role = "arbiter"
)

// Member is the application's process in one pod, as the application tells it. A nil or empty
// field is unknown, with the reason under its JSON name in Unknown.
type Member struct {
	Role     Role  `json:"role,omitempty"`
	Voter    *bool `json:"voter,omitempty"`
	Healthy  *bool `json:"healthy,omitempty"`
	CaughtUp *bool `json:"caught_up,omitempty"`
	// Lag is in the collector's own unit; the collector's package documents it.
	Lag               *float64          `json:"lag,omitempty"`
	RequestsPerSecond *float64          `json:"requests_per_second,omitempty"`
	Connections       *float64          `json:"connections,omitempty"`
	Unknown           map[string]string `json:"unknown"`
}

// Shard is one piece of the application's data and the pods that hold a copy.
type Shard struct {
	Leader    string   `json:"leader,omitempty"`
	Replicas  []string `json:"replicas"`
	InSync    []string `json:"in_sync"`
	MinInSync int      `json:"min_in_sync"`
}

// Election is the state of the application's leadership. Since is when this leader, or this
// absence of one, began, in Unix seconds.
type Election struct {
	InProgress bool    `json:"in_progress"`
	Leader     string  `json:"leader,omitempty"`
	Since      float64 `json:"since"`
}

// Collector tells how one source of facts is doing. AsOf is when its newest facts began to be
// collected, in Unix seconds.
type Collector struct {
	OK    bool    `json:"ok"`
	AsOf  float64 `json:"as_of"`
	Error string  `json:"error,omitempty"`
}

// Unavailable is an entry of index.unavailable.
type Unavailable struct {
	Set   string  `json:"set"`
	Since float64 `json:"since"`
}

// Group is one group of a grouping, for example one zone. Examples are at most MaxExamples
// unavailable pods, sorted.
type Group struct {
	Size        int      `json:"size"`
	Unavailable int      `json:"unavailable"`
	Examples    []string `json:"examples"`

	// down is every unavailable pod of the group, sorted.
	down []string
}

// Down lists every unavailable pod of the group, sorted. Callers must not change it.
func (g *Group) Down() []string {
	if g == nil {
		return nil
	}
	return g.down
}

// MaxExamples is how many names a list of examples holds at most.
const MaxExamples = 10

// Groupings that every application has; manifests may not take these names.
const (
	ByApplication = "application"
	BySet         = "set"
	ByZone        = "zone"
	ByNode        = "node"
	ByShard       = "shard"
)
