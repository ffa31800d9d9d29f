package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parsed are the options after the flags were read, without running anything.
func parsed(t *testing.T, args ...string) *options {
	t.Helper()
	c, o := command()
	require.NoError(t, c.ParseFlags(args))
	return o
}

func TestFlagsDefaultToOneReplicaThatWatchesEverything(t *testing.T) {
	o := parsed(t, "--acm", "default=acm:1")
	require.NoError(t, o.check())
	require.Equal(t, "default", o.cluster)
	require.Empty(t, o.namespace)
	require.False(t, o.leaderElect)
	require.Equal(t, "assent-system", o.leaderNamespace)
	require.Equal(t, ":8080", o.metricsAddress)
	require.Equal(t, ":8081", o.healthAddress)
	require.Equal(t, 2*time.Second, o.evaluateTimeout)
}

func TestEachACMIsNamedOnce(t *testing.T) {
	got, err := parsed(t, "--acm=default=dns:///acm.assent-system:50051", "--acm", "payments=10.0.0.1:50051").addresses()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"default": "dns:///acm.assent-system:50051", "payments": "10.0.0.1:50051"}, got)
}

func TestFlagsThatCannotWorkAreRefusedWithWhatToWrite(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no ACM":               {nil, "--acm: give at least one, for example --acm default="},
		"no address":           {[]string{"--acm=default="}, `--acm "default=": want name=address`},
		"no name":              {[]string{"--acm==acm:1"}, `--acm "=acm:1": want name=address`},
		"an address alone":     {[]string{"--acm=acm:1"}, `--acm "acm:1": want name=address`},
		"a name twice":         {[]string{"--acm=a=1:1", "--acm=a=2:2"}, `"a" is given twice`},
		"no patience":          {[]string{"--acm=a=1:1", "--evaluate-timeout=10ms"}, "--evaluate-timeout 10ms: want 100ms to 30s"},
		"too much patience":    {[]string{"--acm=a=1:1", "--evaluate-timeout=1m"}, "--evaluate-timeout 1m0s: want 100ms to 30s"},
		"no place for a Lease": {[]string{"--acm=a=1:1", "--leader-elect", "--leader-election-namespace="}, "--leader-election-namespace: needed with --leader-elect"},
		"no such kubeconfig":   {[]string{"--acm=a=1:1", "--kubeconfig=/nowhere"}, "finding the API server"},
		"an argument":          {[]string{"--acm=a=1:1", "start"}, "unknown command"},
		"an unknown flag":      {[]string{"--acm=a=1:1", "--acm-address=x"}, "unknown flag"},
	} {
		var out bytes.Buffer
		cmd, _ := command()
		cmd.SetArgs(c.args)
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		err := cmd.ExecuteContext(t.Context())
		require.ErrorContains(t, err, c.want, name)
		require.Contains(t, out.String(), c.want, "people see it: %s", name)
	}
}

func TestHelpSaysThatConnectionsAreNotEncrypted(t *testing.T) {
	var out bytes.Buffer
	cmd, _ := command()
	cmd.SetArgs([]string{"--help"})
	cmd.SetOut(&out)
	require.NoError(t, cmd.ExecuteContext(t.Context()))
	require.Contains(t, out.String(), "not encrypted in this version")
	for _, flag := range []string{
		"acm", "cluster", "namespace", "leader-elect", "leader-election-namespace", "metrics-bind-address",
		"health-probe-bind-address", "evaluate-timeout", "kubeconfig",
	} {
		require.Contains(t, out.String(), "--"+flag)
	}
}

func TestSessionsHaveDifferentNames(t *testing.T) {
	one, err := sessionID()
	require.NoError(t, err)
	two, err := sessionID()
	require.NoError(t, err)
	require.Len(t, one, 24)
	require.NotEqual(t, one, two)
}
