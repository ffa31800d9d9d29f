package judge

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// flightTracker knows when the application last changed in a way that application facts must have
// seen: an instance entering or leaving flight, a Pod's UID or readiness changing, or a question being asked that was
// not asked before. The last is so that a step which waited unasked, in a paused set for one, is not approved on what was
// seen before the question: a member may have died in between, and nothing else would tell.
type flightTracker struct {
	seen, asked map[string]string
	changedAt   time.Time
}

// observe says whether the request shows a change. The first request of a term is one. That something is not asked
// anymore is none.
func (t *flightTracker) observe(s *decision.State, flight *decision.Flight, now time.Time) bool {
	seen, asked := map[string]string{}, map[string]string{}
	for pod, step := range flight.Steps() {
		seen["flight/"+pod] = step.Operation + "/" + string(step.Stage)
	}
	for _, p := range s.Pods {
		seen["pod/"+p.Name] = p.UID + "/" + strconv.FormatBool(p.Ready)
	}
	fresh := false
	for i := range s.Instances {
		if in := &s.Instances[i]; !in.State.InFlight() && in.TakesDown() {
			key := in.Operation + "/" + in.Pod
			asked[key] = string(in.Stage)
			fresh = fresh || t.asked[key] != asked[key]
		}
	}
	t.asked = asked
	if t.seen != nil && maps.Equal(t.seen, seen) && !fresh {
		return false
	}
	t.seen, t.changedAt = seen, now
	return true
}

// freshness judges the standing of the manifest's collectors for one request.
type freshness struct {
	manifest  Manifest
	now       time.Time
	changedAt time.Time
	// reported is the highest Pod resourceVersion that the operator has seen.
	reported uint64
}

func newFreshness(m Manifest, s *decision.State, changedAt, now time.Time) freshness {
	f := freshness{manifest: m, now: now, changedAt: changedAt}
	for _, p := range s.Pods {
		if v, err := strconv.ParseUint(p.ResourceVersion, 10, 64); err == nil {
			f.reported = max(f.reported, v)
		}
	}
	return f
}

// fault is what keeps a collector's facts from approving; nil when nothing does. Behind asks
// whether facts from before the last step count as a fault.
func (f freshness) fault(name string, snapshot *facts.Snapshot, behind bool) *decision.MachineryError {
	source, spec := snapshot.Collectors()[name], f.manifest.Collectors[name]
	switch {
	case !source.Delivered() && (source == nil || source.Error == ""):
		return fault(decision.CodeFactsMissing, name, "collector %s has delivered nothing yet", name)
	case !source.Delivered() || !source.OK:
		return fault(decision.CodeFactsMissing, name, "collector %s fails: %s", name, source.Error)
	}
	age := f.age(source)
	switch {
	case age > spec.MaxAge:
		return fault(decision.CodeFactsStale, name, "facts of collector %s are %s old, %s allowed", name, age.Round(time.Millisecond), spec.MaxAge)
	case behind && name == facts.Kubernetes && snapshot.Seen() < f.reported:
		return fault(decision.CodeFactsBehind, name, "the operator has seen pods at resourceVersion %d, the ACM at %d", f.reported, snapshot.Seen())
	case behind && name != facts.Kubernetes && source.AsOf <= decision.Unix(f.changedAt):
		return fault(decision.CodeFactsBehind, name, "facts of collector %s are from before the last step; new ones are being collected", name)
	}
	return nil
}

func (f freshness) age(source *facts.Source) time.Duration {
	return max(0, time.Duration((decision.Unix(f.now)-source.AsOf)*float64(time.Second)))
}

func fault(code, collector, format string, args ...any) *decision.MachineryError {
	return &decision.MachineryError{Code: code, Message: fmt.Sprintf(format, args...), Details: map[string]any{"collector": collector}}
}

// gate decides for one instance: a fault that must defer it, and otherwise the collectors whose
// facts it may not rely on. Application facts gate only an instance whose pod is available and not
// an add; for others they are unknown, or the first pod and every repair would deadlock. Kubernetes
// facts say whether the pod is available, so they gate whatever takes a pod down or deletes data,
// and when nothing has come at all, everything.
func (f freshness) gate(i *decision.Instance, snapshot *facts.Snapshot) (*decision.MachineryError, []string) {
	var unknown []string
	p := snapshot.Pods().Get(i.Pod)
	available := p != nil && p.Available
	adds := i.Stage == decision.StageAdd
	for _, name := range slices.Sorted(maps.Keys(f.manifest.Collectors)) {
		fault := f.fault(name, snapshot, !adds)
		if fault == nil {
			continue
		}
		gates := available && !adds
		if name == facts.Kubernetes {
			gates = !adds || !snapshot.Collectors()[name].Delivered()
		}
		if gates {
			return fault, nil
		}
		if name != facts.Kubernetes {
			unknown = append(unknown, name)
		}
	}
	return nil, unknown
}

// standing is a short text that changes when a gate may open or close.
func (f freshness) standing(snapshot *facts.Snapshot) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(f.manifest.Collectors)) {
		if fault := f.fault(name, snapshot, true); fault != nil {
			text += name + "=" + fault.Code + ";"
		}
	}
	return text
}

// oldest is the age of the oldest source that the manifest declares and that has delivered.
func (f freshness) oldest(snapshot *facts.Snapshot) time.Duration {
	var oldest time.Duration
	for name := range f.manifest.Collectors {
		if source := snapshot.Collectors()[name]; source.Delivered() {
			oldest = max(oldest, f.age(source))
		}
	}
	return oldest
}
