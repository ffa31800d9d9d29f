// Package engine evaluates policies: the only place that runs Rego while deciding.
//
// One Policy is one bundle, compiled alone with the library and prepared once. A question reaches it as terms
// built from Go values without a detour through JSON; facts are read lazily from the immutable snapshot that the
// question was derived from, so the cost of an evaluation does not grow with the cluster unless a rule scans it.
// Nothing here approves: every failure becomes decision.Outcome.Err, which ends in defer.
package engine
