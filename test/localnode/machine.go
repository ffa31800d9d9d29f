package localnode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"assent.dev/assent/test/localnode/internal/volume"
	"assent.dev/assent/test/localnode/internal/worker"
)

// hostIP is the address of every local node: they share one machine and one network.
const hostIP = "127.0.0.1"

// Machine is one node that the agent plays.
type Machine struct {
	agent *Agent
	node  Node

	// power is held while the switch is being turned.
	power sync.Mutex

	mu  sync.Mutex
	run *powered
}

// powered is one run of a machine, from power on to power off.
type powered struct {
	cut  context.CancelFunc
	pods *podSync
	done chan struct{}
}

func newMachine(a *Agent, n Node) *Machine { return &Machine{agent: a, node: n} }

func (m *Machine) unknown() bool { return m.agent == nil }

func (m *Machine) dir() string { return filepath.Join(m.agent.options.Dir, "nodes", m.node.Name) }

// Name is the node's name.
func (m *Machine) Name() string { return m.node.Name }

// On says whether the node has power.
func (m *Machine) On() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run != nil
}

// PowerOn boots the node and returns when its Node object is registered and its lease is being renewed. Pods bound to
// it are started again, with a restart counted for each container that ran; pods that were deleted meanwhile are
// finished off. A node that is on stays on.
func (m *Machine) PowerOn(ctx context.Context) error {
	if m.unknown() {
		return fmt.Errorf("powering on node %s: %w", m.node.Name, ErrUnknownNode)
	}
	m.power.Lock()
	defer m.power.Unlock()
	if m.On() {
		return nil
	}
	life, cut := context.WithCancel(m.agent.life)
	r := &powered{cut: cut, pods: newPodSync(m.workerNode()), done: make(chan struct{})}
	beat := newHeartbeat(m)
	var tasks sync.WaitGroup
	tasks.Add(2)
	go func() { defer tasks.Done(); r.pods.run(life) }()
	go func() { defer tasks.Done(); beat.run(life) }()
	go func() { tasks.Wait(); close(r.done) }()
	m.set(r)
	if err := beat.await(ctx); err != nil {
		m.off()
		return fmt.Errorf("powering on node %s: %w", m.node.Name, err)
	}
	m.agent.provisioner.Kick()
	return nil
}

// PowerOff cuts the power: every process of the node is killed at once, the lease is not renewed any more, and nothing
// is written to the API server, so the node's objects stay as they are until the control plane notices: the node
// lifecycle controller turns Ready to Unknown once the lease is older than its grace period (kube-controller-manager
// --node-monitor-grace-period, 50 s by default); ReportLost does the same without the wait. PowerOff returns when no
// process of the node is left. A node that is off stays off.
func (m *Machine) PowerOff() {
	if m.unknown() {
		return
	}
	m.power.Lock()
	defer m.power.Unlock()
	m.off()
}

func (m *Machine) off() {
	m.mu.Lock()
	r := m.run
	m.run = nil
	m.mu.Unlock()
	if r != nil {
		r.cut()
		<-r.done
	}
}

func (m *Machine) set(r *powered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.run = r
}

// find returns the worker of a pod that runs here, nil if there is none.
func (m *Machine) find(namespace, name string) *worker.Worker {
	m.mu.Lock()
	r := m.run
	m.mu.Unlock()
	if r == nil {
		return nil
	}
	return r.pods.find(namespace, name)
}

// workerNode gathers what the workers of this node share.
func (m *Machine) workerNode() *worker.Node {
	a := m.agent
	roots := append([]string{a.options.Dir}, a.options.HostPaths...)
	return &worker.Node{
		Name: m.node.Name, HostIP: hostIP, Client: a.client, Clock: a.clock, Runner: a.runner, Book: a.book, Logs: a.logs,
		Volumes: volume.New(a.client, a.clock, filepath.Join(m.dir(), "pods"), roots),
		Events:  a.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "localnode", Host: m.node.Name}),
		Backoff: a.options.Backoff, Refresh: a.options.Refresh, Given: a.given(), Services: a.services(), Log: a.log,
	}
}

// ReportLost writes what the node lifecycle controller would write once it had waited long enough for a node without
// power: Ready of the node is Unknown, Ready of its pods is False. The controller then taints the node as unreachable.
// For a node with power it is an error, for its agent would contradict.
func (m *Machine) ReportLost(ctx context.Context) error {
	if m.unknown() {
		return fmt.Errorf("reporting node %s as lost: %w", m.node.Name, ErrUnknownNode)
	}
	if m.On() {
		return fmt.Errorf("reporting node %s as lost: it has power", m.node.Name)
	}
	core := m.agent.client.CoreV1()
	body, err := conditionPatch(m.agent.clock.Now, string(corev1.NodeReady), "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
	if err != nil {
		return err
	}
	if _, err := core.Nodes().Patch(ctx, m.node.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("reporting node %s as lost: %w", m.node.Name, err)
	}
	pods, err := core.Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.node.Name})
	if err != nil {
		return fmt.Errorf("reporting node %s as lost: %w", m.node.Name, err)
	}
	var errs []error
	for _, p := range pods.Items {
		body, err := conditionPatch(m.agent.clock.Now, string(corev1.PodReady), "False", "NodeNotReady", "Node is not ready")
		if err != nil {
			return err
		}
		_, err = core.Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("reporting pod %s as not ready: %w", p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// destroy deletes the node's objects and disks.
func (m *Machine) destroy(ctx context.Context) error {
	if err := os.RemoveAll(m.dir()); err != nil {
		return fmt.Errorf("removing the disks of node %s: %w", m.node.Name, err)
	}
	// The lease is owned by the node and collected with it.
	err := m.agent.client.CoreV1().Nodes().Delete(ctx, m.node.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", m.node.Name, err)
	}
	return nil
}

func conditionPatch(now nowFunc, kind, status, reason, message string) ([]byte, error) {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []map[string]any{{
		"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": metav1.NewTime(now()),
	}}}})
	if err != nil {
		return nil, fmt.Errorf("encoding a condition: %w", err)
	}
	return body, nil
}
