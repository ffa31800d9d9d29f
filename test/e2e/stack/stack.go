// Package stack runs the whole product on one machine as it runs in production: a real control plane, nodes that
// run pods as local processes, and the operator and the ACM as programs of their own, each with exactly the
// service account that config/ grants it.
package stack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/child"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
	"assent.dev/assent/test/localnode"
)

// Namespace of the operator and the ACM.
const Namespace = "assent-system"

// Options of a stack.
type Options struct {
	// Dir holds data, logs and the bundles; it must exist.
	Dir string
	// Root of the repository.
	Root string
	// Nodes to run.
	Nodes []localnode.Node
	// Out gets progress, a line a step.
	Out io.Writer
}

// Stack is the running product.
type Stack struct {
	ControlPlane *controlplane.ControlPlane
	Nodes        *localnode.Agent
	// Client has an administrator's rights: the user's.
	Client client.Client
	// BundlesDir is a copy of bundles/ that the ACM watches.
	BundlesDir string
	// DecisionLog is the ACM's log file.
	DecisionLog string

	o        Options
	bin      string
	acm      *Process
	operator *Process
	acmAddr  string
}

// Start builds the two programs, starts everything and returns when all say they are ready.
func Start(ctx context.Context, o Options) (*Stack, error) {
	// The libraries' own lines would only stand between those for people.
	ctrllog.SetLogger(logr.Discard())
	s := &Stack{o: o, bin: filepath.Join(o.Dir, "bin"), BundlesDir: filepath.Join(o.Dir, "bundles"), DecisionLog: filepath.Join(o.Dir, "decisions.jsonl")}
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"building the operator and the ACM", s.build},
		{"starting a Kubernetes control plane", s.startControlPlane},
		{"installing config/overlays/out-of-cluster", s.install},
		{"starting the nodes", s.startNodes},
		{"starting the ACM as service account assent-acm", s.StartACM},
		{"starting the operator as service account assent-operator", s.StartOperator},
	}
	for _, step := range steps {
		begun := time.Now()
		if err := step.do(ctx); err != nil {
			s.Close()
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		s.say("%s: done in %.1fs", step.what, time.Since(begun).Seconds())
	}
	return s, nil
}

func (s *Stack) say(format string, args ...any) {
	if s.o.Out != nil {
		_, _ = fmt.Fprintf(s.o.Out, format+"\n", args...) // a broken terminal must not change the outcome
	}
}

// Close stops everything that runs, last started first. A second call does nothing.
func (s *Stack) Close() {
	s.StopOperator()
	s.StopACM()
	if s.Nodes != nil {
		if err := s.Nodes.Stop(); err != nil {
			s.say("stopping the nodes: %v", err)
		}
		s.Nodes = nil
	}
	if s.ControlPlane != nil {
		if err := s.ControlPlane.Stop(); err != nil {
			s.say("stopping the control plane: %v", err)
		}
		s.ControlPlane = nil
	}
}

func (s *Stack) build(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.bin+string(os.PathSeparator), "./operator", "./acm")
	cmd.Dir = s.o.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return os.CopyFS(s.BundlesDir, os.DirFS(filepath.Join(s.o.Root, "bundles")))
}

func (s *Stack) startControlPlane(ctx context.Context) error {
	cp, err := controlplane.Start(ctx, controlplane.Options{
		Dir: filepath.Join(s.o.Dir, "controlplane"), ControllerManager: true, Scheduler: true, Out: s.o.Out,
	})
	if err != nil {
		return err
	}
	s.ControlPlane = cp
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return fmt.Errorf("registering kinds: %w", err)
	}
	s.Client, err = client.New(cp.Config(), client.Options{Scheme: scheme})
	return err
}

func (s *Stack) install(ctx context.Context) error {
	// The accounts and roles of config/default without its pods: the nodes here would try to run those too.
	for _, layer := range []string{"crd", "overlays/out-of-cluster"} {
		if err := install.Apply(ctx, s.ControlPlane.Config(), filepath.Join(s.o.Root, "config", layer)); err != nil {
			return fmt.Errorf("applying config/%s: %w", layer, err)
		}
	}
	return nil
}

func (s *Stack) startNodes(ctx context.Context) error {
	agent, err := localnode.Start(ctx, localnode.Options{
		Config: s.ControlPlane.Config(), Dir: filepath.Join(s.o.Dir, "nodes"), Nodes: s.o.Nodes,
	})
	s.Nodes = agent
	return err
}

// StartACM starts the ACM and waits until it serves.
func (s *Stack) StartACM(ctx context.Context) error {
	kubeconfig, err := s.ControlPlane.KubeconfigFor(ctx, Namespace, "assent-acm")
	if err != nil {
		return err
	}
	health, err := child.FreeAddress()
	if err != nil {
		return err
	}
	if s.acmAddr == "" {
		if s.acmAddr, err = child.FreeAddress(); err != nil {
			return err
		}
	}
	s.acm, err = startProcess("acm", filepath.Join(s.o.Dir, "acm.log"), nil, filepath.Join(s.bin, "acm"), "serve",
		"--bundles", s.BundlesDir, "--listen", s.acmAddr, "--kubeconfig", kubeconfig, "--namespace", Namespace,
		"--health", health, "--metrics", "127.0.0.1:0", "--decision-log", s.DecisionLog)
	if err != nil {
		return err
	}
	return s.acm.await(ctx, 60*time.Second, ok("http://"+health+"/readyz"))
}

// StopACM kills the ACM, as a crash does. Nothing happens when it does not run.
func (s *Stack) StopACM() {
	if s.acm != nil {
		s.acm.Kill()
		s.acm = nil
	}
}

// StartOperator starts the operator and waits until it is ready.
func (s *Stack) StartOperator(ctx context.Context) error {
	kubeconfig, err := s.ControlPlane.KubeconfigFor(ctx, Namespace, "assent-operator")
	if err != nil {
		return err
	}
	health, err := child.FreeAddress()
	if err != nil {
		return err
	}
	s.operator, err = startProcess("operator", filepath.Join(s.o.Dir, "operator.log"), []string{"KUBECONFIG=" + kubeconfig},
		filepath.Join(s.bin, "operator"), "--acm", "default="+s.acmAddr, "--leader-elect",
		"--leader-election-namespace", Namespace, "--health-probe-bind-address", health, "--metrics-bind-address", "127.0.0.1:0")
	if err != nil {
		return err
	}
	return s.operator.await(ctx, 60*time.Second, ok("http://"+health+"/readyz"))
}

// StopOperator ends the operator. Nothing happens when it does not run.
func (s *Stack) StopOperator() {
	if s.operator != nil {
		s.operator.Stop()
		s.operator = nil
	}
}

// ACM runs the acm program with arguments and returns what it printed.
func (s *Stack) ACM(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "acm"), args...).CombinedOutput()
	return string(out), err
}

// Kubectl runs the stock kubectl as administrator and returns what it printed.
func (s *Stack) Kubectl(ctx context.Context, args ...string) (string, error) {
	path, err := s.ControlPlane.Binary("kubectl")
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, append([]string{"--kubeconfig", s.ControlPlane.Kubeconfig()}, args...)...).CombinedOutput()
	return string(out), err
}

func ok(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("asking %s: %w", url, err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // only the status matters
		if resp.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 2000)) //nolint:errcheck // shown as far as read
			return fmt.Errorf("%s answers %s: %s", url, resp.Status, body)
		}
		return nil
	}
}
