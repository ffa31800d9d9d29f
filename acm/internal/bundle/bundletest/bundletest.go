// Package bundletest makes small bundles and a small library for tests of the packages that load and serve them.
package bundletest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/bundle"
)

// Files is a bundle by path relative to its folder.
type Files map[string]string

// With is a copy with some files replaced; an empty text removes a file.
func (f Files) With(more Files) Files {
	all := Files{}
	for _, part := range []Files{f, more} {
		for name, text := range part {
			if all[name] = text; text == "" {
				delete(all, name)
			}
		}
	}
	return all
}

// Manifest is a valid .manifest of a policy.
func Manifest(policy string) string {
	return `{"roots": ["apps/` + policy + `", "apps/` + policy + `_test"], "rego_version": 1,
 "metadata": {"assent": {"contract": "v1", "collectors": {"kubernetes": {"max_age_seconds": 10}}}}}`
}

// Bundle is a valid bundle: it approves deployments, denies pods called forbidden, and has two tests.
func Bundle(policy string) Files {
	return Files{
		".manifest": Manifest(policy),
		"policy.rego": `package apps.` + policy + `

deny contains {"code": "own.forbidden", "message": "never this pod"} if input.operation.pod == "forbidden"

defer contains {"code": "own.busy", "message": "busy"} if input.target.goes_down == false

approve if input.operation.type == "deployment"
`,
		"policy_test.rego": `package apps.` + policy + `_test

import data.apps.` + policy + ` as policy

test_approves if policy.approve with input.operation.type as "deployment"

test_denies if count(policy.deny) == 1 with input.operation.pod as "forbidden"
`,
	}
}

// Write puts the files into a folder of their own below dir and gives its path.
func Write(t testing.TB, dir, folder string, files Files) string {
	t.Helper()
	at := filepath.Join(dir, folder)
	for name, text := range files {
		full := filepath.Join(at, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
	}
	return at
}

// Mount lays the files out as the kubelet does for a ConfigMap: a dated folder behind ..data, and a symlink for each
// key. Mounting again swaps ..data in one rename.
func Mount(t testing.TB, at, version string, files Files) {
	t.Helper()
	dated := "..2026_10_10_" + version
	Write(t, at, dated, files)
	require.NoError(t, os.Symlink(dated, filepath.Join(at, "..data_tmp")))
	require.NoError(t, os.Rename(filepath.Join(at, "..data_tmp"), filepath.Join(at, "..data")))
	for name := range files {
		link := filepath.Join(at, name)
		if _, err := os.Lstat(link); os.IsNotExist(err) {
			require.NoError(t, os.Symlink(filepath.Join("..data", name), link))
		}
	}
	old, err := filepath.Glob(filepath.Join(at, "..2026_10_10_*"))
	require.NoError(t, err)
	for _, o := range old {
		if filepath.Base(o) != dated {
			require.NoError(t, os.RemoveAll(o))
		}
	}
}

// Library is a library with one check, "limit", whose only option is max.
func Library(t testing.TB) *bundle.Library {
	t.Helper()
	l, err := bundle.LoadLibrary(fstest.MapFS{
		"acm/acm.rego": {Data: []byte(`package acm

deny contains r if {
	some name, _ in input.options
	some r in data.acm.checks[name].deny
}

defer contains r if {
	some name, _ in input.options
	some r in data.acm.checks[name].defer
}

warn := set()

clear if {
	count(input.options) > 0
	count(deny) == 0
	count(defer) == 0
}

option_errors(config) := {text |
	some name, check in config.checks
	some text in problems(name, check)
}

problems(name, _) := {sprintf("checks.%s: no such check; known: limit", [name])} if name != "limit"

problems("limit", check) := {sprintf("checks.limit.%s: no such option; known: max", [k]) |
	is_object(check)
	some k, _ in check
	k != "max"
}
`)},
		"checks/limit.rego": {Data: []byte(`package acm.checks.limit

deny := set()

defer contains {"code": "limit.full", "message": "full"} if input.totals.down.count >= input.options.limit.max
`)},
		"testing/testing_test.rego": {Data: []byte("package acm.testing\n\nanswer := 42\n")},
		"capabilities/v1.json":      {Data: capabilities(t)},
		"schema/input/v1.json":      {Data: []byte(`{"type": "object"}`)},
		"schema/facts/v1.json":      {Data: []byte(`{"type": "object"}`)},
	})
	require.NoError(t, err)
	return l
}

func capabilities(t testing.TB) []byte {
	t.Helper()
	c := ast.CapabilitiesForThisVersion()
	var deterministic []*ast.Builtin
	for _, b := range c.Builtins {
		if !b.Nondeterministic {
			deterministic = append(deterministic, b)
		}
	}
	c.Builtins, c.AllowNet = deterministic, []string{}
	raw, err := json.Marshal(c)
	require.NoError(t, err)
	return raw
}
