package policies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/stretchr/testify/require"

	"assent.dev/assent/policies"
)

// library parses all Rego of the embedded files, annotations included.
func library(t *testing.T) map[string]*ast.Module {
	t.Helper()
	modules := map[string]*ast.Module{}
	require.NoError(t, fs.WalkDir(policies.Files(), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".rego" {
			return err
		}
		text, err := fs.ReadFile(policies.Files(), name)
		if err != nil {
			return err
		}
		modules[name], err = ast.ParseModuleWithOpts(name, string(text), ast.ParserOptions{ProcessAnnotation: true, RegoVersion: ast.RegoV1})
		return err
	}))
	return modules
}

// withBundles adds the Rego and data of the shipped bundles.
func withBundles(t *testing.T, modules map[string]*ast.Module) map[string]any {
	t.Helper()
	data := map[string]any{}
	require.NoError(t, filepath.WalkDir("../bundles", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		switch {
		case path.Ext(name) == ".rego":
			modules[name], err = ast.ParseModuleWithOpts(name, string(text), ast.ParserOptions{RegoVersion: ast.RegoV1})
		case path.Base(name) == "data.json":
			var doc map[string]any
			err = json.Unmarshal(text, &doc)
			segments := strings.Split(filepath.ToSlash(filepath.Dir(name)), "/")[3:]
			for _, s := range slices.Backward(segments) {
				doc = map[string]any{s: doc}
			}
			merge(data, doc)
		}
		return err
	}))
	return data
}

func merge(into, from map[string]any) {
	for k, v := range from {
		a, okA := into[k].(map[string]any)
		b, okB := v.(map[string]any)
		if okA && okB {
			merge(a, b)
		} else {
			into[k] = v
		}
	}
}

func readJSON(t *testing.T, name string) any {
	t.Helper()
	text, err := fs.ReadFile(policies.Files(), name)
	require.NoError(t, err)
	var doc any
	require.NoError(t, json.Unmarshal(text, &doc))
	return doc
}

func allowed(t *testing.T) *ast.Capabilities {
	t.Helper()
	text, err := fs.ReadFile(policies.Files(), policies.Capabilities)
	require.NoError(t, err)
	capabilities, err := ast.LoadCapabilitiesJSON(strings.NewReader(string(text)))
	require.NoError(t, err)
	return capabilities
}

func compile(t *testing.T, modules map[string]*ast.Module, capabilities *ast.Capabilities) *ast.Compiler {
	t.Helper()
	schemas := ast.NewSchemaSet()
	schemas.Put(ast.MustParseRef("schema.input.v1"), readJSON(t, policies.InputSchema))
	schemas.Put(ast.MustParseRef("schema.facts.v1"), readJSON(t, policies.FactsSchema))
	c := ast.NewCompiler().WithCapabilities(capabilities).WithStrict(true).WithSchemas(schemas).
		WithUseTypeCheckAnnotations(true).WithEnablePrintStatements(true)
	c.Compile(modules)
	require.False(t, c.Failed(), c.Errors)
	return c
}

// Stock `opa test` takes a failed built-in for undefined, and a rule that vanishes so may have been a deny.
func TestPO05EveryTestPassesWithFailedBuiltinsRaised(t *testing.T) {
	modules := library(t)
	data := withBundles(t, modules)
	store := inmem.NewFromObject(data)
	ctx := context.Background()
	txn, err := store.NewTransaction(ctx, storage.TransactionParams{})
	require.NoError(t, err)
	defer store.Abort(ctx, txn)
	results, err := tester.NewRunner().SetCompiler(compile(t, modules, allowed(t))).SetStore(store).
		RaiseBuiltinErrors(true).CapturePrintOutput(true).RunTests(ctx, txn)
	require.NoError(t, err)
	ran := 0
	for r := range results {
		ran++
		require.True(t, r.Pass(), "%s.%s: %v\n%s", r.Package, r.Name, r.Error, r.Output)
	}
	require.Greater(t, ran, 200)
}

func TestEveryRuleTellsWhatItIsFor(t *testing.T) {
	for name, m := range library(t) {
		if strings.HasSuffix(name, "_test.rego") && !strings.Contains(text(t, name), "package acm.testing\n") {
			continue
		}
		told := map[string]bool{}
		for _, r := range m.Rules {
			rule := r.Head.Ref().String()
			if !isReasons(r) && told[rule] {
				continue
			}
			require.NotEmpty(t, r.Annotations, "%s: %s has no METADATA", r.Location, rule)
			require.NotEmpty(t, r.Annotations[0].Title, "%s: title", r.Location)
			require.NotEmpty(t, r.Annotations[0].Description, "%s: description", r.Location)
			told[rule] = true
			if isReasons(r) {
				require.NotEmpty(t, r.Annotations[0].RelatedResources, "%s: related_resources", r.Location)
				require.Equal(t, codesIn(r), codesTold(r.Annotations[0]), "%s: custom.codes", r.Location)
			}
		}
	}
}

func isReasons(r *ast.Rule) bool {
	return r.Head.RuleKind() == ast.MultiValue && slices.Contains([]string{"deny", "defer", "warn"}, string(r.Head.Name))
}

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := fs.ReadFile(policies.Files(), name)
	require.NoError(t, err)
	return string(b)
}

var codePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$`)

// codesIn are the constant codes that a rule's reasons carry.
func codesIn(r *ast.Rule) []string {
	codes := []string{}
	ast.WalkTerms(r, func(t *ast.Term) bool {
		obj, ok := t.Value.(ast.Object)
		if !ok {
			return false
		}
		if code := obj.Get(ast.StringTerm("code")); code != nil {
			if s, ok := code.Value.(ast.String); ok {
				codes = append(codes, string(s))
			}
		}
		return false
	})
	return codes
}

// codesTold are the codes of the annotation; budget's are made from the grouping's name and stand for themselves.
func codesTold(a *ast.Annotations) []string {
	told := []string{}
	list, _ := a.Custom["codes"].([]any)
	for _, c := range list {
		if s := fmt.Sprint(c); !strings.HasPrefix(s, "budget.") || s == "budget.unknown" {
			told = append(told, s)
		}
	}
	return told
}

func TestCodesAreWellFormedAndBeginWithTheirCheck(t *testing.T) {
	for name, m := range library(t) {
		if path.Dir(name) != "checks" || strings.HasSuffix(name, "_test.rego") {
			continue
		}
		check := strings.TrimSuffix(path.Base(name), ".rego")
		require.Equal(t, "data.acm.checks."+check, m.Package.Path.String(), name)
		for _, r := range m.Rules {
			for _, code := range codesIn(r) {
				require.Regexp(t, codePattern, code)
				require.True(t, strings.HasPrefix(code, check+"."), "%s: %s", r.Location, code)
			}
		}
	}
}

// What every author's worlds look like must be what the schemas promise, or the checks against them mean nothing.
func TestWorldsFitTheSchemas(t *testing.T) {
	modules := library(t)
	data := withBundles(t, modules)
	capabilities := allowed(t)
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if b.Name == ast.JSONMatchSchema.Name {
			capabilities.Builtins = append(capabilities.Builtins, b)
		}
	}
	schemas := map[string]any{"input": readJSON(t, policies.InputSchema), "facts": readJSON(t, policies.FactsSchema)}
	rs, err := rego.New(
		rego.Query(`errors := {[name, e] |
			derived := [w | some w in data.acm.testing.blind("etcd"); w.input.target.peers; w.facts != {}]
			some w in array.concat([data.acm.testing.world(spec) | some spec in input.specs], derived)
			some name, schema in input.schemas
			[ok, found] := json.match_schema(w[name], schema)
			not ok
			some e in found
		}`),
		rego.Compiler(compile(t, modules, capabilities)), rego.Store(inmem.NewFromObject(data)), rego.StrictBuiltinErrors(true),
		rego.Input(map[string]any{"schemas": schemas, "specs": specs()}),
	).Eval(context.Background())
	require.NoError(t, err)
	require.Len(t, rs, 1)
	require.Empty(t, rs[0].Bindings["errors"])
}

func specs() []map[string]any {
	full := map[string]any{
		"operation": map[string]any{
			"type": "deployment", "pod": "db-1", "cause": "rollout", "node": "n", "revision_from": "r1", "revision_to": "r2",
			"deadline": 1764550000, "canaries_done_at": 1764540000.5, "deletes_data": true,
		},
		"pods": map[string]any{
			"db-0": map[string]any{"zone": "a", "groups": map[string]any{"tier": "x"}}, "db-1": map[string]any{"zone": "b", "groups": map[string]any{"tier": "x"}},
			"db-2": map[string]any{"phase": "Missing"}, "db-3": map[string]any{"node": "", "ready": false, "phase": "Pending"},
		},
		"members": map[string]any{
			"db-0": map[string]any{"role": "leader", "requests_per_second": 10.5, "connections": 3},
			"db-1": map[string]any{}, "db-2": map[string]any{"unknown": map[string]any{"healthy": "time-out"}},
		},
		"shards": map[string]any{
			"s1": map[string]any{"leader": "db-1", "replicas": []any{"db-0", "db-1"}, "min_in_sync": 2},
			"s2": map[string]any{"replicas": []any{"db-1"}, "in_sync": []any{}},
		},
		"nodes": map[string]any{"n": map[string]any{"ready": true, "schedulable": false, "zone": "a", "maintenance": "temporary", "out_of_service": false}},
		"raw":   map[string]any{"etcd": map[string]any{"anything": []any{1, "x"}}},
		"collectors": map[string]any{
			"etcd": map[string]any{"ok": false, "as_of": 1764547000.25, "error": "time-out"},
		},
		"in_flight": map[string]any{
			"db-0": map[string]any{"type": "swap", "stage": "remove", "state": "approved", "cause": "node-lost", "deletes_data": true},
		},
		"waiting":  []any{"db-3"},
		"history":  map[string]any{"approved": []any{1764547100}},
		"disabled": map[string]any{"quorum": map[string]any{}},
		"sets":     map[string]any{"db": map[string]any{"replicas": 3, "max_unavailable": 1, "revision": "r2"}},
		"options":  map[string]any{"quorum": map[string]any{"spare": 1}},
	}
	return []map[string]any{full, {"operation": map[string]any{"type": "scale-out", "pod": "db-0"}}}
}

// Every field of a schema is documentation, and every object is closed, or a misspelled key in a fixture passes.
func TestSchemasDescribeEveryField(t *testing.T) {
	for _, name := range []string{policies.InputSchema, policies.FactsSchema} {
		described(t, name, readJSON(t, name))
	}
}

func described(t *testing.T, at string, node any) {
	t.Helper()
	schema, ok := node.(map[string]any)
	require.True(t, ok, at)
	require.NotEmpty(t, schema["description"], at)
	if props, ok := schema["properties"].(map[string]any); ok {
		require.Equal(t, false, schema["additionalProperties"], at)
		require.NotNil(t, schema["required"], at)
		for key, prop := range props {
			described(t, at+"."+key, prop)
		}
		for _, key := range schema["required"].([]any) {
			require.Contains(t, props, key, at)
		}
	} else if more, ok := schema["additionalProperties"]; ok {
		described(t, at+".*", more)
	}
	if items, ok := schema["items"]; ok {
		described(t, at+"[]", items)
	}
}

// PO-08: a policy reaches no network, no environment, no clock and no dice.
func TestPO08CapabilitiesAreAllDeterministicBuiltins(t *testing.T) {
	want := map[string]bool{}
	for _, b := range ast.CapabilitiesForThisVersion().Builtins {
		if !b.IsNondeterministic() {
			want[b.Name] = true
		}
	}
	capabilities := allowed(t)
	got := map[string]bool{}
	for _, b := range capabilities.Builtins {
		got[b.Name] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	require.NotNil(t, capabilities.AllowNet)
	require.Empty(t, capabilities.AllowNet)
	for _, name := range []string{"http.send", "net.lookup_ip_addr", "opa.runtime", "time.now_ns", "rand.intn", "uuid.rfc4122"} {
		require.NotContains(t, got, name)
	}
}

func TestFilesHoldTheWholeLibrary(t *testing.T) {
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || (path.Ext(name) != ".rego" && path.Ext(name) != ".json") {
			return err
		}
		onDisk, err := os.ReadFile(name)
		require.NoError(t, err)
		embedded, err := fs.ReadFile(policies.Files(), filepath.ToSlash(name))
		require.NoError(t, err)
		require.Equal(t, string(onDisk), string(embedded), name)
		return nil
	}))
}
