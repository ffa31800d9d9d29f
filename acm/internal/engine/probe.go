package engine

import (
	"context"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// checkOptions has the library's acm.option_errors look at the config as written and at what each override makes
// of it: a misspelled threshold would otherwise switch a protection off in silence. The error is a bundle.Problems.
func (p *Policy) checkOptions(ctx context.Context, b *bundle.Bundle, config any) error {
	validator := bundle.DataRef("acm", "option_errors")
	if config == nil || len(p.compiler.GetRules(validator)) == 0 {
		return nil
	}
	query, err := p.query(ctx, validator.String()+"(input)")
	if err != nil {
		return refuse(b, "preparing option_errors: %v", err)
	}
	var problems bundle.Problems
	seen := map[string]bool{}
	check := func(label string, doc any) {
		texts, err := optionErrors(ctx, query, doc)
		if err != nil {
			texts = []string{"option_errors: " + err.Error()}
		}
		for _, text := range texts {
			if !seen[text] {
				problems = append(problems, bundle.Problem{File: p.options.file, Message: label + text})
			}
			seen[text] = true
		}
	}
	check("", config)
	p.options.each(func(label string, checks map[string]any) { check(label, map[string]any{"checks": checks}) })
	if len(problems) > 0 {
		return problems
	}
	return nil
}

func optionErrors(ctx context.Context, query rego.PreparedEvalQuery, doc any) ([]string, error) {
	input, err := ast.InterfaceToValue(doc)
	if err != nil {
		return nil, err
	}
	rs, err := query.Eval(ctx, rego.EvalParsedInput(input))
	if err != nil {
		return nil, err
	}
	if len(rs) == 0 {
		return []string{"the checks could not be validated: option_errors has no value"}, nil
	}
	term, ok := rs[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, nil
	}
	members, err := membersOf(term)
	var texts []string
	for _, m := range members {
		if text, ok := m.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts, err
}

// probe asks one harmless question over empty facts. What the policy says does not matter; that it can be asked does.
func (p *Policy) probe(ctx context.Context) *decision.MachineryError {
	q := &decision.Question{
		Operation:   decision.Operation{ID: "probe", Type: decision.Deployment, Stage: decision.StageRemove, Pod: "probe-0", Set: "probe", TakesDown: true},
		Application: decision.Application{Name: "probe", Namespace: "probe", Policy: p.name},
		Target:      decision.Target{Pod: "probe-0"},
		History:     &decision.History{},
	}
	q.Options = p.Options(decision.OptionsKey{Application: "probe", Namespace: "probe", Set: "probe", Type: string(decision.Deployment), Stage: string(decision.StageRemove), Pod: "probe-0"})
	defer p.forget(application{"probe", "probe"})
	return p.Evaluate(ctx, q, facts.NewStore(nil).Snapshot()).Err
}

func (p *Policy) forget(a application) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.applications, a)
}
