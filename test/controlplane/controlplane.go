package controlplane

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options of a control plane. etcd and kube-apiserver always run.
type Options struct {
	// Dir for data, keys and logs. Default: a temporary folder that Stop removes.
	Dir string
	// Which of the other components run.
	ControllerManager, Scheduler, Kwok bool
	// Out gets progress; nil is silence.
	Out io.Writer
	// Kubeconfig of an existing cluster: nothing is started, and Stop stops nothing. Default: $ASSENT_KUBECONFIG.
	Kubeconfig string
	// Env-independent extra flags for kube-apiserver.
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
	config     *rest.Config
	kubeconfig string
	existing   bool
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
		return nil, err
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
	return &ControlPlane{o: o, dir: dir, ownDir: true, config: cfg, kubeconfig: o.Kubeconfig, existing: true}, nil
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

func (c *ControlPlane) prepare() error {
	var err error
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "assent-controlplane-"); err != nil {
			return fmt.Errorf("making a data folder: %w", err)
		}
		c.ownDir = true
	} else if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return fmt.Errorf("making the data folder: %w", err)
	}
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return fmt.Errorf("finding the data folder: %w", err)
	}
	owned := ""
	if c.ownDir {
		owned = c.dir
	}
	if c.record, err = newRecord(owned); err != nil {
		return err
	}
	return writeCerts(c.dir)
}

func (c *ControlPlane) run(ctx context.Context) error {
	begun := time.Now()
	ports, err := freePorts(6)
	if err != nil {
		return err
	}
	etcdURL := "http://127.0.0.1:" + ports[0]
	server := "https://127.0.0.1:" + ports[2]
	token, err := randomToken()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("tokens.csv"), []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("writing the token file: %w", err)
	}
	c.kubeconfig = c.path("admin.kubeconfig")
	if err := writeKubeconfig(c.kubeconfig, server, c.path("ca.crt"), token); err != nil {
		return err
	}
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig); err != nil {
		return fmt.Errorf("reading our own kubeconfig: %w", err)
	}
	c.config.QPS = -1
	if err := c.startEtcd(ctx, etcdURL, "http://127.0.0.1:"+ports[1]); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx, etcdURL, ports[2]); err != nil {
		return err
	}
	if err := c.startOthers(ctx, ports[3:]); err != nil {
		return err
	}
	report(c.o.Out, "control plane %s ready in %.1fs: %s", KubernetesVersion, time.Since(begun).Seconds(), server)
	return nil
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// Config is an administrator's, without a client-side rate limit.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig is the path of an administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Dir is where data and logs are.
func (c *ControlPlane) Dir() string { return c.dir }

// Binary is the path of a program, built when it is missing.
func (c *ControlPlane) Binary(name string) (string, error) {
	if !slices.Contains(Names(), name) {
		return "", fmt.Errorf("no program %q; known: %v", name, Names())
	}
	dir, err := Ensure(context.Background(), c.o.Out, name)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, name), nil
}

// ServiceAccountConfig has exactly the rights of a service account, by a token from the API server.
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
	ca := c.path("ca.crt")
	if c.existing {
		ca = c.config.CAFile
		if ca == "" {
			ca = c.path("existing-ca.crt")
			if err := os.WriteFile(ca, c.config.CAData, 0o600); err != nil {
				return "", fmt.Errorf("writing the cluster's authority: %w", err)
			}
		}
	}
	path := c.path(namespace + "-" + name + ".kubeconfig")
	return path, writeKubeconfig(path, c.config.Host, ca, token)
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
	return errors.Join(errs...)
}

// freePorts holds all ports open until all are found, so that no two are equal.
func freePorts(n int) ([]string, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close() //nolint:errcheck // it is being given up
		}
	}()
	ports := make([]string, 0, n)
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("finding a free port: %w", err)
		}
		held = append(held, l)
		ports = append(ports, strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}

func randomToken() (string, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	return hex.EncodeToString(raw), nil
}
