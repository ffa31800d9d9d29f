package facts

import (
	"maps"
	"slices"
)

// indexEditor builds the next index from a published one, copying only the groups that change.
type indexEditor struct {
	base        *Index
	pods        int
	unavailable *editor[Unavailable]
	groups      map[string]*editor[Group]
	downGroups  map[string][]string
	// owned are the groups that this editor has made and may change.
	owned map[*Group]bool
}

func editIndex(base *Index) *indexEditor {
	return &indexEditor{
		base: base, pods: base.Pods, unavailable: edit(base.Unavailable),
		groups: map[string]*editor[Group]{}, downGroups: map[string][]string{}, owned: map[*Group]bool{},
	}
}

// GroupsOf lists the groups a pod is in, by grouping; a pod without node or zone is in none of those.
func GroupsOf(p *Pod) map[string]string {
	groups := make(map[string]string, len(p.Groups)+4)
	maps.Copy(groups, p.Groups)
	groups[ByApplication], groups[BySet] = ByApplication, p.Set
	if p.Zone != "" {
		groups[ByZone] = p.Zone
	}
	if p.Node != "" {
		groups[ByNode] = p.Node
	}
	return groups
}

func (e *indexEditor) add(name string, p *Pod) {
	e.pods++
	if !p.Available {
		e.unavailable.set(name, keep(e.unavailable.get(name), &Unavailable{Set: p.Set, Since: p.Since}))
	}
	for grouping, group := range GroupsOf(p) {
		g := e.own(grouping, group)
		g.Size++
		if !p.Available {
			g.down = insertSorted(g.down, name)
			e.counted(grouping, group, g)
		}
	}
}

func (e *indexEditor) remove(name string, p *Pod) {
	e.pods--
	if !p.Available {
		e.unavailable.set(name, nil)
	}
	for grouping, group := range GroupsOf(p) {
		g := e.own(grouping, group)
		g.Size--
		if !p.Available {
			g.down = removeSorted(g.down, name)
			e.counted(grouping, group, g)
		}
		if g.Size == 0 {
			e.groups[grouping].set(group, nil)
		}
	}
}

// counted brings what depends on a group's unavailable pods up to date.
func (e *indexEditor) counted(grouping, group string, g *Group) {
	g.Unavailable, g.Examples = len(g.down), Examples(g.down)
	down, owned := e.downGroups[grouping]
	if !owned {
		down = slices.Clone(e.base.downGroups[grouping])
	}
	if len(g.down) > 0 {
		down = insertSorted(down, group)
	} else {
		down = removeSorted(down, group)
	}
	e.downGroups[grouping] = down
}

// own gives the group for changing, copied once.
func (e *indexEditor) own(grouping, group string) *Group {
	table, ok := e.groups[grouping]
	if !ok {
		table = edit(e.base.Groups[grouping])
		e.groups[grouping] = table
	}
	g := table.get(group)
	if g != nil && e.owned[g] {
		return g
	}
	next := &Group{Examples: []string{}}
	if g != nil {
		*next = *g
		next.down = slices.Clone(g.down)
	}
	e.owned[next] = true
	table.set(group, next)
	return next
}

func (e *indexEditor) done() *Index {
	if len(e.groups) == 0 {
		return e.base
	}
	next := &Index{
		Pods: e.pods, Unavailable: e.unavailable.table(),
		Groups: maps.Clone(e.base.Groups), downGroups: maps.Clone(e.base.downGroups),
	}
	maps.Copy(next.downGroups, e.downGroups)
	for grouping, table := range e.groups {
		next.Groups[grouping] = table.table()
		if next.Groups[grouping].Len() == 0 && !slices.Contains(fixedGroupings, grouping) {
			delete(next.Groups, grouping)
			delete(next.downGroups, grouping)
		}
	}
	return next
}

// fixedGroupings are in the index even without a group.
var fixedGroupings = []string{ByApplication, BySet, ByZone, ByNode}

func emptyIndex() *Index {
	i := &Index{Unavailable: &Table[Unavailable]{}, Groups: map[string]*Table[Group]{}, downGroups: map[string][]string{}}
	for _, grouping := range fixedGroupings {
		i.Groups[grouping] = &Table[Group]{}
	}
	return i
}
