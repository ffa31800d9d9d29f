// Package listatefulset reconciles LiStatefulSets: it makes the Revision of the template, stages the PodIndexes, applies
// the governing Service and tells in the set's status how far everything is.
//
// It reads: LiStatefulSets, Revisions, PodIndexes, Operations, StatefulPods, Pods, Services.
// It writes: Revisions, PodIndex.spec (not spec.maintenance), the governing Service, LiStatefulSet.status.
// It may not: touch Pods, claims, Operations or StatefulPods, nor ask an ACM.
//
// Whatever it stages, creates or removes is planned again on live reads first; caches only decide that nothing is to do.
package listatefulset
