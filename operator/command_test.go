package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFlagsThatCannotWorkAreRefusedWithWhatToWrite(t *testing.T) {
	for want, o := range map[string]options{
		"--acm: give at least one":                         {},
		`--acm "localhost:1": want name=address`:           {acms: []string{"localhost:1"}},
		`--acm "=localhost:1": want name=address`:          {acms: []string{"=localhost:1"}},
		`--acm "a=localhost:2": "a" is given twice`:        {acms: []string{"a=localhost:1", "a=localhost:2"}},
		"--evaluate-timeout 1ms: want 100ms to 30s":        {evaluateTimeout: time.Millisecond},
		"--evaluate-timeout 1m0s: want 100ms to 30s":       {evaluateTimeout: time.Minute},
		"--leader-election-namespace: needed with --leade": {evaluateTimeout: time.Second, leaderElect: true},
	} {
		_, err := o.addresses()
		if o.evaluateTimeout > 0 {
			err = o.check()
		}
		require.ErrorContains(t, err, want)
	}
}

func TestACMsAreNamedAddresses(t *testing.T) {
	o := options{acms: []string{"default=dns:///acm:9443", "team=10.0.0.1:9443"}}
	got, err := o.addresses()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"default": "dns:///acm:9443", "team": "10.0.0.1:9443"}, got)
}

func TestTheHelpSaysThatConnectionsAreNotEncrypted(t *testing.T) {
	require.Contains(t, command().Long, "not encrypted in this version")
}

func TestNoTwoSessionsShareAnID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id, err := sessionID()
		require.NoError(t, err)
		require.Len(t, id, 24)
		require.False(t, seen[id])
		seen[id] = true
	}
}
