package engine

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

func TestAnyValueEncodesToWhatItsJSONSays(t *testing.T) {
	t.Run("operation", encodesAsJSON[decision.Operation])
	t.Run("target", encodesAsJSON[decision.Target])
	t.Run("totals", encodesAsJSON[decision.Totals])
	t.Run("step in flight", encodesAsJSON[decision.InFlight])
	t.Run("history", encodesAsJSON[decision.History])
	t.Run("pod", encodesAsJSON[facts.Pod])
	t.Run("node", encodesAsJSON[facts.Node])
	t.Run("member", encodesAsJSON[facts.Member])
	t.Run("shard", encodesAsJSON[facts.Shard])
	t.Run("election", encodesAsJSON[facts.Election])
	t.Run("collector", encodesAsJSON[facts.Collector])
}

func encodesAsJSON[T any](t *testing.T) {
	values := rapid.Make[T]()
	rapid.Check(t, func(rt *rapid.T) {
		v := values.Filter(func(v T) bool { _, err := json.Marshal(v); return err == nil }).Draw(rt, "value")
		raw, err := json.Marshal(v)
		require.NoError(rt, err)
		var want any
		require.NoError(rt, json.Unmarshal(raw, &want))
		got, err := jsonOf(encode(&v))
		require.NoError(rt, err)
		require.Equal(rt, solid(want), solid(got))
	})
}

// solid leaves out nulls and empty containers, which the two forms write differently on purpose.
func solid(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			if s := solid(e); s != nil {
				out[k] = s
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		var out []any
		for _, e := range x {
			if s := solid(e); s != nil {
				out = append(out, s)
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	default:
		return v
	}
}

func TestANumberThatJSONLacksIsUnknown(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	term := encode(&facts.Member{Lag: &nan, Connections: &inf, Unknown: map[string]string{}})
	require.Equal(t, `{"unknown": {}}`, term.String())
	require.Equal(t, "[1]", encode(&decision.History{Approved: []float64{nan, 1}}).Value.(ast.Object).Get(ast.StringTerm("approved")).String())
}
