package decisionlog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/judge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entry(id string) judge.Entry {
	return judge.Entry{
		Time: time.Unix(1764547200, 5e8), Application: decision.ApplicationRef{Namespace: "default", Name: "etcd", Policy: "etcd"},
		Session: "s-1", Request: 7, Epoch: 3, Took: 250 * time.Microsecond, Question: &decision.Question{Now: 1764547200},
		Decision: decision.Decision{
			ID: id, Step: decision.Step{Operation: "op-1", Type: decision.Deployment, Stage: decision.StageRemove, Set: "etcd", Pod: "etcd-1"},
			Judgement: decision.Judgement{
				Verdict:    decision.Defer,
				Reasons:    []decision.Reason{{Code: "quorum.majority", Message: "1 of 3", RetryAfter: 2500 * time.Millisecond, Details: map[string]any{"up": 1}}},
				Needs:      []decision.Need{{Action: "leader.transfer", Subject: "etcd-1"}},
				RetryAfter: 5 * time.Second,
			},
			BundleRevision: "etcd-1", FactsVersion: "f-1", FactsAge: 1500 * time.Millisecond,
		},
	}
}

func TestADecisionIsOneLineThatTellsEverything(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, logr.Discard())
	l.Decided(entry("d-1"))
	l.Decided(entry("d-2"))
	require.NoError(t, l.Close(t.Context()))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	require.Len(t, lines, 2)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &got))
	require.Equal(t, 1764547200.0, got["question"].(map[string]any)["now"])
	delete(got, "question")
	require.Equal(t, map[string]any{
		"time":        "2025-12-01T00:00:00.5Z",
		"application": map[string]any{"namespace": "default", "name": "etcd", "policy": "etcd"},
		"session":     "s-1", "request": 7.0, "epoch": 3.0, "took_seconds": 0.00025,
		"decision": map[string]any{
			"id": "d-1", "operation": "op-1", "type": "deployment", "stage": "remove", "set": "etcd", "pod": "etcd-1", "verdict": "defer",
			"reasons":         []any{map[string]any{"code": "quorum.majority", "message": "1 of 3", "retry_after_seconds": 2.5, "details": map[string]any{"up": 1.0}}},
			"needs":           []any{map[string]any{"action": "leader.transfer", "subject": "etcd-1"}},
			"bundle_revision": "etcd-1", "facts_version": "f-1", "facts_age_seconds": 1.5, "retry_after_seconds": 5.0,
		},
	}, got)
	require.Equal(t, 2.0, value(t, l, "assent_acm_decision_log_written_total"))
}

// stuck is a disk that does not answer until it is released.
type stuck struct {
	entered, release chan struct{}
}

func (s stuck) Write(p []byte) (int, error) {
	s.entered <- struct{}{}
	<-s.release
	return len(p), nil
}

func TestAStuckDiskNeverBlocksADecisionAndWhatIsLostIsCounted(t *testing.T) {
	disk := stuck{make(chan struct{}, 10), make(chan struct{})}
	l := newLog(disk, logr.Discard(), 2)
	l.Decided(entry("writing"))
	<-disk.entered
	for range 5 { // two fit the queue
		l.Decided(entry("more"))
	}
	require.Equal(t, 3.0, value(t, l, "assent_acm_decision_log_dropped_total"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.Close(ctx), context.Canceled)
	l.Decided(entry("too late"))
	close(disk.release)
	require.NoError(t, l.Close(t.Context()))
	require.Equal(t, 4.0, value(t, l, "assent_acm_decision_log_dropped_total"))
	require.Equal(t, 3.0, value(t, l, "assent_acm_decision_log_written_total"))
}

// flaky fails every write but the last.
type flaky struct{ left int }

func (f *flaky) Write(p []byte) (int, error) {
	if f.left--; f.left > 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestAFailedWriteIsCountedAndTheNextOneIsTried(t *testing.T) {
	l := New(&flaky{left: 3}, logr.Discard())
	for range 3 {
		l.Decided(entry("d"))
	}
	require.NoError(t, l.Close(t.Context()))
	require.Equal(t, 2.0, value(t, l, "assent_acm_decision_log_dropped_total"))
	require.Equal(t, 1.0, value(t, l, "assent_acm_decision_log_written_total"))
}

func TestATeeGivesEveryLogTheEntry(t *testing.T) {
	one, two := New(io.Discard, logr.Discard()), New(io.Discard, logr.Discard())
	Tee{one, two}.Decided(entry("d"))
	for _, l := range []*Log{one, two} {
		require.NoError(t, l.Close(t.Context()))
		require.Equal(t, 1.0, value(t, l, "assent_acm_decision_log_written_total"))
	}
}

func value(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	require.NoError(t, err)
	sum := 0.0
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += number(m)
			}
		}
	}
	return sum
}

func number(m *dto.Metric) float64 { return m.GetCounter().GetValue() }
