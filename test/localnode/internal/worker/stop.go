package worker

import (
	"context"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/test/localnode/internal/probe"
)

// lastCall is what a process gets after its preStop hook used up the whole grace period.
const lastCall = 2 * time.Second

// stop begins a graceful stop: the preStop hook, SIGTERM, and SIGKILL when the grace period is over. Without grace it
// is SIGKILL at once.
func (w *Worker) stop(c *container, grace time.Duration, why string) {
	c.stop = &stopping{killAt: w.node.Clock.Now().Add(grace), hookDone: true}
	c.stoppedByUs = true
	w.event(corev1.EventTypeNormal, "Killing", "Stopping container %s: %s", c.spec.Name, why)
	if l := c.spec.Lifecycle; l != nil && l.PreStop != nil && grace > 0 {
		w.startHook(c, *l.PreStop)
	}
	w.stepStop(c)
}

func (w *Worker) startHook(c *container, h corev1.LifecycleHandler) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.work))
	s := c.stop
	s.hookDone, s.cancelHook = false, cancel
	target := w.target(c)
	w.task(func() {
		defer cancel()
		message := w.runHook(ctx, h, target)
		w.post(func() {
			s.hookDone = true
			if message != "" {
				w.event(corev1.EventTypeWarning, "FailedPreStopHook", "container %s: %s", c.spec.Name, message)
			}
		})
	})
}

// runHook returns why the hook failed, "" if it did not.
func (w *Worker) runHook(ctx context.Context, h corev1.LifecycleHandler, t probe.Target) string {
	if h.Sleep != nil {
		timer := w.node.Clock.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		return ""
	}
	return probe.Try(ctx, corev1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}, t).Message
}

// stepStops moves every stop under way.
func (w *Worker) stepStops() {
	for _, c := range w.all() {
		if c.proc != nil && c.stop != nil {
			w.stepStop(c)
		}
	}
}

// stepStop does what is due in a stop.
func (w *Worker) stepStop(c *container) {
	s, now := c.stop, w.node.Clock.Now()
	expired := !now.Before(s.killAt)
	switch {
	case expired && !s.hookDone && !s.lastCall:
		s.cancelHook()
		s.lastCall = true
		s.killAt = now.Add(lastCall)
		fallthrough
	case s.hookDone && !s.termSent && !expired:
		s.termSent = true
		_ = c.proc.Signal(syscall.SIGTERM) //nolint:errcheck // it fails only if the group is gone, which the exit reports
	case expired:
		c.proc.Kill()
		return
	}
	w.due(s.killAt)
}
