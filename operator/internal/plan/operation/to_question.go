package operation

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/indexrange"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/operator/internal/plan/statefulpod"
)

// obstacles are codes that say why nobody was asked; they are out of date as soon as somebody is.
var obstacles = map[string]bool{
	question.CodeConflict: true, question.CodePaused: true, question.CodePodBusy: true, "": true,
}

// sayWhy decides which instances are asked about and gives every other one that waits its reason.
func (w *world) sayWhy(p *Plan) {
	pending := map[Ref]bool{}
	for i := range w.in.Held {
		if h := &w.in.Held[i]; h.Phase == approval.Received && !slices.Contains(p.Void, h.Decision) {
			pending[Ref{h.Operation, h.Pod}] = true
		}
	}
	for _, i := range w.instances {
		state := i.standing.state
		if state != v1alpha1.Waiting && state != v1alpha1.Denied {
			continue
		}
		why := w.obstacle(i)
		switch {
		case state == v1alpha1.Waiting && why.Code != "":
			i.word = machinery(i.word, why)
		case i.standing.todo != todoNothing:
			i.word = machinery(i.word, v1alpha1.Reason{Code: question.CodeNotAsked, Message: "not wanted anymore; what was prepared is being undone"})
		case i.wish != wishSame, i.set == nil, i.identity == nil && i.op.Spec.Type != v1alpha1.ScaleOut:
			i.sayNotAsked("the operator has not seen yet what ordered this; it asks once it has")
		case why.Code == "":
			i.asks = state == v1alpha1.Denied || !pending[i.ref]
			i.sayNotAsked(texts[question.CodeNotAsked])
			if i.word.WaitingSince.IsZero() {
				i.word.WaitingSince = w.in.Now
			}
		}
	}
}

// sayNotAsked replaces a word that is out of date: nobody has spoken about the instance as it is now.
func (i *instance) sayNotAsked(why string) {
	if i.standing.state == v1alpha1.Waiting && (obstacles[i.word.Code()] || i.word.Verdict != question.Defer) {
		i.word = machinery(i.word, v1alpha1.Reason{Code: question.CodeNotAsked, Message: why})
	}
}

// ask makes the question from everything that lives.
func (w *world) ask(p *Plan) {
	q := question.Question{
		Application: w.in.Application, Session: w.in.Session, Term: w.in.Term, Age: w.in.Age,
		MaxUnavailable: w.applicationMaxUnavailable(),
	}
	if len(w.names) > 0 && w.conflict == "" {
		first := w.sets[w.names[0]]
		q.Policy, q.ACM = first.Spec.Policy, acmOf(first)
	}
	for _, n := range w.names {
		q.Sets = append(q.Sets, w.questionSet(n))
	}
	live := map[string]bool{}
	for _, i := range w.instances {
		if i.standing.state.Ended() {
			continue
		}
		live[i.op.Name] = true
		if i.standing.state.InFlight() || i.asks {
			q.Instances = append(q.Instances, w.questionInstance(i))
		}
		if i.asks {
			about := About{Key: i.key, Down: i.identity == nil || !w.up(i.identity)}
			if i.pod != nil {
				about.PodUID = string(i.pod.UID)
			}
			p.About[i.ref] = about
		}
	}
	for _, name := range slices.Sorted(maps.Keys(live)) {
		q.Operations = append(q.Operations, w.summary(name))
	}
	q.Holding = w.holding(p)
	q.Pods = w.questionPods()
	p.Question = q
	p.Open = q.Policy != "" && (len(q.Instances) > 0 || len(q.Holding) > 0)
}

func (w *world) questionSet(name string) question.Set {
	s := w.sets[name]
	wanted := w.wanted[name]
	set := question.Set{
		Name: name, Wanted: indexrange.Of(wanted), EverAvailable: indexrange.Of(w.everAvailable(name)),
		MaxUnavailable: w.maxUnavailable(name), Revision: s.Status.UpdateRevision,
	}
	if set.Revision == "" && len(wanted) > 0 {
		set.Revision = w.staged[at{name, wanted[0]}].Revision
	}
	return set
}

func (w *world) questionInstance(i *instance) question.Instance {
	q := question.Instance{
		Step: question.Step{
			Operation: i.op.Name, Type: i.op.Spec.Type, Stage: stageOf(i.op.Spec.Type), Set: i.op.Spec.Set, Pod: i.spec.Pod,
			Index: i.spec.Index, Incarnation: i.spec.Incarnation,
		},
		State: i.standing.state, Cause: i.op.Spec.Cause, RevisionFrom: i.spec.RevisionFrom,
		RevisionTo: i.op.Spec.Target.Revision, Node: i.op.Spec.Target.Node, Canary: i.spec.Canary != "",
		WaitingSince: i.word.WaitingSince, StateSince: i.since(w.in.Now), Key: i.key,
	}
	if i.op.Spec.Deadline != nil {
		q.Deadline = i.op.Spec.Deadline.Time
	}
	if g := grantOf(i.identity); g != nil && q.State.InFlight() && g.Operation == i.op.Name {
		q.Decision = g.Decision
	}
	return q
}

func (w *world) summary(name string) question.Summary {
	s := question.Summary{Name: name, Type: w.ops[name].Spec.Type}
	for _, i := range w.instances {
		if i.op.Name != name {
			continue
		}
		s.Total++
		switch state := i.standing.state; {
		case state.Ended():
			s.Done++
		case state.InFlight():
			s.Running++
		case state == v1alpha1.Denied:
			s.Denied++
		default:
			s.Waiting++
		}
	}
	return s
}

// holding lists the approvals that are neither voided nor seen as grants, and the acts of unknown outcome.
func (w *world) holding(p *Plan) []question.Holding {
	var list []question.Holding
	for i := range w.in.Held {
		h := &w.in.Held[i]
		received := h.Phase == approval.Received && !slices.Contains(p.Void, h.Decision) && !slices.Contains(p.Recorded, h.Decision)
		if received || h.Phase == approval.Unknown {
			list = append(list, question.Holding{
				Step: question.Step{
					Operation: h.Operation, Type: h.Type, Stage: h.Stage, Set: h.Set, Pod: h.Pod, Index: h.Index,
					Incarnation: h.Incarnation,
				},
				Decision: h.Decision, OutcomeUnknown: h.Phase == approval.Unknown,
			})
		}
	}
	slices.SortFunc(list, func(a, b question.Holding) int { return strings.Compare(a.Decision, b.Decision) })
	return list
}

func (w *world) questionPods() []question.Pod {
	list := make([]question.Pod, 0, len(w.pods))
	for _, p := range w.pods {
		list = append(list, question.Pod{
			Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion, Ready: statefulpod.Ready(p),
		})
	}
	slices.SortFunc(list, func(a, b question.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func sortedIdentities(w *world) []*v1alpha1.StatefulPod {
	list := slices.Collect(maps.Values(w.identities))
	slices.SortFunc(list, func(a, b *v1alpha1.StatefulPod) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func compareNames(a, b *v1alpha1.Operation) int { return strings.Compare(a.Name, b.Name) }
