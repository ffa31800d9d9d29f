package decision

import (
	"cmp"
	"maps"
	"slices"

	"assent.dev/assent/acm/internal/facts"
)

// shardLimit is above how many shards the target's memberships are reduced to the two extremes.
const (
	shardLimit   = 20
	shardExtreme = 10
)

// shardView is what one snapshot's shards mean before any promise.
type shardView struct {
	// byPod lists the shards of which a pod has a replica, sorted.
	byPod map[string][]string
	// ledBy lists the shards that a pod leads, sorted.
	ledBy map[string][]string
	// expected should have a leader; up have one that is available as seen.
	expected, up int
	leaderless   []string
	// lost are the pods with a replica that are unavailable as seen, or not seen at all.
	lost []string
}

func newShardView(s *facts.Snapshot) *shardView {
	v := &shardView{byPod: map[string][]string{}, ledBy: map[string][]string{}}
	for id, shard := range s.Shards().All() {
		for _, pod := range shard.Replicas {
			v.byPod[pod] = append(v.byPod[pod], id)
		}
		v.expected++
		if leader := s.Pods().Get(shard.Leader); shard.Leader == "" || leader == nil || !leader.Available {
			v.leaderless = append(v.leaderless, id)
			continue
		}
		v.up++
		v.ledBy[shard.Leader] = append(v.ledBy[shard.Leader], id)
	}
	for _, ids := range v.byPod {
		slices.Sort(ids)
	}
	for _, ids := range v.ledBy {
		slices.Sort(ids)
	}
	slices.Sort(v.leaderless)
	for pod := range v.byPod {
		if p := s.Pods().Get(pod); p == nil || !p.Available {
			v.lost = append(v.lost, pod)
		}
	}
	return v
}

// holds says whether a pod is available as seen and not promised.
func (d *derivation) holds(pod string) bool {
	p := d.snapshot.Pods().Get(pod)
	return p != nil && p.Available && !d.promised(pod)
}

// joins says whether a pod is just joining, so that it counts nowhere.
func (d *derivation) joins(pod string) bool {
	_, found := slices.BinarySearch(d.joining, pod)
	return found
}

// leaderless are the shards without a leader that is available and not promised, sorted.
func (d *derivation) leaderless() []string {
	v := d.View.shards()
	ids := slices.Clone(v.leaderless)
	for _, pod := range d.gone {
		ids = append(ids, v.ledBy[pod]...)
	}
	slices.Sort(ids)
	return ids
}

func (d *derivation) shards() (*TargetLeaders, *TargetShards) {
	v := d.View.shards()
	l := &TargetLeaders{}
	l.Expected, l.Up, l.Needed = v.expected, v.up, quorumNeeded(v.expected)
	for _, pod := range d.gone {
		l.Up -= len(v.ledBy[pod])
	}
	l.UpAfter = l.Up
	if d.step.TakesDown() {
		l.UpAfter -= len(v.ledBy[d.step.Pod])
	}
	return l, d.targetShards(v)
}

func (d *derivation) targetShards(v *shardView) *TargetShards {
	pod := d.step.Pod
	ids := v.byPod[pod]
	t := &TargetShards{Count: len(ids)}
	t.BelowMin.Examples, t.LastCopy.Examples = []ShardExample{}, []ShardExample{}
	t.OthersBehind.Examples, t.Unsatisfiable.Examples = []ShardExample{}, []ShardExample{}
	peers := map[string]bool{}
	for _, id := range ids {
		shard := d.snapshot.Shards().Get(id)
		here := slices.Contains(shard.InSync, pod)
		ex := ShardExample{Shard: id, InSync: len(shard.InSync), MinInSync: shard.MinInSync, After: d.inSyncAfter(shard), Replicas: len(shard.Replicas)}
		unsatisfiable := len(shard.Replicas) < shard.MinInSync
		t.Unsatisfiable.add(unsatisfiable, ex)
		t.BelowMin.add(here && !unsatisfiable && ex.After > 0 && ex.After < shard.MinInSync, ex)
		t.LastCopy.add(here && ex.After == 0 && len(shard.Replicas) > 1, ex)
		t.OthersBehind.add(slices.ContainsFunc(shard.Replicas, func(r string) bool { return r != pod && !slices.Contains(shard.InSync, r) }), ex)
		if shard.Leader == pod {
			t.Leading++
			for _, replica := range shard.Replicas {
				if _, waits := slices.BinarySearch(d.peers(), replica); waits {
					peers[replica] = true
				}
			}
		}
	}
	t.Peers = namesOf(slices.Sorted(maps.Keys(peers)))
	return t
}

func (e *ShardEffect) add(concerned bool, example ShardExample) {
	if !concerned {
		return
	}
	e.Count++
	if len(e.Examples) < facts.MaxExamples {
		e.Examples = append(e.Examples, example)
	}
}

// inSyncAfter counts the copies that are in sync without this pod (unless the step adds it), those
// that are down and those in flight.
func (d *derivation) inSyncAfter(shard *facts.Shard) int {
	n := 0
	for _, pod := range shard.InSync {
		if d.holds(pod) && (pod != d.step.Pod || d.step.Joins()) {
			n++
		}
	}
	return n
}

// shardMemberships are the shards of which the target has a replica: all, or above shardLimit those
// with the most others down and those with the fewest left.
func (d *derivation) shardMemberships() []Membership {
	v := d.View.shards()
	disturbed := d.disturbedShards(v)
	all := make([]Membership, 0, len(v.byPod[d.step.Pod]))
	for _, id := range v.byPod[d.step.Pod] {
		m := Membership{Name: id}
		var down []string
		for _, pod := range d.snapshot.Shards().Get(id).Replicas {
			if d.joins(pod) {
				continue
			}
			m.Size++
			if pod != d.step.Pod && !d.holds(pod) {
				down = append(down, pod)
			}
		}
		slices.Sort(down)
		m.OthersDown, m.Others = len(down), facts.Examples(down)
		rest := without(slices.Clone(disturbed), id)
		m.OtherGroupsDown, m.OtherGroups = len(rest), facts.Examples(rest)
		all = append(all, m)
	}
	if len(all) <= shardLimit {
		return all
	}
	return extremes(all)
}

// disturbedShards are the shards with another pod down, sorted.
func (d *derivation) disturbedShards(v *shardView) []string {
	set := map[string]bool{}
	for _, pod := range slices.Concat(v.lost, d.gone) {
		if pod == d.step.Pod || d.joins(pod) {
			continue
		}
		for _, id := range v.byPod[pod] {
			set[id] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

func extremes(all []Membership) []Membership {
	pick := map[string]Membership{}
	by := func(order func(a, b Membership) int) {
		slices.SortFunc(all, func(a, b Membership) int { return cmp.Or(order(a, b), cmp.Compare(a.Name, b.Name)) })
		for _, m := range all[:shardExtreme] {
			pick[m.Name] = m
		}
	}
	by(func(a, b Membership) int { return cmp.Compare(b.OthersDown, a.OthersDown) })
	by(func(a, b Membership) int { return cmp.Compare(a.Size-a.OthersDown, b.Size-b.OthersDown) })
	return slices.SortedFunc(maps.Values(pick), func(a, b Membership) int { return cmp.Compare(a.Name, b.Name) })
}
