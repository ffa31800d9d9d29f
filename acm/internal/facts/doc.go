// Package facts keeps what the collectors of one application have seen, in the normal form of the
// policy contract (data.facts).
//
// A Store takes changes and publishes immutable Snapshots behind one atomic pointer: readers never
// wait for writers, and an evaluation sees one state of the world from beginning to end. Rows are
// shared between snapshots, so whoever caches something derived from a row may key it by the row's
// pointer. Nothing reachable from a Snapshot is ever changed after it was published.
//
// Unknown is absent: a nil pointer, a missing key, a nil table. It is never a zero.
package facts
