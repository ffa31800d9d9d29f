// Package child runs programs as children of this process for tests: each in a process group of its own, gone with the test.
package child

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Running is a program that was started.
type Running struct {
	// Exited is closed once the program has ended and was waited for.
	Exited <-chan struct{}
	ended  error
}

// Ended is how the program ended, as exec.Cmd.Wait says it. Only after Exited.
func (r *Running) Ended() error { return r.ended }

// Start runs the program in a process group of its own; it is killed when this process ends. It starts and is waited for
// in a thread of its own: the death signal comes when the thread that started the child ends (prctl(2)), which Go may do to
// any thread that it does not have to keep.
func Start(cmd *exec.Cmd) (*Running, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	exited, started := make(chan struct{}), make(chan error, 1)
	r := &Running{Exited: exited}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			r.ended = cmd.Wait()
			close(exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	return r, nil
}

// Buffer keeps what a program writes, and may be read meanwhile.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is everything so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// FreeAddress is a loopback address with a port that nobody listened on a moment ago.
func FreeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
