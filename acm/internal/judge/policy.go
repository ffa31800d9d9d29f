package judge

import (
	"context"
	"time"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// Policy is one application's bundle, loaded and ready. Safe for concurrent use; immutable.
type Policy interface {
	// Revision names the bundle's content; it changes whenever a verdict may.
	Revision() string
	// Manifest is what the bundle declares it needs.
	Manifest() Manifest
	// Options are the merged checks for a question. Equal keys give the same pointer.
	Options(decision.OptionsKey) *decision.Options
	// Evaluate asks for deny, defer, warn and approve. It ends with ctx, at the latest with its own
	// time budget, and turns every failure into Outcome.Err.
	Evaluate(context.Context, *decision.Question, *facts.Snapshot) decision.Outcome
	// Parameters asks for the parameters of an approval, as decoded JSON; nil when the policy has none.
	// Called only after the verdict is approve.
	Parameters(context.Context, *decision.Question, *facts.Snapshot) (any, *decision.MachineryError)
}

// Policies finds the active policy of a bundle name. The error is bundle.missing or bundle.invalid.
type Policies interface {
	Policy(bundle string) (Policy, *decision.MachineryError)
}

// Manifest is the part of a bundle's manifest that collecting and judging need.
type Manifest struct {
	// Collectors by name ("kubernetes", "etcd").
	Collectors map[string]CollectorSpec
	// Groups are pod label groupings by name: the label keys whose values, joined by "/", name the group.
	Groups map[string][]string
}

// CollectorSpec is one collector a bundle declares.
type CollectorSpec struct {
	// MaxAge is how old its facts may be to approve.
	MaxAge time.Duration
	// Settings are the collector's own (for etcd: "port"), as decoded JSON. May be nil.
	Settings map[string]any
}
