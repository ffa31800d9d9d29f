package engine

import (
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"assent.dev/assent/acm/internal/facts"
)

// view is a snapshot as terms. Every part is made when a rule first reads it and reused in the next view as long
// as the snapshots share it. Safe for concurrent use.
type view struct {
	snapshot    *facts.Snapshot
	pods        *rows[facts.Pod]
	nodes       *rows[facts.Node]
	members     *rows[facts.Member]
	shards      *rows[facts.Shard]
	unavailable *rows[facts.Unavailable]
	groups      map[string]*rows[facts.Group]

	once  sync.Once
	whole ast.Object
}

// newView makes the view of a snapshot; was is the application's view before, or nil.
func newView(s *facts.Snapshot, was *view) *view {
	if was == nil {
		was = &view{}
	}
	v := &view{
		snapshot:    s,
		pods:        next(was.pods, s.Pods()),
		nodes:       next(was.nodes, s.Nodes()),
		members:     next(was.members, s.Members()),
		shards:      next(was.shards, s.Shards()),
		unavailable: next(was.unavailable, s.Index().Unavailable),
		groups:      map[string]*rows[facts.Group]{},
	}
	for grouping, table := range s.Index().Groups {
		v.groups[grouping] = next(was.groups[grouping], table)
	}
	return v
}

// rows is one table as terms.
type rows[V any] struct {
	table *facts.Table[V]

	mu sync.Mutex
	// terms of single rows, those of tables before included, so that a row that did not change is made once.
	terms map[string]rowTerm[V]
	all   *ast.Term
}

type rowTerm[V any] struct {
	row  *V
	term *ast.Term
}

func next[V any](was *rows[V], table *facts.Table[V]) *rows[V] {
	if was == nil {
		return &rows[V]{table: table, terms: map[string]rowTerm[V]{}}
	}
	if was.table == table {
		return was
	}
	was.mu.Lock()
	defer was.mu.Unlock()
	r := &rows[V]{table: table, terms: make(map[string]rowTerm[V], len(was.terms))}
	for name, t := range was.terms {
		if table.Get(name) == t.row {
			r.terms[name] = t
		}
	}
	return r
}

// get is one row's term, nil when there is no such row.
func (r *rows[V]) get(name string) *ast.Term {
	row := r.table.Get(name)
	if row == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.term(name, row)
}

func (r *rows[V]) term(name string, row *V) *ast.Term {
	if known, ok := r.terms[name]; ok {
		return known.term
	}
	term := encode(row)
	r.terms[name] = rowTerm[V]{row: row, term: term}
	return term
}

// object is the whole table: O(rows) the first time.
func (r *rows[V]) object() *ast.Term {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		pairs := make([][2]*ast.Term, 0, r.table.Len())
		for name, row := range r.table.All() {
			pairs = append(pairs, [2]*ast.Term{ast.StringTerm(name), r.term(name, row)})
		}
		r.all = ast.ObjectTerm(pairs...)
	}
	return r.all
}

// read finds what is at data.facts.<path>; nil when nothing is.
func (v *view) read(path []string) *ast.Term {
	if len(path) == 0 {
		return ast.NewTerm(v.object())
	}
	rest := path[1:]
	switch path[0] {
	case "pods":
		return readRows(v.pods, rest)
	case "nodes":
		return readRows(v.nodes, rest)
	case "members":
		return readRows(v.members, rest)
	case "shards":
		return readRows(v.shards, rest)
	case "index":
		return v.readIndex(rest)
	default:
		return find(v.small(path[0]), rest)
	}
}

func (v *view) readIndex(path []string) *ast.Term {
	if len(path) == 0 {
		return v.index()
	}
	rest := path[1:]
	switch path[0] {
	case "pods":
		return find(ast.InternedTerm(v.snapshot.Index().Pods), rest)
	case "unavailable":
		return readRows(v.unavailable, rest)
	case "groups":
		if len(rest) == 0 {
			return v.groupings()
		}
		if g := v.groups[rest[0]]; g != nil {
			return readRows(g, rest[1:])
		}
	}
	return nil
}

// readRows looks into a table. A nil table is unknown, which differs from empty.
func readRows[V any](r *rows[V], path []string) *ast.Term {
	if r.table == nil {
		return nil
	}
	if len(path) == 0 {
		return r.object()
	}
	return find(r.get(path[0]), path[1:])
}

func find(t *ast.Term, path []string) *ast.Term {
	for _, key := range path {
		if t == nil {
			return nil
		}
		switch here := t.Value.(type) {
		case ast.Object:
			t = here.Get(ast.StringTerm(key))
		case *ast.Array:
			t = elementAt(here, key)
		default:
			return nil
		}
	}
	return t
}

// small makes the parts that are small enough to be made anew for each snapshot.
func (v *view) small(name string) *ast.Term {
	switch name {
	case "version":
		return ast.StringTerm(v.snapshot.Version())
	case "election":
		return encode(v.snapshot.Election())
	case "raw":
		return ast.NewTerm(ast.MustInterfaceToValue(rawOf(v.snapshot)))
	case "collectors":
		pairs := make([][2]*ast.Term, 0, len(v.snapshot.Collectors()))
		for name, c := range v.snapshot.Collectors() {
			pairs = append(pairs, [2]*ast.Term{ast.StringTerm(name), encode(&c.Collector)})
		}
		return ast.ObjectTerm(pairs...)
	}
	return nil
}

func rawOf(s *facts.Snapshot) map[string]any {
	if raw := s.Raw(); raw != nil {
		return raw
	}
	return map[string]any{}
}

func (v *view) groupings() *ast.Term {
	pairs := make([][2]*ast.Term, 0, len(v.groups))
	for grouping, r := range v.groups {
		pairs = append(pairs, [2]*ast.Term{ast.StringTerm(grouping), r.object()})
	}
	return ast.ObjectTerm(pairs...)
}

func (v *view) index() *ast.Term {
	return ast.ObjectTerm(
		[2]*ast.Term{ast.StringTerm("pods"), ast.InternedTerm(v.snapshot.Index().Pods)},
		[2]*ast.Term{ast.StringTerm("unavailable"), readRows(v.unavailable, nil)},
		[2]*ast.Term{ast.StringTerm("groups"), v.groupings()},
	)
}

// object is all of data.facts, for the rare rule that names it as a whole.
func (v *view) object() ast.Object {
	v.once.Do(func() {
		v.whole = ast.NewObject()
		for _, name := range []string{"version", "pods", "nodes", "members", "shards", "election", "collectors", "raw", "index"} {
			if t := v.read([]string{name}); t != nil {
				v.whole.Insert(ast.StringTerm(name), t)
			}
		}
	})
	return v.whole
}
