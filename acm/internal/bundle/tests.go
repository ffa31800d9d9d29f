package bundle

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
)

const (
	defaultTestTimeout = 30 * time.Second
	// parallelTests is 1: the gate runs beside decisions and must leave them a processor.
	parallelTests = 1
)

// TestResult is one test of a bundle.
type TestResult struct {
	// Name is "data.apps.redis_test.test_leader_goes_last".
	Name string
	File string
	Line int
	Pass bool
	Skip bool
	// Message says why it did not pass: an error, or what the test printed.
	Message  string
	Duration time.Duration
}

// Report is what a bundle's own tests said.
type Report struct {
	Results []TestResult
	Passed  int
	Failed  int
	Skipped int
	// Coverage is the percentage of the bundle's own lines, without tests, that its tests reached: 0 to 100.
	Coverage float64
	// Reached tells whether any test evaluated a rule of the policy.
	Reached bool
}

// test runs the bundle's tests in a compiler of their own with failing built-ins raised, which stock `opa test`
// cannot do. The error is a Problems with every test that failed.
func (g Gate) test(ctx context.Context, b *Bundle) (Report, error) {
	if len(b.tests) == 0 {
		return Report{}, nil
	}
	compiler, err := g.Library.compiled(b.allData, true, g.Library.modules, g.Library.testing, b.modules, b.tests)
	if err != nil {
		return Report{}, err
	}
	results, coverage, err := g.run(ctx, b, compiler)
	if err != nil {
		return Report{}, Problems{{File: b.Folder, Message: "running the tests: " + err.Error()}}
	}
	report := summarize(results)
	report.cover(coverage.Report(b.modules), b)
	return report, report.problems()
}

func (g Gate) run(ctx context.Context, b *Bundle, compiler *ast.Compiler) ([]*tester.Result, *cover.Cover, error) {
	timeout := g.TestTimeout
	if timeout == 0 {
		timeout = defaultTestTimeout
	}
	store := inmem.NewFromObjectWithOpts(b.allData, inmem.OptRoundTripOnWrite(false))
	txn, err := store.NewTransaction(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer store.Abort(ctx, txn)
	coverage := cover.New()
	found, err := tester.NewRunner().
		SetCompiler(compiler).
		SetStore(store).
		SetParallel(parallelTests).
		SetTimeout(timeout).
		SetPrefixMatchers(rootRefs(b.Manifest.Roots)...).
		RaiseBuiltinErrors(true).
		CapturePrintOutput(true).
		SetCoverageQueryTracer(coverage).
		RunTests(ctx, txn)
	if err != nil {
		return nil, nil, err
	}
	var results []*tester.Result
	for r := range found {
		results = append(results, r)
	}
	return results, coverage, ctx.Err()
}

func rootRefs(roots [][]string) []ast.Ref {
	refs := make([]ast.Ref, 0, len(roots))
	for _, r := range roots {
		refs = append(refs, DataRef(r...))
	}
	return refs
}

// DataRef is data.<segments>.
func DataRef(segments ...string) ast.Ref {
	ref := ast.Ref{ast.DefaultRootDocument}
	for _, s := range segments {
		ref = append(ref, ast.StringTerm(s))
	}
	return ref
}

func summarize(results []*tester.Result) Report {
	var report Report
	for _, r := range results {
		t := TestResult{Name: r.Package + "." + r.Name, Pass: r.Pass(), Skip: r.Skip, Duration: r.Duration, Message: strings.TrimSpace(string(r.Output))}
		if r.Location != nil {
			t.File, t.Line = r.Location.File, r.Location.Row
		}
		if r.Error != nil {
			t.Message = strings.TrimSpace(r.Error.Error() + "\n" + t.Message)
		}
		switch {
		case t.Skip:
			report.Skipped++
		case t.Pass:
			report.Passed++
		default:
			report.Failed++
		}
		report.Results = append(report.Results, t)
	}
	sort.Slice(report.Results, func(i, j int) bool { return report.Results[i].Name < report.Results[j].Name })
	return report
}

// cover counts the bundle's own files; the tracer has seen those of the library and of the tests too.
func (r *Report) cover(seen cover.Report, b *Bundle) {
	covered, missed := 0, 0
	for file := range b.modules {
		if f := seen.Files[file]; f != nil {
			covered, missed = covered+f.CoveredLines, missed+f.NotCoveredLines
		}
	}
	r.Reached = covered > 0
	if covered+missed > 0 {
		r.Coverage = 100 * float64(covered) / float64(covered+missed)
	}
}

func (r Report) problems() error {
	var ps Problems
	for _, t := range r.Results {
		if t.Pass || t.Skip {
			continue
		}
		text := fmt.Sprintf("test %s failed", t.Name)
		if t.Message != "" {
			text += ": " + strings.Join(strings.Fields(t.Message), " ")
		}
		ps = append(ps, Problem{File: t.File, Line: t.Line, Message: text})
	}
	if len(ps) == 0 {
		return nil
	}
	return ps.sorted()
}
