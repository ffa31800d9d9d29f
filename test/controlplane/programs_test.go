package controlplane

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// script writes an executable shell script.
func script(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)) //nolint:gosec // a program must be executable
}

// giveAssets sets KUBEBUILDER_ASSETS to a folder with these scripts, and the cache to an empty one.
func giveAssets(t *testing.T, programs map[string]string) {
	t.Helper()
	assets := t.TempDir()
	for name, text := range programs {
		script(t, filepath.Join(assets, name), text)
	}
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	t.Setenv("ASSENT_CACHE", t.TempDir())
}

// fakeGo puts a go command in front of the real one and the cache into an empty folder. The fake writes down which
// program it was asked for, waits for the gate, and makes a program that says its name.
func fakeGo(t *testing.T, body string) (calls func() []string, openGate func()) {
	t.Helper()
	dir := t.TempDir()
	log, gate := filepath.Join(dir, "calls"), filepath.Join(dir, "gate")
	script(t, filepath.Join(dir, "go"), `
while [ $# -gt 1 ]; do [ "$1" = -o ] && out=$2; shift; done
echo "$1" >>`+log+`
until [ -e `+gate+` ]; do sleep 0.05; done
`+body+`
printf '#!/bin/sh\necho built %s\n' "$1" >"$out"; chmod +x "$out"`)
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("ASSENT_CACHE", t.TempDir())
	calls = func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			return nil
		}
		return strings.Fields(string(text))
	}
	return calls, func() { require.NoError(t, os.WriteFile(gate, nil, 0o600)) }
}

func says(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// syncBuffer may be written by one goroutine and read by another.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestTwoAtOnceBuildOnceAndTheSecondSaysThatItWaits(t *testing.T) {
	calls, openGate := fakeGo(t, "")
	var out [2]syncBuffer
	var dirs [2]string
	var errs [2]error
	var both sync.WaitGroup
	ensure := func(i int) {
		both.Go(func() { dirs[i], errs[i] = Ensure(t.Context(), &out[i], "etcd", "kwok") })
	}
	ensure(0)
	require.Eventually(t, func() bool { return len(calls()) == 1 }, 10*time.Second, 10*time.Millisecond)
	ensure(1)
	require.Eventually(t, func() bool { return strings.Contains(out[1].String(), "another process is building") }, 10*time.Second, 10*time.Millisecond)
	openGate()
	both.Wait()
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.Equal(t, dirs[0], dirs[1])
	require.Equal(t, []string{"go.etcd.io/etcd/server/v3", "sigs.k8s.io/kwok/cmd/kwok"}, calls())
	require.Contains(t, out[0].String(), "building etcd v3.7.3 (1 of 2)")
	require.Contains(t, out[0].String(), "building kwok v0.8.0 (2 of 2)")
	require.NotContains(t, out[1].String(), "building etcd v3.7.3")
	require.Equal(t, "built sigs.k8s.io/kwok/cmd/kwok", says(t, filepath.Join(dirs[0], "kwok")))
}

func TestAFailedBuildShowsItsOutputAndLeavesNothing(t *testing.T) {
	_, openGate := fakeGo(t, `echo half >"$out"; echo "no such package" >&2; exit 1`)
	openGate()
	_, err := Ensure(t.Context(), nil, "etcd")
	require.ErrorContains(t, err, "building etcd v3.7.3")
	require.ErrorContains(t, err, "no such package")
	dir, err := versionDir()
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "etcd"))
	left, err := filepath.Glob(filepath.Join(dir, litter+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestAnInterruptedBuildEndsAndTheNextOneStartsClean(t *testing.T) {
	calls, openGate := fakeGo(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Ensure(ctx, nil, "etcd")
		done <- err
	}()
	require.Eventually(t, func() bool { return len(calls()) == 1 }, 10*time.Second, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	dir, err := versionDir()
	require.NoError(t, err)
	killed := filepath.Join(dir, litter+"killed")
	require.NoError(t, os.MkdirAll(killed, 0o755))
	openGate()
	_, err = Ensure(t.Context(), nil, "etcd")
	require.NoError(t, err)
	require.NoDirExists(t, killed, "what a killed build left is removed")
}

func TestGivenAssetsAreUsedAndOnlyTheRestIsBuilt(t *testing.T) {
	calls, openGate := fakeGo(t, "")
	openGate()
	assets := t.TempDir()
	script(t, filepath.Join(assets, "etcd"), "echo given")
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	dir, err := Ensure(t.Context(), nil, "etcd", "kwok")
	require.NoError(t, err)
	require.Equal(t, []string{"sigs.k8s.io/kwok/cmd/kwok"}, calls())
	require.Equal(t, "given", says(t, filepath.Join(dir, "etcd")))
	require.Equal(t, "built sigs.k8s.io/kwok/cmd/kwok", says(t, filepath.Join(dir, "kwok")))

	require.NoError(t, os.Remove(filepath.Join(assets, "etcd")))
	dir, err = Ensure(t.Context(), nil, "etcd")
	require.NoError(t, err, "one that is taken away again is built")
	require.Equal(t, "built go.etcd.io/etcd/server/v3", says(t, filepath.Join(dir, "etcd")))

	t.Setenv("KUBEBUILDER_ASSETS", "")
	dir, err = Ensure(t.Context(), nil, "etcd", "kwok")
	require.NoError(t, err)
	require.Len(t, calls(), 2, "what was built beside assets serves without them")
	require.Equal(t, "built go.etcd.io/etcd/server/v3", says(t, filepath.Join(dir, "etcd")))
}

func TestAControlPlaneRunsFromGivenAssetsAlone(t *testing.T) {
	built, err := Ensure(t.Context(), nil, "etcd", "kube-apiserver")
	require.NoError(t, err)
	assets := t.TempDir()
	for _, name := range []string{"etcd", "kube-apiserver"} {
		require.NoError(t, os.Symlink(filepath.Join(built, name), filepath.Join(assets, name)))
	}
	calls, _ := fakeGo(t, "") // and a closed gate: a build would not end
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	cp, err := Start(t.Context(), Options{})
	require.NoError(t, err)
	version, err := clients(t, cp.Config()).Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, KubernetesVersion, version.GitVersion)
	require.NoError(t, cp.Stop())
	require.Empty(t, calls())
}

func TestAnUnknownProgramIsRefusedByName(t *testing.T) {
	_, err := Ensure(t.Context(), nil, "etcd", "kubelet")
	require.ErrorContains(t, err, `no program "kubelet"; known: etcd, kube-apiserver`)
	_, err = (&ControlPlane{}).Binary("kubelet")
	require.ErrorContains(t, err, `no program "kubelet"`)
}

func TestThePinnedModulesHaveTheVersionsThatAreNamed(t *testing.T) {
	modules, err := modulesDir()
	require.NoError(t, err)
	for module, requirement := range map[string]string{
		"etcd": "go.etcd.io/etcd/server/v3 " + EtcdVersion, "kubernetes": "k8s.io/kubernetes " + KubernetesVersion, "kwok": "sigs.k8s.io/kwok " + KwokVersion,
	} {
		text, err := os.ReadFile(filepath.Join(modules, module, "go.mod"))
		require.NoError(t, err)
		require.Contains(t, string(text), requirement)
	}
}
