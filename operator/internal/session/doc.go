// Package session is the memory of one leadership term: who acts, and which approvals may still be acted on. It starts
// empty with every term, on purpose: what a term before received is void, and what it recorded is in the API objects.
package session
