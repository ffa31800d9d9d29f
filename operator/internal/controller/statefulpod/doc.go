// Package statefulpod makes the Pod and the claims follow what is approved, and nothing else.
//
// One request is one identity. It reads the StatefulPod, its Revision, its Pod and its claims; it creates and deletes the
// Pod, creates claims, and writes StatefulPod.status. It never deletes a claim and never writes a spec. A cached look only
// says that there may be something to do: whatever it does, it decides on live reads. An approval is acted on only by
// the session that received it, before it expires; a Pod that should run and is missing is made again without one.
package statefulpod
