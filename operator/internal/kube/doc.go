// Package kube is how controllers reach the API server: reads that may lag and reads that may not, the few verbs that
// change pods and claims, what a nil error of each guarantees, and the memory of one's own writes.
package kube
