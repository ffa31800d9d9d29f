package facts

import (
	"maps"
	"reflect"
	"slices"
)

// Facts is what one collection of an application's collector found. Rows become the store's: the
// caller must not change them afterwards.
type Facts struct {
	// Replace drops everything the collector contributed before; else rows are merged in, and a nil row removes.
	Replace bool
	// Members by pod; a nil map leaves members unknown (Replace) or unchanged.
	Members map[string]*Member
	// Shards by id; a nil map leaves shards unknown (Replace) or unchanged. An empty map with Replace
	// says that there are none.
	Shards map[string]*Shard
	// Election is nil when unknown (Replace) or unchanged.
	Election *Election
	// Raw is decoded JSON; nil when there is none (Replace) or unchanged.
	Raw any
}

// section is everything one collector has contributed. Nil tables are unknown. Immutable.
type section struct {
	members  *Table[Member]
	shards   *Table[Shard]
	election *Election
	raw      any
}

// apply gives the section after the facts; equal rows keep their old pointers.
func (s *section) apply(f *Facts) *section {
	next := &section{}
	if s != nil {
		*next = *s
	}
	next.members = applyRows(next.members, f.Members, f.Replace)
	next.shards = applyRows(next.shards, f.Shards, f.Replace)
	if f.Replace || f.Election != nil {
		next.election = keep(next.election, f.Election)
	}
	if f.Replace || f.Raw != nil {
		next.raw = f.Raw
	}
	return next
}

func applyRows[V any](old *Table[V], rows map[string]*V, replace bool) *Table[V] {
	if rows == nil {
		if replace {
			return nil
		}
		return old
	}
	e := edit(old)
	if replace {
		for name := range old.All() {
			if _, stays := rows[name]; !stays {
				e.set(name, nil)
			}
		}
	}
	for name, row := range rows {
		e.set(name, keep(e.get(name), row))
	}
	return e.table()
}

// keep prefers the old pointer when both rows say the same.
func keep[V any](old, row *V) *V {
	if old != nil && row != nil && reflect.DeepEqual(old, row) {
		return old
	}
	return row
}

// merge joins the sections of several collectors. What the first collector by name knows wins; a
// member row is completed field by field from the others.
func merge(s *Snapshot) {
	s.members, s.shards, s.election, s.raw = nil, nil, nil, nil
	for _, name := range slices.Sorted(maps.Keys(s.collectors)) {
		f := s.collectors[name].facts
		if f == nil {
			continue
		}
		s.members = joinTables(s.members, f.members, completeMember)
		s.shards = joinTables(s.shards, f.shards, func(first, _ *Shard) *Shard { return first })
		if s.election == nil {
			s.election = f.election
		}
		if f.raw != nil {
			if s.raw == nil {
				s.raw = map[string]any{}
			}
			s.raw[name] = f.raw
		}
	}
}

func joinTables[V any](first, second *Table[V], join func(first, second *V) *V) *Table[V] {
	if first == nil || second == nil {
		if first == nil {
			return second
		}
		return first
	}
	e := edit(first)
	for name, row := range second.All() {
		if have := e.get(name); have != nil {
			row = join(have, row)
		}
		e.set(name, row)
	}
	return e.table()
}

func completeMember(first, second *Member) *Member {
	m := *first
	if m.Role == "" {
		m.Role = second.Role
	}
	m.Voter = either(m.Voter, second.Voter)
	m.Healthy = either(m.Healthy, second.Healthy)
	m.CaughtUp = either(m.CaughtUp, second.CaughtUp)
	m.Lag = either(m.Lag, second.Lag)
	m.RequestsPerSecond = either(m.RequestsPerSecond, second.RequestsPerSecond)
	m.Connections = either(m.Connections, second.Connections)
	m.Unknown = stillUnknown(&m, first.Unknown, second.Unknown)
	return &m
}

func either[V any](a, b *V) *V {
	if a != nil {
		return a
	}
	return b
}

// stillUnknown keeps the reasons of the fields that neither collector knows.
func stillUnknown(m *Member, reasons ...map[string]string) map[string]string {
	known := map[string]bool{
		"role": m.Role != "", "voter": m.Voter != nil, "healthy": m.Healthy != nil, "caught_up": m.CaughtUp != nil,
		"lag": m.Lag != nil, "requests_per_second": m.RequestsPerSecond != nil, "connections": m.Connections != nil,
	}
	out := map[string]string{}
	for _, unknown := range slices.Backward(reasons) {
		for field, reason := range unknown {
			if !known[field] {
				out[field] = reason
			}
		}
	}
	return out
}
