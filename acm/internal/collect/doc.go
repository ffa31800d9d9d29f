// Package collect keeps the facts of one application fresh: Kubernetes' own through a shared
// source, the application's through one loop for each collector that its bundle declares. A loop
// collects at its interval, at once when asked to, and backs off while a collector as a whole
// fails. A target that does not answer is the collector's business and fails nothing.
package collect
