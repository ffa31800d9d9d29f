package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// ErrClosed is returned for a start after Close.
var ErrClosed = errors.New("the process runner is closed")

// Runner starts processes and owns them until they and all they started are gone.
type Runner struct {
	dir   string
	mark  string
	clock clock.Clock

	mu     sync.Mutex
	closed bool
	live   map[*Process]struct{}

	forks chan func()
	done  chan struct{}
	wg    sync.WaitGroup
}

// Spec says what to run.
type Spec struct {
	// ID is unique among the living processes of the runner and made of path segments, for instance uid/container/0.
	ID string
	// Argv is the command; Argv[0] without a slash is looked up in Env's PATH.
	Argv []string
	// Env is the whole environment, NAME=value; the mark is added.
	Env []string
	// Dir is the working directory; it must exist.
	Dir string
	// Output receives standard output and error; nil discards them. The caller closes it after Start.
	Output *os.File
}

// New makes a runner that keeps its records in dir. It first kills every process that a predecessor on the same dir
// left behind and returns only when they are gone. Two living runners must not share a dir: the caller holds a lock.
func New(dir string, c clock.Clock) (*Runner, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of process records: %w", err)
	}
	sum := sha256.Sum256([]byte(abs))
	r := &Runner{
		dir: abs, mark: hex.EncodeToString(sum[:6]), clock: c,
		live: map[*Process]struct{}{}, forks: make(chan func()), done: make(chan struct{}),
	}
	if err := r.killLeftovers(); err != nil {
		return nil, err
	}
	go r.forkLoop()
	return r, nil
}

// killLeftovers ends what a killed predecessor left, by record and by mark.
func (r *Runner) killLeftovers() error {
	records, err := readRecords(r.dir)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if e, err := readEntry(rec.PID); err == nil && e.start == rec.Start && !e.gone() {
			// It leads its group, and no pid is reused while a group of that number exists.
			_ = syscall.Kill(-rec.PID, syscall.SIGKILL) //nolint:errcheck // if it does not lead a group, killEntry gets it
			killEntry(e)
			r.awaitGone(rec.PID, r.mark)
		}
	}
	r.awaitGone(0, r.mark)
	for _, rec := range records {
		if err := os.Remove(recordPath(r.dir, rec.PID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the record of process %d: %w", rec.PID, err)
		}
	}
	return nil
}

// forkLoop forks on one thread that lives as long as the runner: the parent-death signal is sent when the thread that
// forked ends, not when the program does (prctl(2)).
func (r *Runner) forkLoop() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.done)
	for f := range r.forks {
		f()
	}
}

// Start runs the command. After a nil error the process exists and its Done channel will close once it and everything
// it started are gone.
func (r *Runner) Start(s Spec) (*Process, error) {
	cmd, err := r.command(s)
	if err != nil {
		return nil, err
	}
	p := &Process{runner: r, id: r.mark + "/" + s.ID, cmd: cmd, done: make(chan struct{})}
	if err := r.fork(p); err != nil {
		return nil, err
	}
	if err := writeRecord(r.dir, p.id, p.PID()); err != nil {
		p.Kill()
		go p.reap()
		return nil, err
	}
	go p.reap()
	return p, nil
}

// fork starts p on the forking thread and counts it, unless the runner is closed.
func (r *Runner) fork(p *Process) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	result := make(chan error)
	r.forks <- func() { result <- p.cmd.Start() }
	if err := <-result; err != nil {
		return fmt.Errorf("starting %s: %w", p.cmd.Path, err)
	}
	r.live[p] = struct{}{}
	r.wg.Add(1)
	return nil
}

func (r *Runner) command(s Spec) (*exec.Cmd, error) {
	if len(s.Argv) == 0 {
		return nil, errors.New("starting a process: no command")
	}
	path, err := lookPath(s.Argv[0], s.Dir, s.Env)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: path, Args: s.Argv, Dir: s.Dir,
		Env:         append(append([]string{}, s.Env...), MarkVariable+"="+r.mark+"/"+s.ID),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if s.Output != nil {
		cmd.Stdout, cmd.Stderr = s.Output, s.Output
	}
	return cmd, nil
}

// lookPath finds the program as a container runtime would: with the container's PATH, not the agent's.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return name, executable(name)
	}
	for _, e := range env {
		list, ok := strings.CutPrefix(e, "PATH=")
		if !ok {
			continue
		}
		for _, d := range filepath.SplitList(list) {
			if p := filepath.Join(d, name); executable(p) == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("finding %q in PATH: %w", name, exec.ErrNotFound)
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("finding the program: %w", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("finding the program: %s is not executable", path)
	}
	return nil
}

// awaitGone kills what is in group or marked with id, again and again, until nothing is left.
func (r *Runner) awaitGone(group int, id string) {
	pause := time.Millisecond
	for {
		left, err := survivors(group, id)
		if err == nil && len(left) == 0 {
			return
		}
		for _, e := range left {
			killEntry(e)
		}
		<-r.clock.After(pause)
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// Close kills every process of the runner and returns when all are gone. Start then returns ErrClosed.
func (r *Runner) Close() {
	r.mu.Lock()
	wasClosed := r.closed
	r.closed = true
	for p := range r.live {
		p.Kill()
	}
	r.mu.Unlock()
	r.wg.Wait()
	if !wasClosed {
		close(r.forks)
	}
	<-r.done
}

func (r *Runner) forget(p *Process) {
	r.mu.Lock()
	delete(r.live, p)
	r.mu.Unlock()
	r.wg.Done()
}
