// Package event holds every event that the operator emits, one function a reason. They are called at the write or the
// transition they tell of, never once a reconcile, so that "kubectl describe" reads as a story.
package event
