// Package operation asks whether pods may be touched and records what was approved.
//
// One request is one application: it reads the application's LiStatefulSets, PodIndexes, Operations, StatefulPods and
// Pods, and writes StatefulPod.spec (the grant and what it allows) and Operation.status (where every instance stands). It
// creates and deletes StatefulPods and never touches a Pod or a claim. What it knows beyond the API objects is the
// approvals of its session, which may be lost at any moment.
package operation
