// Package decisionlog writes every decision as one line of JSON. Deciding never waits for it: entries go through a
// bounded queue, and what does not fit is counted and dropped.
package decisionlog

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"assent.dev/assent/acm/internal/judge"
)

// QueueSize is how many entries may wait to be written. One with its question is a few KiB.
const QueueSize = 4096

// Log is a judge.Log that writes lines. Safe for concurrent use.
type Log struct {
	out     io.Writer
	log     logr.Logger
	queue   chan judge.Entry
	done    chan struct{}
	closing sync.RWMutex
	closed  bool

	written prometheus.Counter
	dropped *prometheus.CounterVec
}

// New starts writing to out; Close ends it. Failures to write are counted, and the first of a row is logged.
func New(out io.Writer, log logr.Logger) *Log {
	return newLog(out, log, QueueSize)
}

func newLog(out io.Writer, log logr.Logger, size int) *Log {
	l := &Log{
		out: out, log: log, queue: make(chan judge.Entry, size), done: make(chan struct{}),
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "assent_acm_decision_log_written_total", Help: "Decision log lines written."}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "assent_acm_decision_log_dropped_total", Help: "Decisions that are missing in the log, by cause: queue, write, encode."}, []string{"cause"}),
	}
	go l.run()
	return l
}

// Describe lists the log's metrics.
func (l *Log) Describe(ch chan<- *prometheus.Desc) {
	l.written.Describe(ch)
	l.dropped.Describe(ch)
}

// Collect gives the log's metrics.
func (l *Log) Collect(ch chan<- prometheus.Metric) {
	l.written.Collect(ch)
	l.dropped.Collect(ch)
}

// Decided takes an entry and returns at once. After Close, and when the queue is full, the entry is dropped.
func (l *Log) Decided(e judge.Entry) {
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		l.dropped.WithLabelValues("queue").Inc()
		return
	}
	select {
	case l.queue <- e:
	default:
		l.dropped.WithLabelValues("queue").Inc()
	}
}

// Close writes what is queued and ends, at the latest with ctx.
func (l *Log) Close(ctx context.Context) error {
	l.closing.Lock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
	l.closing.Unlock()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("writing the last decisions: %w", ctx.Err())
	}
}

func (l *Log) run() {
	defer close(l.done)
	failing := false
	for e := range l.queue {
		line, err := json.Marshal(RecordOf(e))
		if err != nil {
			l.dropped.WithLabelValues("encode").Inc()
			continue
		}
		if _, err = l.out.Write(append(line, '\n')); err != nil {
			l.dropped.WithLabelValues("write").Inc()
			if !failing {
				l.log.Error(err, "decision log not written")
			}
			failing = true
			continue
		}
		failing = false
		l.written.Inc()
	}
}

// Tee is several logs as one.
type Tee []judge.Log

// Decided gives the entry to every log.
func (t Tee) Decided(e judge.Entry) {
	for _, l := range t {
		l.Decided(e)
	}
}
