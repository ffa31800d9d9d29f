// Package acm asks Application Cluster Managers over gRPC. It is the only package of the operator that knows the
// protocol: what goes out and comes in are plan/question's types.
//
// Asking never blocks. Each application has at most one question under way; a newer one replaces it, and whatever comes
// back for the older one is dropped, as is everything that comes after the deadline.
package acm
