package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// CacheDir is where built programs are kept: $ASSENT_CACHE/controlplane, else assent/controlplane in the user's
// cache folder ($XDG_CACHE_HOME or ~/.cache).
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
// missing. Progress goes to out; nil is silence. It is safe for several processes at once: the others wait and say
// so. Programs found in $KUBEBUILDER_ASSETS are used instead of built ones. A name it does not know is an error.
func Ensure(ctx context.Context, out io.Writer, names ...string) (string, error) {
	if len(names) == 0 {
		names = Names()
	}
	for _, name := range names {
		if !slices.Contains(Names(), name) {
			return "", fmt.Errorf("no program %q; known: %s", name, strings.Join(Names(), ", "))
		}
	}
	dir, err := versionDir()
	if err != nil {
		return "", err
	}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		return ensureWithAssets(ctx, out, assets, dir, names)
	}
	return dir, ensureBuilt(ctx, out, dir, names)
}

func ensureBuilt(ctx context.Context, out io.Writer, dir string, names []string) error {
	if len(missing(dir, names)) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the cache folder: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock"), out)
	if err != nil {
		return err
	}
	defer unlock()
	if err := removeLitter(dir); err != nil {
		return err
	}
	todo := missing(dir, names)
	for i, p := range todo {
		if err := obtain(ctx, out, dir, p, fmt.Sprintf("%d of %d", i+1, len(todo))); err != nil {
			return err
		}
	}
	return nil
}

// ensureWithAssets gives a folder of links: to the given programs where there are some, else to built ones.
func ensureWithAssets(ctx context.Context, out io.Writer, assets, built string, names []string) (string, error) {
	assets, err := filepath.Abs(assets)
	if err != nil {
		return "", fmt.Errorf("finding KUBEBUILDER_ASSETS: %w", err)
	}
	targets := map[string]string{}
	var rest []string
	for _, name := range names {
		if given := filepath.Join(assets, name); exists(given) {
			targets[name] = given
			continue
		}
		rest = append(rest, name)
		targets[name] = filepath.Join(built, name)
	}
	if err := ensureBuilt(ctx, out, built, rest); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(assets + "\n" + built))
	dir := filepath.Join(filepath.Dir(built), "assets-"+hex.EncodeToString(sum[:])[:12])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making a folder of links: %w", err)
	}
	for _, name := range names {
		if err := link(targets[name], filepath.Join(dir, name)); err != nil {
			return "", err
		}
	}
	report(out, "using KUBEBUILDER_ASSETS (%s), and for %d of %d programs the built ones", assets, len(rest), len(names))
	return dir, nil
}

// link makes or corrects a link in one step, since other processes may use it meanwhile.
func link(target, path string) error {
	if now, err := os.Readlink(path); err == nil && now == target {
		return nil
	}
	part := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Symlink(target, part); err != nil {
		return fmt.Errorf("linking to %s: %w", target, err)
	}
	if err := os.Rename(part, path); err != nil {
		return fmt.Errorf("linking to %s: %w", target, err)
	}
	return nil
}

// modulesDir finds the pinned modules: they lie in the work tree, and a go.mod cannot be embedded.
func modulesDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the work tree: %w", err)
	}
	for {
		candidate := filepath.Join(dir, "test", "controlplane", "binaries")
		if exists(filepath.Join(candidate, "kubernetes", "go.mod")) {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("test/controlplane/binaries not found in the working directory or above it; run this from inside a clone")
		}
		dir = parent
	}
}

// versionDir is named by what decides the binaries' content: the pinned modules.
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
	return filepath.Join(base, KubernetesVersion+"-"+hex.EncodeToString(sum.Sum(nil))[:12]), nil
}

func missing(dir string, names []string) []program {
	var out []program
	for _, p := range programs {
		if slices.Contains(names, p.name) && !exists(filepath.Join(dir, p.name)) {
			out = append(out, p)
		}
	}
	return out
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func report(out io.Writer, format string, args ...any) {
	if out != nil {
		fmt.Fprintf(out, format+"\n", args...)
	}
}
