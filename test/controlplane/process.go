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
)

// component is one running program of the control plane.
type component struct {
	name    string
	cmd     *exec.Cmd
	logFile string
	exited  chan struct{}
	err     error
}

// start runs a program in a process group of its own, with its output in a file. It dies with this process.
func (c *ControlPlane) start(name string, args ...string) (*component, error) {
	logFile := filepath.Join(c.dir, name+".log")
	log, err := os.Create(logFile)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer func() { _ = log.Close() }() //nolint:errcheck // the child keeps its own handle
	cmd := exec.Command(filepath.Join(c.programs, name), args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &component{name: name, cmd: cmd, logFile: logFile, exited: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.exited)
	}()
	c.components = append(c.components, p)
	return p, c.record.add(name, cmd.Process.Pid)
}

// await polls until ready is nil. A component that ends, or is not ready in time, is an error with its log's tail.
func (p *component) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended while starting (%w); the end of its log:\n%s", p.name, p.err, p.tail(25))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w; the end of its log:\n%s", p.name, limit, last, p.tail(25))
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

// stop asks the program to end and kills it when it does not.
func (p *component) stop(grace time.Duration) {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM) //nolint:errcheck // already gone is fine
	patience := time.NewTimer(grace)
	defer patience.Stop()
	select {
	case <-p.exited:
	case <-patience.C:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) //nolint:errcheck // already gone is fine
		<-p.exited
	}
}
