package judge

import (
	"context"
	"slices"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// Query asks about steps that nobody has asked for yet: of the named pods, or of all on a node or in a zone.
type Query struct {
	Application decision.ApplicationRef
	Type        decision.Type
	Pods        []string
	Node, Zone  string
}

// Preview answers as Evaluate would, each step as if the approved ones before it were in flight,
// and reserves nothing. What the operator last reported is what it builds on; before the first
// request the sets are taken from the pods.
func (j *Judge) Preview(ctx context.Context, q Query) decision.Answer {
	select {
	case j.turn <- struct{}{}:
		defer func() { <-j.turn }()
	case <-ctx.Done():
		return decision.Answer{}
	}
	snapshot := j.Facts.Snapshot()
	s := j.supposed(q, snapshot)
	if j.ledger == nil {
		return j.quiet().Refuse(s, 0, &decision.MachineryError{
			Code: decision.CodeACMNotDeciding, Message: "this ACM replica does not hold the application's Lease",
		})
	}
	policy, fault := j.Policies.Policy(q.Application.Policy)
	if fault != nil {
		return j.quiet().Refuse(s, j.ledger.Epoch(), fault)
	}
	j.Facts.Configure(policy.Manifest())
	quiet := j.quiet()
	b := quiet.newBatch(s, policy, j.Facts.Snapshot(), quiet.ledger.Flight(s), j.Clock.Now())
	return decision.Answer{Epoch: j.ledger.Epoch(), Decisions: b.run(ctx)}
}

// quiet is a judge for one preview: a copy of the ledger, a log that says so, and nobody to nudge.
func (j *Judge) quiet() *Judge {
	deps := j.Deps
	deps.Log = previewLog{j.Log}
	deps.Nudge = func(string) {}
	q := New(deps)
	q.flight, q.view = j.flight, j.view
	if j.ledger != nil {
		q.ledger = j.ledger.Copy()
	}
	return q
}

type previewLog struct{ Log }

// Decided marks the entry as one of a preview.
func (l previewLog) Decided(e Entry) {
	e.Preview = true
	l.Log.Decided(e)
}

// supposed is the last request with what waits exchanged for the steps asked about.
func (j *Judge) supposed(q Query, snapshot *facts.Snapshot) *decision.State {
	s := stateOfPods(q.Application, snapshot)
	if j.last != nil {
		last := *j.last
		s = &last
	}
	var instances []decision.Instance
	for _, i := range s.Instances {
		if i.State.InFlight() {
			instances = append(instances, i)
		}
	}
	now := j.Clock.Now()
	for name, p := range snapshot.Pods().All() {
		if !(slices.Contains(q.Pods, name) || q.Node != "" && p.Node == q.Node || q.Zone != "" && p.Zone == q.Zone) {
			continue
		}
		instances = append(instances, decision.Instance{
			Step: decision.Step{
				Operation: "preview", Type: q.Type, Stage: firstStage(q.Type), Set: p.Set, Pod: name, Index: p.Index, Incarnation: p.Incarnation,
			},
			State: decision.Waiting, RevisionFrom: p.Revision, WaitingSince: now,
		})
	}
	s.Instances, s.Application = instances, q.Application
	return s
}

func firstStage(t decision.Type) decision.Stage {
	if t == decision.ScaleOut || t == decision.Swap {
		return decision.StageAdd
	}
	return decision.StageRemove
}

// stateOfPods supposes that what is there should be there, and that one pod of each set may be down.
func stateOfPods(a decision.ApplicationRef, snapshot *facts.Snapshot) *decision.State {
	s := &decision.State{Application: a, MaxUnavailable: 1}
	at := map[string]int{}
	for _, p := range snapshot.Pods().All() {
		i, known := at[p.Set]
		if !known {
			i = len(s.Sets)
			at[p.Set] = i
			s.Sets = append(s.Sets, decision.Set{Name: p.Set, MaxUnavailable: 1})
		}
		one := facts.Range{First: p.Index, Last: p.Index}
		if !facts.Contains(s.Sets[i].Wanted, p.Index) {
			s.Sets[i].Wanted = append(s.Sets[i].Wanted, one)
			s.Sets[i].EverAvailable = append(s.Sets[i].EverAvailable, one)
		}
	}
	return s
}
