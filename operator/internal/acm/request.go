package acm

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/indexrange"
	"assent.dev/assent/operator/internal/plan/question"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// Encode is the question as the protocol says it.
func Encode(cluster string, q question.Question) *acmv1.EvaluateRequest {
	r := &acmv1.EvaluateRequest{
		Application:               &acmv1.Application{Cluster: cluster, Namespace: q.Application.Namespace, Name: q.Application.Name, Policy: q.Policy},
		Session:                   &acmv1.Session{Id: q.Session, Term: q.Term, Age: durationpb.New(q.Age)},
		RequestNumber:             q.Number,
		ApplicationMaxUnavailable: q.MaxUnavailable,
	}
	for _, s := range q.Sets {
		r.Sets = append(r.Sets, &acmv1.PodSet{
			Name: s.Name, Wanted: rangesOf(s.Wanted), EverAvailable: rangesOf(s.EverAvailable),
			MaxUnavailable: s.MaxUnavailable, Revision: s.Revision,
		})
	}
	for _, o := range q.Operations {
		r.Operations = append(r.Operations, &acmv1.OperationSummary{
			Name: o.Name, Type: typeOf(o.Type), Total: o.Total, Done: o.Done, Running: o.Running, Waiting: o.Waiting, Denied: o.Denied,
		})
	}
	for _, i := range q.Instances {
		r.Instances = append(r.Instances, instanceOf(i))
	}
	for _, h := range q.Holding {
		r.Holding = append(r.Holding, &acmv1.Holding{
			DecisionId: h.Decision, Operation: h.Operation, Type: typeOf(h.Type), Stage: stageOf(h.Stage),
			Set: h.Set, Pod: h.Pod, Index: h.Index, Incarnation: h.Incarnation, OutcomeUnknown: h.OutcomeUnknown,
		})
	}
	for _, p := range q.Pods {
		r.Pods = append(r.Pods, &acmv1.PodVersion{Name: p.Name, Uid: p.UID, ResourceVersion: p.ResourceVersion, Ready: p.Ready})
	}
	return r
}

func instanceOf(i question.Instance) *acmv1.Instance {
	return &acmv1.Instance{
		Operation: i.Operation, Type: typeOf(i.Type), Stage: stageOf(i.Stage), State: stateOf(i.State),
		Set: i.Set, Pod: i.Pod, Index: i.Index, Incarnation: i.Incarnation, Cause: i.Cause,
		RevisionFrom: i.RevisionFrom, RevisionTo: i.RevisionTo, Node: i.Node, Canary: i.Canary, DeletesData: i.DeletesData,
		WaitingSince: timestampOf(i.WaitingSince), Deadline: timestampOf(i.Deadline), StateSince: timestampOf(i.StateSince),
		DecisionId: i.Decision, Key: i.Key,
	}
}

func rangesOf(rs []indexrange.Range) []*acmv1.IndexRange {
	out := make([]*acmv1.IndexRange, 0, len(rs))
	for _, r := range rs {
		out = append(out, &acmv1.IndexRange{First: r.First, Last: r.Last})
	}
	return out
}

// timestampOf leaves a zero time out.
func timestampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func typeOf(t v1alpha1.OperationType) acmv1.OperationType { return acmv1.OperationTypeOf(string(t)) }

func stageOf(s v1alpha1.Stage) acmv1.Stage { return acmv1.StageOf(string(s)) }

func stateOf(s v1alpha1.InstanceState) acmv1.InstanceState { return acmv1.InstanceStateOf(string(s)) }
