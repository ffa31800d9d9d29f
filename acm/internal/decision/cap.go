package decision

import (
	"fmt"

	"assent.dev/assent/acm/internal/facts"
)

// applicationCap is the scope of the application's own hard cap.
const applicationCap = "application"

// Cap is the operator's hard cap as it stands, so that no approval is given away that the operator
// could not act on. The operator enforces it in any case.
type Cap struct {
	max map[string]int
	// down are the identities that are unavailable or promised, by scope (set name or applicationCap).
	down    map[string]map[string]bool
	repairs map[string]int
	// shown remembers the scopes whose first blocked instance has been evaluated.
	shown map[string]bool
}

// NewCap counts: wanted identities once available and now without an available incarnation, united
// with the removals in flight.
func NewCap(s *State, snapshot *facts.Snapshot, flight *Flight) *Cap {
	c := &Cap{max: map[string]int{}, down: map[string]map[string]bool{}, repairs: map[string]int{}, shown: map[string]bool{}}
	c.max[scopeOf(applicationCap, false)] = s.MaxUnavailable
	for i := range s.Sets {
		c.max[scopeOf(s.Sets[i].Name, true)] = s.Sets[i].MaxUnavailable
	}
	for name := range snapshot.Index().Unavailable.All() {
		p := snapshot.Pods().Get(name)
		if p == nil || !snapshot.EverAvailable(p.Set, p.Index) || availableElsewhere(snapshot, p.Set, p.Index) {
			continue
		}
		c.count(p.Set, p.Index)
	}
	for pod, step := range flight.steps {
		if step.TakesDown() {
			c.Take(step, flight.repairs[pod])
		}
	}
	return c
}

func availableElsewhere(snapshot *facts.Snapshot, set string, index int) bool {
	for _, p := range snapshot.PodsOf(set, index) {
		if p.Available {
			return true
		}
	}
	return false
}

// scopeOf keeps a set that is called "application" apart from the application's own cap.
func scopeOf(name string, isSet bool) string {
	if isSet {
		return "set/" + name
	}
	return name
}

func identityOf(set string, index int) string { return fmt.Sprintf("%s/%d", set, index) }

func (c *Cap) count(set string, index int) {
	key := identityOf(set, index)
	for _, scope := range []string{applicationCap, scopeOf(set, true)} {
		if c.down[scope] == nil {
			c.down[scope] = map[string]bool{}
		}
		c.down[scope][key] = true
	}
}

// Take counts a removal that is in flight or has just been approved.
func (c *Cap) Take(step Step, repair bool) {
	c.count(step.Set, step.Index)
	if repair {
		c.repairs[applicationCap]++
		c.repairs[scopeOf(step.Set, true)]++
	}
}

// Blocks says why the step is beyond the cap: "" when it is not. First is true for the first
// instance that a scope's spent cap meets: its policy reasons are worth showing. PodDown says that
// the pod itself is unavailable, so that its repair costs nobody anything.
func (c *Cap) Blocks(step Step, podDown bool) (why string, first bool) {
	if !step.TakesDown() {
		return "", false
	}
	key := identityOf(step.Set, step.Index)
	for _, scope := range []string{scopeOf(step.Set, true), applicationCap} {
		limit, known := c.max[scope]
		if !known {
			limit = 1
		}
		what := "set " + step.Set
		if scope == applicationCap {
			what = "the application"
		}
		switch {
		case podDown && c.repairs[scope] < limit:
			continue
		case podDown:
			why = fmt.Sprintf("%d repairs of %s are in flight, %d allowed", c.repairs[scope], what, limit)
		case c.down[scope][key] && len(c.down[scope]) <= limit, len(c.down[scope]) < limit:
			continue
		default:
			why = fmt.Sprintf("%d of %s's pods are unavailable or in flight, %d allowed", len(c.down[scope]), what, limit)
		}
		first = !c.shown[scope]
		c.shown[scope] = true
		return why, first
	}
	return "", false
}
