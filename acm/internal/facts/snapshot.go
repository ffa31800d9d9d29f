package facts

import (
	"encoding/json"
	"fmt"
	"iter"
	"sort"
	"strconv"
)

// Snapshot is one immutable state of everything seen of one application. The zero value is not
// useful; Stores and FromJSON make them.
type Snapshot struct {
	number     uint64
	content    uint64
	pods       *Table[Pod]
	nodes      *Table[Node]
	members    *Table[Member]
	shards     *Table[Shard]
	election   *Election
	collectors map[string]*Source
	raw        map[string]any
	index      *Index
	identities *Table[identity]
	lastChange float64
	// seen is the highest resourceVersion of a Pod event that is counted in.
	seen   uint64
	expect map[string]Expectation
}

// Source is a collector's standing: Collector is what policies see of it.
type Source struct {
	Collector
	// facts are what it has contributed; nil while it has not delivered.
	facts *section
}

// Delivered says whether the collector has ever published facts.
func (s *Source) Delivered() bool { return s != nil && s.facts != nil }

// Version names the snapshot; it changes with every publication.
func (s *Snapshot) Version() string { return fmt.Sprintf("f-%d", s.number) }

// Content changes whenever anything but a collector's age or error text does.
func (s *Snapshot) Content() uint64 { return s.content }

// Pods are all pods and Missing identities by pod name.
func (s *Snapshot) Pods() *Table[Pod] { return s.pods }

// Nodes are the nodes that carry the application's pods.
func (s *Snapshot) Nodes() *Table[Node] { return s.nodes }

// Members are the application's processes by pod name; nil when no collector reports members.
func (s *Snapshot) Members() *Table[Member] { return s.members }

// Shards by id; nil when unknown, empty when known to be none.
func (s *Snapshot) Shards() *Table[Shard] { return s.shards }

// Election is nil when unknown.
func (s *Snapshot) Election() *Election { return s.election }

// Collectors by name.
func (s *Snapshot) Collectors() map[string]*Source { return s.collectors }

// Raw is what sources said, untyped, by collector: decoded JSON values.
func (s *Snapshot) Raw() map[string]any { return s.raw }

// Index is the observed aggregate.
func (s *Snapshot) Index() *Index { return s.index }

// LastChange is when a pod last became (un)available, was made or removed, in Unix seconds; 0 before the first.
func (s *Snapshot) LastChange() float64 { return s.lastChange }

// Seen is the highest Pod resourceVersion counted in; 0 before the first.
func (s *Snapshot) Seen() uint64 { return s.seen }

// Wanted says whether the identity should exist. Without an expectation for its set every pod should.
func (s *Snapshot) Wanted(set string, index int) bool {
	e, known := s.expect[set]
	return !known || Contains(e.Wanted, index)
}

// EverAvailable says whether the identity has been available before; true without an expectation for its set.
func (s *Snapshot) EverAvailable(set string, index int) bool {
	e, known := s.expect[set]
	return !known || Contains(e.EverAvailable, index)
}

// PodsOf visits the pods of one identity, all incarnations.
func (s *Snapshot) PodsOf(set string, index int) iter.Seq2[string, *Pod] {
	return func(yield func(string, *Pod) bool) {
		id := s.identities.Get(identityKey(set, index))
		if id == nil {
			return
		}
		for _, name := range id.pods {
			if !yield(name, s.pods.Get(name)) {
				return
			}
		}
	}
}

// document is data.facts as JSON.
type document struct {
	Version    string                `json:"version"`
	Pods       map[string]*Pod       `json:"pods"`
	Nodes      map[string]*Node      `json:"nodes"`
	Members    *map[string]*Member   `json:"members,omitempty"`
	Shards     *map[string]*Shard    `json:"shards,omitempty"`
	Election   *Election             `json:"election,omitempty"`
	Collectors map[string]*Collector `json:"collectors"`
	Raw        map[string]any        `json:"raw"`
	Index      json.RawMessage       `json:"index,omitempty"`
}

// MarshalJSON writes the facts document of the policy contract.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	index, err := json.Marshal(s.index)
	if err != nil {
		return nil, fmt.Errorf("writing index: %w", err)
	}
	d := document{
		Version: s.Version(), Pods: rowsOf(s.pods), Nodes: rowsOf(s.nodes), Election: s.election,
		Collectors: map[string]*Collector{}, Raw: s.raw, Index: index,
	}
	if s.members != nil {
		rows := rowsOf(s.members)
		d.Members = &rows
	}
	if s.shards != nil {
		rows := rowsOf(s.shards)
		d.Shards = &rows
	}
	for name, c := range s.collectors {
		d.Collectors[name] = &c.Collector
	}
	if d.Raw == nil {
		d.Raw = map[string]any{}
	}
	return json.Marshal(d)
}

func rowsOf[V any](t *Table[V]) map[string]*V {
	rows := make(map[string]*V, t.Len())
	for name, row := range t.All() {
		rows[name] = row
	}
	return rows
}

// Index is what common rules need without scanning: everything in it is observed, nothing promised.
// A pod that no set wants any more is in Pods but not here.
type Index struct {
	// Pods counts the identities that should exist.
	Pods        int
	Unavailable *Table[Unavailable]
	// Groups by grouping, then by the group's name.
	Groups map[string]*Table[Group]

	// downGroups lists, for each grouping, the groups with an unavailable pod, sorted.
	downGroups map[string][]string
}

// DownGroups lists the groups of a grouping that have an unavailable pod, sorted. Callers must not change it.
func (i *Index) DownGroups(grouping string) []string { return i.downGroups[grouping] }

// MarshalJSON writes facts.index of the policy contract.
func (i *Index) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Pods        int                      `json:"pods"`
		Unavailable *Table[Unavailable]      `json:"unavailable"`
		Groups      map[string]*Table[Group] `json:"groups"`
	}{i.Pods, i.Unavailable, i.Groups})
}

// identity lists the pods of one (set, index), sorted by incarnation.
type identity struct {
	set   string
	index int
	pods  []string
}

func identityKey(set string, index int) string { return set + "/" + strconv.Itoa(index) }

// insertSorted puts name into a sorted list it owns; it is a no-op when it is there.
func insertSorted(list []string, name string) []string {
	i := sort.SearchStrings(list, name)
	if i < len(list) && list[i] == name {
		return list
	}
	list = append(list, "")
	copy(list[i+1:], list[i:])
	list[i] = name
	return list
}

func removeSorted(list []string, name string) []string {
	i := sort.SearchStrings(list, name)
	if i == len(list) || list[i] != name {
		return list
	}
	return append(list[:i], list[i+1:]...)
}

// Examples are the first MaxExamples of a sorted list, never nil.
func Examples(sorted []string) []string {
	if len(sorted) > MaxExamples {
		sorted = sorted[:MaxExamples]
	}
	return append([]string{}, sorted...)
}
