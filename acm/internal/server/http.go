package server

import (
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// MetricsHandler serves /metrics.
func MetricsHandler(g prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	return mux
}

// HealthHandler serves /healthz, which is ok while the process lives, and /readyz, which is ok once calls are answered.
// Both list what is wrong with bundles, since a bad bundle ends neither.
func HealthHandler(ready func() bool, problems func() []string) http.Handler {
	mux := http.NewServeMux()
	answer := func(ok func() bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			text := "ok"
			if !ok() {
				w.WriteHeader(http.StatusServiceUnavailable)
				text = "bundles and caches are not loaded yet"
			}
			fmt.Fprintln(w, text)
			for _, p := range problems() {
				fmt.Fprintln(w, p)
			}
		}
	}
	mux.Handle("/healthz", answer(func() bool { return true }))
	mux.Handle("/readyz", answer(ready))
	return mux
}
