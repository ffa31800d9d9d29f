package server

import (
	"assent.dev/assent/acm/internal/decision"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// StateOf is the request as judges take it, for a composition without a listener.
func StateOf(r *acmv1.EvaluateRequest) *decision.State { return stateOf(r) }

// ResponseOf is the answer as it goes over the wire, for a composition without a listener.
func ResponseOf(a decision.Answer) *acmv1.EvaluateResponse { return responseOf(a) }
