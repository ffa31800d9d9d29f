package decision

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A question is logged after it was answered, while the batch goes on: what it holds must not change under the writer.
func TestAQuestionKeepsItsInFlightWhileFurtherStepsAreTaken(t *testing.T) {
	f := NewFlight()
	take := func(pod string) {
		step := Step{Operation: "op", Pod: pod, Stage: StageRemove}
		entry := entryOf(step, "", false)
		f.add(step, &entry, false)
	}
	take("a-0")
	asked := f.around("a-1")
	take("a-1")
	require.Len(t, asked, 1)
	require.NotContains(t, asked, "a-1", "in_flight never holds the pod asked about")
	again := f.around("a-2")
	require.Len(t, again, 2)
	take("a-2")
	require.Len(t, again, 2)
	require.Equal(t, 3, f.Len())
}
