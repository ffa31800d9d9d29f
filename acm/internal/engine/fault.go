package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"assent.dev/assent/acm/internal/decision"
)

const longestMessage = 500

// fault names what went wrong in an evaluation, with the place in the policy where OPA tells it.
func (p *Policy) fault(err error) *decision.MachineryError {
	var e *topdown.Error
	if !errors.As(err, &e) {
		return p.machinery(decision.CodePolicyError, "", "evaluating the policy: %v", err)
	}
	at := place(e.Location)
	switch e.Code {
	case topdown.CancelErr:
		return p.machinery(decision.CodePolicyTimeout, "", "no answer within %s", p.budget)
	case topdown.ConflictErr:
		return p.machinery(decision.CodePolicyConflict, at, "%s", e.Message)
	case topdown.BuiltinErr:
		return p.machinery(decision.CodePolicyError, at, "built-in failed: %s", e.Message)
	default:
		return p.machinery(decision.CodePolicyError, at, "%s: %s", e.Code, e.Message)
	}
}

func (p *Policy) machinery(code, at, format string, args ...any) *decision.MachineryError {
	// One line: it ends in conditions, events and tables.
	text := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if len(text) > longestMessage {
		text = strings.ToValidUTF8(text[:longestMessage], "") + "..."
	}
	if at != "" {
		text = at + ": " + text
	}
	return &decision.MachineryError{Code: code, Message: text, Details: map[string]any{"bundle_revision": p.revision}}
}

func place(loc *ast.Location) string {
	if loc == nil || loc.File == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", loc.File, loc.Row)
}

// undefined explains an evaluation without a result: which document has no value, and whether it exists at all.
func (p *Policy) undefined(ctx context.Context, opts []rego.EvalOption) *decision.MachineryError {
	for _, path := range p.needed {
		if len(p.compiler.GetRules(path)) == 0 {
			return p.machinery(decision.CodePolicyUndefined, "", "%s is missing in bundle %s", path, p.revision)
		}
		prepared, err := rego.New(rego.Query(path.String()), rego.Compiler(p.compiler), rego.Store(p.store)).PrepareForEval(ctx)
		if err != nil {
			return p.fault(err)
		}
		if rs, err := prepared.Eval(ctx, opts...); err == nil && len(rs) == 0 {
			return p.machinery(decision.CodePolicyUndefined, "", "%s is present but undefined for this question in bundle %s", path, p.revision)
		}
	}
	return p.machinery(decision.CodePolicyUndefined, "", "the query of %s has no result in bundle %s", p.name, p.revision)
}
