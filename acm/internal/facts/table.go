package facts

import (
	"encoding/json"
	"iter"
	"maps"
)

// buckets is how many parts a Table has. One change copies one part: at 100,000 rows about 400
// entries, at 100 rows one or two.
const buckets = 256

// Table is an immutable map from name to row in two levels, so that changing one row shares all
// other parts with the table before. A nil *Table means unknown; its methods behave as if empty.
type Table[V any] struct {
	parts [buckets]map[string]*V
	size  int
}

// Get gives the row, nil when there is none. The row must not be changed.
func (t *Table[V]) Get(name string) *V {
	if t == nil {
		return nil
	}
	return t.parts[bucket(name)][name]
}

// Len is the number of rows.
func (t *Table[V]) Len() int {
	if t == nil {
		return 0
	}
	return t.size
}

// All visits every row in no particular order.
func (t *Table[V]) All() iter.Seq2[string, *V] {
	return func(yield func(string, *V) bool) {
		if t == nil {
			return
		}
		for _, part := range t.parts {
			for name, row := range part {
				if !yield(name, row) {
					return
				}
			}
		}
	}
}

// Parts visits the parts by number. A part that did not change is the same map in the next
// snapshot's table, so work done for it can be kept. Maps must not be changed; nil parts are empty.
func (t *Table[V]) Parts() iter.Seq2[int, map[string]*V] {
	return func(yield func(int, map[string]*V) bool) {
		if t == nil {
			return
		}
		for i, part := range t.parts {
			if len(part) > 0 && !yield(i, part) {
				return
			}
		}
	}
}

// MarshalJSON writes an object keyed by name.
func (t *Table[V]) MarshalJSON() ([]byte, error) {
	return json.Marshal(maps.Collect(t.All()))
}

// TableOf makes a table of the rows; the rows are shared, the map is not.
func TableOf[V any](rows map[string]*V) *Table[V] {
	e := edit[V](nil)
	for name, row := range rows {
		e.set(name, row)
	}
	return e.table()
}

// editor builds the next table from one that is published. A part is copied at its first change.
type editor[V any] struct {
	base  *Table[V]
	next  *Table[V]
	owned [buckets]bool
}

func edit[V any](base *Table[V]) *editor[V] { return &editor[V]{base: base} }

func (e *editor[V]) get(name string) *V {
	if e.next != nil {
		return e.next.Get(name)
	}
	return e.base.Get(name)
}

// set stores a row, or removes it when nil.
func (e *editor[V]) set(name string, row *V) {
	old := e.get(name)
	if old == row {
		return
	}
	part := e.own(bucket(name))
	if row == nil {
		delete(part, name)
		e.next.size--
		return
	}
	if old == nil {
		e.next.size++
	}
	part[name] = row
}

func (e *editor[V]) own(b int) map[string]*V {
	if e.next == nil {
		e.next = &Table[V]{}
		if e.base != nil {
			*e.next = *e.base
		}
	}
	if !e.owned[b] {
		part := make(map[string]*V, len(e.next.parts[b])+1)
		maps.Copy(part, e.next.parts[b])
		e.next.parts[b] = part
		e.owned[b] = true
	}
	return e.next.parts[b]
}

// table gives the result; a never-changed, never-known table becomes an empty one.
func (e *editor[V]) table() *Table[V] {
	switch {
	case e.next != nil:
		return e.next
	case e.base != nil:
		return e.base
	default:
		return &Table[V]{}
	}
}

// bucket is FNV-1a, folded to the number of parts.
func bucket(name string) int {
	h := uint32(2166136261)
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int((h ^ h>>16) % buckets)
}
