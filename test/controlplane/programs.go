package controlplane

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Versions of what is built. The go.mod files beneath binaries/ pin everything else.
const (
	KubernetesVersion = "v1.37.2"
	EtcdVersion       = "v3.7.3"
	KwokVersion       = "v0.8.0"
)

// program is one binary and where it comes from.
type program struct {
	name, module, pkg, version string
}

var programs = []program{
	{"etcd", "etcd", "go.etcd.io/etcd/server/v3", EtcdVersion},
	{"kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", KubernetesVersion},
	{"kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", KubernetesVersion},
	{"kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", KubernetesVersion},
	{"kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", KubernetesVersion},
	{"kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok", KwokVersion},
}

// Names of all programs that can be had.
func Names() []string {
	names := make([]string, 0, len(programs))
	for _, p := range programs {
		names = append(names, p.name)
	}
	return names
}

// CacheDir is where built programs are kept: $ASSENT_CACHE/controlplane, else the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("ASSENT_CACHE"); dir != "" {
		return filepath.Join(dir, "controlplane"), nil
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache folder (set ASSENT_CACHE to choose one): %w", err)
	}
	return filepath.Join(base, "assent", "controlplane"), nil
}

// Ensure returns a folder that holds the named programs (all of them when none is named), building what is
// missing. Progress goes to out. It is safe for several processes at once: the others wait and say so.
// Programs found in $KUBEBUILDER_ASSETS are linked, not built.
func Ensure(ctx context.Context, out io.Writer, names ...string) (string, error) {
	if len(names) == 0 {
		names = Names()
	}
	dir, err := versionDir()
	if err != nil {
		return "", err
	}
	if len(missing(dir, names)) == 0 {
		return dir, nil
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock"), out)
	if err != nil {
		return "", err
	}
	defer unlock()
	todo := missing(dir, names)
	for i, p := range todo {
		if err := obtain(ctx, out, dir, p, i+1, len(todo)); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// modulesDir finds the pinned modules: they lie in the work tree, and a go.mod cannot be embedded.
func modulesDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the work tree: %w", err)
	}
	for {
		candidate := filepath.Join(dir, "test", "controlplane", "binaries")
		if _, err := os.Stat(filepath.Join(candidate, "kubernetes", "go.mod")); err == nil {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("test/controlplane/binaries not found in the working directory or above it; run this from inside a clone")
		}
		dir = parent
	}
}

// versionDir is named by what decides the binaries' content: the pinned modules, and the assets given.
func versionDir() (string, error) {
	base, err := CacheDir()
	if err != nil {
		return "", err
	}
	modules, err := modulesDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, p := range []string{"kubernetes", "etcd", "kwok"} {
		for _, f := range []string{"go.mod", "go.sum"} {
			text, err := os.ReadFile(filepath.Join(modules, p, f))
			if err != nil {
				return "", fmt.Errorf("reading the pinned modules: %w", err)
			}
			sum.Write(text)
		}
	}
	sum.Write([]byte(os.Getenv("KUBEBUILDER_ASSETS")))
	dir := filepath.Join(base, KubernetesVersion+"-"+hex.EncodeToString(sum.Sum(nil))[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making the cache folder: %w", err)
	}
	return dir, nil
}

func missing(dir string, names []string) []program {
	var out []program
	for _, name := range names {
		for _, p := range programs {
			if p.name != name {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				out = append(out, p)
			}
		}
	}
	return out
}

// obtain links a program from the given assets or builds it, under a temporary name until it is whole.
func obtain(ctx context.Context, out io.Writer, dir string, p program, n, of int) error {
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		given := filepath.Join(assets, p.name)
		if _, err := os.Stat(given); err == nil {
			report(out, "using %s of KUBEBUILDER_ASSETS (%d of %d)", p.name, n, of)
			return os.Symlink(given, filepath.Join(dir, p.name))
		}
	}
	src, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return fmt.Errorf("making a build folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(src) }() //nolint:errcheck // only litter in the cache
	modules, err := modulesDir()
	if err != nil {
		return err
	}
	built := filepath.Join(src, p.name)
	if err := build(ctx, out, filepath.Join(modules, p.module), built, p, n, of); err != nil {
		return err
	}
	return os.Rename(built, filepath.Join(dir, p.name))
}

func build(ctx context.Context, out io.Writer, src, built string, p program, n, of int) error {
	const stamp = "k8s.io/component-base/version"
	flags := "-s -w"
	if p.module == "kubernetes" {
		major, minor, _ := strings.Cut(strings.TrimPrefix(p.version, "v"), ".")
		minor, _, _ = strings.Cut(minor, ".")
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", stamp, p.version, major, minor)
	}
	cmd := exec.CommandContext(ctx, "nice", "go", "build", "-trimpath", "-mod=readonly", "-ldflags", flags, "-o", built, p.pkg)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	begun := time.Now()
	report(out, "building %s %s from its Go module (%d of %d); kept for the next time", p.name, p.version, n, of)
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
			report(out, "  ... still building %s, %s so far", p.name, time.Since(begun).Round(time.Second))
		}
	}
}

// lock takes an exclusive lock on a file; while another process holds it, it says so and waits.
func lock(ctx context.Context, path string, out io.Writer) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the cache's lock: %w", err)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for said := false; ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil //nolint:errcheck // closing frees the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			_ = f.Close() //nolint:errcheck // the error above is the one to tell
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if !said {
			report(out, "another process is building the same programs; waiting for it (%s)", path)
			said = true
		}
		select {
		case <-ctx.Done():
			_ = f.Close() //nolint:errcheck // the error below is the one to tell
			return nil, fmt.Errorf("waiting for another build: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func report(out io.Writer, format string, args ...any) {
	if out != nil {
		_, _ = fmt.Fprintf(out, format+"\n", args...) //nolint:errcheck // a broken terminal must not change the outcome
	}
}
