package decision

import (
	"slices"
	"sync"

	"assent.dev/assent/acm/internal/facts"
)

// View is what one snapshot means before any promise: aggregates over members and shards that a
// question needs and that would cost a scan each. A View is immutable, but for shards, which are
// counted once, when first asked for.
type View struct {
	snapshot *facts.Snapshot
	memberView
	shards func() *shardView
}

// memberView counts the members of a snapshot. Lists are sorted by name.
type memberView struct {
	// votesKnown: some member says whether it votes, or that it could not be found out.
	votesKnown bool
	// voters may vote: not to count one that may would lower the majority.
	voters int
	upSeen int
	// lagging are known to be unhealthy or behind; of unknown that is not known; healthUnknown may be behind all the same.
	lagging       []string
	unknown       []string
	healthUnknown []string
}

// NewView counts members. Previous, which may be nil, lends what has not changed since.
func NewView(s *facts.Snapshot, previous *View) *View {
	if previous != nil && previous.snapshot == s {
		return previous
	}
	v := &View{snapshot: s, shards: sync.OnceValue(func() *shardView { return newShardView(s) })}
	if previous != nil && previous.snapshot.Members() == s.Members() {
		v.memberView = previous.memberView
	} else {
		v.memberView = countMembers(s)
	}
	if previous != nil && previous.snapshot.Shards() == s.Shards() && previous.snapshot.Pods() == s.Pods() {
		v.shards = previous.shards
	}
	return v
}

// Snapshot is what the view was made from.
func (v *View) Snapshot() *facts.Snapshot { return v.snapshot }

func countMembers(s *facts.Snapshot) memberView {
	v := memberView{}
	for name, m := range s.Members().All() {
		v.votesKnown = v.votesKnown || m.Voter != nil || m.Unknown["voter"] != ""
		if mayVote(m) {
			v.voters++
		}
		if votesAndIsUp(m) {
			v.upSeen++
		}
		if m.Healthy == nil {
			v.healthUnknown = append(v.healthUnknown, name)
		}
		switch {
		case isFalse(m.Healthy) || isFalse(m.CaughtUp):
			v.lagging = append(v.lagging, name)
		case m.Healthy == nil || m.CaughtUp == nil:
			v.unknown = append(v.unknown, name)
		}
	}
	slices.Sort(v.lagging)
	slices.Sort(v.unknown)
	slices.Sort(v.healthUnknown)
	return v
}

func mayVote(m *facts.Member) bool {
	return m != nil && (isTrue(m.Voter) || m.Voter == nil && m.Unknown["voter"] != "")
}

func votesAndIsUp(m *facts.Member) bool { return m != nil && isTrue(m.Voter) && isTrue(m.Healthy) }

func isTrue(b *bool) bool  { return b != nil && *b }
func isFalse(b *bool) bool { return b != nil && !*b }

// namesOf counts a sorted list and shows its beginning.
func namesOf(sorted []string) Names {
	return Names{Count: len(sorted), Examples: facts.Examples(sorted)}
}

// namesWithout is namesOf a sorted list that leaves one name out.
func namesWithout(sorted []string, name string) Names {
	at, found := slices.BinarySearch(sorted, name)
	if !found {
		return namesOf(sorted)
	}
	examples := make([]string, 0, facts.MaxExamples)
	for i, n := range sorted {
		if i != at && len(examples) < facts.MaxExamples {
			examples = append(examples, n)
		}
	}
	return Names{Count: len(sorted) - 1, Examples: examples}
}

func quorumNeeded(voters int) int { return voters/2 + 1 }
