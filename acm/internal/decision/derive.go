package decision

import (
	"maps"
	"slices"
	"time"

	"assent.dev/assent/acm/internal/facts"
)

// Batch is what all questions of one request share.
type Batch struct {
	Now   time.Time
	State *State
	View  *View
	// Flight grows with each approval of the batch.
	Flight  *Flight
	History *History
	// Options finds the thresholds of a question.
	Options func(OptionsKey) *Options

	sets    map[string]*SetRef
	waiting map[Type][]string
}

// Derive makes the question for one instance: what the operator and the collectors say, with
// everything that is in flight, and the step itself, counted as if it had happened.
func (b *Batch) Derive(i *Instance) *Question {
	d := &derivation{Batch: b, snapshot: b.View.snapshot, step: i.Step, others: b.Flight.around(i.Pod)}
	d.sortFlight()
	q := &Question{
		Now:         Unix(b.Now),
		Operation:   b.operation(i),
		Application: b.application(),
		Options: b.Options(OptionsKey{
			Application: b.State.Application.Name, Namespace: b.State.Application.Namespace,
			Set: i.Set, Type: string(i.Type), Stage: string(i.Stage), Pod: i.Pod, Cause: i.Cause,
		}),
		Election: d.snapshot.Election(),
		InFlight: d.others,
		History:  b.History,
		Disabled: b.State.disabled(i.Set, b.Now),
	}
	q.Target = d.target()
	q.Totals = d.totals(q.Target.Quorum, q.Target.Leaders)
	return q
}

func (b *Batch) operation(i *Instance) Operation {
	op := Operation{
		ID: i.Operation, Type: i.Type, Stage: i.Stage, Pod: i.Pod, Set: i.Set, Index: i.Index, Incarnation: i.Incarnation,
		TakesDown: i.TakesDown(), Leaves: i.Leaves(), Joins: i.Joins(), DeletesData: i.DeletesData && i.Leaves(),
		Cause: i.Cause, Node: i.Node, WaitingSince: Unix(i.WaitingSince), Canary: i.Canary,
		Progress: b.State.progress(i.Operation),
	}
	if i.Type == Deployment {
		op.RevisionFrom, op.RevisionTo = i.RevisionFrom, i.RevisionTo
	}
	if !i.Deadline.IsZero() {
		at := Unix(i.Deadline)
		op.Deadline = &at
	}
	if set := b.State.set(i.Set); set != nil && !set.CanariesDoneAt.IsZero() {
		at := Unix(set.CanariesDoneAt)
		op.CanariesDoneAt = &at
	}
	return op
}

func (b *Batch) application() Application {
	if b.sets == nil {
		b.sets = make(map[string]*SetRef, len(b.State.Sets))
		for _, s := range b.State.Sets {
			b.sets[s.Name] = &SetRef{Replicas: facts.Count(s.Wanted), MaxUnavailable: s.MaxUnavailable, Revision: s.Revision}
		}
	}
	a := b.State.Application
	return Application{Name: a.Name, Namespace: a.Namespace, Policy: a.Policy, Bootstrapping: b.State.Bootstrapping(), Sets: b.sets}
}

// disabled are the overrides in force for a set.
func (s *State) disabled(set string, now time.Time) map[string]*Disabled {
	out := map[string]*Disabled{}
	for _, d := range s.Disabled {
		if (d.Set == "" || d.Set == set) && now.Before(d.Until) {
			out[d.Name] = &Disabled{Until: Unix(d.Until), By: d.By, Why: d.Why}
		}
	}
	return out
}

// sameType are the pods with an instance of the type that is not denied, sorted.
func (b *Batch) sameType(t Type) []string {
	if b.waiting == nil {
		b.waiting = map[Type][]string{}
		for i := range b.State.Instances {
			in := &b.State.Instances[i]
			if in.State != Denied {
				b.waiting[in.Type] = append(b.waiting[in.Type], in.Pod)
			}
		}
		for t := range b.waiting {
			slices.Sort(b.waiting[t])
			b.waiting[t] = slices.Compact(b.waiting[t])
		}
	}
	return b.waiting[t]
}

// peers are the other pods with the same type waiting or in flight, not denied, sorted.
func (d *derivation) peers() []string {
	if d.peerNames != nil {
		return d.peerNames
	}
	peers := append(make([]string, 0, 8), d.sameType(d.step.Type)...)
	for pod, e := range d.others {
		if e.Type == d.step.Type {
			peers = with(peers, pod)
		}
	}
	d.peerNames = without(peers, d.step.Pod)
	return d.peerNames
}

// derivation is the work of one question.
type derivation struct {
	*Batch
	snapshot *facts.Snapshot
	step     Step
	// others is everybody else's flight; gone and joining are its pods, sorted.
	others  map[string]*InFlight
	gone    []string
	joining []string

	peerNames []string
}

func (d *derivation) sortFlight() {
	for _, pod := range slices.Sorted(maps.Keys(d.others)) {
		switch e := d.others[pod]; {
		case e.Joins:
			d.joining = append(d.joining, pod)
		case e.TakesDown:
			d.gone = append(d.gone, pod)
		}
	}
}

// promised says whether another pod is about to be down although it is available as seen.
func (d *derivation) promised(pod string) bool {
	e := d.others[pod]
	return e != nil && e.TakesDown
}

// counted says whether the pod is one of the identities that should exist and is not just joining.
func (d *derivation) counted(pod string, p *facts.Pod) bool {
	e := d.others[pod]
	return p != nil && (e == nil || !e.Joins) && d.snapshot.Wanted(p.Set, p.Index)
}

func (d *derivation) target() Target {
	p := d.snapshot.Pods().Get(d.step.Pod)
	t := Target{Pod: d.step.Pod, Exists: p != nil && !p.Missing(), Down: p != nil && !p.Available}
	if t.Exists {
		t.describe(p)
	}
	t.GoesDown = d.step.TakesDown() && !t.Down
	if e := d.snapshot.Election(); e != nil {
		t.IsLeader = e.Leader == d.step.Pod
	}
	t.Member = d.snapshot.Members().Get(d.step.Pod)
	t.Groups, t.Custom = d.memberships(p)
	t.Quorum = d.quorum(t.Member)
	t.Peers = namesOf(d.peers())
	if d.snapshot.Members() != nil {
		t.Others = &Others{
			Lagging: namesWithout(d.View.lagging, d.step.Pod),
			Unknown: namesWithout(d.View.unknown, d.step.Pod),
		}
	}
	if d.snapshot.Shards() != nil {
		t.Leaders, t.Shards = d.shards()
	}
	return t
}

func (t *Target) describe(p *facts.Pod) {
	t.Set, t.Index, t.Incarnation, t.Revision = p.Set, &p.Index, &p.Incarnation, p.Revision
	t.Node, t.Zone, t.Since = p.Node, p.Zone, &p.Since
	t.Ready, t.Available, t.Terminating = &p.Ready, &p.Available, &p.Terminating
}

func (d *derivation) quorum(target *facts.Member) *TargetQuorum {
	if !d.View.votesKnown {
		return nil
	}
	q := &TargetQuorum{UpSeen: d.View.upSeen}
	q.Voters, q.Up, q.Needed = d.View.voters, d.View.upSeen, quorumNeeded(d.View.voters)
	for _, pod := range d.gone {
		if votesAndIsUp(d.snapshot.Members().Get(pod)) {
			q.Up--
		}
	}
	q.VotersAfter, q.UpAfter = q.Voters, q.Up
	if d.step.TakesDown() && votesAndIsUp(target) && !d.promised(d.step.Pod) {
		q.UpAfter--
	}
	switch voter := mayVote(target); {
	case voter && d.step.Leaves():
		q.VotersAfter--
	case !voter && d.step.Joins():
		q.VotersAfter++
	}
	q.NeededAfter = quorumNeeded(q.VotersAfter)
	return q
}

func (d *derivation) totals(quorum *TargetQuorum, leaders *TargetLeaders) Totals {
	down, unexpected := d.down()
	t := Totals{
		Pods: d.snapshot.Index().Pods, Down: namesOf(down), Unexpected: namesOf(unexpected), LastChange: d.snapshot.LastChange(),
	}
	for _, pod := range d.joining {
		if p := d.snapshot.Pods().Get(pod); p != nil && d.snapshot.Wanted(p.Set, p.Index) {
			t.Pods--
		}
	}
	if quorum != nil {
		t.Quorum = &quorum.Quorum
	}
	if leaders != nil {
		t.Leaders = &leaders.Leaders
		names := namesOf(d.leaderless())
		t.Leaderless = &names
	}
	return t
}

// down are the pods that are unavailable or promised; unexpected those that are unavailable and not
// in flight, or whose member's health is unknown. Both sorted.
func (d *derivation) down() (down, unexpected []string) {
	for name := range d.snapshot.Index().Unavailable.All() {
		e := d.others[name]
		if e == nil || !e.Joins {
			down = append(down, name)
		}
		if e == nil {
			unexpected = append(unexpected, name)
		}
	}
	for _, pod := range d.gone {
		if p := d.snapshot.Pods().Get(pod); d.counted(pod, p) && p.Available {
			down = append(down, pod)
		}
	}
	for _, name := range d.View.healthUnknown {
		if d.counted(name, d.snapshot.Pods().Get(name)) {
			unexpected = append(unexpected, name)
		}
	}
	slices.Sort(down)
	slices.Sort(unexpected)
	return down, slices.Compact(unexpected)
}
