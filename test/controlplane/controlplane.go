package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of a control plane. etcd and kube-apiserver always run.
type Options struct {
	// Dir for data, keys and logs, kept by Stop. Default: a temporary folder that Stop removes.
	Dir string
	// Which of the other components run. Without ControllerManager nothing makes service accounts, endpoints or
	// volumes, and pods need no service account; without Scheduler pods stay unbound unless they name their node.
	ControllerManager, Scheduler, Kwok bool
	// Out gets progress; nil is silence.
	Out io.Writer
	// Kubeconfig of an existing cluster: nothing is started, and Stop stops nothing. Default: $ASSENT_KUBECONFIG.
	Kubeconfig string
	// APIServerArgs are further flags for kube-apiserver; of a flag given twice the last counts.
	APIServerArgs []string
}

// ControlPlane is a running one, or an existing cluster.
type ControlPlane struct {
	o          Options
	dir        string
	ownDir     bool
	programs   string
	components []*component
	record     *record
	ports      *ports
	config     *rest.Config
	kubeconfig string
}

// Start returns when all components answer as ready. On an error everything is stopped again, and the error shows
// the end of the log of the component that failed.
func Start(ctx context.Context, o Options) (*ControlPlane, error) {
	if o.Kubeconfig == "" {
		o.Kubeconfig = os.Getenv("ASSENT_KUBECONFIG")
	}
	if o.Kubeconfig != "" {
		return existing(o)
	}
	c := &ControlPlane{o: o, dir: o.Dir}
	if n, err := sweep(); err != nil {
		return nil, err
	} else if n > 0 {
		report(o.Out, "cleaned up after %d killed runs", n)
	}
	var err error
	if c.programs, err = Ensure(ctx, o.Out, c.needed()...); err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	if err := c.run(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func existing(o Options) (*ControlPlane, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", o.Kubeconfig, err)
	}
	cfg.QPS = -1
	report(o.Out, "using the existing cluster %s", cfg.Host)
	dir, err := os.MkdirTemp("", "assent-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	return &ControlPlane{o: o, dir: dir, ownDir: true, config: cfg, kubeconfig: o.Kubeconfig}, nil
}

func (c *ControlPlane) needed() []string {
	names := []string{"etcd", "kube-apiserver"}
	if c.o.ControllerManager {
		names = append(names, "kube-controller-manager")
	}
	if c.o.Scheduler {
		names = append(names, "kube-scheduler")
	}
	if c.o.Kwok {
		names = append(names, "kwok")
	}
	return names
}

// prepare makes what the components need: a folder, the record of this run, ports, keys and a kubeconfig.
func (c *ControlPlane) prepare() error {
	if err := c.makeDir(); err != nil {
		return err
	}
	owned := ""
	if c.ownDir {
		owned = c.dir
	}
	var err error
	if c.record, err = newRecord(owned); err != nil {
		return err
	}
	if c.ports, err = claimPorts(6); err != nil {
		return err
	}
	if err := writeCerts(c.dir); err != nil {
		return err
	}
	return c.writeAdmin()
}

func (c *ControlPlane) makeDir() error {
	var err error
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "assent-controlplane-"); err != nil {
			return fmt.Errorf("making a data folder: %w", err)
		}
		c.ownDir = true
		return nil
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return fmt.Errorf("finding the data folder: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	return nil
}

// writeAdmin writes the administrator's token for the API server and the kubeconfig with it.
func (c *ControlPlane) writeAdmin() error {
	token := rand.Text()
	if err := os.WriteFile(c.path("tokens.csv"), []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("writing the token file: %w", err)
	}
	c.kubeconfig = c.path("admin.kubeconfig")
	ca, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return fmt.Errorf("reading our own authority: %w", err)
	}
	if err := writeKubeconfig(c.kubeconfig, c.url(apiServerPort), ca, token); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return fmt.Errorf("reading our own kubeconfig: %w", err)
	}
	c.config.QPS = -1
	return nil
}

func (c *ControlPlane) run(ctx context.Context) error {
	begun := time.Now()
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if err := c.startOthers(ctx); err != nil {
		return err
	}
	report(c.o.Out, "control plane %s ready in %.1fs: %s", KubernetesVersion, time.Since(begun).Seconds(), c.config.Host)
	return nil
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// Config is a copy of the administrator's client configuration, without a client-side rate limit.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the path of an administrator's kubeconfig; Stop removes it unless Options named a folder or a cluster.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Dir is where data, keys and logs are: one <component>.log each.
func (c *ControlPlane) Dir() string { return c.dir }

// Binary is the path of a program (see Names), built when it is missing.
func (c *ControlPlane) Binary(name string) (string, error) {
	dir, err := Ensure(context.Background(), c.o.Out, name)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// ServiceAccountConfig has exactly the rights of an existing service account, by a token of the API server that is
// valid for a day.
func (c *ControlPlane) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	token, err := c.token(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	cfg := rest.AnonymousClientConfig(c.config)
	cfg.BearerToken, cfg.QPS = token, -1
	return cfg, nil
}

// KubeconfigFor writes the same as a kubeconfig and returns its path.
func (c *ControlPlane) KubeconfigFor(ctx context.Context, namespace, name string) (string, error) {
	token, err := c.token(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	cluster := c.Config()
	if err := rest.LoadTLSFiles(cluster); err != nil {
		return "", fmt.Errorf("reading the cluster's authority: %w", err)
	}
	// A namespace has no dot: no two accounts share a file.
	path := c.path(namespace + "." + name + ".kubeconfig")
	return path, writeKubeconfig(path, cluster.Host, cluster.CAData, token)
}

func (c *ControlPlane) token(ctx context.Context, namespace, name string) (string, error) {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	seconds := int64(24 * 3600)
	made, err := clients.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("asking for a token of service account %s/%s: %w", namespace, name, err)
	}
	return made.Status.Token, nil
}

// Stop ends all components, the last started first, and removes what Start made. A second call does nothing.
func (c *ControlPlane) Stop() error {
	for i := len(c.components) - 1; i >= 0; i-- {
		// The API server drains for long while watches are open; nobody here needs that.
		c.components[i].stop(time.Second)
	}
	c.components = nil
	var errs []error
	if c.ownDir {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	if c.record != nil {
		errs = append(errs, c.record.remove())
		c.record = nil
	}
	if c.ports != nil {
		errs = append(errs, c.ports.release())
		c.ports = nil
	}
	return errors.Join(errs...)
}
