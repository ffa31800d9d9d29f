package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"assent.dev/assent/test/child"
)

// component is one running program of the control plane.
type component struct {
	name    string
	cmd     *exec.Cmd
	logFile string
	exited  <-chan struct{}
}

// start runs a program in a process group of its own, with its output in a file. It dies with this process.
func (c *ControlPlane) start(name string, args ...string) (*component, error) {
	logFile := c.path(name + ".log")
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() // the child keeps its own handle, and ours wrote nothing
	cmd := exec.Command(filepath.Join(c.programs, name), args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log
	running, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	p := &component{name: name, cmd: cmd, logFile: logFile, exited: running.Exited}
	c.components = append(c.components, p)
	return p, c.record.add(name, cmd.Process.Pid)
}

// await polls until ready is nil. A component that ends, or is not ready in time, is an error with its log's tail.
func (p *component) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := ready(ctx)
		if err == nil || ctx.Err() == nil || last == nil {
			last = err // and not the one that only says that time is up
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended while starting (%v); the end of its log:\n%s", p.name, p.cmd.ProcessState, p.tail(25))
		default:
		}
		if last == nil {
			return nil
		}
		select {
		case <-p.exited:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be ready (at most %s): %w; its last answer: %w; the end of its log:\n%s",
				p.name, limit, context.Cause(ctx), last, p.tail(25))
		case <-tick.C:
		}
	}
}

func (p *component) tail(lines int) string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// stop asks the program to end, kills it when it has not after grace, and returns when it is gone.
func (p *component) stop(grace time.Duration) {
	patience := time.NewTimer(grace)
	defer patience.Stop()
	// An error of kill means that it is gone already, which is what is wanted.
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) //nolint:errcheck // see above
	select {
	case <-p.exited:
	case <-patience.C:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // see above
		<-p.exited
	}
}
