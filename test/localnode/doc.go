// Package localnode runs pods as processes of this machine: a node agent for a real Kubernetes API server that needs no
// container engine. One agent plays several nodes, each with its zone, its disks and a power switch.
//
// The Node object and its lease are kept by the virtual-kubelet library's node controller. Its pod controller is not
// used, because three of its habits would make tests lie: it removes a pod object while an init container still runs
// (no container status is running then), it writes whole statuses and with them old labels, annotations and other
// writers' conditions, and it does not see changes of conditions, so readiness gates could not open.
//
// README.md tells what differs from a kubelet.
package localnode
