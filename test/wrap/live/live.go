// Package live gives tests a real API server that knows the five kinds.
package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
)

// kinds are installed once a process.
var kinds = struct {
	sync.Mutex
	in map[string]bool
}{in: map[string]bool{}}

// Cluster is an API server without nodes and without controllers of Kubernetes' own, one for all tests of a process, with
// an administrator's client. What a kubelet or the garbage collector would do, the test does.
func Cluster(t testing.TB) (*controlplane.ControlPlane, client.Client) {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Options{})
	require.NoError(t, installKinds(t.Context(), cp))
	c, err := client.New(cp.Config(), client.Options{Scheme: Scheme(t)})
	require.NoError(t, err)
	return cp, c
}

func installKinds(ctx context.Context, cp *controlplane.ControlPlane) error {
	kinds.Lock()
	defer kinds.Unlock()
	host := cp.Config().Host
	if kinds.in[host] {
		return nil
	}
	dir, err := Config("crd")
	if err != nil {
		return err
	}
	if err := install.Apply(ctx, cp.Config(), dir); err != nil {
		return err
	}
	kinds.in[host] = true
	return nil
}

// Scheme knows Kubernetes' kinds and ours.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)))
	return s
}

// Config is the path of a folder of config/, seen from wherever in the repository the test runs.
func Config(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding config/%s: %w", name, err)
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "config", name)
		if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
			return path, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding config/%s: no folder above has it", name)
		}
	}
}

// Namespace makes a namespace for one test.
func Namespace(t testing.TB, c client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return ns.Name
}
