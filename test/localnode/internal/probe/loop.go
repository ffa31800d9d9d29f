package probe

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// eagerStart is the first pause between tries of a readiness probe that has not succeeded yet. Kubernetes allows tries
// outside the period while a container is not ready; a test with a hundred restarts is glad of it.
const eagerStart = 100 * time.Millisecond

// Loop tries again and again until ctx ends, and reports each time a threshold is reached: the answer is known, and
// whether it is new is for the caller to see. With eager, tries before the first success come sooner than the period;
// such failures are only reported once, for the threshold counts periods.
func Loop(ctx context.Context, c clock.Clock, spec *corev1.Probe, eager bool, try func(context.Context) Result, report func(Result)) {
	period := seconds(spec.PeriodSeconds, 10)
	if !wait(ctx, c, seconds(spec.InitialDelaySeconds, 0)) {
		return
	}
	streak, last, pause := int32(0), false, period
	if eager {
		pause = min(eagerStart, period)
	}
	for {
		r := tryOnce(ctx, spec, try)
		if ctx.Err() != nil {
			return
		}
		if r.OK != last {
			streak = 0
		}
		streak, last = streak+1, r.OK
		if streak == threshold(spec, r.OK) {
			report(r)
		}
		if r.OK {
			pause = period
		}
		if !wait(ctx, c, pause) {
			return
		}
		pause = min(2*pause, period)
	}
}

func tryOnce(ctx context.Context, spec *corev1.Probe, try func(context.Context) Result) Result {
	ctx, cancel := context.WithTimeout(ctx, seconds(spec.TimeoutSeconds, 1))
	defer cancel()
	return try(ctx)
}

func threshold(spec *corev1.Probe, ok bool) int32 {
	if ok {
		return max(spec.SuccessThreshold, 1)
	}
	if spec.FailureThreshold == 0 {
		return 3
	}
	return spec.FailureThreshold
}

// seconds reads a probe's number; zero means the default, which the API server normally fills in.
func seconds(n, byDefault int32) time.Duration {
	if n == 0 {
		n = byDefault
	}
	return time.Duration(n) * time.Second
}

// wait pauses; false when ctx ended first.
func wait(ctx context.Context, c clock.Clock, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}
