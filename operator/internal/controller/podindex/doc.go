// Package podindex reconciles PodIndexes: it claims the indices that differ from what is staged in the ledger, makes one
// Operation a claim, and lets go of both when they have ended. It is the only one that makes Operations.
//
// It reads: PodIndexes, Operations, StatefulPods, LiStatefulSets.
// It writes: PodIndex.status, Operation.spec (once, at creation); it removes complete Operations after a while.
// It may not: touch Pods, claims, StatefulPods or the status of Operations, nor ask an ACM.
//
// The ledger is written before an Operation is created and under an optimistic lock, on live reads: PodIndexes first,
// then Operations, then StatefulPods, so that an Operation seen as ended always comes with the identities it left.
package podindex
