package localnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"assent.dev/assent/test/localnode/internal/address"
	"assent.dev/assent/test/localnode/internal/logs"
	"assent.dev/assent/test/localnode/internal/process"
	"assent.dev/assent/test/localnode/internal/provision"
	"assent.dev/assent/test/localnode/internal/worker"
)

const (
	// StorageClass is the class whose claims become directories of the node the scheduler chooses.
	StorageClass = provision.ClassName
	// SubnetAnnotation on a pod fixes its address: network + index + 1 + 64 * incarnation, the numbers taken from the
	// labels assent.dev/index (or apps.kubernetes.io/pod-index) and assent.dev/incarnation.
	SubnetAnnotation = address.SubnetAnnotation
)

// ErrUnknownNode says that the agent has no node of that name.
var ErrUnknownNode = errors.New("the agent has no such node")

// ErrUnknownPod says that no node of the agent that has power runs such a pod.
var ErrUnknownPod = errors.New("no node of the agent runs such a pod")

// Backoff bounds the pauses between restarts of a crashing container.
type Backoff = worker.Backoff

// Options configure an agent. Config, Dir and Nodes are needed.
type Options struct {
	// Config reaches the API server; ClusterRole tells the rights it needs.
	Config *rest.Config
	// Dir holds everything the agent keeps: disks of the nodes, logs, records. An agent that starts on the folder of a
	// killed one first ends its left-over processes. One agent a folder.
	Dir   string
	Nodes []Node
	// Path is searched for programs before the agent's own PATH.
	Path []string
	// HostPaths are folders outside Dir that hostPath volumes may name.
	HostPaths []string
	// Backoff of restarts; default 10 s to 5 min, as the kubelet.
	Backoff Backoff
	// Heartbeat is the pause between lease renewals; default 3 s, which suits a node monitor grace period of 10 s and more.
	Heartbeat time.Duration
	// Refresh is the pause between looks at config maps and secrets mounted as files; default 10 s.
	Refresh time.Duration
	// Log gets what has no pod to be told to; nothing by default.
	Log logr.Logger
	// Clock is the real one by default.
	Clock clock.Clock
}

// Agent plays a set of nodes.
type Agent struct {
	options     Options
	client      kubernetes.Interface
	clock       clock.Clock
	log         logr.Logger
	runner      *process.Runner
	book        *address.Book
	logs        *logs.Store
	provisioner *provision.Provisioner
	events      record.EventBroadcaster
	server      *server
	lock        *os.File

	// life ends with Stop.
	life   context.Context
	end    context.CancelFunc
	tasks  sync.WaitGroup
	stopMu sync.Mutex

	mu       sync.Mutex
	machines map[string]*Machine
	stopped  bool
}

// Start begins to play the nodes and returns when each is registered and Ready. ctx bounds the start only; Stop ends
// the agent. The error leaves nothing running.
func Start(ctx context.Context, o Options) (*Agent, error) {
	a, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := a.provisioner.EnsureClass(ctx); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	a.tasks.Add(1)
	go func() { defer a.tasks.Done(); a.provisioner.Run(a.life) }()
	for _, n := range o.Nodes {
		if _, err := a.Add(ctx, n); err != nil {
			return nil, errors.Join(err, a.Stop())
		}
	}
	return a, nil
}

// prepare makes everything that needs no API server.
func prepare(o Options) (*Agent, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	if o.Backoff == (Backoff{}) {
		o.Backoff = Backoff{Initial: 10 * time.Second, Max: 5 * time.Minute}
	}
	o.Heartbeat = orDefault(o.Heartbeat, 3*time.Second)
	o.Refresh = orDefault(o.Refresh, 10*time.Second)
	dir, err := filepath.Abs(o.Dir)
	if err != nil || o.Dir == "" {
		return nil, fmt.Errorf("resolving the agent's folder %q: %w", o.Dir, errors.Join(err, os.ErrInvalid))
	}
	o.Dir = dir
	client, err := newClient(o.Config)
	if err != nil {
		return nil, err
	}
	a := &Agent{options: o, client: client, clock: o.Clock, log: o.Log, machines: map[string]*Machine{}}
	if a.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	if err := a.open(); err != nil {
		return nil, errors.Join(err, a.lock.Close())
	}
	a.life, a.end = context.WithCancel(context.Background())
	a.provisioner = provision.New(client, o.Clock, o.Log, a, dir)
	a.events = record.NewBroadcaster()
	a.events.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	return a, nil
}

func orDefault(d, byDefault time.Duration) time.Duration {
	if d == 0 {
		return byDefault
	}
	return d
}

// open takes over the folder: left-over processes first, then addresses and logs.
func (a *Agent) open() (err error) {
	dir := a.options.Dir
	if a.runner, err = process.New(filepath.Join(dir, "processes"), a.clock); err != nil {
		return err
	}
	if a.book, err = address.Open(filepath.Join(dir, "addresses.json")); err != nil {
		a.runner.Close()
		return err
	}
	a.logs = logs.New(filepath.Join(dir, "logs"))
	if a.server, err = serve(a.logs, a.clock); err != nil {
		a.runner.Close()
		return err
	}
	return nil
}

func newClient(cfg *rest.Config) (kubernetes.Interface, error) {
	if cfg == nil {
		return nil, errors.New("making the agent's client: no config")
	}
	cfg = rest.CopyConfig(cfg)
	if cfg.QPS == 0 {
		cfg.QPS = -1
	}
	cfg.UserAgent = "localnode"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making the agent's client: %w", err)
	}
	return client, nil
}

// lockDir makes sure that no other living agent uses the folder; the kernel lets go of the lock of a dead one.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the agent's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the agent's folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s (does another agent use it?): %w", dir, err), f.Close())
	}
	return f, nil
}

// Add registers one more node and returns when it is Ready.
func (a *Agent) Add(ctx context.Context, n Node) (*Machine, error) {
	a.mu.Lock()
	if a.machines[n.Name] != nil || a.stopped {
		a.mu.Unlock()
		return nil, fmt.Errorf("adding node %s: it is there already, or the agent has stopped", n.Name)
	}
	m := newMachine(a, n)
	a.machines[n.Name] = m
	a.mu.Unlock()
	if err := m.PowerOn(ctx); err != nil {
		a.mu.Lock()
		delete(a.machines, n.Name)
		a.mu.Unlock()
		return nil, err
	}
	return m, nil
}

// Remove takes a node away for good: its processes are killed, its Node object is deleted, its disks are gone.
func (a *Agent) Remove(ctx context.Context, name string) error {
	m := a.Node(name)
	if m.unknown() {
		return fmt.Errorf("removing node %s: %w", name, ErrUnknownNode)
	}
	m.PowerOff()
	a.mu.Lock()
	delete(a.machines, name)
	a.mu.Unlock()
	if err := m.destroy(ctx); err != nil {
		return err
	}
	a.provisioner.Kick()
	return nil
}

// Node returns the machine of that name. For an unknown name the machine's methods return ErrUnknownNode, so calls can
// be chained.
func (a *Agent) Node(name string) *Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m := a.machines[name]; m != nil {
		return m
	}
	return &Machine{node: Node{Name: name}}
}

func (a *Agent) all() []*Machine {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.machines))
}

// Stop kills every process and ends the agent. API objects stay as they are, as after a power cut of all nodes.
func (a *Agent) Stop() error {
	a.stopMu.Lock()
	defer a.stopMu.Unlock()
	a.mu.Lock()
	was := a.stopped
	a.stopped = true
	a.mu.Unlock()
	if was {
		return nil
	}
	var wg sync.WaitGroup
	for _, m := range a.all() {
		wg.Add(1)
		go func() { defer wg.Done(); m.PowerOff() }()
	}
	wg.Wait()
	a.end()
	a.tasks.Wait()
	a.events.Shutdown()
	a.runner.Close()
	return errors.Join(a.server.close(), a.lock.Close())
}

// Kill kills the processes of a container from outside, as a crash would: the restart policy applies. "" is the first
// container.
func (a *Agent) Kill(namespace, pod, container string) error {
	return a.Signal(namespace, pod, container, syscall.SIGKILL)
}

// Signal sends a signal to the processes of a container; SIGSTOP and SIGCONT make a member hang and come back.
func (a *Agent) Signal(namespace, pod, container string, s syscall.Signal) error {
	for _, m := range a.all() {
		if w := m.find(namespace, pod); w != nil {
			if err := w.Signal(container, s); err != nil {
				return fmt.Errorf("signaling pod %s/%s: %w", namespace, pod, err)
			}
			return nil
		}
	}
	return fmt.Errorf("signaling pod %s/%s: %w", namespace, pod, ErrUnknownPod)
}

// Logs returns what the container's last start has printed so far. Logs outlive their pods.
func (a *Agent) Logs(namespace, pod, container string) (string, error) {
	path, err := a.LogPath(namespace, pod, container, 0)
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading a log: %w", err)
	}
	return string(raw), nil
}

// LogPath is the file of the container's last start, with back 1 of the one before, and so on.
func (a *Agent) LogPath(namespace, pod, container string, back int) (string, error) {
	return a.logs.Path(namespace, pod, container, back)
}

// VolumeDir tells the provisioner where a node's volumes lie.
func (a *Agent) VolumeDir(node string) (dir string, known, on bool) {
	m := a.Node(node)
	if m.unknown() {
		return "", false, false
	}
	return filepath.Join(m.dir(), "volumes"), true, m.On()
}

// given stands in for the environment that an image would bring.
func (a *Agent) given() map[string]string {
	path := append(slices.Clone(a.options.Path), os.Getenv("PATH"))
	return map[string]string{"PATH": strings.Join(path, string(os.PathListSeparator))}
}

// services are the variables of the one service that processes can reach: the API server itself.
func (a *Agent) services() map[string]string {
	u, err := url.Parse(a.options.Config.Host)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	host, port := u.Hostname(), u.Port()
	if port == "" {
		port = "443"
	}
	return map[string]string{
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
		"KUBERNETES_PORT": "tcp://" + net.JoinHostPort(host, port),
	}
}
