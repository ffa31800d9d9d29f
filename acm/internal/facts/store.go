package facts

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
)

// Range is the closed range First..Last of pod indices.
type Range struct{ First, Last int }

// Contains says whether one of the ranges holds the index.
func Contains(ranges []Range, index int) bool {
	for _, r := range ranges {
		if index >= r.First && index <= r.Last {
			return true
		}
	}
	return false
}

// Count is how many indices the ranges hold; they must not overlap.
func Count(ranges []Range) int {
	n := 0
	for _, r := range ranges {
		n += r.Last - r.First + 1
	}
	return n
}

// Expectation is what the operator says of a set: which indices should exist, and which of those
// have been available at least once. One that should exist, has been available and has no Pod is Missing.
type Expectation struct {
	Wanted        []Range
	EverAvailable []Range
}

// Changes is one step from a snapshot to the next. Rows become the store's.
type Changes struct {
	// At is when the changes were seen, in Unix seconds.
	At float64
	// Pods by name; a nil row says that the Pod is gone.
	Pods map[string]*Pod
	// Nodes by name; a nil row removes.
	Nodes map[string]*Node
	// Seen is the highest Pod resourceVersion counted in once these changes are; 0 leaves it.
	Seen uint64
	// Expect replaces all expectations; nil leaves them.
	Expect map[string]Expectation
	// Reports are the collectors' standings, with new facts or without.
	Reports []Report
	// Forget names collectors that do not run any more: what they knew is unknown.
	Forget []string
}

// Report is what a collector says after an attempt.
type Report struct {
	Collector string
	// OK is false when the attempt failed as a whole; Error then says how.
	OK    bool
	Error string
	// AsOf is when the attempt began, in Unix seconds. A failed attempt keeps the AsOf of the last good one.
	AsOf float64
	// Facts are nil when the attempt brought none; the old ones stay and grow old.
	Facts *Facts
}

// Store keeps the newest snapshot of one application.
type Store struct {
	writing   sync.Mutex
	current   atomic.Pointer[Snapshot]
	published func(*Snapshot)
}

// NewStore makes a store with an empty snapshot. The function, which may be nil, is called after
// each publication, in the goroutine of the writer and outside of the store's lock.
func NewStore(published func(*Snapshot)) *Store {
	s := &Store{published: published}
	s.current.Store(empty())
	return s
}

func empty() *Snapshot {
	return &Snapshot{
		pods: &Table[Pod]{}, nodes: &Table[Node]{}, identities: &Table[identity]{}, collectors: map[string]*Source{},
		index: emptyIndex(),
	}
}

// Snapshot is the newest state. It never waits for a writer.
func (s *Store) Snapshot() *Snapshot { return s.current.Load() }

// Apply publishes the snapshot after the changes and returns it. Changes that change nothing
// publish nothing. Safe for concurrent use.
func (s *Store) Apply(c Changes) *Snapshot {
	s.writing.Lock()
	old := s.current.Load()
	next := old.after(c)
	if next != old {
		s.current.Store(next)
	}
	s.writing.Unlock()
	if next != old && s.published != nil {
		s.published(next)
	}
	return next
}

// after is the pure step: the same snapshot when nothing changed.
func (s *Snapshot) after(c Changes) *Snapshot {
	next := *s
	aged := next.applyReports(c)
	changed := next.applyPods(c)
	nodes := edit(s.nodes)
	for name, row := range c.Nodes {
		nodes.set(name, keep(nodes.get(name), row))
	}
	next.nodes = nodes.table()
	if c.Seen > next.seen {
		next.seen, aged = c.Seen, true
	}
	content := changed || len(c.Forget) > 0 || next.nodes != s.nodes || next.differsInFacts(s)
	if !content && !aged {
		return s
	}
	next.number++
	if content {
		next.content++
	}
	return &next
}

func (s *Snapshot) differsInFacts(old *Snapshot) bool {
	if len(s.collectors) != len(old.collectors) {
		return true
	}
	for name, now := range s.collectors {
		was := old.collectors[name]
		if was == nil || now.OK != was.OK || !sameFacts(now.facts, was.facts) {
			return true
		}
	}
	return false
}

func sameFacts(a, b *section) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.members == b.members && a.shards == b.shards && a.election == b.election && reflect.DeepEqual(a.raw, b.raw)
}

// applyReports says whether any collector's standing changed at all.
func (s *Snapshot) applyReports(c Changes) bool {
	if len(c.Reports)+len(c.Forget) == 0 {
		return false
	}
	s.collectors = maps.Clone(s.collectors)
	merging := len(c.Forget) > 0
	for _, name := range c.Forget {
		delete(s.collectors, name)
	}
	for _, r := range c.Reports {
		next := &Source{Collector: Collector{OK: r.OK, Error: r.Error, AsOf: r.AsOf}}
		if was := s.collectors[r.Collector]; was != nil {
			next.facts = was.facts
			if !r.OK || r.AsOf < was.AsOf {
				next.AsOf = was.AsOf
			}
		}
		if r.Facts != nil {
			next.facts = next.facts.apply(r.Facts)
			merging = true
		} else if r.OK && next.facts == nil {
			next.facts = &section{}
		}
		s.collectors[r.Collector] = next
	}
	if merging {
		merge(s)
	}
	return true
}

// Without is the snapshot as if the named collectors had never delivered: what they know becomes unknown.
func (s *Snapshot) Without(collectors ...string) *Snapshot {
	next := *s
	next.collectors = maps.Clone(s.collectors)
	for name, c := range next.collectors {
		if slices.Contains(collectors, name) {
			next.collectors[name] = &Source{Collector: c.Collector}
		}
	}
	merge(&next)
	return &next
}
