package decision

import (
	"slices"

	"assent.dev/assent/acm/internal/facts"
)

// fixedGroupings are the groupings of input.target.groups beside shard.
var fixedGroupings = []string{facts.ByApplication, facts.BySet, facts.ByZone, facts.ByNode}

// memberships are the target's groups: the fixed groupings, and those that the manifest declares.
// A grouping that is unknown for this pod is absent.
func (d *derivation) memberships(p *facts.Pod) (groups, custom map[string][]Membership) {
	groups, custom = map[string][]Membership{}, map[string][]Membership{}
	in := map[string]string{facts.ByApplication: facts.ByApplication}
	if p != nil {
		in = facts.GroupsOf(p)
	}
	in[facts.BySet] = d.step.Set
	for grouping, name := range in {
		m := d.membership(grouping, name)
		if p != nil && !d.snapshot.Wanted(p.Set, p.Index) {
			m.Size++ // the index leaves out what no set wants, but the target is there until the step takes it
		}
		if slices.Contains(fixedGroupings, grouping) {
			groups[grouping] = []Membership{m}
		} else {
			custom[grouping] = []Membership{m}
		}
	}
	if d.snapshot.Shards() != nil {
		groups[facts.ByShard] = d.shardMemberships()
	}
	return groups, custom
}

func (d *derivation) membership(grouping, name string) Membership {
	index := d.snapshot.Index()
	group := index.Groups[grouping].Get(name)
	m := Membership{Name: name}
	if group != nil {
		m.Size = group.Size
	}
	down := slices.Clone(group.Down())
	disturbed := slices.Clone(index.DownGroups(grouping))
	for _, pod := range d.joining {
		if p := d.snapshot.Pods().Get(pod); p != nil && d.snapshot.Wanted(p.Set, p.Index) {
			g := facts.GroupsOf(p)[grouping]
			if g == name {
				m.Size--
				down = without(down, pod)
			} else if !p.Available && d.onlyJoiningDown(grouping, g) {
				disturbed = without(disturbed, g)
			}
		}
	}
	for _, pod := range d.gone {
		p := d.snapshot.Pods().Get(pod)
		if !d.counted(pod, p) {
			continue
		}
		if g, in := facts.GroupsOf(p)[grouping]; in {
			disturbed = with(disturbed, g)
			if g == name {
				down = with(down, pod)
			}
		}
	}
	down, disturbed = without(down, d.step.Pod), without(disturbed, name)
	m.OthersDown, m.Others = len(down), facts.Examples(down)
	m.OtherGroupsDown, m.OtherGroups = len(disturbed), facts.Examples(disturbed)
	return m
}

// onlyJoiningDown says whether every unavailable pod of the group is just joining.
func (d *derivation) onlyJoiningDown(grouping, group string) bool {
	for _, pod := range d.snapshot.Index().Groups[grouping].Get(group).Down() {
		if _, joins := slices.BinarySearch(d.joining, pod); !joins {
			return false
		}
	}
	return true
}

// with and without change a sorted list of their caller's.
func with(sorted []string, name string) []string {
	at, found := slices.BinarySearch(sorted, name)
	if found {
		return sorted
	}
	return slices.Insert(sorted, at, name)
}

func without(sorted []string, name string) []string {
	at, found := slices.BinarySearch(sorted, name)
	if !found {
		return sorted
	}
	return slices.Delete(sorted, at, at+1)
}
