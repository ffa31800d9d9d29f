package v1alpha1

import "fmt"

// PodName names a StatefulPod and its Pod: <set>-<index> for incarnation 0, <set>-<index>-i<n> for later ones.
func PodName(set string, index, incarnation int32) string {
	if incarnation == 0 {
		return fmt.Sprintf("%s-%d", set, index)
	}
	return fmt.Sprintf("%s-%d-i%d", set, index, incarnation)
}

// ClaimName names a PersistentVolumeClaim of a pod.
func ClaimName(template, pod string) string { return template + "-" + pod }

// PodIndexName names the PodIndex of a block.
func PodIndexName(set string, block int32) string { return fmt.Sprintf("%s-%d", set, block) }

// OperationName names an Operation: <set>-<block>-<out|in|dep|dis|swap>-<sequence>.
func OperationName(set string, block int32, t OperationType, sequence int64) string {
	return fmt.Sprintf("%s-%d-%s-%d", set, block, t.Short(), sequence)
}

// ApplicationName is the application of the set: spec.application, or the set's own name.
func (s *LiStatefulSet) ApplicationName() string {
	if s.Spec.Application != "" {
		return s.Spec.Application
	}
	return s.Name
}

// ACMName is the entry of the operator's configuration that decides: spec.acm, or "default".
func (s *LiStatefulSet) ACMName() string {
	if s.Spec.ACM != "" {
		return s.Spec.ACM
	}
	return "default"
}
