package engine

import (
	"reflect"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"assent.dev/assent/acm/internal/decision"
)

func init() {
	encoders.Store(reflect.TypeFor[*decision.Options](), encoder(encodeOptions))
}

func encodeOptions(v reflect.Value) *ast.Term {
	o, _ := v.Interface().(*decision.Options)
	if o == nil {
		return ast.ObjectTerm()
	}
	if compiled, ok := o.Compiled.(*ast.Term); ok {
		return compiled
	}
	return ast.NewTerm(ast.MustInterfaceToValue(o.Checks))
}

// inputOf gives the question as the policy's input.
func inputOf(q *decision.Question, steps *stepTerms) ast.Value {
	shared := *q
	shared.InFlight = nil
	term := encode(&shared)
	obj, ok := term.Value.(ast.Object)
	if !ok {
		return term.Value
	}
	obj.Insert(inFlightKey, steps.object(q.InFlight))
	return obj
}

var inFlightKey = ast.StringTerm("in_flight")

// mostSteps bounds what stepTerms remembers; an application has rarely more than a few steps in flight.
const mostSteps = 4096

// stepTerms remembers the terms of in-flight entries, which the questions of a batch share by pointer.
type stepTerms struct {
	mu    sync.Mutex
	terms map[*decision.InFlight]*ast.Term
}

func (s *stepTerms) object(steps map[string]*decision.InFlight) *ast.Term {
	pairs := make([][2]*ast.Term, 0, len(steps))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.terms == nil || len(s.terms) > mostSteps {
		s.terms = map[*decision.InFlight]*ast.Term{}
	}
	for pod, step := range steps {
		term, ok := s.terms[step]
		if !ok {
			term = encode(step)
			s.terms[step] = term
		}
		pairs = append(pairs, [2]*ast.Term{ast.StringTerm(pod), term})
	}
	return ast.ObjectTerm(pairs...)
}
