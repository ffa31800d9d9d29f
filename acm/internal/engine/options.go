package engine

import (
	"fmt"
	"maps"
	"path"
	"sort"
	"strconv"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/decision"
)

// options holds a bundle's checks and its overrides; merged results are kept by which overrides match.
type options struct {
	// file is where the checks are written, for messages.
	file      string
	checks    map[string]any
	overrides []override
	merged    sync.Map // string of the matching overrides -> *decision.Options
}

type override struct {
	match  map[string]string
	checks map[string]any
}

var matchKeys = map[string]func(decision.OptionsKey) string{
	"application": func(k decision.OptionsKey) string { return k.Application },
	"namespace":   func(k decision.OptionsKey) string { return k.Namespace },
	"set":         func(k decision.OptionsKey) string { return k.Set },
	"type":        func(k decision.OptionsKey) string { return k.Type },
	"stage":       func(k decision.OptionsKey) string { return k.Stage },
	"pod":         func(k decision.OptionsKey) string { return k.Pod },
	"cause":       func(k decision.OptionsKey) string { return k.Cause },
}

// readOptions takes apart data.apps.<policy>.config. No config means no checks, which never approves.
func readOptions(b *bundle.Bundle, config any) (*options, error) {
	r := reader{file: path.Join(b.Folder, "data.json")}
	o := &options{file: r.file}
	top := r.object("config", config)
	for _, k := range sorted(top) {
		switch k {
		case "checks":
			o.checks = r.object("checks", top[k])
		case "overrides":
			o.overrides = r.overrides(top[k])
		default:
			r.fault("config.%s: unknown key; known: checks, overrides", k)
		}
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return o, nil
}

type reader struct {
	file     string
	problems bundle.Problems
}

func (r *reader) fault(format string, args ...any) {
	r.problems = append(r.problems, bundle.Problem{File: r.file, Message: fmt.Sprintf(format, args...)})
}

func (r *reader) object(at string, v any) map[string]any {
	if v == nil {
		return nil
	}
	obj, ok := v.(map[string]any)
	if !ok {
		r.fault("%s: want an object", at)
	}
	return obj
}

func (r *reader) overrides(v any) []override {
	list, ok := v.([]any)
	if !ok {
		r.fault("overrides: want a list of {match, checks}")
		return nil
	}
	var all []override
	for i, entry := range list {
		at := fmt.Sprintf("overrides[%d]", i)
		obj := r.object(at, entry)
		for _, k := range sorted(obj) {
			if k != "match" && k != "checks" {
				r.fault("%s.%s: unknown key; known: match, checks", at, k)
			}
		}
		all = append(all, override{match: r.match(at, obj["match"]), checks: r.object(at+".checks", obj["checks"])})
	}
	return all
}

func (r *reader) match(at string, v any) map[string]string {
	match := map[string]string{}
	obj := r.object(at+".match", v)
	if len(obj) == 0 {
		r.fault("%s.match: missing; known keys: %s", at, strings.Join(sorted(matchKeys), ", "))
	}
	for _, k := range sorted(obj) {
		text, ok := obj[k].(string)
		switch {
		case matchKeys[k] == nil:
			r.fault("%s.match.%s: unknown key; known: %s", at, k, strings.Join(sorted(matchKeys), ", "))
		case !ok:
			r.fault("%s.match.%s: want a string", at, k)
		default:
			match[k] = text
		}
	}
	return match
}

// of gives the options of a question; equal keys give the same pointer.
func (o *options) of(key decision.OptionsKey) *decision.Options {
	which := make([]byte, len(o.overrides))
	for i, ov := range o.overrides {
		which[i] = '0'
		if ov.matches(key) {
			which[i] = '1'
		}
	}
	if known, ok := o.merged.Load(string(which)); ok {
		return known.(*decision.Options)
	}
	made := o.merge(string(which))
	kept, _ := o.merged.LoadOrStore(string(which), made)
	return kept.(*decision.Options)
}

func (ov override) matches(key decision.OptionsKey) bool {
	for k, want := range ov.match {
		if matchKeys[k](key) != want {
			return false
		}
	}
	return true
}

func (o *options) merge(which string) *decision.Options {
	checks := mergeDeep(nil, o.checks)
	for i, ov := range o.overrides {
		if which[i] == '1' {
			checks = mergeDeep(checks, ov.checks)
		}
	}
	for name, v := range checks {
		switch v {
		case true:
			checks[name] = map[string]any{}
		case false:
			delete(checks, name)
		}
	}
	return &decision.Options{Checks: checks, Compiled: ast.NewTerm(ast.MustInterfaceToValue(checks))}
}

// mergeDeep gives a new object: objects merge key by key, anything else of over replaces.
func mergeDeep(base, over map[string]any) map[string]any {
	merged := make(map[string]any, len(base)+len(over))
	maps.Copy(merged, base)
	for k, v := range over {
		a, okA := merged[k].(map[string]any)
		b, okB := v.(map[string]any)
		switch {
		case okA && okB:
			merged[k] = mergeDeep(a, b)
		case okB:
			merged[k] = mergeDeep(nil, b)
		case okA && v == true:
			// "on" leaves the thresholds of a check that is on already as they are.
		default:
			merged[k] = v
		}
	}
	return merged
}

// each gives every combination a validator must see: the checks alone, and with each override alone.
func (o *options) each(visit func(label string, checks map[string]any)) {
	none := strings.Repeat("0", len(o.overrides))
	visit("", o.merge(none).Checks)
	for i := range o.overrides {
		one := []byte(none)
		one[i] = '1'
		visit("overrides["+strconv.Itoa(i)+"]: ", o.merge(string(one)).Checks)
	}
}

func sorted[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
