package bundle

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

const (
	capabilitiesFile = "capabilities/v1.json"
	schemaFolder     = "schema"
	testingFolder    = "testing/"
)

// Library is the shared Rego that every bundle is compiled with. It is read once and never changed.
type Library struct {
	// Digest changes with the library's content.
	Digest       string
	modules      map[string]*ast.Module
	testing      map[string]*ast.Module
	capabilities *ast.Capabilities
	schemas      *ast.SchemaSet
}

// LoadLibrary reads the library from files laid out as the policies folder: Rego anywhere, test helpers in
// testing/*_test.rego, schema/<name>/<version>.json and capabilities/v1.json. Other *_test.rego are left out. A
// library without capabilities is refused, since policies could then reach the network.
func LoadLibrary(files fs.FS) (*Library, error) {
	l := &Library{modules: map[string]*ast.Module{}, testing: map[string]*ast.Module{}, schemas: ast.NewSchemaSet()}
	all := map[string][]byte{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		kept, err := l.add(name, raw)
		if kept {
			all[name] = raw
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the policy library: %w", err)
	}
	if l.capabilities == nil {
		return nil, fmt.Errorf("reading the policy library: %s is missing", capabilitiesFile)
	}
	l.Digest = digest(all)
	return l, nil
}

func (l *Library) add(name string, raw []byte) (kept bool, err error) {
	switch {
	case name == capabilitiesFile:
		l.capabilities, err = ast.LoadCapabilitiesJSON(strings.NewReader(string(raw)))
		return true, err
	case strings.HasPrefix(name, schemaFolder+"/") && path.Ext(name) == ".json":
		return true, l.addSchema(name, raw)
	case path.Ext(name) != regoSuffix:
		return false, nil
	}
	into := l.modules
	if strings.HasSuffix(name, testSuffix) {
		if !strings.HasPrefix(name, testingFolder) {
			return false, nil
		}
		into = l.testing
	}
	m, err := parse(path.Join("policies", name), raw)
	if err != nil {
		return false, err
	}
	into[m.Package.Location.File] = m
	return true, nil
}

func (l *Library) addSchema(name string, raw []byte) error {
	var schema any
	if err := json.Unmarshal(raw, &schema); err != nil {
		return fmt.Errorf("parsing %s: %w", name, err)
	}
	ref := ast.Ref{ast.SchemaRootDocument}
	for _, s := range splitPath(strings.TrimSuffix(strings.TrimPrefix(name, schemaFolder), ".json")) {
		ref = ref.Append(ast.StringTerm(s))
	}
	l.schemas.Put(ref, schema)
	return nil
}

// parse reads one file of Rego v1 with its annotations; the error is a Problems.
func parse(file string, raw []byte) (*ast.Module, error) {
	m, err := ast.ParseModuleWithOpts(file, string(raw), ast.ParserOptions{ProcessAnnotation: true, RegoVersion: ast.RegoV1})
	if err == nil {
		if m == nil {
			return nil, problemsIn(file, "empty file; want a package")
		}
		return m, nil
	}
	ps := fromOPA(err)
	if old, oldErr := ast.ParseModuleWithOpts(file, string(raw), ast.ParserOptions{RegoVersion: ast.RegoV0}); oldErr == nil && old != nil {
		return nil, Problems{{File: file, Line: ps[0].Line, Message: "written in Rego v0, which is not supported; rewrite it with: opa fmt --write --v0-v1 " + path.Dir(file)}}
	}
	return nil, ps
}
