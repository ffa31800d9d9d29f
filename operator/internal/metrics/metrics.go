package metrics

import (
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// maxCodes is how many different reason codes get a label value of their own.
const maxCodes = 200

// otherCode counts the reason codes beyond maxCodes.
const otherCode = "other"

// InstanceKey is what live instances of Operations are counted by.
type InstanceKey struct {
	Type  string
	State string
}

// Metrics are the operator's own. Safe for concurrent use.
type Metrics struct {
	decisions   *prometheus.CounterVec
	instances   *prometheus.GaugeVec
	grants      *prometheus.CounterVec
	acts        *prometheus.CounterVec
	writes      *prometheus.CounterVec
	requests    *prometheus.HistogramVec
	up          *prometheus.GaugeVec
	unavailable *prometheus.GaugeVec
	leading     prometheus.Gauge

	mu            sync.Mutex
	codes         map[string]bool
	byApplication map[string]map[InstanceKey]int
}

// New makes the metrics and registers them; with a nil registerer they are only counted. It errs if one of the names
// is taken.
func New(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		decisions:   counter("decisions_total", "Answers of ACMs that changed an instance's verdict or reason code.", "verdict", "code"),
		instances:   gauge("instances", "Instances of live Operations.", "type", "state"),
		grants:      counter("grants_total", "Approvals recorded in StatefulPods.", "type", "stage"),
		acts:        counter("acts_total", "Calls that changed a Pod or claim.", "verb", "outcome"),
		writes:      counter("api_writes_total", "Writes sent to the API server.", "kind", "verb"),
		requests:    histogram("acm_request_seconds", "Duration of Evaluate calls.", "acm", "outcome"),
		up:          gauge("acm_up", "1 if the last Evaluate call to the ACM was answered.", "acm"),
		unavailable: gauge("unavailable_pods", "Wanted pods of a set that are not available.", "namespace", "set"),
		leading: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "assent", Subsystem: "operator", Name: "leading", Help: "1 while this process leads.",
		}),
		codes:         map[string]bool{},
		byApplication: map[string]map[InstanceKey]int{},
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.decisions, m.instances, m.grants, m.acts, m.writes, m.requests, m.up, m.unavailable, m.leading} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering a metric: %w", err)
		}
	}
	return m, nil
}

// Decision counts a changed verdict ("approve", "defer", "deny") and its first reason code.
func (m *Metrics) Decision(verdict, code string) {
	m.mu.Lock()
	if !m.codes[code] {
		if len(m.codes) < maxCodes {
			m.codes[code] = true
		} else {
			code = otherCode
		}
	}
	m.mu.Unlock()
	m.decisions.WithLabelValues(verdict, code).Inc()
}

// Instances tells how many live instances an application ("namespace/name") has; an empty count forgets it.
func (m *Metrics) Instances(application string, count map[InstanceKey]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := map[InstanceKey]bool{}
	for k := range m.byApplication[application] {
		changed[k] = true
	}
	for k := range count {
		changed[k] = true
	}
	if len(count) == 0 {
		delete(m.byApplication, application)
	} else {
		m.byApplication[application] = count
	}
	for k := range changed {
		total := 0
		for _, c := range m.byApplication {
			total += c[k]
		}
		m.instances.WithLabelValues(k.Type, k.State).Set(float64(total))
	}
}

// Grant counts an approval that was recorded.
func (m *Metrics) Grant(operationType, stage string) {
	m.grants.WithLabelValues(operationType, stage).Inc()
}

// Act counts a call that changes a Pod or claim; outcome is "done", "refused" or "unknown".
func (m *Metrics) Act(verb, outcome string) { m.acts.WithLabelValues(verb, outcome).Inc() }

// Write counts one write sent to the API server.
func (m *Metrics) Write(kind, verb string) { m.writes.WithLabelValues(kind, verb).Inc() }

// Request records an Evaluate call: seconds it took, and "answered", "timeout" or "unavailable".
func (m *Metrics) Request(acm, outcome string, seconds float64) {
	m.requests.WithLabelValues(acm, outcome).Observe(seconds)
	m.up.WithLabelValues(acm).Set(boolean(outcome == "answered"))
}

// Unavailable tells how many wanted pods of a set are not available.
func (m *Metrics) Unavailable(namespace, set string, pods int) {
	m.unavailable.WithLabelValues(namespace, set).Set(float64(pods))
}

// ForgetSet drops the metrics of a set that is gone.
func (m *Metrics) ForgetSet(namespace, set string) { m.unavailable.DeleteLabelValues(namespace, set) }

// Leading tells whether this process leads.
func (m *Metrics) Leading(yes bool) { m.leading.Set(boolean(yes)) }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "assent", Subsystem: "operator", Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "assent", Subsystem: "operator", Name: name, Help: help}, labels)
}

func histogram(name, help string, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "assent", Subsystem: "operator", Name: name, Help: help,
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2, 4},
	}, labels)
}
