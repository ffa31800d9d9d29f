package install_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"assent.dev/assent/test/child"
)

// program is one of our binaries, running outside the cluster with the arguments of its Deployment.
type program struct {
	name            string
	health, metrics string
	log             child.Buffer
	cmd             *exec.Cmd
}

// binary builds one of our programs and gives its path, which stays, so that only a change is linked anew.
func binary(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(repository, ".tmp", "install", name))
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./"+name)
	cmd.Dir = repository
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// arguments of a container as the kubelet gives them, with addresses and paths that exist here instead.
func arguments(c corev1.Container, here ...string) []string {
	swap := strings.NewReplacer(here...)
	var args []string
	for _, a := range c.Args {
		args = append(args, swap.Replace(strings.ReplaceAll(a, "$(POD_NAMESPACE)", namespace)))
	}
	return args
}

// start runs a container's program under an account's kubeconfig until the test ends. It returns when the
// Deployment's readiness probe passes; here are pairs of what the arguments say and what they have to say on this machine.
func start(t *testing.T, c corev1.Container, kubeconfig string, here ...string) *program {
	t.Helper()
	p := &program{name: c.Name, health: "http://" + freeAddress(t), metrics: "http://" + freeAddress(t)}
	here = append(here, ":8081", strings.TrimPrefix(p.health, "http://"), ":8080", strings.TrimPrefix(p.metrics, "http://"))
	p.cmd = exec.Command(binary(t, filepath.Base(c.Command[0])), arguments(c, here...)...)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	running, err := child.Start(p.cmd)
	require.NoError(t, err)
	t.Cleanup(func() { p.stop(t, running) })

	err = wait.PollUntilContextTimeout(t.Context(), tick, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		select {
		case <-running.Exited:
			return false, errors.New("it ended")
		default:
			return get(ctx, p.health+c.ReadinessProbe.HTTPGet.Path) != "", nil
		}
	})
	require.NoError(t, err, "waiting until %s is ready", p.name)
	require.NotEmpty(t, get(t.Context(), p.health+c.LivenessProbe.HTTPGet.Path), "%s does not say that it lives", p.name)
	return p
}

func (p *program) stop(t *testing.T, running *child.Running) {
	t.Helper()
	if t.Failed() {
		text := p.log.String()
		t.Logf("the end of %s's log:\n%s", p.name, text[max(0, len(text)-6000):])
		select {
		case <-running.Exited:
			t.Logf("%s ended by itself: %v", p.name, running.Ended())
		default:
		}
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	select {
	case <-running.Exited:
	case <-limit.Done():
		if err := p.cmd.Process.Kill(); err != nil {
			t.Errorf("killing %s: %v", p.name, err)
		}
		<-running.Exited
	}
}

// get gives what a page says; nothing when it does not answer with 200.
func get(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	text, err := io.ReadAll(response.Body)
	if response.Body.Close() != nil || err != nil || response.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := child.FreeAddress()
	require.NoError(t, err)
	return address
}
