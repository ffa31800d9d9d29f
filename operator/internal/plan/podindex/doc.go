// Package podindex plans which Operations a block of indices needs and keeps the ledger of those that live. It is
// pure: everything it knows is in Input, the time included.
//
// The ledger (PodIndex.status) is written first and says exactly what is to be created, so a crash between the two is
// repaired by creating the Operation as written. An index is in at most one unreleased claim of a type, which is why
// no lookup of Operations, and no stale cache, can lead to a second one.
package podindex
