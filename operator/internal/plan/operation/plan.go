package operation

import (
	"fmt"
	"time"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/operator/internal/plan/statefulpod"
)

// Make plans. The same input gives the same plan, whatever the order of its lists.
func Make(in Input) Plan {
	w := newWorld(in)
	p := Plan{Words: map[Ref]Word{}, Count: map[Kind]int{}, About: map[Ref]About{}}
	w.takeBack(&p)
	w.remove(&p)
	w.grant(&p)
	w.sayWhy(&p)
	w.forget(&p)
	w.show(&p)
	w.ask(&p)
	w.wake(&p)
	return p
}

// takeBack plans the returns, those of grants whose Operation is gone included.
func (w *world) takeBack(p *Plan) {
	for _, i := range w.instances {
		if i.standing.todo == todoReturn {
			why := reasonOf(i.standing.code)
			p.Returns = append(p.Returns, w.giveBack(i.identity, i.standing, i.ref, why))
			i.word = machinery(i.word, why)
		}
	}
	for _, s := range sortedIdentities(w) {
		g := s.Spec.Grant
		if !statefulpod.Open(s) || w.ops[g.Operation] != nil || !w.in.OperationsGone[g.Operation] {
			continue
		}
		v := view{operation: g.Operation, kind: g.Type, wish: wishChanged, identity: s, pod: w.pods[s.Name],
			approval: w.held[g.Decision], session: w.in.Session, now: w.in.Now}
		if at := project(v); at.todo == todoReturn {
			why := v1alpha1.Reason{Code: question.CodeStateChanged, Message: fmt.Sprintf("Operation %s is gone", g.Operation)}
			p.Returns = append(p.Returns, w.giveBack(s, at, Ref{g.Operation, s.Name}, why))
		}
	}
}

func (w *world) giveBack(s *v1alpha1.StatefulPod, at standing, ref Ref, why v1alpha1.Reason) Return {
	next := s.DeepCopy()
	g := next.Spec.Grant
	next.Spec.Grant = nil
	switch {
	case g.Previous != nil:
		next.Spec.Revision, next.Spec.Restart = g.Previous.Revision, g.Previous.Restart
		next.Spec.State, next.Spec.Parameters = g.Previous.State, g.Previous.Parameters
	case g.Stage == v1alpha1.StageAdd:
		next.Spec.State = v1alpha1.Stopped
	}
	return Return{
		Identity: next, Decision: g.Decision, Certain: at.certain, WithoutPod: g.Stage == v1alpha1.StageAdd, Ref: ref, Why: why,
	}
}

// remove plans to delete identities whose removal was acted on, or which a withdrawn scale-out had prepared.
func (w *world) remove(p *Plan) {
	for _, i := range w.instances {
		if i.standing.todo == todoRemove {
			why := fmt.Sprintf("%s of Operation %s", i.op.Spec.Type, i.op.Name)
			p.Removals = append(p.Removals, Removal{Identity: i.identity, Why: why})
		}
	}
}

// forget drops approvals that cannot be acted on anymore and that no open grant names.
func (w *world) forget(p *Plan) {
	open := map[string]bool{}
	for _, s := range w.identities {
		if statefulpod.Open(s) {
			open[s.Spec.Grant.Decision] = true
		}
	}
	for i := range w.in.Held {
		h := &w.in.Held[i]
		if h.Phase != approval.Received && !open[h.Decision] && h.Expired(w.in.Now) {
			p.Forget = append(p.Forget, h.Decision)
		}
	}
}

// wake finds the next moment at which time alone changes the plan.
func (w *world) wake(p *Plan) {
	consider := func(t time.Time) {
		if t.After(w.in.Now) && (p.Wake.IsZero() || t.Before(p.Wake)) {
			p.Wake = t
		}
	}
	for i := range w.in.Held {
		if h := &w.in.Held[i]; h.Phase != approval.Acted {
			consider(h.Deadline)
		}
	}
	for _, i := range w.instances {
		if i.standing.state == v1alpha1.Denied {
			consider(i.word.RetryAt)
		}
	}
	for _, s := range w.identities {
		if in := statefulpod.AvailabilityOf(s, w.pods[s.Name], w.in.Now).In; in > 0 {
			consider(w.in.Now.Add(in))
		}
	}
}

// machinery is a word of the operator itself: a defer.
func machinery(old Word, r v1alpha1.Reason) Word {
	return Word{Verdict: question.Defer, Reasons: []v1alpha1.Reason{r}, WaitingSince: old.WaitingSince}
}

// reasonOf is a reason code of the operator's own with what would end the wait.
func reasonOf(code string) v1alpha1.Reason {
	return v1alpha1.Reason{Code: code, Message: texts[code]}
}

// texts say what a code means and what ends the wait.
var texts = map[string]string{
	question.CodeNotAsked:     "not answered yet; the ACM is being asked",
	question.CodeGrantExpired: "the approval ran out before it could be acted on; it is asked for again",
	question.CodeStateChanged: "the pod or what is wanted of it changed since the approval was asked for; it is asked for again",
	question.CodeMalformed:    "the ACM's answer cannot be used; it is asked again",
}
