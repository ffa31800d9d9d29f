package bundle

import (
	"path"
	"strings"

	"github.com/open-policy-agent/opa/v1/util"
)

// mergeData lays every data file at the path of its folder, as OPA does, and refuses what lies outside the roots.
// The error is a Problems.
func mergeData(name string, files map[string][]byte, roots [][]string) (map[string]any, error) {
	merged := map[string]any{}
	for _, rel := range sortedKeys(files) {
		if !isData(rel) {
			continue
		}
		file := path.Join(name, rel)
		var doc any
		if err := util.Unmarshal(files[rel], &doc); err != nil {
			return nil, problemsIn(file, "%v", err)
		}
		at := []string{}
		if dir := path.Dir(rel); dir != "." {
			at = splitPath(dir)
		}
		for i := len(at) - 1; i >= 0; i-- {
			doc = map[string]any{at[i]: doc}
		}
		obj, ok := doc.(map[string]any)
		if !ok {
			return nil, problemsIn(file, "want an object at the top")
		}
		if outside := outsideOf(roots, nil, obj); outside != "" {
			return nil, problemsIn(file, "data at %s is not under the manifest's root %s", outside, strings.Join(roots[0], "/"))
		}
		if clash := mergeInto(merged, obj, nil); clash != "" {
			return nil, problemsIn(file, "data at %s is also given by another file", clash)
		}
	}
	return merged, nil
}

func outsideOf(roots [][]string, at []string, doc map[string]any) string {
	for _, k := range sortedKeys(doc) {
		here := append(append([]string{}, at...), k)
		if anyWithin(here, roots) {
			continue
		}
		below, isObject := doc[k].(map[string]any)
		if !isObject || !leadsToRoot(here, roots) {
			return strings.Join(here, "/")
		}
		if outside := outsideOf(roots, here, below); outside != "" {
			return outside
		}
	}
	return ""
}

func anyWithin(p []string, roots [][]string) bool {
	for _, r := range roots {
		if within(p, r) {
			return true
		}
	}
	return false
}

func leadsToRoot(p []string, roots [][]string) bool {
	for _, r := range roots {
		if within(r, p) {
			return true
		}
	}
	return false
}

func mergeInto(into, from map[string]any, at []string) (clash string) {
	for _, k := range sortedKeys(from) {
		here := append(append([]string{}, at...), k)
		old, both := into[k]
		if !both {
			into[k] = from[k]
			continue
		}
		a, okA := old.(map[string]any)
		b, okB := from[k].(map[string]any)
		if !okA || !okB {
			return strings.Join(here, "/")
		}
		if clash := mergeInto(a, b, here); clash != "" {
			return clash
		}
	}
	return ""
}

// below gives the part of doc at path as a document of its own, still at that path; empty when there is nothing.
func below(doc map[string]any, at []string) map[string]any {
	if len(at) == 0 {
		return doc
	}
	child, ok := doc[at[0]].(map[string]any)
	if !ok {
		return map[string]any{}
	}
	return map[string]any{at[0]: below(child, at[1:])}
}
