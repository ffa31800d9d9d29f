package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Exit says how a process ended.
type Exit struct {
	// Code is the exit code, or 128 plus the signal that ended it, as container runtimes report it.
	Code int32
	// Signal is the signal that ended the process, 0 if it exited by itself.
	Signal syscall.Signal
	At     time.Time
}

// Process is one started command with its process group.
type Process struct {
	runner *Runner
	id     string
	cmd    *exec.Cmd
	exit   Exit
	done   chan struct{}
}

// PID is the process id, which is also the id of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ID is the identity the process is marked with.
func (p *Process) ID() string { return p.id }

// Done closes when the process and everything it started are gone.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit is valid once Done is closed.
func (p *Process) Exit() Exit { return p.exit }

// Signal sends s to the whole group. A process that is gone is no error.
func (p *Process) Signal(s syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	err := syscall.Kill(-p.PID(), s)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %v to process group %d: %w", s, p.PID(), err)
	}
	return nil
}

// Kill ends the whole group at once.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) //nolint:errcheck // SIGKILL to one's own child fails only if it is gone
}

// reap waits for the leader and then ends what it left, as the end of a container's first process does.
func (p *Process) reap() {
	_ = p.cmd.Wait() //nolint:errcheck // its error repeats the exit state, which is read below
	p.exit = Exit{At: p.runner.clock.Now()}
	if ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok {
		p.exit.Code = int32(ws.ExitStatus())
		if ws.Signaled() {
			p.exit.Signal = ws.Signal()
			p.exit.Code = 128 + int32(ws.Signal())
		}
	}
	p.runner.awaitGone(p.PID(), p.id)
	// A record that stays only costs a look at a pid that is not ours any more.
	_ = os.Remove(recordPath(p.runner.dir, p.PID()))
	close(p.done)
	p.runner.forget(p)
}
