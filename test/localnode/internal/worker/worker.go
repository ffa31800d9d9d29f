package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"assent.dev/assent/test/localnode/internal/address"
	"assent.dev/assent/test/localnode/internal/logs"
	"assent.dev/assent/test/localnode/internal/process"
	"assent.dev/assent/test/localnode/internal/render"
	"assent.dev/assent/test/localnode/internal/volume"
)

// ErrNotRunning says that the container has no process now.
var ErrNotRunning = errors.New("the container is not running")

// Node is what the workers of one node share.
type Node struct {
	Name, HostIP string
	Client       kubernetes.Interface
	Clock        clock.Clock
	Runner       *process.Runner
	Volumes      *volume.Manager
	Book         *address.Book
	Logs         *logs.Store
	Events       record.EventRecorder
	Backoff      Backoff
	// Refresh is the pause between looks at what data volumes are made of; zero never looks again.
	Refresh time.Duration
	// Given stands in for images' environments, Services are the service variables (see render.Input).
	Given, Services map[string]string
	Log             logr.Logger
}

// Worker runs one pod object from its arrival on the node until its processes and, if it is deleted, the object are gone.
type Worker struct {
	node   *Node
	writer *writer
	mail   chan func()
	over   chan struct{}

	born time.Time

	// work is the life of everything that a termination cancels: mounting, rendering.
	work     context.Context
	stopWork context.CancelFunc

	pod      *corev1.Pod
	vanished bool
	inits    []*container
	mains    []*container

	addr           netip.Addr
	claiming       bool
	dirs           map[string]string
	mounting       bool
	mountAt        time.Time
	mountPause     time.Duration
	refreshAt      time.Time
	reason, detail string
	initialized    bool
	refused        bool
	killAt         time.Time
	removing       bool
	finished       bool
	last           corev1.PodStatus

	// wakeAt is the earliest time at which a step has something to do.
	wakeAt time.Time
	// tasks are goroutines that post to the loop.
	tasks sync.WaitGroup
}

// New makes the worker of a pod; Run starts it. What an earlier run of the node reported is taken over.
func New(n *Node, pod *corev1.Pod) *Worker {
	w := &Worker{
		node: n, pod: pod, mail: make(chan func()), over: make(chan struct{}),
		writer: newWriter(n, pod),
		last:   *pod.Status.DeepCopy(), born: n.Clock.Now(),
	}
	w.inits = containers(pod.Spec.InitContainers, pod.Status.InitContainerStatuses, true, pod.Spec.RestartPolicy, n.Clock.Now())
	w.mains = containers(pod.Spec.Containers, pod.Status.ContainerStatuses, false, pod.Spec.RestartPolicy, n.Clock.Now())
	// A pod whose main containers have all ended for good does not prepare for them again.
	w.initialized = w.mainsFinished()
	return w
}

func containers(specs []corev1.Container, old []corev1.ContainerStatus, isInit bool, policy corev1.RestartPolicy, now time.Time) []*container {
	var out []*container
	for _, s := range specs {
		c := &container{facts: facts{spec: s, role: mainContainer, state: waiting("ContainerCreating", "")}}
		if isInit {
			c.state = waiting("PodInitializing", "")
			c.role = initContainer
			if s.RestartPolicy != nil && *s.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				c.role = sidecar
			}
		}
		for i := range old {
			if old[i].Name == s.Name {
				c.restore(&old[i], policy, now)
			}
		}
		out = append(out, c)
	}
	return out
}

// Run works until the pod is done with or ctx ends. The end of ctx is the loss of power: every process is killed and
// nothing is written any more. When Run returns no process of the pod exists and its address is free.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	w.work, w.stopWork = context.WithCancel(ctx)
	writing := make(chan struct{})
	go func() { defer close(writing); w.writer.run(ctx) }()
	w.loop(ctx)
	w.stopWork()
	cancel()
	w.killAll()
	close(w.over)
	w.tasks.Wait()
	<-writing
	w.node.Book.Release(w.pod.UID)
}

func (w *Worker) loop(ctx context.Context) {
	for {
		w.wakeAt = time.Time{}
		w.step(ctx)
		if w.finished {
			return
		}
		if before := w.last.Phase; w.publish() && before != w.last.Phase {
			// The phase decides which steps are walked.
			continue
		}
		if !w.receive(ctx) {
			return
		}
	}
}

// receive waits for one message or the next due time; false when ctx has ended.
func (w *Worker) receive(ctx context.Context) bool {
	var due <-chan time.Time
	if !w.wakeAt.IsZero() {
		t := w.node.Clock.NewTimer(max(w.wakeAt.Sub(w.node.Clock.Now()), 0))
		defer t.Stop()
		due = t.C()
	}
	select {
	case <-ctx.Done():
		return false
	case f := <-w.mail:
		f()
	case <-due:
	}
	return ctx.Err() == nil
}

// post hands f to the loop; it is dropped when the loop has ended.
func (w *Worker) post(f func()) {
	select {
	case w.mail <- f:
	case <-w.over:
	}
}

// task runs f beside the loop. Run returns only after it.
func (w *Worker) task(f func()) {
	w.tasks.Add(1)
	go func() { defer w.tasks.Done(); f() }()
}

// due asks for a step at t at the latest.
func (w *Worker) due(t time.Time) {
	if w.wakeAt.IsZero() || t.Before(w.wakeAt) {
		w.wakeAt = t
	}
}

// Update tells the worker how the pod object looks now.
func (w *Worker) Update(pod *corev1.Pod) {
	w.post(func() {
		if !maps.Equal(w.pod.Labels, pod.Labels) || !maps.Equal(w.pod.Annotations, pod.Annotations) {
			w.refreshAt = w.node.Clock.Now()
		}
		w.pod = pod
		w.adopt(w.inits, pod.Spec.InitContainers)
		w.adopt(w.mains, pod.Spec.Containers)
	})
}

// Newer says whether the worker's pod object was made after the other's.
func (w *Worker) Newer(than *Worker) bool { return than.born.Before(w.born) }

// Vanished tells the worker that the pod object is gone without its doing: it was deleted by force.
func (w *Worker) Vanished() { w.post(func() { w.vanished = true }) }

// Done closes when Run is about to return.
func (w *Worker) Done() <-chan struct{} { return w.over }

// Signal sends a signal to the processes of a container from outside, as a crash or an administrator would; "" is the
// first container. The error is ErrNotRunning when there is no process.
func (w *Worker) Signal(name string, s syscall.Signal) error {
	result := make(chan error, 1)
	w.post(func() { result <- w.signal(name, s) })
	select {
	case err := <-result:
		return err
	case <-w.over:
		return ErrNotRunning
	}
}

func (w *Worker) signal(name string, s syscall.Signal) error {
	for _, c := range append(append([]*container{}, w.mains...), w.inits...) {
		if name != "" && c.spec.Name != name {
			continue
		}
		if c.proc == nil {
			return fmt.Errorf("container %s of pod %s: %w", c.spec.Name, w.pod.Name, ErrNotRunning)
		}
		return c.proc.Signal(s)
	}
	return fmt.Errorf("pod %s has no container %s: %w", w.pod.Name, name, ErrNotRunning)
}

// killAll ends every process and waits until they are gone.
func (w *Worker) killAll() {
	for _, c := range w.all() {
		if c.proc != nil {
			c.proc.Kill()
		}
		if c.endProbes != nil {
			c.endProbes()
		}
		if c.stop != nil && c.stop.cancelHook != nil {
			c.stop.cancelHook()
		}
	}
	for _, c := range w.all() {
		if c.proc != nil {
			<-c.proc.Done()
		}
	}
}

func (w *Worker) all() []*container { return append(append([]*container{}, w.inits...), w.mains...) }

func (w *Worker) place() render.Place {
	p := render.Place{NodeName: w.node.Name, HostIP: w.node.HostIP}
	if w.addr.IsValid() {
		p.PodIP = w.addr.String()
	}
	return p
}

// publish hands the status to the writer; false for a pod object that is gone or about to be.
func (w *Worker) publish() bool {
	if w.vanished || w.removing {
		return false
	}
	w.last = podStatus(w.view(false), &w.last, w.node.Clock.Now())
	w.writer.set(w.last)
	return true
}

func (w *Worker) view(over bool) view {
	v := view{
		pod: w.pod, hostIP: w.node.HostIP, podIP: w.place().PodIP, mounted: w.dirs != nil,
		initialized: w.initialized, refused: w.refused, reason: w.reason, detail: w.detail, over: over,
	}
	for _, c := range w.inits {
		v.inits = append(v.inits, c.facts)
	}
	for _, c := range w.mains {
		v.mains = append(v.mains, c.facts)
	}
	return v
}

func (w *Worker) event(kind, reason, format string, args ...any) {
	w.node.Events.Eventf(w.pod, kind, reason, format, args...)
}
