package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/judge"
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
