// Package decision turns the operator's request and a fact snapshot into questions for a policy,
// and a policy's outcome into decisions. It is pure: no I/O, no clock, no context, no logger; every
// time comes in as an argument. The shapes are those of the policy contract.
package decision
