// Package statefulpod plans for one identity: from what is approved, the Pod and the claims that exist, to the one thing
// to do next and the status.
//
// It also says, for everybody who plans, what is evidence that a grant was acted on and when a pod is available.
package statefulpod
