package bundle

import (
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Outputs of a policy. The first three must be declared.
const (
	ruleDeny    = "deny"
	ruleDefer   = "defer"
	ruleApprove = "approve"
	ruleWarn    = "warn"
)

// lint finds what compiles and still would not do what its author means. Problems refuse the bundle.
func lint(b *Bundle) (problems, warnings Problems) {
	problems = append(problems, lintOutputs(b)...)
	for _, m := range b.compiledModules() {
		problems = append(problems, lintReferences(b.Compiler, m)...)
		warnings = append(warnings, lintScans(m)...)
	}
	// As written: compilation puts locals in the place of what these look for.
	for _, m := range b.modules {
		problems = append(problems, lintConstants(m)...)
		warnings = append(warnings, lintNegations(m)...)
	}
	return problems, warnings
}

// compiledModules are the bundle's own modules after compilation, where imports are resolved.
func (b *Bundle) compiledModules() []*ast.Module {
	var ms []*ast.Module
	for _, file := range sortedKeys(b.modules) {
		ms = append(ms, b.Compiler.Modules[file])
	}
	return ms
}

func lintOutputs(b *Bundle) (ps Problems) {
	rules := map[string][]*ast.Rule{}
	for _, m := range b.modules {
		if len(packagePath(m)) != len(b.Manifest.Roots[0]) {
			continue
		}
		for _, r := range m.Rules {
			name := r.Head.Ref()[0].Value.String()
			rules[name] = append(rules[name], r)
		}
	}
	for _, name := range []string{ruleDeny, ruleDefer} {
		ps = append(ps, lintSet(b, name, rules[name], true)...)
	}
	ps = append(ps, lintSet(b, ruleWarn, rules[ruleWarn], false)...)
	return append(ps, lintApprove(b, rules[ruleApprove])...)
}

func lintSet(b *Bundle, name string, rules []*ast.Rule, needed bool) (ps Problems) {
	if len(rules) == 0 && needed {
		return problemsIn(b.Folder, "%s is not declared in package %s; want `%s contains r if ...`, or `%s := set()`",
			name, strings.Join(b.Manifest.Roots[0], "."), name, name)
	}
	for _, r := range rules {
		if r.Head.RuleKind() == ast.MultiValue || isEmptySet(r.Head.Value) {
			continue
		}
		ps = append(ps, problemAt(r.Location, "%s is not a set of reasons; want `%s contains r if ...`, or `%s := set()`", name, name, name))
	}
	return ps
}

func isEmptySet(t *ast.Term) bool {
	if t == nil {
		return false
	}
	s, ok := t.Value.(ast.Set)
	return ok && s.Len() == 0
}

func lintApprove(b *Bundle, rules []*ast.Rule) (ps Problems) {
	if len(rules) == 0 {
		return problemsIn(b.Folder, "approve is not declared in package %s; the usual line is `approve if acm.clear`", strings.Join(b.Manifest.Roots[0], "."))
	}
	for _, r := range rules {
		switch {
		case r.Head.RuleKind() == ast.MultiValue || len(r.Head.Args) > 0:
			ps = append(ps, problemAt(r.Location, "approve is not a plain rule; want `approve if ...`"))
		case r.Default && isTrue(r.Head.Value):
			ps = append(ps, problemAt(r.Location, "default approve := true would approve whatever no rule covers; leave it undefined"))
		case !r.Default && isTrue(r.Head.Value) && unconditional(r.Body):
			ps = append(ps, problemAt(r.Location, "approve holds without a condition; the usual line is `approve if acm.clear`"))
		}
		if r.Else != nil {
			ps = append(ps, lintApprove(b, []*ast.Rule{r.Else})...)
		}
	}
	return ps
}

func isTrue(t *ast.Term) bool {
	return t == nil || t.Value.Compare(ast.Boolean(true)) == 0
}

func unconditional(body ast.Body) bool {
	for _, e := range body {
		t, ok := e.Terms.(*ast.Term)
		if !ok || t.Value.Compare(ast.Boolean(true)) != 0 || len(e.With) > 0 || e.Negated {
			return false
		}
	}
	return true
}

// lintReferences refuses data.acm.<name> that is no rule of the library: it would be undefined for ever.
func lintReferences(c *ast.Compiler, m *ast.Module) (ps Problems) {
	seen := map[string]bool{}
	visitRefs(m, func(ref ast.Ref) {
		if len(ref) < 2 || !ref[0].Equal(ast.DefaultRootDocument) || !ref[1].Equal(ast.StringTerm("acm")) {
			return
		}
		ground := ref.GroundPrefix()
		if len(c.GetRules(ground)) > 0 || seen[ground.String()] {
			return
		}
		seen[ground.String()] = true
		ps = append(ps, problemAt(ref[0].Location, "%s is no rule of the library", ground))
	})
	return ps
}

func visitRefs(x any, f func(ast.Ref)) {
	ast.NewGenericVisitor(func(n any) bool {
		if ref, ok := n.(ast.Ref); ok {
			f(ref)
		}
		return false
	}).Walk(x)
}

var enums = map[string][]string{
	"input.operation.type":  {"scale-out", "scale-in", "deployment", "disruption", "swap"},
	"input.operation.stage": {"add", "update", "remove", "release"},
}

// lintConstants refuses a comparison of the operation's type or stage with a word that is none.
func lintConstants(m *ast.Module) (ps Problems) {
	ast.WalkExprs(m, func(e *ast.Expr) bool {
		if !e.IsCall() {
			return false
		}
		operands := e.Operands()
		for i, t := range operands {
			words, ok := enums[t.String()]
			if !ok {
				continue
			}
			for j, other := range operands {
				if j != i {
					ps = append(ps, unknownWords(t.String(), other, words, e.Location)...)
				}
			}
		}
		return false
	})
	return ps
}

func unknownWords(what string, t *ast.Term, words []string, loc *ast.Location) (ps Problems) {
	check := func(x *ast.Term) {
		s, ok := x.Value.(ast.String)
		if !ok {
			return
		}
		for _, w := range words {
			if string(s) == w {
				return
			}
		}
		ps = append(ps, problemAt(loc, "%s is never %s; known: %s", what, s, strings.Join(words, ", ")))
	}
	switch v := t.Value.(type) {
	case ast.String:
		check(t)
	case ast.Set:
		v.Foreach(check)
	case *ast.Array:
		v.Foreach(check)
	}
	return ps
}

var tables = []string{"pods", "members", "shards"}

// lintScans warns of rules whose time grows with the cluster.
func lintScans(m *ast.Module) (ps Problems) {
	visitRefs(m, func(ref ast.Ref) {
		for _, table := range tables {
			prefix := DataRef("facts", table)
			if len(ref) <= len(prefix) || !ref.HasPrefix(prefix) || ref[len(prefix)].IsGround() {
				continue
			}
			ps = append(ps, problemAt(ref[0].Location, "goes through all of data.facts.%s, O(n) a decision; input.target, input.totals and data.facts.index have what most rules need", table))
		}
	})
	return ps
}

// lintNegations warns of `not` before a comparison or a call on something that may be absent: neither that nor its
// opposite holds then, so the rule is silent.
func lintNegations(m *ast.Module) (ps Problems) {
	ast.WalkExprs(m, func(e *ast.Expr) bool {
		if !e.Negated || !e.IsCall() || e.IsEquality() || !mentionsFacts(e) {
			return false
		}
		ps = append(ps, problemAt(e.Location, "`not` before %s is silent when what it looks at is absent; put the good case in a helper rule and negate that", e.Operator()))
		return false
	})
	return ps
}

func mentionsFacts(e *ast.Expr) bool {
	found := false
	for _, operand := range e.Operands() {
		visitRefs(operand, func(ref ast.Ref) {
			found = found || ref[0].Equal(ast.InputRootDocument) || ref.HasPrefix(DataRef("facts"))
		})
	}
	return found
}
