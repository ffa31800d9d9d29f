package engine

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"assent.dev/assent/acm/internal/decision"
)

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
		return p.machinery(decision.CodePolicyConflict, at, "%s%s", e.Message, p.rivals(e.Location))
	case topdown.BuiltinErr:
		return p.machinery(decision.CodePolicyError, at, "built-in failed: %s", e.Message)
	default:
		return p.machinery(decision.CodePolicyError, at, "%s: %s", e.Code, e.Message)
	}
}

func (p *Policy) machinery(code, at, format string, args ...any) *decision.MachineryError {
	text := fmt.Sprintf(format, args...)
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

// rivals lists every rule that defines the document in conflict, since OPA names only one of them.
func (p *Policy) rivals(loc *ast.Location) string {
	if loc == nil {
		return ""
	}
	var places []string
	for _, r := range p.compiler.GetRulesWithPrefix(ast.Ref{ast.DefaultRootDocument}) {
		if !r.Location.Equal(loc) {
			continue
		}
		for _, rival := range p.compiler.GetRulesExact(r.Ref().GroundPrefix()) {
			places = append(places, place(rival.Location))
		}
		break
	}
	if len(places) < 2 {
		return ""
	}
	sort.Strings(places)
	return "; it is defined at " + strings.Join(places, ", ")
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
