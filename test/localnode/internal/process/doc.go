// Package process runs commands as process groups that cannot outlive their owner.
//
// Three nets catch a process, each where the one before has a hole: the parent-death signal (direct children), the
// process group (children that stay in it), and a mark in the environment (children that left the group). A record of
// pid and start time under the runner's folder catches what cleared its environment; a recycled pid has another start
// time, so a stranger is never killed.
package process
