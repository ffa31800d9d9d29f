package worker

import (
	"context"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/test/localnode/internal/address"
	"assent.dev/assent/test/localnode/internal/volume"
)

const (
	firstMountPause = 100 * time.Millisecond
	maxMountPause   = 5 * time.Second
)

// step walks the life of the pod from the front and stops at the first thing that is not done yet.
func (w *Worker) step(ctx context.Context) {
	w.stepStops()
	if w.pod.DeletionTimestamp != nil || w.vanished {
		w.stepTermination(ctx)
		return
	}
	for _, done := range []func() bool{w.alive, w.admit, w.claimAddress, w.mountVolumes, w.runInits, w.runMains} {
		if !done() {
			return
		}
	}
}

// alive is false for a pod that has run to its end: what still runs beside it is stopped, and only its deletion is
// left to wait for.
func (w *Worker) alive() bool {
	if p := w.last.Phase; p != corev1.PodSucceeded && p != corev1.PodFailed {
		return true
	}
	idle := true
	for _, c := range w.all() {
		idle = idle && c.idle()
		if c.proc != nil && c.stop == nil {
			w.stop(c, w.grace(), "the pod has completed")
		}
	}
	if idle {
		w.node.Book.Release(w.pod.UID)
	}
	return false
}

// admit refuses what a local node cannot do, rather than doing something else.
func (w *Worker) admit() bool {
	problems := Unsupported(w.pod)
	if len(problems) == 0 {
		w.refused = false
		return true
	}
	text := strings.Join(problems, "; ")
	if !w.refused {
		w.event(corev1.EventTypeWarning, "Unsupported", "%s", text)
	}
	w.refused = true
	for _, c := range w.all() {
		c.state = waiting("CreateContainerConfigError", text)
	}
	return false
}

// claimAddress takes the pod's address, waiting for its holder if need be.
func (w *Worker) claimAddress() bool {
	if w.addr.IsValid() {
		return true
	}
	if w.claiming {
		return false
	}
	addr, err := w.node.Book.Claim(w.pod)
	if err == nil {
		w.addr = addr
		w.reason, w.detail = "", ""
		return true
	}
	reason := "AddressInvalid"
	var held *address.Held
	if errors.As(err, &held) {
		reason = "AddressInUse"
		w.claiming = true
		w.task(func() {
			select {
			case <-held.Freed:
			case <-w.work.Done():
			}
			w.post(func() { w.claiming = false })
		})
	}
	w.block(reason, err)
	return false
}

// block says in the status what the pod waits for, and once in an event.
func (w *Worker) block(reason string, err error) {
	if w.reason != reason || w.detail != err.Error() {
		w.event(corev1.EventTypeWarning, reason, "%s", err.Error())
	}
	w.reason, w.detail = reason, err.Error()
}

// mountVolumes makes the volumes, again and again until it succeeds, and refreshes the ones made of data.
func (w *Worker) mountVolumes() bool {
	if w.dirs != nil {
		w.refresh()
		return true
	}
	if w.mounting {
		return false
	}
	now := w.node.Clock.Now()
	if now.Before(w.mountAt) {
		w.due(w.mountAt)
		return false
	}
	w.mounting = true
	pod, place := w.pod, w.place()
	w.task(func() {
		dirs, err := w.node.Volumes.Mount(w.work, pod, place)
		w.post(func() { w.mounted(dirs, err) })
	})
	return false
}

func (w *Worker) mounted(dirs map[string]string, err error) {
	w.mounting = false
	if w.work.Err() != nil {
		return
	}
	now := w.node.Clock.Now()
	if err != nil {
		w.mountPause = min(max(2*w.mountPause, firstMountPause), maxMountPause)
		w.mountAt = now.Add(w.mountPause)
		w.block("FailedMount", err)
		return
	}
	w.dirs = dirs
	w.reason, w.detail = "", ""
	w.refreshAt = now.Add(w.node.Refresh)
}

// refresh looks at config maps and secrets now and then, and at labels and annotations whenever the pod changes.
func (w *Worker) refresh() {
	if w.node.Refresh == 0 || !volume.HasData(w.pod) || w.mounting {
		return
	}
	if w.node.Clock.Now().Before(w.refreshAt) {
		w.due(w.refreshAt)
		return
	}
	w.mounting = true
	pod, place := w.pod, w.place()
	w.task(func() {
		err := w.node.Volumes.Refresh(w.work, pod, place)
		w.post(func() {
			w.mounting = false
			w.refreshAt = w.node.Clock.Now().Add(w.node.Refresh)
			if err != nil && w.work.Err() == nil {
				w.event(corev1.EventTypeWarning, "FailedMount", "%s", err.Error())
			}
		})
	})
}

// runInits runs init containers one after another; a sidecar counts as done once it has started, and keeps running.
func (w *Worker) runInits() bool {
	for _, c := range w.inits {
		if c.role == sidecar {
			if w.initialized && w.mainsFinished() {
				continue
			}
			w.ensure(c)
			if !c.started && !w.initialized {
				return false
			}
			continue
		}
		if t := c.state.Terminated; t != nil && t.ExitCode == 0 {
			continue
		}
		if w.initialized || c.finished(w.pod.Spec.RestartPolicy) {
			return w.initialized
		}
		w.ensure(c)
		return false
	}
	w.initialized = true
	return true
}

// runMains keeps the main containers running.
func (w *Worker) runMains() bool {
	for _, c := range w.mains {
		w.ensure(c)
	}
	return true
}

func (w *Worker) mainsFinished() bool {
	for _, c := range w.mains {
		if !c.finished(w.pod.Spec.RestartPolicy) {
			return false
		}
	}
	return true
}

// stepTermination stops the main containers, then the sidecars from the last to the first, then removes the object.
func (w *Worker) stepTermination(ctx context.Context) {
	w.stopWork()
	w.shortenGrace()
	if w.stopContainers(w.mains) {
		return
	}
	for i := len(w.inits) - 1; i >= 0; i-- {
		if w.stopContainers(w.inits[i : i+1]) {
			return
		}
	}
	if w.mounting || w.removing {
		return
	}
	w.removing = true
	last := podStatus(w.view(true), &w.last, w.node.Clock.Now())
	vanished, uid := w.vanished, w.pod.UID
	w.task(func() {
		if err := w.node.Volumes.Unmount(uid); err != nil {
			w.node.Log.Error(err, "the folder of a pod stays behind", "uid", uid)
		}
		if !vanished {
			w.writer.remove(ctx, last)
		}
		w.post(func() { w.finished = true })
	})
}

// shortenGrace sets the time of the kill, and moves it forward when the pod is deleted again with less grace.
func (w *Worker) shortenGrace() {
	at := w.node.Clock.Now().Add(w.grace())
	if w.killAt.IsZero() || at.Before(w.killAt) {
		w.killAt = at
	}
}

// grace is the time the pod's processes have to end.
func (w *Worker) grace() time.Duration {
	switch {
	case w.vanished:
		return 0
	case w.pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*w.pod.DeletionGracePeriodSeconds) * time.Second
	case w.pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*w.pod.Spec.TerminationGracePeriodSeconds) * time.Second
	}
	return corev1.DefaultTerminationGracePeriodSeconds * time.Second
}

// stopContainers stops those that run; true while one of them is not idle.
func (w *Worker) stopContainers(cs []*container) bool {
	busy := false
	for _, c := range cs {
		if c.idle() {
			continue
		}
		busy = true
		if c.proc == nil {
			continue
		}
		if c.stop == nil {
			w.stop(c, w.killAt.Sub(w.node.Clock.Now()), "the pod is being deleted")
		}
		if w.killAt.Before(c.stop.killAt) && !c.stop.lastCall {
			c.stop.killAt = w.killAt
			w.stepStop(c)
		}
	}
	return busy
}
