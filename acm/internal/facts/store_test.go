package facts

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func pod(set string, index int, available bool, since float64) *Pod {
	return &Pod{Set: set, Index: index, Node: fmt.Sprintf("n%d", index), Phase: "Running", Ready: available, Available: available, Since: since}
}

func known(v bool) *bool { return &v }

// bruteIndex derives the index by scanning, as a policy would.
func bruteIndex(s *Snapshot) (pods int, unavailable []string, groups map[string]map[string]*Group) {
	groups = map[string]map[string]*Group{}
	for _, name := range sortedNames(s.Pods()) {
		p := s.Pods().Get(name)
		if !s.Wanted(p.Set, p.Index) {
			continue
		}
		pods++
		if !p.Available {
			unavailable = append(unavailable, name)
		}
		for grouping, group := range GroupsOf(p) {
			if groups[grouping] == nil {
				groups[grouping] = map[string]*Group{}
			}
			if groups[grouping][group] == nil {
				groups[grouping][group] = &Group{Examples: []string{}}
			}
			g := groups[grouping][group]
			g.Size++
			if !p.Available {
				g.down = append(g.down, name)
				g.Unavailable, g.Examples = len(g.down), Examples(g.down)
			}
		}
	}
	return pods, unavailable, groups
}

func sortedNames[V any](t *Table[V]) []string {
	names := make([]string, 0, t.Len())
	for name := range t.All() {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func requireIndexMatches(t require.TestingT, s *Snapshot) {
	pods, unavailable, groups := bruteIndex(s)
	require.Equal(t, pods, s.Index().Pods)
	require.Equal(t, len(unavailable), s.Index().Unavailable.Len())
	for _, name := range unavailable {
		require.NotNil(t, s.Index().Unavailable.Get(name), name)
	}
	for grouping, table := range s.Index().Groups {
		require.Equal(t, len(groups[grouping]), table.Len(), grouping)
		var down []string
		for _, group := range sortedNames(table) {
			want, got := groups[grouping][group], table.Get(group)
			require.Equal(t, want.Size, got.Size, "%s/%s", grouping, group)
			require.Equal(t, want.Examples, got.Examples, "%s/%s", grouping, group)
			require.ElementsMatch(t, want.down, got.Down())
			if len(got.Down()) > 0 {
				down = append(down, group)
			}
		}
		require.ElementsMatch(t, down, s.Index().DownGroups(grouping))
	}
	for grouping := range groups {
		require.Contains(t, s.Index().Groups, grouping)
	}
	for grouping, table := range s.Index().Groups {
		require.True(t, table.Len() > 0 || slices.Contains(fixedGroupings, grouping), "empty grouping %s", grouping)
	}
}

func drawChanges(t *rapid.T, at float64) Changes {
	c := Changes{At: at, Pods: map[string]*Pod{}}
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		set := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "set")
		index := rapid.IntRange(0, 13).Draw(t, "index")
		incarnation := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "incarnation")
		name := fmt.Sprintf("%s-%d", set, index)
		if incarnation > 0 {
			name += "-i1"
		}
		if rapid.IntRange(0, 3).Draw(t, "gone") == 0 {
			c.Pods[name] = nil
			continue
		}
		p := pod(set, index, rapid.Bool().Draw(t, "available"), 0)
		p.Incarnation = incarnation
		p.Zone = rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "zone")
		p.Groups = map[string]string{"tier": rapid.SampledFrom([]string{"hot", "cold"}).Draw(t, "tier")}
		c.Pods[name] = p
	}
	if rapid.IntRange(0, 4).Draw(t, "expects") == 0 {
		c.Expect = map[string]Expectation{}
		for _, set := range []string{"a", "b"} {
			n := rapid.IntRange(0, 14).Draw(t, "replicas")
			ever := rapid.IntRange(0, n).Draw(t, "ever")
			if n > 0 {
				c.Expect[set] = Expectation{Wanted: []Range{{0, n - 1}}}
			}
			if ever > 0 {
				c.Expect[set] = Expectation{Wanted: []Range{{0, n - 1}}, EverAvailable: []Range{{0, ever - 1}}}
			}
		}
	}
	return c
}

func requireMissingIsRight(t require.TestingT, s *Snapshot) {
	for set, e := range s.expect {
		for index := range 14 {
			var names []string
			missing := 0
			for name, p := range s.PodsOf(set, index) {
				require.NotNil(t, p, name)
				names = append(names, name)
				if p.Missing() {
					missing++
				}
			}
			if len(names)-missing > 0 || !Contains(e.Wanted, index) || !Contains(e.EverAvailable, index) {
				require.Zero(t, missing, "%s-%d", set, index)
			} else {
				require.Equal(t, 1, missing, "%s-%d", set, index)
			}
		}
	}
}

func TestAnySequenceOfChangesKeepsTheIndexEqualToAScan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := NewStore(nil)
		var published []*Snapshot
		var texts [][]byte
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			s := store.Apply(drawChanges(t, float64(i+1)))
			requireIndexMatches(t, s)
			requireMissingIsRight(t, s)
			text, err := json.Marshal(s)
			require.NoError(t, err)
			published, texts = append(published, s), append(texts, text)
		}
		for i, s := range published {
			text, err := json.Marshal(s)
			require.NoError(t, err)
			require.JSONEq(t, string(texts[i]), string(text), "snapshot %d changed after it was published", i)
		}
	})
}

func TestSinceMovesOnlyWhenAvailabilityDoes(t *testing.T) {
	store := NewStore(nil)
	store.Apply(Changes{At: 10, Pods: map[string]*Pod{"a-0": pod("a", 0, true, 7)}})
	s := store.Apply(Changes{At: 20, Pods: map[string]*Pod{"a-0": pod("a", 0, true, 0)}})
	require.InDelta(t, 20.0, s.Pods().Get("a-0").Since, 0, "a restart between two looks is a change")
	s = store.Apply(Changes{At: 30, Pods: map[string]*Pod{"a-0": pod("a", 0, false, 29)}})
	require.InDelta(t, 29.0, s.Pods().Get("a-0").Since, 0)
	again := pod("a", 0, false, 35)
	again.UID = "replacement"
	s = store.Apply(Changes{At: 36, Pods: map[string]*Pod{"a-0": again}})
	require.InDelta(t, 29.0, s.Pods().Get("a-0").Since, 0, "a replacement that is not available yet continues the outage")
	require.InDelta(t, 29.0, s.LastChange(), 0)
}

func TestAMissingIdentityKeepsItsLastKnownPlace(t *testing.T) {
	store := NewStore(nil)
	all := map[string]Expectation{"a": {Wanted: []Range{{0, 1}}, EverAvailable: []Range{{0, 1}}}}
	p := pod("a", 0, true, 5)
	p.Zone = "x"
	store.Apply(Changes{At: 10, Pods: map[string]*Pod{"a-0": p, "a-1": pod("a", 1, true, 5)}, Expect: all})
	s := store.Apply(Changes{At: 20, Pods: map[string]*Pod{"a-0": nil}})
	got := s.Pods().Get("a-0")
	require.True(t, got.Missing())
	require.Equal(t, "x", got.Zone)
	require.InDelta(t, 20.0, got.Since, 0)
	require.Equal(t, []string{"x"}, s.Index().DownGroups(ByZone))
	s = store.Apply(Changes{At: 21, Pods: map[string]*Pod{"a-0": nil}})
	require.NotNil(t, s.Pods().Get("a-0"), "a repeated deletion must not remove the Missing entry")
	s = store.Apply(Changes{At: 22, Expect: map[string]Expectation{"a": {Wanted: []Range{{1, 1}}, EverAvailable: []Range{{0, 1}}}}})
	require.Nil(t, s.Pods().Get("a-0"), "nobody wants it any more")
}

func TestAnIdentityThatWasNeverAvailableIsNotMissing(t *testing.T) {
	s := NewStore(nil).Apply(Changes{At: 1, Expect: map[string]Expectation{"a": {Wanted: []Range{{0, 2}}}}})
	require.Zero(t, s.Pods().Len())
}

func TestEqualRowsKeepTheirPointerAndPublishNothing(t *testing.T) {
	calls := 0
	store := NewStore(func(*Snapshot) { calls++ })
	first := store.Apply(Changes{At: 1, Pods: map[string]*Pod{"a-0": pod("a", 0, true, 1)}})
	second := store.Apply(Changes{At: 2, Pods: map[string]*Pod{"a-0": pod("a", 0, true, 1)}})
	require.Same(t, first, second)
	require.Equal(t, 1, calls)
	member := func() *Facts {
		return &Facts{Replace: true, Members: map[string]*Member{"a-0": {Healthy: known(true), Unknown: map[string]string{}}}}
	}
	third := store.Apply(Changes{At: 3, Reports: []Report{{Collector: "etcd", OK: true, AsOf: 3, Facts: member()}}})
	fourth := store.Apply(Changes{At: 4, Reports: []Report{{Collector: "etcd", OK: true, AsOf: 4, Facts: member()}}})
	require.NotEqual(t, third.Version(), fourth.Version())
	require.Equal(t, third.Content(), fourth.Content(), "only an age changed")
	require.Same(t, third.Members().Get("a-0"), fourth.Members().Get("a-0"))
}

func TestAFailedCollectionKeepsOldFactsAndTheirAge(t *testing.T) {
	store := NewStore(nil)
	store.Apply(Changes{Reports: []Report{{Collector: "etcd", OK: true, AsOf: 3, Facts: &Facts{Replace: true, Election: &Election{Leader: "a-0"}}}}})
	s := store.Apply(Changes{Reports: []Report{{Collector: "etcd", OK: false, AsOf: 9, Error: "boom"}}})
	require.Equal(t, Collector{OK: false, AsOf: 3, Error: "boom"}, s.Collectors()["etcd"].Collector)
	require.Equal(t, "a-0", s.Election().Leader)
	require.Nil(t, s.Without("etcd").Election(), "without the collector its facts are unknown")
	require.Nil(t, s.Members(), "nobody reported members")
}

func TestAReplacedReportForgetsWhatItDoesNotName(t *testing.T) {
	store := NewStore(nil)
	store.Apply(Changes{Reports: []Report{{Collector: "x", OK: true, Facts: &Facts{Replace: true,
		Members: map[string]*Member{"a-0": {}, "a-1": {}}, Shards: map[string]*Shard{"s": {}}}}}})
	s := store.Apply(Changes{Reports: []Report{{Collector: "x", OK: true, Facts: &Facts{Members: map[string]*Member{"a-1": nil}}}}})
	require.Equal(t, []string{"a-0"}, sortedNames(s.Members()))
	require.Equal(t, 1, s.Shards().Len())
	s = store.Apply(Changes{Reports: []Report{{Collector: "x", OK: true, Facts: &Facts{Replace: true, Shards: map[string]*Shard{}}}}})
	require.Nil(t, s.Members(), "unknown")
	require.NotNil(t, s.Shards(), "known to be none")
	require.Zero(t, s.Shards().Len())
}

func TestTwoCollectorsCompleteEachOthersMembers(t *testing.T) {
	store := NewStore(nil)
	s := store.Apply(Changes{Reports: []Report{
		{Collector: "b", OK: true, Facts: &Facts{Replace: true, Members: map[string]*Member{
			"a-0": {Healthy: known(false), Voter: known(true), Unknown: map[string]string{"lag": "b"}}}}},
		{Collector: "a", OK: true, Facts: &Facts{Replace: true, Members: map[string]*Member{
			"a-0": {Healthy: known(true), Unknown: map[string]string{"voter": "a", "lag": "a"}}}}},
	}})
	m := s.Members().Get("a-0")
	require.True(t, *m.Healthy, "the first collector by name wins")
	require.True(t, *m.Voter)
	require.Equal(t, map[string]string{"lag": "a"}, m.Unknown)
}

func TestADocumentGoesBothWays(t *testing.T) {
	store := NewStore(nil)
	s := store.Apply(Changes{At: 1, Pods: map[string]*Pod{"a-0": pod("a", 0, false, 1)}, Nodes: map[string]*Node{"n0": {Ready: true}},
		Reports: []Report{{Collector: "etcd", OK: true, AsOf: 2, Facts: &Facts{Replace: true, Election: &Election{Leader: "a-0"},
			Members: map[string]*Member{"a-0": {Role: RoleLeader, Unknown: map[string]string{}}}, Shards: map[string]*Shard{}}}}})
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var document map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &document))
	delete(document, "index")
	wrapped, err := json.Marshal(map[string]any{"facts": document})
	require.NoError(t, err)
	back, err := FromJSON(wrapped)
	require.NoError(t, err)
	again, err := json.Marshal(back)
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(again))
	_, err = FromJSON([]byte(`{"pods": {"a-0": {"raedy": true}}}`))
	require.ErrorContains(t, err, "raedy")
}

func BenchmarkOneChangeAtTenThousandPods(b *testing.B) {
	store := NewStore(nil)
	pods := map[string]*Pod{}
	for i := range 10_000 {
		p := pod("a", i, true, 1)
		p.Zone = fmt.Sprintf("z%d", i%3)
		pods[fmt.Sprintf("a-%d", i)] = p
	}
	store.Apply(Changes{At: 1, Pods: maps.Clone(pods)})
	names := slices.Sorted(maps.Keys(pods))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		name := names[i%len(names)]
		p := pod("a", pods[name].Index, i/len(names)%2 == 1, float64(i))
		p.Zone = pods[name].Zone
		store.Apply(Changes{At: float64(i), Pods: map[string]*Pod{name: p}})
		if i%16 == 0 { // keep a handful down, as in the field
			back := *pods[name]
			store.Apply(Changes{At: float64(i), Pods: map[string]*Pod{name: &back}})
		}
	}
}
