package bundle

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"assent.dev/assent/acm/internal/judge"
)

// Bundle is one bundle that parsed, compiled and declares what it must. It is never changed once made.
type Bundle struct {
	Manifest Manifest
	// Revision is "<policy>-<digest of the files>", or "<revision of the manifest>-<digest>"; equal content and
	// library give an equal revision.
	Revision string
	// Folder is the name of the folder it came from.
	Folder string
	// Compiler holds the bundle's modules and the library's, without any test.
	Compiler *ast.Compiler
	// Data is the bundle's own data below its root, laid out from the top.
	Data map[string]any
	// Warnings block nothing: slow or treacherous rules, no tests.
	Warnings []Problem

	tests   map[string]*ast.Module
	modules map[string]*ast.Module
	allData map[string]any
}

// Gate is everything a bundle must pass before it decides.
type Gate struct {
	Library *Library
	// Build makes the policy that decides, checks its thresholds and tries one decision. Its error refuses the bundle.
	Build func(context.Context, *Bundle) (judge.Policy, error)
	// TestTimeout bounds one test; 0 means thirty seconds.
	TestTimeout time.Duration
}

// Loaded is a bundle that passed the gate.
type Loaded struct {
	Bundle *Bundle
	Policy judge.Policy
	Tests  Report
}

// Load takes one reading of a bundle through the whole gate. The error is a Problems; the Report is filled as far
// as the tests got. It honors ctx between and within the tests.
func (g Gate) Load(ctx context.Context, c *Content) (*Loaded, Report, error) {
	b, err := g.Library.compile(c)
	if err != nil {
		return nil, Report{}, err
	}
	policy, err := g.Build(ctx, b)
	if err != nil {
		return nil, Report{}, err
	}
	report, err := g.test(ctx, b)
	if err != nil {
		return nil, report, err
	}
	if report.Passed == 0 {
		b.Warnings = append(b.Warnings, Problem{File: b.Folder, Message: "no tests"})
	}
	return &Loaded{Bundle: b, Policy: policy, Tests: report}, report, nil
}

// compile checks the manifest, reads and compiles all modules without tests, and runs the static checks.
func (l *Library) compile(c *Content) (*Bundle, error) {
	raw, ok := c.Files[manifestName]
	if !ok {
		return nil, problemsIn(c.Name, "no %s; a bundle without one would own every document", manifestName)
	}
	m, err := ParseManifest(path.Join(c.Name, manifestName), raw)
	if err != nil {
		return nil, err
	}
	b := &Bundle{Manifest: m, Revision: l.revision(m, c), Folder: c.Name, tests: map[string]*ast.Module{}, modules: map[string]*ast.Module{}}
	if b.allData, err = mergeData(c.Name, c.Files, m.Roots); err != nil {
		return nil, err
	}
	b.Data = below(b.allData, m.Roots[0])
	if err := b.parse(c); err != nil {
		return nil, err
	}
	if b.Compiler, err = l.compiled(b.Data, false, l.modules, b.modules); err != nil {
		return nil, err
	}
	problems, warnings := lint(b)
	if len(problems) > 0 {
		return nil, problems.sorted()
	}
	b.Warnings = warnings.sorted()
	return b, nil
}

func (l *Library) revision(m Manifest, c *Content) string {
	label := m.Revision
	if label == "" {
		label = m.Policy
	}
	both := digest(map[string][]byte{"library": []byte(l.Digest), "bundle": []byte(c.Digest)})
	return label + "-" + both[:revisionHexSize]
}

func (b *Bundle) parse(c *Content) error {
	var problems Problems
	for _, rel := range sortedKeys(c.Files) {
		if !strings.HasSuffix(rel, regoSuffix) {
			continue
		}
		file := path.Join(c.Name, rel)
		m, err := parse(file, c.Files[rel])
		if err != nil {
			problems = append(problems, ProblemsOf(err)...)
			continue
		}
		if !anyWithin(packagePath(m), b.Manifest.Roots) {
			problems = append(problems, problemAt(m.Package.Location, "package %s is not the manifest's root %s",
				strings.Join(packagePath(m), "."), b.Manifest.Root))
			continue
		}
		if strings.HasSuffix(rel, testSuffix) {
			b.tests[file] = m
		} else {
			b.modules[file] = m
		}
	}
	if len(problems) > 0 {
		return problems.sorted()
	}
	return nil
}

// packagePath is "apps", "redis" for package apps.redis.
func packagePath(m *ast.Module) []string {
	var segments []string
	for _, t := range m.Package.Path[1:] {
		if s, ok := t.Value.(ast.String); ok {
			segments = append(segments, string(s))
		}
	}
	return segments
}

// compiled compiles modules together under the restricted capabilities; the error is a Problems.
func (l *Library) compiled(data map[string]any, prints bool, parts ...map[string]*ast.Module) (*ast.Compiler, error) {
	all := map[string]*ast.Module{}
	for _, part := range parts {
		for file, m := range part {
			all[file] = m
		}
	}
	c := ast.NewCompiler().
		WithCapabilities(l.capabilities).
		WithStrict(true).
		WithSchemas(l.schemas).
		WithUseTypeCheckAnnotations(true).
		WithEnablePrintStatements(prints).
		WithPathConflictsCheck(func(p []string) (bool, error) { return exists(data, p), nil })
	c.Compile(all)
	if c.Failed() {
		return nil, fromOPA(c.Errors)
	}
	return c, nil
}

func exists(data map[string]any, at []string) bool {
	var here any = data
	for _, k := range at {
		obj, ok := here.(map[string]any)
		if !ok {
			return false
		}
		if here, ok = obj[k]; !ok {
			return false
		}
	}
	return true
}
