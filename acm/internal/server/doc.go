// Package server answers the operator over gRPC. It knows no Rego: it turns requests into decision.State, sees to it
// that this process holds the application's Lease, lets the application's judge decide, and turns the answer back.
//
// Nothing in here approves. A request that cannot be judged gets a defer with a code of its own; one that comes before
// bundles and caches are loaded gets Unavailable.
package server
