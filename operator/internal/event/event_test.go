package event

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"assent.dev/assent/operator/api/v1alpha1"
)

// recorded is what a Recorder was given.
type recorded struct{ kind, reason, action, note string }

type recorder struct{ list []recorded }

// Eventf keeps the event.
func (r *recorder) Eventf(_, _ runtime.Object, kind, reason, action, note string, args ...any) {
	text := note
	if len(args) == 1 {
		text = args[0].(string)
	}
	r.list = append(r.list, recorded{kind, reason, action, text})
}

func TestEachReasonHasOneFunctionAndOnlyTroubleWarns(t *testing.T) {
	r := &recorder{}
	set, index, op := &v1alpha1.LiStatefulSet{}, &v1alpha1.PodIndex{}, &v1alpha1.Operation{}
	pod, rev := &v1alpha1.StatefulPod{}, &v1alpha1.Revision{}
	for reason, c := range map[string]struct {
		kind string
		emit func()
	}{
		ReasonTemplateInvalid:          {"Warning", func() { TemplateInvalid(r, set, "x") }},
		ReasonApplicationConflict:      {"Warning", func() { ApplicationConflict(r, set, "x") }},
		ReasonServiceTaken:             {"Warning", func() { ServiceTaken(r, set, "x") }},
		ReasonNameTaken:                {"Warning", func() { NameTaken(r, set, "x") }},
		ReasonProgressDeadlineExceeded: {"Warning", func() { ProgressDeadlineExceeded(r, set, "x") }},
		ReasonPodLost:                  {"Warning", func() { PodLost(r, pod, "x") }},
		ReasonRevisionCreated:          {"Normal", func() { RevisionCreated(r, set, rev) }},
		ReasonRevisionRemoved:          {"Normal", func() { RevisionRemoved(r, set, rev) }},
		ReasonStaged:                   {"Normal", func() { Staged(r, set, index, "x") }},
		ReasonOperationCreated:         {"Normal", func() { OperationCreated(r, index, op) }},
		ReasonOperationRemoved:         {"Normal", func() { OperationRemoved(r, index, op) }},
		ReasonGranted:                  {"Normal", func() { Granted(r, op, pod, v1alpha1.StageRemove, "d") }},
		ReasonGrantReturned:            {"Normal", func() { GrantReturned(r, pod, "d", "x") }},
		ReasonActed:                    {"Normal", func() { Acted(r, pod, "delete", "d") }},
		ReasonEnded:                    {"Normal", func() { Ended(r, op, "p", v1alpha1.Succeeded) }},
		ReasonPodRestored:              {"Normal", func() { PodRestored(r, pod) }},
		ReasonPodWaits:                 {"Warning", func() { PodWaits(r, pod, "x") }},
	} {
		r.list = nil
		c.emit()
		require.Len(t, r.list, 1, reason)
		require.Equal(t, reason, r.list[0].reason)
		require.Equal(t, c.kind, r.list[0].kind, reason)
		require.NotEmpty(t, r.list[0].action, reason)
	}
}

func TestADenialWarnsAndADeferralDoesNot(t *testing.T) {
	r, op := &recorder{}, &v1alpha1.Operation{}
	Decision(r, op, "db-1", "deny", "team.freeze", "not this week")
	Decision(r, op, "db-1", "defer", "quorum.majority", "1 of 3")
	require.Equal(t, []recorded{
		{"Warning", ReasonDecision, "Ask", "db-1: deny: team.freeze: not this week"},
		{"Normal", ReasonDecision, "Ask", "db-1: defer: quorum.majority: 1 of 3"},
	}, r.list)
}

func TestANoteIsCutToWhatTheEventsAPIAccepts(t *testing.T) {
	r := &recorder{}
	TemplateInvalid(r, &v1alpha1.LiStatefulSet{}, strings.Repeat("100%é", 1000))
	require.LessOrEqual(t, len(r.list[0].note), maxNote)
	require.True(t, strings.HasPrefix(r.list[0].note, "100%é"))
	require.True(t, strings.HasSuffix(r.list[0].note, "..."))
	require.True(t, utf8.ValidString(r.list[0].note))
}
