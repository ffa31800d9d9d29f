// Package controlplane runs a real Kubernetes control plane on one machine, without containers: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler and kwok as local processes on free loopback ports.
//
// The programs are built once from pinned Go modules (binaries/) and cached by version outside the work tree, so
// that a second clone reuses them. KUBEBUILDER_ASSETS and ASSENT_KUBECONFIG are honored.
package controlplane
