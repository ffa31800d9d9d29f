// Package listatefulset plans what follows from a LiStatefulSet: the Revision of its template, the staged PodIndexes,
// the governing Service and the set's status. It is pure: everything it knows is in Input, the time included, and
// equal input gives an equal plan in whatever order the slices come.
package listatefulset
