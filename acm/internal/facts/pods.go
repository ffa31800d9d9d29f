package facts

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
)

// podWriter brings in pod rows and expectations and keeps identities, Missing entries and the index
// up to date, touching only what changed.
type podWriter struct {
	*Snapshot
	at    float64
	rows  *editor[Pod]
	ids   *editor[identity]
	index *indexEditor
	// touched are the identities whose Missing entry may have to change, by key.
	touched map[string]slot
	// gone remembers the last row of an identity that lost a Pod in this step.
	gone map[string]named
}

type slot struct {
	set   string
	index int
}

type named struct {
	name string
	row  *Pod
}

// applyPods says whether anything changed.
func (s *Snapshot) applyPods(c Changes) bool {
	expecting := c.Expect != nil && !reflect.DeepEqual(c.Expect, s.expect)
	if len(c.Pods) == 0 && !expecting {
		return false
	}
	w := &podWriter{
		Snapshot: s, at: c.At, rows: edit(s.pods), ids: edit(s.identities), index: editIndex(s.index),
		touched: map[string]slot{}, gone: map[string]named{},
	}
	if expecting {
		w.expectNow(c.Expect)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pods)) {
		w.put(name, c.Pods[name])
	}
	w.settleMissing()
	pods := w.rows.table()
	changed := expecting || pods != s.pods
	s.pods, s.identities, s.index = pods, w.ids.table(), w.index.done()
	return changed
}

// expectNow replaces the expectations and recounts the pods that are wanted now and were not, or the other way round.
func (w *podWriter) expectNow(expect map[string]Expectation) {
	before := *w.Snapshot
	w.expect = expect
	for key, id := range before.identities.All() {
		w.touched[key] = slot{id.set, id.index}
		was, is := before.Wanted(id.set, id.index), w.Wanted(id.set, id.index)
		if was == is {
			continue
		}
		for _, name := range id.pods {
			if is {
				w.index.add(name, w.rows.get(name))
			} else {
				w.index.remove(name, w.rows.get(name))
			}
		}
	}
	for set, e := range expect {
		for _, r := range e.EverAvailable {
			for i := r.First; i <= r.Last; i++ {
				w.touched[identityKey(set, i)] = slot{set, i}
			}
		}
	}
}

// put stores what is now seen of one Pod; nil means that it is gone.
func (w *podWriter) put(name string, row *Pod) {
	old := w.rows.get(name)
	if old == nil && row == nil || row == nil && old.Missing() {
		return
	}
	w.carry(old, row)
	row = keep(old, row)
	if row == old {
		return
	}
	w.replace(name, old, row)
	if row != nil {
		w.touch(row)
		return
	}
	w.touch(old)
	w.gone[identityKey(old.Set, old.Index)] = named{name, old}
}

func (w *podWriter) touch(p *Pod) { w.touched[identityKey(p.Set, p.Index)] = slot{p.Set, p.Index} }

// carry settles since: it moves only when available does.
func (w *podWriter) carry(old, row *Pod) {
	if row == nil {
		return
	}
	if row.Groups == nil {
		row.Groups = map[string]string{}
	}
	switch {
	case row.Since == 0:
		row.Since = w.at
	case old == nil:
		return
	}
	switch {
	case old == nil:
	case old.Available != row.Available && row.Since <= old.Since:
		row.Since = w.at
	case old.Available == row.Available && (!row.Available || row.Since < old.Since):
		row.Since = old.Since
	}
}

// replace exchanges one row everywhere: rows, identity and index.
func (w *podWriter) replace(name string, old, row *Pod) {
	if old != nil {
		if w.Wanted(old.Set, old.Index) {
			w.index.remove(name, old)
		}
		w.unlink(name, old)
		w.changedAt(w.at, row == nil)
	}
	w.rows.set(name, row)
	if row == nil {
		return
	}
	if w.Wanted(row.Set, row.Index) {
		w.index.add(name, row)
	}
	w.link(name, row)
	w.changedAt(row.Since, old == nil || old.Available != row.Available)
}

func (w *podWriter) changedAt(at float64, really bool) {
	if really && at > w.lastChange {
		w.lastChange = at
	}
}

func (w *podWriter) link(name string, p *Pod) {
	key := identityKey(p.Set, p.Index)
	next := &identity{set: p.Set, index: p.Index}
	if id := w.ids.get(key); id != nil {
		next.pods = slices.Clone(id.pods)
	}
	next.pods = insertSorted(next.pods, name)
	w.ids.set(key, next)
}

func (w *podWriter) unlink(name string, p *Pod) {
	key := identityKey(p.Set, p.Index)
	id := w.ids.get(key)
	if id == nil {
		return
	}
	pods := removeSorted(slices.Clone(id.pods), name)
	if len(pods) == 0 {
		w.ids.set(key, nil)
		return
	}
	w.ids.set(key, &identity{set: id.set, index: id.index, pods: pods})
}

// settleMissing gives every touched identity its Missing entry, or takes it away.
func (w *podWriter) settleMissing() {
	for key, at := range w.touched {
		missing, real := "", 0
		if id := w.ids.get(key); id != nil {
			for _, name := range id.pods {
				if w.rows.get(name).Missing() {
					missing = name
				} else {
					real++
				}
			}
		}
		_, expected := w.expect[at.set]
		need := expected && real == 0 && w.Wanted(at.set, at.index) && w.EverAvailable(at.set, at.index)
		switch {
		case need && missing == "":
			name, row := w.missing(key, at)
			w.replace(name, nil, row)
		case !need && missing != "":
			w.replace(missing, w.rows.get(missing), nil)
		}
	}
}

// missing makes the entry of an identity without a Pod. It keeps the last known place, so that its
// zone and node stay disturbed until the Pod is back.
func (w *podWriter) missing(key string, at slot) (string, *Pod) {
	last, known := w.gone[key]
	if !known {
		name := at.set + "-" + strconv.Itoa(at.index)
		return name, &Pod{Set: at.set, Index: at.index, Groups: map[string]string{}, Phase: PhaseMissing, Since: w.at}
	}
	row := &Pod{
		Set: at.set, Index: at.index, Incarnation: last.row.Incarnation, Revision: last.row.Revision,
		Node: last.row.Node, Zone: last.row.Zone, Groups: last.row.Groups, Phase: PhaseMissing, Since: last.row.Since,
	}
	if last.row.Available {
		row.Since = w.at
	}
	return last.name, row
}
