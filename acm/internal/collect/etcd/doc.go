// Package etcd collects what the members of an etcd cluster say of themselves: one Status and one
// serializable MemberList of each pod, on the pod's own address (port 2379, the manifest's "port", or
// the pod's annotation assent.dev/etcd-port).
//
// Facts, and where they come from:
//
//   - role: leader, follower, learner. The leader is who says so itself, at the highest term of all
//     that answer. Followers name a dead leader for one to two seconds; a leader that is named and does
//     not answer is an election that runs.
//   - voter: registered and no learner, by the member list of the leader, else of the answer that
//     has applied most.
//   - healthy: it answers and has no alarm. Not healthy: Kubernetes does not run the pod, the address
//     refuses connections, or there is an alarm. A time-out is unknown.
//   - lag: entries of the raft log that the leader has committed and this member has not applied.
//     caught_up: lag is at most the manifest's "max_lag", by default 500.
//   - A registered member without a pod has a row of its own, under its member name: it is a voter that is down.
//
// Source of the behavior of etcd: its documentation of the maintenance API, and runs against 3.7.3.
package etcd
