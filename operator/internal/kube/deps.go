package kube

import (
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/metrics"
	"assent.dev/assent/operator/internal/session"
)

// Deps is what every controller is made of. All fields are needed.
type Deps struct {
	// Cached reads lag arbitrarily; nothing that must be right depends on them.
	Cached client.Reader
	// Live reads come from the API server.
	Live client.Reader
	// Writer writes. Its reads are not used.
	Writer client.Client
	Clock  clock.PassiveClock
	// Session is the leadership term; Approvals its register.
	Session   *session.Session
	Approvals *session.Approvals
	Events    event.Recorder
	Metrics   *metrics.Metrics
}
