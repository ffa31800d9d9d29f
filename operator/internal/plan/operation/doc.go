// Package operation plans for one application: where every instance of every Operation stands, which grants to record
// and which to take back, what to ask next, and what to show.
//
// Everything is derived from the API objects, the Pods and the session's approvals, in one pass without memory, so that
// a crash after any write changes nothing but the time it takes.
package operation
