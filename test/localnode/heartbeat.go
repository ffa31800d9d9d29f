package localnode

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	vknode "github.com/virtual-kubelet/virtual-kubelet/node"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type nowFunc func() time.Time

// Node describes a node to play.
type Node struct {
	// Name is the node's name and its hostname label.
	Name string
	// Zone is the label topology.kubernetes.io/zone; none if empty.
	Zone   string
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity is what the scheduler may hand out; nothing enforces it. The default is so much that it never decides:
	// 64 CPUs, 256 GiB of memory, 1 TiB of disk, 250 pods.
	Capacity corev1.ResourceList
}

func defaultCapacity() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("250"), corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
}

// object is the Node as it is registered.
func (n Node) object(kubeletPort int32, now nowFunc) *corev1.Node {
	labels := map[string]string{
		corev1.LabelHostname: n.Name, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"localnode.assent.dev/node": "true",
	}
	if n.Zone != "" {
		labels[corev1.LabelTopologyZone] = n.Zone
	}
	for k, v := range n.Labels {
		labels[k] = v
	}
	capacity := n.Capacity
	if capacity == nil {
		capacity = defaultCapacity()
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: n.Taints},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, Conditions: nodeConditions(now),
			// No host name: the API server would prefer it, and nothing resolves it.
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "localnode", OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
				ContainerRuntimeVersion: "localnode://processes",
			},
		},
	}
}

func nodeConditions(now nowFunc) []corev1.NodeCondition {
	t := metav1.NewTime(now())
	var out []corev1.NodeCondition
	for _, c := range []struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
		reason string
	}{
		{corev1.NodeReady, corev1.ConditionTrue, "LocalNodeReady"},
		{corev1.NodeMemoryPressure, corev1.ConditionFalse, "NotObserved"},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, "NotObserved"},
		{corev1.NodePIDPressure, corev1.ConditionFalse, "NotObserved"},
		{corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "Loopback"},
	} {
		out = append(out, corev1.NodeCondition{
			Type: c.kind, Status: c.status, Reason: c.reason, LastHeartbeatTime: t, LastTransitionTime: t,
		})
	}
	return out
}

// heartbeat keeps the Node object and its lease through the virtual-kubelet library.
type heartbeat struct {
	machine *Machine
	ready   chan struct{}
	failed  chan error
}

func newHeartbeat(m *Machine) *heartbeat {
	return &heartbeat{machine: m, ready: make(chan struct{}), failed: make(chan error, 1)}
}

// run registers the node and renews its lease until ctx ends.
func (h *heartbeat) run(ctx context.Context) {
	a := h.machine.agent
	leaseSeconds := int32(4 * a.options.Heartbeat / time.Second)
	leases := a.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	c, err := vknode.NewNodeController(
		vknode.NaiveNodeProvider{}, h.machine.node.object(a.server.port, a.clock.Now), a.client.CoreV1().Nodes(),
		vknode.WithNodeEnableLeaseV1WithRenewInterval(leases, max(leaseSeconds, 2), a.options.Heartbeat),
		vknode.WithNodeStatusUpdateInterval(time.Minute),
	)
	if err != nil {
		h.failed <- err
		return
	}
	go func() {
		select {
		case <-c.Ready():
			close(h.ready)
		case <-c.Done():
		}
	}()
	err = c.Run(ctx)
	if err == nil {
		err = errors.New("the power was cut")
	}
	h.failed <- err
}

// await returns once the node is registered, or why it could not be.
func (h *heartbeat) await(ctx context.Context) error {
	select {
	case <-h.ready:
		return nil
	case err := <-h.failed:
		return fmt.Errorf("registering: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("registering: %w", ctx.Err())
	}
}
