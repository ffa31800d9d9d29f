// Package metrics holds every metric of the operator. No label takes a value that grows without bound: reason codes
// of bundles are counted one by one up to a limit and together after it.
package metrics
