package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// A Node with this annotation is played by kwok, and every pod on it.
const (
	FakeNodeAnnotation = "kwok.x-k8s.io/node"
	FakeNodeValue      = "fake"
)

// ready is how long a component may take on a busy machine.
const ready = 90 * time.Second

// The components' ports, as indexes of those claimed.
const (
	etcdPort = iota
	etcdPeerPort
	apiServerPort
	controllerManagerPort
	schedulerPort
	kwokPort
)

func (c *ControlPlane) port(i int) string { return c.ports.free[i] }

func (c *ControlPlane) url(i int) string {
	scheme := "https"
	if i == etcdPort || i == etcdPeerPort || i == kwokPort {
		scheme = "http"
	}
	return scheme + "://127.0.0.1:" + c.port(i)
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	client, peer := c.url(etcdPort), c.url(etcdPeerPort)
	p, err := c.start("etcd",
		"--name=local", "--data-dir="+c.path("etcd-data"), "--log-level=warn", "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=local="+peer)
	if err != nil {
		return err
	}
	return p.await(ctx, ready, answers(client+"/readyz"))
}

func (c *ControlPlane) startAPIServer(ctx context.Context) error {
	args := []string{
		"--etcd-servers=" + c.url(etcdPort), "--secure-port=" + c.port(apiServerPort),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
		"--tls-cert-file=" + c.path("apiserver.crt"), "--tls-private-key-file=" + c.path("apiserver.key"),
		"--token-auth-file=" + c.path("tokens.csv"), "--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("service-accounts.key"),
		"--service-account-signing-key-file=" + c.path("service-accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none", "--allow-privileged=true",
		"--enable-priority-and-fairness=false", "--max-requests-inflight=0", "--max-mutating-requests-inflight=0",
		"--cert-dir=" + c.path("apiserver-certs"),
	}
	if !c.o.ControllerManager {
		// Without it nobody makes the default service accounts that this admission plugin wants.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	p, err := c.start("kube-apiserver", append(args, c.o.APIServerArgs...)...)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return p.await(ctx, ready, func(ctx context.Context) error {
		if _, err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}
		_, err := clients.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// startOthers starts the optional components side by side and waits for all.
func (c *ControlPlane) startOthers(ctx context.Context) error {
	var waits []func() error
	for _, o := range []struct {
		wanted bool
		port   int
		start  func() (*component, error)
	}{
		{c.o.ControllerManager, controllerManagerPort, c.startControllerManager},
		{c.o.Scheduler, schedulerPort, c.startScheduler},
		{c.o.Kwok, kwokPort, c.startKwok},
	} {
		if !o.wanted {
			continue
		}
		p, err := o.start()
		if err != nil {
			return err
		}
		waits = append(waits, func() error { return p.await(ctx, ready, answers(c.url(o.port)+"/healthz")) })
		if o.port == controllerManagerPort {
			waits = append(waits, func() error { return c.awaitServiceAccount(ctx, p) })
		}
	}
	for _, wait := range waits {
		if err := wait(); err != nil {
			return err
		}
	}
	return nil
}

func (c *ControlPlane) startControllerManager() (*component, error) {
	return c.start("kube-controller-manager", append(c.secured(controllerManagerPort, "controller-manager-certs"),
		"--kubeconfig="+c.kubeconfig, "--leader-elect=false",
		"--service-account-private-key-file="+c.path("service-accounts.key"), "--root-ca-file="+c.path("ca.crt"),
		"--use-service-account-credentials=true", "--kube-api-qps=2000", "--kube-api-burst=4000",
		// Volumes are bound on events; this is how soon a missed one is made up for (default 15s).
		"--pvclaimbinder-sync-period=1s")...)
}

func (c *ControlPlane) startScheduler() (*component, error) {
	config := c.path("scheduler.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, schedulerConfig, c.kubeconfig), 0o600); err != nil {
		return nil, fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return c.start("kube-scheduler", append(c.secured(schedulerPort, "scheduler-certs"), "--config="+config)...)
}

func (c *ControlPlane) startKwok() (*component, error) {
	config := c.path("kwok.yaml")
	if err := os.WriteFile(config, []byte(kwokStages), 0o600); err != nil {
		return nil, fmt.Errorf("writing kwok's stages: %w", err)
	}
	return c.start("kwok", "--kubeconfig="+c.kubeconfig, "--config="+config,
		"--manage-nodes-with-annotation-selector="+FakeNodeAnnotation+"="+FakeNodeValue,
		// Off by default; without a heartbeat the node lifecycle controller would evict everything after a minute.
		"--node-lease-duration-seconds=40",
		"--cidr=10.244.0.1/16", "--server-address=127.0.0.1:"+c.port(kwokPort), "--node-ip=127.0.0.1")
}

// secured are the flags of components that serve under a certificate of their own and ask the API server who calls.
func (c *ControlPlane) secured(port int, certs string) []string {
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + c.port(port), "--cert-dir=" + c.path(certs),
		"--authentication-kubeconfig=" + c.kubeconfig, "--authorization-kubeconfig=" + c.kubeconfig,
	}
}

// awaitServiceAccount waits for the default one, without which no pod can be made, and the authority that pods trust.
func (c *ControlPlane) awaitServiceAccount(ctx context.Context, controllerManager *component) error {
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return controllerManager.await(ctx, ready, func(ctx context.Context) error {
		if _, err := clients.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		_, err := clients.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
}

// answers asks for a page and wants 200. The components make their own certificates, so these are not verified:
// the address is this machine's own.
func answers(url string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} //nolint:gosec // see above
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("asking %s: %w", url, err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // only the status matters
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) //nolint:errcheck // shown as far as read
			return fmt.Errorf("%s answers %s %s", url, resp.Status, text)
		}
		return nil
	}
}
