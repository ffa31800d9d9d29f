package decision

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/facts"
)

func unix(seconds int64) time.Time { return time.Unix(seconds, 0) }

func readExample(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return text
}

// exampleState is the contract's example: etcd-2 is being updated, etcd-3 was just allowed to join,
// and etcd-1's node is to be drained.
func exampleState() *State {
	three := []facts.Range{{First: 0, Last: 2}}
	return &State{
		Application: ApplicationRef{Name: "etcd", Namespace: "default", Policy: "etcd"},
		Session:     Session{ID: "s", Term: 1, Age: time.Hour}, RequestNumber: 2, MaxUnavailable: 1,
		Sets:       []Set{{Name: "etcd", Wanted: three, EverAvailable: three, MaxUnavailable: 1}},
		Operations: []Summary{{Name: "disruption-etcd-1", Type: Disruption, Progress: Progress{Total: 1, Waiting: 1}}},
		Instances: []Instance{
			{
				Step:  Step{Operation: "disruption-etcd-1", Type: Disruption, Stage: StageRemove, Set: "etcd", Pod: "etcd-1", Index: 1},
				State: Waiting, Cause: "maintenance", Node: "n-b1", WaitingSince: unix(1764547140), Deadline: unix(1764554400),
			},
			{
				Step:  Step{Operation: "deployment-etcd-2", Type: Deployment, Stage: StageRemove, Set: "etcd", Pod: "etcd-2", Index: 2},
				State: Verifying, StateSince: unix(1764547180), DecisionID: "d1",
			},
		},
		Holding: []Holding{{Step: join3, DecisionID: "d2"}},
	}
}

var join3 = Step{Operation: "scale-out-etcd-3", Type: ScaleOut, Stage: StageAdd, Set: "etcd", Pod: "etcd-3", Index: 3}

// The contract's text has no application.bootstrapping in its example, which is older than the key.
func TestTheContractsExampleComesOutExactly(t *testing.T) {
	snapshot, err := facts.FromJSON(readExample(t, "example_facts.json"))
	require.NoError(t, err)
	ledger := NewLedger(32*time.Second, 1, true, unix(1764547000))
	first := exampleState()
	first.RequestNumber, first.Holding = 1, nil
	opening := ledger.Open(first, unix(1764547180))
	ledger.Reserve(opening.Flight, &Instance{Step: join3}, "d2", false, unix(1764547180))
	ledger.Close(&Answer{SessionID: "s", RequestNumber: 1, Decisions: []Decision{{ID: "d2", Step: join3}}})

	state := exampleState()
	opening = ledger.Open(state, unix(1764547200))
	require.NotNil(t, opening.Flight)
	var options map[string]any
	var want map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(readExample(t, "example_input.json"), &want))
	require.NoError(t, json.Unmarshal(want["options"], &options))
	b := Batch{
		Now: unix(1764547200), State: state, View: NewView(snapshot, nil), Flight: opening.Flight,
		History: &History{Approved: []float64{}}, Options: func(OptionsKey) *Options { return &Options{Checks: options} },
	}
	got, err := json.Marshal(b.Derive(&state.Instances[0]))
	require.NoError(t, err)
	require.JSONEq(t, string(readExample(t, "example_input.json")), string(got))
}

func TestTheContractsFactsGoThroughTheStoreUnchanged(t *testing.T) {
	snapshot, err := facts.FromJSON(readExample(t, "example_facts.json"))
	require.NoError(t, err)
	got, err := json.Marshal(snapshot)
	require.NoError(t, err)
	var want struct{ Facts map[string]any }
	require.NoError(t, json.Unmarshal(readExample(t, "example_facts.json"), &want))
	var have map[string]any
	require.NoError(t, json.Unmarshal(got, &have))
	delete(want.Facts, "version")
	delete(have, "version")
	require.Equal(t, want.Facts, have)
}
