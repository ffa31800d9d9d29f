package server

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// stateOf gives the request as the judge knows it. Values the judge must refuse, such as unknown types, come out empty
// and are refused there.
func stateOf(r *acmv1.EvaluateRequest) *decision.State {
	s := &decision.State{
		Application: applicationOf(r.GetApplication()),
		Session: decision.Session{
			ID: r.GetSession().GetId(), Term: r.GetSession().GetTerm(), Age: r.GetSession().GetAge().AsDuration(),
		},
		RequestNumber:  r.GetRequestNumber(),
		MaxUnavailable: int(r.GetApplicationMaxUnavailable()),
	}
	for _, p := range r.GetSets() {
		s.Sets = append(s.Sets, setOf(p))
	}
	for _, o := range r.GetOperations() {
		s.Operations = append(s.Operations, decision.Summary{
			Name: o.GetName(), Type: decision.Type(o.GetType().Code()),
			Progress: decision.Progress{Total: int(o.GetTotal()), Done: int(o.GetDone()), Running: int(o.GetRunning()), Waiting: int(o.GetWaiting()), Denied: int(o.GetDenied())},
		})
	}
	for _, i := range r.GetInstances() {
		s.Instances = append(s.Instances, instanceOf(i))
	}
	for _, h := range r.GetHolding() {
		s.Holding = append(s.Holding, holdingOf(h))
	}
	for _, p := range r.GetPods() {
		s.Pods = append(s.Pods, decision.PodVersion{Name: p.GetName(), UID: p.GetUid(), ResourceVersion: p.GetResourceVersion(), Ready: p.GetReady()})
	}
	for _, d := range r.GetDisabled() {
		s.Disabled = append(s.Disabled, decision.DisabledCheck{Set: d.GetSet(), Name: d.GetName(), Until: timeOf(d.GetUntil()), By: d.GetBy(), Why: d.GetWhy()})
	}
	return s
}

func applicationOf(a *acmv1.Application) decision.ApplicationRef {
	return decision.ApplicationRef{Cluster: a.GetCluster(), Namespace: a.GetNamespace(), Name: a.GetName(), Policy: a.GetPolicy()}
}

func setOf(p *acmv1.PodSet) decision.Set {
	return decision.Set{
		Name: p.GetName(), Wanted: rangesOf(p.GetWanted()), EverAvailable: rangesOf(p.GetEverAvailable()),
		MaxUnavailable: int(p.GetMaxUnavailable()), Revision: p.GetRevision(), CanariesDoneAt: timeOf(p.GetCanariesDoneAt()),
	}
}

func rangesOf(rs []*acmv1.IndexRange) []facts.Range {
	out := make([]facts.Range, 0, len(rs))
	for _, r := range rs {
		out = append(out, facts.Range{First: int(r.GetFirst()), Last: int(r.GetLast())})
	}
	return out
}

func instanceOf(i *acmv1.Instance) decision.Instance {
	return decision.Instance{
		Step: decision.Step{
			Operation: i.GetOperation(), Type: decision.Type(i.GetType().Code()), Stage: decision.Stage(i.GetStage().Code()),
			Set: i.GetSet(), Pod: i.GetPod(), Index: int(i.GetIndex()), Incarnation: int(i.GetIncarnation()),
		},
		State: decision.InstanceState(i.GetState().Code()), Cause: i.GetCause(),
		RevisionFrom: i.GetRevisionFrom(), RevisionTo: i.GetRevisionTo(), Node: i.GetNode(),
		Canary: i.GetCanary(), DeletesData: i.GetDeletesData(),
		WaitingSince: timeOf(i.GetWaitingSince()), Deadline: timeOf(i.GetDeadline()), StateSince: timeOf(i.GetStateSince()),
		DecisionID: i.GetDecisionId(), Key: i.GetKey(),
	}
}

func holdingOf(h *acmv1.Holding) decision.Holding {
	return decision.Holding{
		Step: decision.Step{
			Operation: h.GetOperation(), Type: decision.Type(h.GetType().Code()), Stage: decision.Stage(h.GetStage().Code()),
			Set: h.GetSet(), Pod: h.GetPod(), Index: int(h.GetIndex()), Incarnation: int(h.GetIncarnation()),
		},
		DecisionID: h.GetDecisionId(), OutcomeUnknown: h.GetOutcomeUnknown(),
	}
}

// timeOf is the zero time for an absent timestamp.
func timeOf(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}
