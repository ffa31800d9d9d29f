package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// FromJSON reads a facts document, as GetApplication, the decision log and acm.testing.world write
// it: either the document itself or an object with the document under "facts". The index is
// derived anew. The error names the field that does not fit.
func FromJSON(text []byte) (*Snapshot, error) {
	var wrapped struct {
		Facts json.RawMessage `json:"facts"`
	}
	if err := json.Unmarshal(text, &wrapped); err != nil {
		return nil, fmt.Errorf("reading facts: %w", err)
	}
	if wrapped.Facts != nil {
		text = wrapped.Facts
	}
	var d document
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return nil, fmt.Errorf("reading facts: %w", err)
	}
	return d.snapshot(), nil
}

// snapshot gives application facts to the first collector that is not kubernetes, or to one named "document".
func (d *document) snapshot() *Snapshot {
	c := Changes{Pods: d.Pods, Nodes: d.Nodes}
	reports := map[string]*Report{}
	for name, source := range d.Collectors {
		if source != nil {
			reports[name] = &Report{Collector: name, OK: true, AsOf: source.AsOf}
		}
	}
	for name, raw := range d.Raw {
		report(reports, name).Facts = &Facts{Raw: raw}
	}
	if d.Members != nil || d.Shards != nil || d.Election != nil {
		r := report(reports, d.owner())
		if r.Facts == nil {
			r.Facts = &Facts{}
		}
		r.Facts.Election = d.Election
		if d.Members != nil {
			r.Facts.Members = *d.Members
		}
		if d.Shards != nil {
			r.Facts.Shards = *d.Shards
		}
	}
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		c.Reports = append(c.Reports, *reports[name])
	}
	next := empty().after(c)
	return next.standing(d.Collectors)
}

// standing restores what was said of the collectors.
func (s *Snapshot) standing(collectors map[string]*Collector) *Snapshot {
	next := *s
	next.collectors = maps.Clone(s.collectors)
	for name, c := range collectors {
		if c != nil {
			next.collectors[name] = &Source{Collector: *c, facts: s.collectors[name].facts}
		}
	}
	return &next
}

func (d *document) owner() string {
	for _, name := range slices.Sorted(maps.Keys(d.Collectors)) {
		if name != Kubernetes {
			return name
		}
	}
	return "document"
}

func report(reports map[string]*Report, name string) *Report {
	if reports[name] == nil {
		reports[name] = &Report{Collector: name, OK: true}
	}
	return reports[name]
}

// Kubernetes is the name of the collector that delivers pods and nodes.
const Kubernetes = "kubernetes"
