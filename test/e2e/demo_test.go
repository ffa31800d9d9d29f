// Package e2e runs whole scenarios on the whole product: a real control plane, real nodes' worth of processes, a
// real stateful system under load, and operator and ACM as programs with their own service accounts.
package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/test/e2e/scenario"
)

// TestOP03_DI11_DI12_GR01_TheMainJobOnARealEtcdCluster is `make demo` with its conditions as assertions. The parts
// build on each other, as they do for a user.
func TestOP03_DI11_DI12_GR01_TheMainJobOnARealEtcdCluster(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	r, err := scenario.Start(ctx, scenario.Options{Dir: t.TempDir(), Root: root, Out: t.Output()})
	require.NoError(t, err)
	defer r.Close()
	parts := []struct {
		name string
		run  func(context.Context) error
	}{
		{"a rolling update takes one member at a time and the leader last", r.RollingUpdate},
		{"a member lost between two steps defers the next until the cluster is whole", r.MemberLostBetweenSteps},
		{"an edited policy is live without restart and denies with the team's message", r.PolicyEdit},
		{"without an ACM nothing is disrupted, a killed pod returns, and the update goes on later", r.WithoutACM},
	}
	for _, part := range parts {
		require.True(t, t.Run(part.name, func(t *testing.T) { require.NoError(t, part.run(ctx)) }))
	}
	result, err := r.Finish(ctx)
	require.NoError(t, err)
	result.Print(t.Output())
	require.NoError(t, result.Err())
}
