package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const litter = ".build-"

// removeLitter removes what builds left that were killed. The caller holds the cache's lock: nobody else builds.
func removeLitter(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, litter+"*"))
	if err != nil {
		return fmt.Errorf("looking for interrupted builds: %w", err)
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("removing an interrupted build: %w", err)
		}
	}
	return nil
}

// obtain builds a program under a temporary name and gives it its own when it is whole.
func obtain(ctx context.Context, out io.Writer, dir string, p program, turn string) error {
	work, err := os.MkdirTemp(dir, litter)
	if err != nil {
		return fmt.Errorf("making a build folder: %w", err)
	}
	modules, err := modulesDir()
	if err != nil {
		return err
	}
	built := filepath.Join(work, p.name)
	if err := build(ctx, out, filepath.Join(modules, p.module), built, p, turn); err != nil {
		return errors.Join(err, os.RemoveAll(work))
	}
	if err := os.Rename(built, filepath.Join(dir, p.name)); err != nil {
		return fmt.Errorf("keeping %s: %w", p.name, err)
	}
	return os.RemoveAll(work)
}

func build(ctx context.Context, out io.Writer, module, built string, p program, turn string) error {
	cmd := exec.CommandContext(ctx, "nice", "go", "build", "-trimpath", "-mod=readonly", "-ldflags", linkerFlags(p), "-o", built, p.pkg)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	// The compilers are children of go: an interrupt must reach them too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	begun := time.Now()
	report(out, "building %s %s (%s) from its Go module; kept for the next time", p.name, p.version, turn)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the build of %s: %w", p.name, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(30 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("building %s %s: %w\n%s", p.name, p.version, errors.Join(err, ctx.Err()), log.String())
			}
			report(out, "built %s in %s", p.name, time.Since(begun).Round(time.Second))
			return nil
		case <-tick.C:
			report(out, "building %s %s (%s), %s ...", p.name, p.version, turn, time.Since(begun).Round(time.Second))
		}
	}
}

// linkerFlags stamp the version in, without which Kubernetes calls itself v0.0.0 and gates features by that.
func linkerFlags(p program) string {
	const flags = "-s -w"
	if p.module != "kubernetes" {
		return flags
	}
	parts := strings.SplitN(strings.TrimPrefix(p.version, "v"), ".", 3)
	return fmt.Sprintf("%[1]s -X %[2]s.gitVersion=%[3]s -X %[2]s.gitMajor=%[4]s -X %[2]s.gitMinor=%[5]s",
		flags, "k8s.io/component-base/version", p.version, parts[0], parts[1])
}

// lock takes an exclusive lock on a file; while another process holds it, it says so and waits.
func lock(ctx context.Context, path string, out io.Writer) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the cache's lock: %w", err)
	}
	// Closing frees the lock, and a failure to close a file that was never written loses nothing.
	unlock := func() { _ = f.Close() }
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			unlock()
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !said {
			report(out, "another process is building the same programs; waiting for it (%s)", path)
			said = true
		}
		select {
		case <-ctx.Done():
			unlock()
			return nil, fmt.Errorf("waiting for another build: %w", ctx.Err())
		case <-tick.C:
		}
	}
}
