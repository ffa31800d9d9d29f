package worker

import (
	"context"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/test/localnode/internal/process"
)

type role int

const (
	initContainer role = iota
	sidecar
	mainContainer
)

// facts is what is known of one container; the status is made from it and nothing else.
type facts struct {
	spec  corev1.Container
	role  role
	state corev1.ContainerState
	last  corev1.ContainerState
	// runs counts starts; restartCount is one less.
	runs           int32
	id             string
	ready, started bool
	// stoppedByUs says that the end of the last run was our own order.
	stoppedByUs bool
}

// container is one container of a running pod; only the worker's loop touches it.
type container struct {
	facts
	proc     *process.Process
	starting bool
	// notBefore holds the next start back; zero for at once.
	notBefore time.Time
	restarts  restarts
	// again asks for a start whatever the restart policy says: the definition has changed.
	again bool
	stop  *stopping
	// endProbes stops the probe loops of this run.
	endProbes context.CancelFunc
	env       []string
	dir       string
}

// stopping is a graceful stop under way.
type stopping struct {
	killAt     time.Time
	hookDone   bool
	cancelHook context.CancelFunc
	termSent   bool
	// lastCall: the hook used up the grace period, and killAt is the short time after it.
	lastCall bool
}

func (c *container) idle() bool { return c.proc == nil && !c.starting }

// finished says that the container has ended and will not be started again by itself.
func (c *container) finished(policy corev1.RestartPolicy) bool {
	return c.idle() && c.state.Terminated != nil && !c.again && !restartsAfter(policy, c.role, c.state.Terminated.ExitCode)
}

// restartsAfter applies the restart policy to an exit code.
func restartsAfter(policy corev1.RestartPolicy, r role, code int32) bool {
	switch {
	case r == sidecar:
		return true
	case r == initContainer:
		return code != 0 && policy != corev1.RestartPolicyNever
	case policy == corev1.RestartPolicyAlways:
		return true
	}
	return policy == corev1.RestartPolicyOnFailure && code != 0
}

// terminated describes the end of a run.
func terminated(id string, startedAt metav1.Time, exit process.Exit, byUs bool) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode: exit.Code, Signal: int32(exit.Signal), Reason: "Completed",
		StartedAt: startedAt, FinishedAt: metav1.NewTime(exit.At), ContainerID: id,
	}
	switch {
	case t.ExitCode == 0:
	case byUs && sigtermed(t):
		t.Reason, t.Message = "Terminated", "ended by the SIGTERM of a graceful stop"
	default:
		t.Reason = "Error"
	}
	return t
}

// sigtermed says whether the end is what SIGTERM does to a program without a handler, or one that reports it as shells do.
func sigtermed(t *corev1.ContainerStateTerminated) bool {
	return t.ExitCode == 128+int32(syscall.SIGTERM)
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// restore takes over what an earlier run of the node reported of this container. The processes of that run are gone.
func (c *container) restore(old *corev1.ContainerStatus, policy corev1.RestartPolicy, now time.Time) {
	c.last = old.LastTerminationState
	c.id = old.ContainerID
	if old.ContainerID != "" {
		c.runs = old.RestartCount + 1
	}
	switch {
	case old.State.Running != nil:
		lost := &corev1.ContainerStateTerminated{
			ExitCode: 128 + int32(syscall.SIGKILL), Signal: int32(syscall.SIGKILL), Reason: "NodeLost",
			Message: "the node went down while the container ran", StartedAt: old.State.Running.StartedAt,
			FinishedAt: metav1.NewTime(now), ContainerID: old.ContainerID,
		}
		c.state = corev1.ContainerState{Terminated: lost}
	case old.State.Terminated != nil:
		c.state = old.State
	}
	if t := c.state.Terminated; t != nil && (c.role == initContainer || restartsAfter(policy, c.role, t.ExitCode)) {
		c.last = c.state
		c.state = waiting("ContainerCreating", "")
	}
}
