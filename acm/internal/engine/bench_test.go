package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
	"assent.dev/assent/policies"
)

func build(into **Policy) func(context.Context, *bundle.Bundle) (judge.Policy, error) {
	return func(ctx context.Context, b *bundle.Bundle) (judge.Policy, error) {
		p, err := New(ctx, b, 0)
		*into = p
		return p, err
	}
}

var sizes = []int{10, 1_000, 10_000}

// The cost of a decision must not grow with the number of pods as long as the policy does not scan.
func BenchmarkEvaluate(b *testing.B) {
	for _, pods := range sizes {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			p, err := New(b.Context(), compiled(b, outputs+`approve if {
	input.target.goes_down == true
	count(data.facts.index.unavailable) < 5000
	data.facts.pods[input.operation.pod].available == true
}
`, ""), 0)
			require.NoError(b, err)
			_, s := seen(pods, pods/100)
			q := question(fmt.Sprintf("etcd-%d", pods-1))
			require.Equal(b, true, p.Evaluate(b.Context(), q, s).Approve)
			b.ReportAllocs()
			for b.Loop() {
				p.Evaluate(b.Context(), q, s)
			}
		})
	}
}

func BenchmarkInput(b *testing.B) {
	q := question("etcd-1")
	var steps stepTerms
	b.ReportAllocs()
	for b.Loop() {
		inputOf(q, &steps)
	}
}

// One etcd decision with the shipped bundle and library: the six checks, all well.
func BenchmarkShippedEtcd(b *testing.B) {
	for _, pods := range sizes {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			p := shipped(b, "etcd")
			_, s := seen(pods, 0)
			q := calm(pods)
			q.Options = p.Options(decision.OptionsKey{})
			require.Equal(b, decision.Outcome{Approve: true}, p.Evaluate(b.Context(), q, s))
			b.ReportAllocs()
			for b.Loop() {
				p.Evaluate(b.Context(), q, s)
			}
		})
	}
}

// calm is a question about one of many pods that are all well.
func calm(pods int) *decision.Question {
	yes, no, hour := true, false, 1764543600.0
	q := question("etcd-1")
	q.Target.Available, q.Target.Since = &yes, &hour
	q.Target.IsLeader = no
	q.Target.Member = &facts.Member{Role: facts.RoleFollower, Voter: &yes, Healthy: &yes, CaughtUp: &yes, Unknown: map[string]string{}}
	group := func(name string) []decision.Membership {
		return []decision.Membership{{Name: name, Size: pods, Others: []string{}, OtherGroups: []string{}}}
	}
	q.Target.Groups = map[string][]decision.Membership{"application": group("application"), "set": group("etcd"), "zone": group("a"), "node": group("n")}
	quorum := decision.Quorum{Voters: pods, Up: pods, Needed: pods/2 + 1}
	q.Target.Quorum = &decision.TargetQuorum{Quorum: quorum, UpSeen: pods, VotersAfter: pods, UpAfter: pods - 1, NeededAfter: pods/2 + 1}
	q.Target.Others = &decision.Others{Lagging: decision.Names{Examples: []string{}}, Unknown: decision.Names{Examples: []string{}}}
	q.Target.Peers.Examples = []string{}
	q.Totals = decision.Totals{Pods: pods, LastChange: hour, Quorum: &quorum, Down: decision.Names{Examples: []string{}}, Unexpected: decision.Names{Examples: []string{}}}
	q.Election = &facts.Election{Leader: "etcd-0", Since: hour}
	return q
}

// shipped loads a bundle of the repository with the real library.
func shipped(tb testing.TB, name string) *Policy {
	tb.Helper()
	library, err := bundle.LoadLibrary(policies.Files())
	require.NoError(tb, err)
	found, err := bundle.Folders("../../../bundles/" + name)
	require.NoError(tb, err)
	require.Len(tb, found, 1)
	content, err := bundle.Read(found[0])
	require.NoError(tb, err)
	var p *Policy
	_, _, err = bundle.Gate{Library: library, Build: build(&p)}.Load(tb.Context(), content)
	require.NoError(tb, err)
	return p
}
