// Package wrap holds what tests of the operator's controllers share: builders that read as sentences, readers that lag
// and clients that fail. Product code never imports it.
package wrap
