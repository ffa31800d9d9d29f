package bundle

import (
	"github.com/prometheus/client_golang/prometheus"
)

var (
	infoDesc = prometheus.NewDesc("assent_acm_bundle_info", "1 for each bundle, with the revision in force; empty when none is.", []string{"policy", "revision"}, nil)
	badDesc  = prometheus.NewDesc("assent_acm_bundle_invalid", "1 when the newest content of the bundle was refused.", []string{"policy"}, nil)
	ageDesc  = prometheus.NewDesc("assent_acm_bundle_good_age_seconds",
		"Seconds since the newest content of the bundle was in force; grows while a newer one is refused. Absent when none ever was.", []string{"policy"}, nil)
	failingDesc  = prometheus.NewDesc("assent_acm_bundle_failing_seconds", "Seconds since the newest content was first refused; 0 when all is well.", []string{"policy"}, nil)
	warningsDesc = prometheus.NewDesc("assent_acm_bundle_warnings", "Warnings of the bundle in force.", []string{"policy"}, nil)
)

// Describe lists the metrics of a manager.
func (m *Manager) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{infoDesc, badDesc, ageDesc, failingDesc, warningsDesc} {
		ch <- d
	}
}

// Collect gives the bundles' standing at this moment.
func (m *Manager) Collect(ch chan<- prometheus.Metric) {
	now := m.clock.Now()
	for _, s := range m.Statuses() {
		bad, failing := 0.0, 0.0
		if len(s.Problems) > 0 {
			bad, failing = 1, now.Sub(s.FailingSince).Seconds()
		}
		gauge := func(d *prometheus.Desc, v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{s.Policy}, labels...)...)
		}
		gauge(infoDesc, 1, s.Revision)
		gauge(badDesc, bad)
		gauge(failingDesc, failing)
		gauge(warningsDesc, float64(len(s.Warnings)))
		if !s.Good.IsZero() {
			age := 0.0
			if bad == 1 {
				age = now.Sub(s.Good).Seconds()
			}
			gauge(ageDesc, age)
		}
	}
}
