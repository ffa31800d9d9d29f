// Package kubernetes delivers pods and nodes as facts, from one pair of informers that all
// applications share. A pod belongs to the application that its label assent.dev/application names.
//
// Watches tell of changes, not that there were none. So the source also asks the API server every
// ProbeInterval: while that answers and both watches stand, what has been delivered is as of the
// question. How far the watch of pods has come is told by the highest resourceVersion delivered.
package kubernetes
