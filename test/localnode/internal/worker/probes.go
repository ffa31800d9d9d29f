package worker

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/test/localnode/internal/probe"
)

func (w *Worker) target(c *container) probe.Target {
	return probe.Target{Address: w.addr.String(), Ports: c.spec.Ports, Exec: w.exec(c)}
}

// startProbes begins with the startup probe, or with the others when there is none.
func (w *Worker) startProbes(c *container) {
	var ctx context.Context
	ctx, c.endProbes = context.WithCancel(context.WithoutCancel(w.work))
	if c.spec.StartupProbe == nil {
		w.hasStarted(ctx, c)
		return
	}
	own, end := context.WithCancel(ctx)
	w.runProbe(own, c, c.spec.StartupProbe, false, func(r probe.Result) {
		end()
		if r.OK {
			w.hasStarted(ctx, c)
			return
		}
		w.unhealthy(c, "Startup", r, c.spec.StartupProbe)
	})
}

// hasStarted opens readiness and liveness.
func (w *Worker) hasStarted(ctx context.Context, c *container) {
	c.started = true
	if p := c.spec.ReadinessProbe; p == nil {
		c.ready = true
	} else {
		w.runProbe(ctx, c, p, true, func(r probe.Result) {
			if c.ready && !r.OK {
				w.event(corev1.EventTypeWarning, "Unhealthy", "Readiness probe of container %s failed: %s", c.spec.Name, r.Message)
			}
			c.ready = r.OK
		})
	}
	if p := c.spec.LivenessProbe; p != nil {
		own, end := context.WithCancel(ctx)
		w.runProbe(own, c, p, false, func(r probe.Result) {
			if !r.OK {
				end()
				w.unhealthy(c, "Liveness", r, p)
			}
		})
	}
}

// runProbe probes until ctx ends; then runs in the loop, and only for the run of the container that was asked.
func (w *Worker) runProbe(ctx context.Context, c *container, p *corev1.Probe, eager bool, then func(probe.Result)) {
	target, run := w.target(c), c.runs
	w.task(func() {
		probe.Loop(ctx, w.node.Clock, p, eager,
			func(ctx context.Context) probe.Result { return probe.Try(ctx, p.ProbeHandler, target) },
			func(r probe.Result) {
				w.post(func() {
					if c.proc != nil && c.runs == run && ctx.Err() == nil {
						then(r)
					}
				})
			})
	})
}

// unhealthy ends a container whose startup or liveness probe failed too often; the restart policy decides what follows.
func (w *Worker) unhealthy(c *container, which string, r probe.Result, p *corev1.Probe) {
	if c.stop != nil {
		return
	}
	w.event(corev1.EventTypeWarning, "Unhealthy", "%s probe of container %s failed: %s", which, c.spec.Name, r.Message)
	grace := w.grace()
	if p.TerminationGracePeriodSeconds != nil {
		grace = time.Duration(*p.TerminationGracePeriodSeconds) * time.Second
	}
	w.stop(c, grace, which+" probe failed")
}
