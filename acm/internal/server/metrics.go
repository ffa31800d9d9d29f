package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/judge"
)

// metrics count what is decided and show what it is decided from.
type metrics struct {
	server      *Server
	decisions   *prometheus.CounterVec
	reasons     *prometheus.CounterVec
	evaluations *prometheus.HistogramVec
	requests    *prometheus.HistogramVec
}

var (
	leaseDesc = prometheus.NewDesc("assent_acm_lease_held", "1 when this process decides for the application.", []string{"namespace", "application"}, nil)
	epochDesc = prometheus.NewDesc("assent_acm_lease_epoch", "The newest term of the application's Lease that is known.", []string{"namespace", "application"}, nil)
	askedDesc = prometheus.NewDesc("assent_acm_last_evaluate_age_seconds", "Seconds since the operator last asked.", []string{"namespace", "application"}, nil)
	factsDesc = prometheus.NewDesc("assent_acm_facts_age_seconds", "Seconds since the collection of the newest facts began.", []string{"namespace", "application", "collector"}, nil)
	okDesc    = prometheus.NewDesc("assent_acm_collector_ok", "1 when the collector's last attempt succeeded.", []string{"namespace", "application", "collector"}, nil)
)

func newMetrics(s *Server) *metrics {
	return &metrics{
		server: s,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "assent_acm_decisions_total", Help: "Decisions by policy, operation type and verdict."}, []string{"policy", "type", "verdict"}),
		reasons: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "assent_acm_reasons_total", Help: "Reasons given for defers and denies by policy and code."}, []string{"policy", "code"}),
		evaluations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "assent_acm_evaluation_seconds", Help: "Time one policy evaluation took.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1}}, []string{"policy"}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "assent_acm_request_seconds", Help: "Time one request took, by method and gRPC code.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2}}, []string{"method", "code"}),
	}
}

// Decided counts an entry.
func (m *metrics) Decided(e judge.Entry) {
	if e.Preview {
		return
	}
	policy := e.Application.Policy
	m.decisions.WithLabelValues(policy, string(e.Decision.Type), string(e.Decision.Verdict)).Inc()
	for _, r := range e.Decision.Reasons {
		m.reasons.WithLabelValues(policy, r.Code).Inc()
	}
	if e.Question != nil {
		m.evaluations.WithLabelValues(policy).Observe(e.Took.Seconds())
	}
}

// Describe lists the metrics.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range []prometheus.Collector{m.decisions, m.reasons, m.evaluations, m.requests} {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{leaseDesc, epochDesc, askedDesc, factsDesc, okDesc} {
		ch <- d
	}
}

// Collect gives the counts, and the applications' standing at this moment.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range []prometheus.Collector{m.decisions, m.reasons, m.evaluations, m.requests} {
		c.Collect(ch)
	}
	now := m.server.o.Clock.Now()
	for k, a := range m.server.all() {
		gauge := func(d *prometheus.Desc, v float64, more ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{k.namespace, k.name}, more...)...)
		}
		_, held := a.lease.Held()
		gauge(leaseDesc, one(held))
		gauge(epochDesc, float64(a.lease.Seen()))
		_, asked := a.reference()
		gauge(askedDesc, now.Sub(asked).Seconds())
		for name, c := range a.facts.Snapshot().Collectors() {
			gauge(okDesc, one(c.OK), name)
			if c.AsOf > 0 {
				gauge(factsDesc, decision.Unix(now)-c.AsOf, name)
			}
		}
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
