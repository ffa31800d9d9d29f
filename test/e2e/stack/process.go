package stack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"assent.dev/assent/test/child"
)

// Process is one program of ours, running on its own.
type Process struct {
	name    string
	logFile string
	cmd     *exec.Cmd
	running *child.Running
}

// startProcess runs a program with its output appended to a file. The program dies with its parent.
func startProcess(name, logFile string, env []string, path string, args ...string) (*Process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer func() { _ = out.Close() }() // the child keeps its own handle
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), env...)
	running, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &Process{name: name, logFile: logFile, cmd: cmd, running: running}, nil
}

// Kill ends the process at once, as a crash does, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) //nolint:errcheck // already gone is fine
	<-p.running.Exited
}

// Stop asks the process to end, kills it after ten seconds, and waits until it is gone.
func (p *Process) Stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck // already gone is fine
	select {
	case <-p.running.Exited:
	case <-time.After(10 * time.Second):
		p.Kill()
	}
}

// await polls ready until it is nil, the process ends or the time is over; the error carries the log's tail.
func (p *Process) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-p.running.Exited:
			return fmt.Errorf("%s ended (%w); its last lines:\n%s", p.name, errors.Join(p.running.Ended(), last), p.tail(20))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w; its last lines:\n%s", p.name, limit, last, p.tail(20))
		case <-tick.C:
		}
	}
}

func (p *Process) tail(lines int) string {
	text, err := os.ReadFile(p.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
