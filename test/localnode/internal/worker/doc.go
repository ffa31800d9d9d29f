// Package worker runs one pod: a loop that owns the pod's state, and goroutines that only tell the loop what happened.
//
// The loop is level-triggered: after every message it walks the steps from the front and does what is due. So it does
// not matter which of two things happened first, nor whether the worker has just been started on an old pod.
package worker
