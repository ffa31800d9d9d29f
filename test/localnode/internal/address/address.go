// Package address gives every pod identity (namespace and name) its own loopback address.
//
// The address follows the identity, not the pod object: a pod that is deleted and made again under the same name comes
// back where its peers expect it. Every address of 127.0.0.0/8 can be bound without any set-up.
package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const (
	// SubnetAnnotation on a pod fixes its address by index: network + index + 1 + 64 * incarnation.
	SubnetAnnotation = "localnode.assent.dev/subnet"

	indexLabel       = "assent.dev/index"
	podIndexLabel    = "apps.kubernetes.io/pod-index"
	incarnationLabel = "assent.dev/incarnation"

	// incarnationStep keeps the first incarnations of 62 indices of a /24 apart from the second ones.
	incarnationStep = 64
)

// errNoIndex tells what is missing beside the annotation.
var errNoIndex = errors.New("annotation " + SubnetAnnotation + " needs the label " + indexLabel)

// Fixed derives the address that the pod's annotation and labels fix. ok is false when there is no annotation. An
// error says what is wrong with them, in words for the pod's status.
func Fixed(pod *corev1.Pod) (addr netip.Addr, ok bool, err error) {
	text, ok := pod.Annotations[SubnetAnnotation]
	if !ok {
		return netip.Addr{}, false, nil
	}
	subnet, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Addr{}, false, fmt.Errorf("reading annotation %s: %w", SubnetAnnotation, err)
	}
	subnet = subnet.Masked()
	if !subnet.Addr().Is4() || !subnet.Addr().IsLoopback() {
		return netip.Addr{}, false, fmt.Errorf("annotation %s: %s is not within 127.0.0.0/8", SubnetAnnotation, text)
	}
	index, err := number(pod.Labels, indexLabel, podIndexLabel)
	if err != nil {
		return netip.Addr{}, false, err
	}
	if index < 0 {
		return netip.Addr{}, false, errNoIndex
	}
	incarnation, err := number(pod.Labels, incarnationLabel)
	if err != nil {
		return netip.Addr{}, false, err
	}
	offset := uint64(index) + 1 + incarnationStep*uint64(max(incarnation, 0))
	if offset >= 1<<(32-subnet.Bits())-1 {
		return netip.Addr{}, false, fmt.Errorf("annotation %s: %s has no room for index %d, incarnation %d",
			SubnetAnnotation, text, index, max(incarnation, 0))
	}
	return add(subnet.Addr(), uint32(offset)), true, nil
}

// number reads the first of the labels that is present; -1 when none is.
func number(labels map[string]string, keys ...string) (int32, error) {
	for _, k := range keys {
		text, ok := labels[k]
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 24)
		if err != nil {
			return 0, fmt.Errorf("label %s: %q is not an index", k, text)
		}
		return int32(n), nil
	}
	return -1, nil
}

func add(a netip.Addr, n uint32) netip.Addr {
	b := a.As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+n)
	return netip.AddrFrom4(b)
}
