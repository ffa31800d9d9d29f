package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"
)

// ContractVersion is the policy contract that this version of the ACM speaks.
const ContractVersion = "v1"

const rootParent = "apps"

var (
	policyName   = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	groupName    = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	reservedName = map[string]bool{"application": true, "set": true, "zone": true, "node": true, "shard": true}
)

// Manifest is a bundle's checked .manifest.
type Manifest struct {
	// Policy is the bundle's name: the last segment of its first root.
	Policy string
	// Root is "apps/<policy>". Packages and data may also lie under "apps/<policy>_test".
	Root string
	// Roots are all documents the bundle may define, as path segments; the first is Root.
	Roots [][]string
	// Revision is what the author wrote as revision, often empty. Bundle.Revision is what decisions carry.
	Revision string
	// Collectors are the sources of facts this policy needs, by name.
	Collectors map[string]Collector
	// Groups are groupings from pod labels, by name; several labels make one name, joined by "/".
	Groups map[string][]string
}

// Collector is what a bundle asks of one source of facts.
type Collector struct {
	// MaxAge is how old its facts may be before an available pod's step is deferred as facts.stale. Positive.
	MaxAge time.Duration
	// Port is where the application answers; 0 means the collector's own default.
	Port int
}

type manifestFile struct {
	Revision    string   `json:"revision"`
	Roots       []string `json:"roots"`
	RegoVersion *int     `json:"rego_version"`
	Metadata    struct {
		Assent *assentMetadata `json:"assent"`
	} `json:"metadata"`
}

type assentMetadata struct {
	Contract   string                   `json:"contract"`
	Collectors map[string]collectorFile `json:"collectors"`
	Groups     map[string]groupFile     `json:"groups"`
}

type collectorFile struct {
	MaxAgeSeconds *float64 `json:"max_age_seconds"`
	Port          int      `json:"port"`
}

type groupFile struct {
	Labels []string `json:"labels"`
}

// ParseManifest reads and checks a .manifest. Keys it does not know are refused with their name, since a misspelled
// key would silently switch a protection off. file is used in problems only. The error is a Problems.
func ParseManifest(file string, raw []byte) (Manifest, error) {
	var f manifestFile
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return Manifest{}, Problems{manifestProblem(file, raw, err)}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Manifest{}, problemsIn(file, "more than one JSON document")
	}
	m, texts := f.checked()
	if len(texts) > 0 {
		var ps Problems
		for _, t := range texts {
			ps = append(ps, Problem{File: file, Message: t})
		}
		return Manifest{}, ps
	}
	return m, nil
}

func manifestProblem(file string, raw []byte, err error) Problem {
	p := Problem{File: file, Message: strings.TrimPrefix(err.Error(), "json: ")}
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		p.Line = lineAt(raw, syntax.Offset)
	case errors.As(err, &typed):
		p.Line = lineAt(raw, typed.Offset)
		p.Message = fmt.Sprintf("%s: %s, want %s", typed.Field, typed.Value, typed.Type)
	case strings.HasPrefix(p.Message, "unknown field "):
		key := strings.TrimPrefix(p.Message, "unknown field ")
		p.Line = lineAt(raw, int64(bytes.Index(raw, []byte(key))))
		p.Message = "unknown key " + key + "; known: revision, roots, rego_version, metadata.assent.{contract, collectors.<name>.{max_age_seconds, port}, groups.<name>.labels}"
	}
	return p
}

func lineAt(raw []byte, offset int64) int {
	if offset < 0 || offset > int64(len(raw)) {
		return 0
	}
	return 1 + bytes.Count(raw[:offset], []byte("\n"))
}

func (f manifestFile) checked() (Manifest, []string) {
	m := Manifest{Revision: f.Revision, Collectors: map[string]Collector{}, Groups: map[string][]string{}}
	var texts []string
	m.Policy, m.Root, texts = checkRoots(f.Roots)
	for _, r := range f.Roots {
		m.Roots = append(m.Roots, splitPath(r))
	}
	if f.RegoVersion != nil && *f.RegoVersion != 1 {
		texts = append(texts, fmt.Sprintf("rego_version: %d, want 1; rewrite the bundle with: opa fmt --write --v0-v1 <folder>", *f.RegoVersion))
	}
	a := f.Metadata.Assent
	if a == nil {
		return m, append(texts, `metadata.assent: missing; want {"contract": "v1", "collectors": {...}}`)
	}
	if a.Contract != ContractVersion {
		texts = append(texts, fmt.Sprintf("metadata.assent.contract: %q, this version knows %q", a.Contract, ContractVersion))
	}
	texts = append(texts, a.checkCollectors(m.Collectors)...)
	texts = append(texts, a.checkGroups(m.Groups)...)
	return m, texts
}

func checkRoots(roots []string) (policy, root string, texts []string) {
	if len(roots) == 0 {
		return "", "", []string{`roots: missing; without them a bundle owns every document; want ["apps/<policy>", "apps/<policy>_test"]`}
	}
	segments := splitPath(roots[0])
	if len(segments) != 2 || segments[0] != rootParent || !policyName.MatchString(segments[1]) {
		return "", "", []string{fmt.Sprintf("roots[0]: %q, want apps/<policy> with a policy name of a-z, 0-9 and _ that begins with a letter", roots[0])}
	}
	policy, root = segments[1], rootParent+"/"+segments[1]
	for i, r := range roots[1:] {
		if strings.Join(splitPath(r), "/") != root+"_test" {
			texts = append(texts, fmt.Sprintf("roots[%d]: %q, only %s_test may stand beside %s", i+1, r, root, root))
		}
	}
	return policy, root, texts
}

// collectors are those that an ACM of this version has.
var collectors = []string{"etcd", "kubernetes"}

func (a assentMetadata) checkCollectors(into map[string]Collector) (texts []string) {
	for _, name := range sortedKeys(a.Collectors) {
		c := a.Collectors[name]
		field := "metadata.assent.collectors." + name
		switch {
		case !slices.Contains(collectors, name):
			texts = append(texts, fmt.Sprintf("%s: no such collector; known: %s", field, strings.Join(collectors, ", ")))
			continue
		case c.MaxAgeSeconds == nil:
			texts = append(texts, field+".max_age_seconds: missing")
			continue
		case *c.MaxAgeSeconds <= 0 || *c.MaxAgeSeconds > 86400:
			texts = append(texts, fmt.Sprintf("%s.max_age_seconds: %v, want more than 0 and at most 86400", field, *c.MaxAgeSeconds))
		case c.Port < 0 || c.Port > 65535:
			texts = append(texts, fmt.Sprintf("%s.port: %d, want 1 to 65535", field, c.Port))
		}
		into[name] = Collector{MaxAge: time.Duration(*c.MaxAgeSeconds * float64(time.Second)), Port: c.Port}
	}
	return texts
}

func (a assentMetadata) checkGroups(into map[string][]string) (texts []string) {
	for _, name := range sortedKeys(a.Groups) {
		field := "metadata.assent.groups." + name
		if reservedName[name] {
			texts = append(texts, field+": the name is taken by the contract")
		}
		if !groupName.MatchString(name) {
			texts = append(texts, field+": want a name of a-z, 0-9 and _ that begins with a letter")
		}
		if len(a.Groups[name].Labels) == 0 {
			texts = append(texts, field+".labels: missing")
		}
		into[name] = a.Groups[name].Labels
	}
	return texts
}

func splitPath(path string) []string {
	return strings.Split(strings.Trim(path, "/"), "/")
}

// within tells whether path lies at or under root, comparing whole segments: a/b/cat is not within a/b/c.
func within(path, root []string) bool {
	if len(path) < len(root) {
		return false
	}
	for i := range root {
		if path[i] != root[i] {
			return false
		}
	}
	return true
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
