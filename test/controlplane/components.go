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

// ready is how long a component may take on a busy machine.
const ready = 90 * time.Second

func (c *ControlPlane) startEtcd(ctx context.Context, client, peer string) error {
	p, err := c.start("etcd",
		"--name=local", "--data-dir="+c.path("etcd-data"), "--log-level=warn", "--unsafe-no-fsync",
		"--listen-client-urls="+client, "--advertise-client-urls="+client,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=local="+peer)
	if err != nil {
		return err
	}
	return p.await(ctx, ready, answers(client+"/readyz"))
}

func (c *ControlPlane) startAPIServer(ctx context.Context, etcd, port string) error {
	args := []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
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
func (c *ControlPlane) startOthers(ctx context.Context, ports []string) error {
	type wait struct {
		p   *component
		url string
	}
	var waits []wait
	common := []string{"--kubeconfig=" + c.kubeconfig, "--authentication-kubeconfig=" + c.kubeconfig, "--authorization-kubeconfig=" + c.kubeconfig, "--bind-address=127.0.0.1", "--leader-elect=false"}
	if c.o.ControllerManager {
		p, err := c.start("kube-controller-manager", append([]string{
			"--secure-port=" + ports[0], "--cert-dir=" + c.path("controller-manager-certs"),
			"--service-account-private-key-file=" + c.path("service-accounts.key"), "--root-ca-file=" + c.path("ca.crt"),
			"--use-service-account-credentials=true", "--kube-api-qps=2000", "--kube-api-burst=4000",
		}, common...)...)
		if err != nil {
			return err
		}
		waits = append(waits, wait{p, "https://127.0.0.1:" + ports[0] + "/healthz"})
	}
	if c.o.Scheduler {
		config := c.path("scheduler.yaml")
		if err := os.WriteFile(config, []byte(fmt.Sprintf(schedulerConfig, c.kubeconfig)), 0o600); err != nil {
			return fmt.Errorf("writing the scheduler's configuration: %w", err)
		}
		p, err := c.start("kube-scheduler", "--config="+config, "--secure-port="+ports[1], "--bind-address=127.0.0.1", "--cert-dir="+c.path("scheduler-certs"),
			"--authentication-kubeconfig="+c.kubeconfig, "--authorization-kubeconfig="+c.kubeconfig)
		if err != nil {
			return err
		}
		waits = append(waits, wait{p, "https://127.0.0.1:" + ports[1] + "/healthz"})
	}
	if c.o.Kwok {
		config := c.path("kwok.yaml")
		if err := os.WriteFile(config, []byte(kwokStages), 0o600); err != nil {
			return fmt.Errorf("writing kwok's stages: %w", err)
		}
		p, err := c.start("kwok", "--kubeconfig="+c.kubeconfig, "--config="+config, "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
			"--server-address=127.0.0.1:"+ports[2], "--node-ip=127.0.0.1")
		if err != nil {
			return err
		}
		waits = append(waits, wait{p, "http://127.0.0.1:" + ports[2] + "/healthz"})
	}
	for _, w := range waits {
		if err := w.p.await(ctx, ready, answers(w.url)); err != nil {
			return err
		}
	}
	return c.awaitServiceAccount(ctx)
}

// awaitServiceAccount waits for the default one, without which no pod can be made.
func (c *ControlPlane) awaitServiceAccount(ctx context.Context) error {
	if !c.o.ControllerManager {
		return nil
	}
	clients, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	for _, p := range c.components {
		if p.name == "kube-controller-manager" {
			return p.await(ctx, ready, func(ctx context.Context) error {
				_, err := clients.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
				return err
			})
		}
	}
	return nil
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
		defer func() { _ = resp.Body.Close() }() //nolint:errcheck // only the status matters
		if resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) //nolint:errcheck // shown as far as read
			return fmt.Errorf("%s answers %s %s", url, resp.Status, text)
		}
		return nil
	}
}

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %s
  qps: 2000
  burst: 4000
`

// kwokStages are what kwok does to nodes and pods: nodes are Ready and stay so; a pod that is bound becomes
// Running and Ready at once, and goes as soon as it is deleted.
const kwokStages = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: node-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Node
  selector:
    matchExpressions:
      - key: .status.conditions.[] | select( .type == "Ready" ) | .status
        operator: NotIn
        values: ["True"]
  next:
    statusTemplate: |
      {{ $now := Now }}
      addresses:
        - type: InternalIP
          address: 127.0.0.1
      allocatable: {cpu: "64", memory: 256Gi, pods: "2000"}
      capacity: {cpu: "64", memory: 256Gi, pods: "2000"}
      conditions:
        - type: Ready
          status: "True"
          reason: FakeNode
          lastHeartbeatTime: {{ $now | Quote }}
          lastTransitionTime: {{ $now | Quote }}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
      - key: .metadata.deletionTimestamp
        operator: DoesNotExist
      - key: .status.podIP
        operator: DoesNotExist
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
        {{ range list "Initialized" "ContainersReady" "Ready" }}
        - type: {{ . }}
          status: "True"
          lastTransitionTime: {{ $now | Quote }}
        {{ end }}
        {{ range .spec.readinessGates }}
        - type: {{ .conditionType | Quote }}
          status: "True"
          lastTransitionTime: {{ $now | Quote }}
        {{ end }}
      containerStatuses:
        {{ range .spec.containers }}
        - name: {{ .name | Quote }}
          image: {{ .image | Quote }}
          imageID: ""
          ready: true
          started: true
          restartCount: 0
          state:
            running:
              startedAt: {{ $now | Quote }}
        {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName false ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-delete
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
      - key: .metadata.deletionTimestamp
        operator: Exists
  next:
    finalizers:
      empty: true
    delete: true
`
