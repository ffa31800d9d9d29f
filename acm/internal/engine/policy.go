package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/metrics"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/topdown"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
)

// DefaultBudget is how long one evaluation may take.
const DefaultBudget = 100 * time.Millisecond

const probeBudget = 5 * time.Second

// mostApplications bounds how many applications' facts one policy keeps as terms.
const mostApplications = 1024

// Policy is one bundle, ready to be asked. Safe for concurrent use.
type Policy struct {
	name     string
	revision string
	manifest judge.Manifest
	budget   time.Duration
	compiler *ast.Compiler
	store    *store
	options  *options
	// needed are the documents without which the main query has no result.
	needed     []ast.Ref
	outputs    rego.PreparedEvalQuery
	parameters *rego.PreparedEvalQuery

	mu           sync.Mutex
	applications map[application]*perApplication
}

type application struct{ namespace, name string }

// perApplication is what one application's evaluations share.
type perApplication struct {
	steps stepTerms
	mu    sync.Mutex
	view  *view
}

// New prepares a bundle, validates its thresholds with the library's option_errors, and tries one decision. budget
// bounds one evaluation; 0 means DefaultBudget. The error is a bundle.Problems.
func New(ctx context.Context, b *bundle.Bundle, budget time.Duration) (*Policy, error) {
	if budget <= 0 {
		budget = DefaultBudget
	}
	data, err := ast.InterfaceToValue(b.Data)
	if err != nil {
		return nil, refuse(b, "reading data: %v", err)
	}
	p := &Policy{
		name: b.Manifest.Policy, revision: b.Revision, manifest: manifestOf(b.Manifest), budget: budget,
		compiler: b.Compiler, store: &store{data: ast.NewTerm(data)}, applications: map[application]*perApplication{},
	}
	root := b.Manifest.Roots[0]
	if p.options, err = readOptions(b, configOf(b.Data, root)); err != nil {
		return nil, err
	}
	if err := p.checkOptions(ctx, b, configOf(b.Data, root)); err != nil {
		return nil, err
	}
	if err := p.prepare(ctx, root); err != nil {
		return nil, refuse(b, "preparing the query: %v", err)
	}
	// The first evaluation also fills the compiler's caches; it is not held to the budget of a decision.
	p.budget = max(budget, probeBudget)
	if fault := p.probe(ctx); fault != nil {
		return nil, refuse(b, "the probe decision failed: %s", fault.Error())
	}
	p.budget = budget
	return p, nil
}

func refuse(b *bundle.Bundle, format string, args ...any) error {
	return bundle.Problems{{File: b.Folder, Message: fmt.Sprintf(format, args...)}}
}

func manifestOf(m bundle.Manifest) judge.Manifest {
	specs := make(map[string]judge.CollectorSpec, len(m.Collectors))
	for name, c := range m.Collectors {
		spec := judge.CollectorSpec{MaxAge: c.MaxAge}
		if c.Port != 0 {
			spec.Settings = map[string]any{"port": c.Port}
		}
		specs[name] = spec
	}
	return judge.Manifest{Collectors: specs, Groups: m.Groups}
}

func configOf(data map[string]any, root []string) any {
	var here any = data
	for _, k := range append(append([]string{}, root...), "config") {
		obj, ok := here.(map[string]any)
		if !ok {
			return nil
		}
		here = obj[k]
	}
	return here
}

// prepare compiles the two queries. warn and parameters are optional: they are asked for only where they exist.
func (p *Policy) prepare(ctx context.Context, root []string) error {
	own := func(name string) ast.Ref { return bundle.DataRef(append(append([]string{}, root...), name)...) }
	p.needed = []ast.Ref{own("deny"), own("defer")}
	var warns []string
	for _, ref := range []ast.Ref{bundle.DataRef("acm", "warn"), own("warn")} {
		if len(p.compiler.GetRules(ref)) > 0 {
			p.needed, warns = append(p.needed, ref), append(warns, ref.String())
		}
	}
	if len(warns) == 0 {
		warns = []string{"set()"}
	}
	query := fmt.Sprintf(`{"deny": %s, "defer": %s, "warn": %s, "approve": [a | a := %s]}`,
		own("deny"), own("defer"), strings.Join(warns, " | "), own("approve"))
	var err error
	if p.outputs, err = p.query(ctx, query); err != nil {
		return err
	}
	if len(p.compiler.GetRules(own("parameters"))) == 0 {
		return nil
	}
	prepared, err := p.query(ctx, own("parameters").String())
	p.parameters = &prepared
	return err
}

func (p *Policy) query(ctx context.Context, text string) (rego.PreparedEvalQuery, error) {
	return rego.New(
		rego.Query(text),
		rego.Compiler(p.compiler),
		rego.Store(p.store),
		rego.StrictBuiltinErrors(true),
		rego.GenerateJSON(asTerm),
	).PrepareForEval(ctx)
}

// asTerm hands results over as they are; only the parts that matter are converted.
func asTerm(t *ast.Term, _ *rego.EvalContext) (any, error) { return t, nil }

// Revision names the bundle's content together with the library's.
func (p *Policy) Revision() string { return p.revision }

// Manifest is what the bundle needs.
func (p *Policy) Manifest() judge.Manifest { return p.manifest }

// Options are the thresholds for a question; equal keys give the same pointer.
func (p *Policy) Options(key decision.OptionsKey) *decision.Options { return p.options.of(key) }

// Evaluate asks the policy. Every failure, and the end of ctx, is Outcome.Err.
func (p *Policy) Evaluate(ctx context.Context, q *decision.Question, s *facts.Snapshot) decision.Outcome {
	value, fault := p.eval(ctx, &p.outputs, q, s)
	if fault != nil {
		return decision.Outcome{Err: fault}
	}
	o, err := outcomeOf(value)
	if err != nil {
		return decision.Outcome{Err: p.machinery(decision.CodePolicyMalformed, "", "reading the policy's answer: %v", err)}
	}
	return o
}

// Parameters asks for the parameters of an approval; nil without any.
func (p *Policy) Parameters(ctx context.Context, q *decision.Question, s *facts.Snapshot) (any, *decision.MachineryError) {
	if p.parameters == nil {
		return nil, nil
	}
	value, fault := p.eval(ctx, p.parameters, q, s)
	if fault != nil {
		return nil, fault
	}
	decoded, err := jsonOf(value)
	if err != nil {
		return nil, p.machinery(decision.CodePolicyMalformed, "", "reading the parameters: %v", err)
	}
	return decoded, nil
}

func (p *Policy) eval(ctx context.Context, query *rego.PreparedEvalQuery, q *decision.Question, s *facts.Snapshot) (*ast.Term, *decision.MachineryError) {
	shared := p.of(application{q.Application.Namespace, q.Application.Name})
	cancel := topdown.NewCancel()
	ctx, done := context.WithTimeout(ctx, p.budget)
	defer done()
	defer context.AfterFunc(ctx, cancel.Cancel)()
	opts := []rego.EvalOption{
		rego.EvalParsedInput(inputOf(q, &shared.steps)),
		rego.EvalTransaction(transaction{facts: shared.at(s)}),
		rego.EvalExternalCancel(cancel),
		rego.EvalMetrics(metrics.NoOp()),
	}
	rs, err := query.Eval(ctx, opts...)
	switch {
	case err != nil:
		return nil, p.fault(err)
	case len(rs) == 0 && query == &p.outputs:
		return nil, p.undefined(ctx, opts)
	case len(rs) == 0:
		return ast.NullTerm(), nil
	}
	term, ok := rs[0].Expressions[0].Value.(*ast.Term)
	if !ok {
		return nil, p.machinery(decision.CodePolicyError, "", "the result is a %T", rs[0].Expressions[0].Value)
	}
	return term, nil
}

func (p *Policy) of(a application) *perApplication {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.applications[a]
	if known == nil {
		if len(p.applications) >= mostApplications {
			clear(p.applications)
		}
		known = &perApplication{}
		p.applications[a] = known
	}
	return known
}

// at gives the view of a snapshot, made from the one before.
func (a *perApplication) at(s *facts.Snapshot) *view {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.view == nil || a.view.snapshot != s {
		a.view = newView(s, a.view)
	}
	return a.view
}

func outcomeOf(t *ast.Term) (decision.Outcome, error) {
	var o decision.Outcome
	obj, ok := t.Value.(ast.Object)
	if !ok {
		return o, fmt.Errorf("the result is no object but %v", t)
	}
	var err error
	for name, into := range map[string]*[]any{"deny": &o.Deny, "defer": &o.Defer, "warn": &o.Warn} {
		if *into, err = membersOf(obj.Get(ast.InternedTerm(name))); err != nil {
			return o, err
		}
	}
	approve, err := membersOf(obj.Get(ast.InternedTerm("approve")))
	if err == nil && len(approve) > 0 {
		o.Approve = approve[0]
	}
	return o, err
}

// membersOf decodes a set or list in order. Anything else counts as one member, which combining then refuses.
func membersOf(t *ast.Term) ([]any, error) {
	var members []any
	var failed error
	add := func(m *ast.Term) {
		decoded, err := jsonOf(m)
		if err != nil {
			failed = err
		}
		members = append(members, decoded)
	}
	switch v := t.Value.(type) {
	case ast.Set:
		if v.Len() > 0 {
			v.Sorted().Foreach(add)
		}
	case *ast.Array:
		v.Foreach(add)
	default:
		add(t)
	}
	return members, failed
}

// jsonOf decodes a term, numbers as float64.
func jsonOf(t *ast.Term) (any, error) {
	decoded, err := ast.JSON(t.Value)
	if err != nil {
		return nil, err
	}
	return plain(decoded)
}

func plain(v any) (any, error) {
	var err error
	switch x := v.(type) {
	case json.Number:
		return x.Float64()
	case []any:
		for i := range x {
			if x[i], err = plain(x[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range x {
			if x[k], err = plain(x[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
