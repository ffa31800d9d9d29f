package worker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/test/localnode/internal/process"
	"assent.dev/assent/test/localnode/internal/render"
)

// startError is the exit code of a program that could not be started at all, as container runtimes report it.
const startError = 128

// adopt takes over changed definitions. Only the image can change in a living pod; its container is then restarted.
func (w *Worker) adopt(cs []*container, specs []corev1.Container) {
	for i, c := range cs {
		if i >= len(specs) || equality.Semantic.DeepEqual(c.spec, specs[i]) {
			continue
		}
		changed := c.spec.Image != specs[i].Image
		c.spec = specs[i]
		if !changed || c.role == initContainer {
			continue
		}
		c.restarts, c.notBefore = restarts{}, w.node.Clock.Now()
		c.again = true
		if c.proc != nil && c.stop == nil && w.pod.DeletionTimestamp == nil {
			w.stop(c, w.grace(), "its definition has changed")
		}
	}
}

// ensure starts the container if it should run and does not.
func (w *Worker) ensure(c *container) {
	switch {
	case !c.idle() || c.finished(w.pod.Spec.RestartPolicy):
	case unpullable(c.spec.Image):
		w.imageMissing(c)
	case w.node.Clock.Now().Before(c.notBefore):
		w.due(c.notBefore)
	default:
		w.prepare(c)
	}
}

func (w *Worker) imageMissing(c *container) {
	message := fmt.Sprintf("Back-off pulling image %q: no such image", c.spec.Image)
	if s := c.state.Waiting; s == nil || s.Message != message {
		w.event(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: no such image", c.spec.Image)
		if c.state.Terminated != nil {
			c.last = c.state
		}
		c.state = waiting("ImagePullBackOff", message)
	}
}

// prepare resolves the command beside the loop, for that may need the API server.
func (w *Worker) prepare(c *container) {
	c.starting = true
	root := filepath.Join(w.node.Volumes.PodDir(w.pod.UID), "containers", c.spec.Name)
	mounts, err := w.mounts(&c.spec)
	in := render.Input{
		Pod: w.pod, Container: c.spec.DeepCopy(), Place: w.place(), Mounts: mounts,
		Given: w.given(root), Services: w.node.Services,
	}
	w.task(func() {
		var cmd render.Command
		if err == nil {
			cmd, err = render.Render(w.work, w.node.Volumes, in)
		}
		dir := workingDir(in, root)
		if err == nil {
			err = os.MkdirAll(dir, 0o755)
		}
		w.post(func() { w.launch(c, cmd, dir, err) })
	})
}

func (w *Worker) mounts(spec *corev1.Container) ([]render.Mount, error) {
	var out []render.Mount
	for _, m := range spec.VolumeMounts {
		dir := w.dirs[m.Name]
		if m.SubPath != "" {
			dir = filepath.Join(dir, filepath.FromSlash(m.SubPath))
			if _, err := os.Stat(dir); err != nil {
				if err := os.MkdirAll(dir, 0o777); err != nil {
					return nil, fmt.Errorf("making subPath %s of volume %s: %w", m.SubPath, m.Name, err)
				}
			}
		}
		out = append(out, render.Mount{Volume: m.Name, Path: m.MountPath, Dir: dir})
	}
	return out, nil
}

// given is what an image would bring.
func (w *Worker) given(root string) map[string]string {
	out := map[string]string{"HOME": root, "HOSTNAME": w.pod.Name}
	if w.pod.Spec.Hostname != "" {
		out["HOSTNAME"] = w.pod.Spec.Hostname
	}
	for k, v := range w.node.Given {
		out[k] = v
	}
	return out
}

// workingDir finds a place for workingDir: within a mount, or beneath the container's own root.
func workingDir(in render.Input, root string) string {
	asked := in.Container.WorkingDir
	if at := render.Rewrite(asked, in.Mounts); at != asked {
		return at
	}
	return filepath.Join(root, filepath.FromSlash(asked))
}

// launch starts the process, back in the loop.
func (w *Worker) launch(c *container, cmd render.Command, dir string, err error) {
	c.starting = false
	if w.pod.DeletionTimestamp != nil || w.vanished || w.work.Err() != nil {
		return
	}
	now := w.node.Clock.Now()
	if err != nil {
		if s := c.state.Waiting; s == nil || s.Message != err.Error() {
			w.event(corev1.EventTypeWarning, "Failed", "container %s: %s", c.spec.Name, err.Error())
		}
		c.state = waiting("CreateContainerConfigError", err.Error())
		c.notBefore = now.Add(maxMountPause)
		return
	}
	c.again, c.stop, c.stoppedByUs = false, nil, false
	if c.state.Terminated != nil {
		c.last = c.state
	}
	c.id = fmt.Sprintf("localnode://%s/%s/%d", w.pod.UID, c.spec.Name, c.runs)
	proc, err := w.spawn(c, cmd, dir)
	c.runs++
	if err != nil {
		w.startFailed(c, err)
		return
	}
	c.proc, c.env, c.dir = proc, cmd.Env, dir
	c.state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	w.startProbes(c)
	w.task(func() {
		<-proc.Done()
		w.post(func() { w.exited(c, proc.Exit()) })
	})
}

func (w *Worker) spawn(c *container, cmd render.Command, dir string) (*process.Process, error) {
	out, err := w.node.Logs.Create(w.pod.Namespace, w.pod.Name, c.spec.Name, w.pod.UID)
	if err != nil {
		return nil, err
	}
	// The child has its own handle.
	defer func() { _ = out.Close() }()
	id := strings.TrimPrefix(c.id, "localnode://")
	return w.node.Runner.Start(process.Spec{ID: id, Argv: cmd.Argv, Env: cmd.Env, Dir: dir, Output: out})
}

func (w *Worker) startFailed(c *container, err error) {
	w.event(corev1.EventTypeWarning, "Failed", "container %s: %s", c.spec.Name, err.Error())
	now := w.node.Clock.Now()
	c.state = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: startError, Reason: "StartError", Message: err.Error(),
		StartedAt: metav1.NewTime(now), FinishedAt: metav1.NewTime(now), ContainerID: c.id,
	}}
	w.planRestart(c, process.Exit{Code: startError, At: now})
}

// exited notes the end of a run and when the next one may begin.
func (w *Worker) exited(c *container, exit process.Exit) {
	c.proc = nil
	c.endProbes()
	if c.stop != nil && c.stop.cancelHook != nil {
		c.stop.cancelHook()
	}
	c.stop = nil
	c.ready, c.started = false, false
	var startedAt metav1.Time
	if c.state.Running != nil {
		startedAt = c.state.Running.StartedAt
	}
	c.state = corev1.ContainerState{Terminated: terminated(c.id, startedAt, exit, c.stoppedByUs)}
	w.planRestart(c, exit)
}

// planRestart puts a container that will be started again into back-off. A first restart comes at once and needs none.
func (w *Worker) planRestart(c *container, exit process.Exit) {
	if c.again || !restartsAfter(w.pod.Spec.RestartPolicy, c.role, exit.Code) || w.pod.DeletionTimestamp != nil || w.vanished {
		return
	}
	c.notBefore = c.restarts.next(w.node.Backoff, exit.At)
	pause := c.notBefore.Sub(exit.At)
	if pause == 0 {
		return
	}
	c.last = c.state
	c.state = waiting("CrashLoopBackOff", fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
		pause, c.spec.Name, w.pod.Name, w.pod.Namespace, w.pod.UID))
	w.event(corev1.EventTypeWarning, "BackOff", "Back-off %s restarting failed container %s", pause, c.spec.Name)
}

// exec runs a command with the container's environment.
func (w *Worker) exec(c *container) func(context.Context, []string) (int32, string, error) {
	id, env, dir := strings.TrimPrefix(c.id, "localnode://")+"/exec", c.env, c.dir
	mounts, err := w.mounts(&c.spec)
	return func(ctx context.Context, argv []string) (int32, string, error) {
		if err != nil {
			return 0, "", err
		}
		real := make([]string, len(argv))
		for i, a := range argv {
			real[i] = render.Rewrite(a, mounts)
		}
		exit, out, err := w.node.Runner.Run(ctx, process.Spec{ID: id, Argv: real, Env: env, Dir: dir})
		return exit.Code, out, err
	}
}
