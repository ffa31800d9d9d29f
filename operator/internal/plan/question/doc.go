// Package question is what the operator asks an ACM and what it understands of the answer, in the operator's own words.
// It is plain data: planners make it, and one package translates it to and from the wire.
package question
