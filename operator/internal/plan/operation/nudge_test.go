package operation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/operator/internal/plan/question"
)

func TestAnACMThatNudgesWithoutEndIsNotAskedWithoutEnd(t *testing.T) {
	now, d, q, asked := time.Unix(1_000, 0), Dialog{}, question.Question{Policy: "etcd"}, 0
	for end := now.Add(time.Second); now.Before(end); now = now.Add(time.Millisecond) {
		d.Nudged = true
		if due, _ := d.Due(q, now, 2*time.Second); !due {
			continue
		}
		asked++
		sent := d.Ask(q, nil, now)
		require.NotNil(t, d.Receive(question.Answer{Session: sent.Session, Number: sent.Number}, now, 2*time.Second))
	}
	require.LessOrEqual(t, asked, 51)
	require.Greater(t, asked, 40, "and yet a nudge is followed at once")
}
