package server

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"assent.dev/assent/acm/internal/decision"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

func responseOf(a decision.Answer) *acmv1.EvaluateResponse {
	return &acmv1.EvaluateResponse{SessionId: a.SessionID, RequestNumber: a.RequestNumber, Epoch: a.Epoch, Decisions: decisionsOf(a.Decisions)}
}

func decisionsOf(all []decision.Decision) []*acmv1.Decision {
	out := make([]*acmv1.Decision, 0, len(all))
	for i := range all {
		out = append(out, decisionOf(&all[i]))
	}
	return out
}

func decisionOf(d *decision.Decision) *acmv1.Decision {
	out := &acmv1.Decision{
		DecisionId: d.ID, Operation: d.Operation, Pod: d.Pod,
		Stage: acmv1.StageOf(string(d.Stage)), Verdict: acmv1.VerdictOf(string(d.Verdict)),
		Reasons: reasonsOf(d.Reasons), Warnings: reasonsOf(d.Warnings), Parameters: d.Parameters,
		BundleRevision: d.BundleRevision, FactsVersion: d.FactsVersion,
		FactsAge: positive(d.FactsAge), ExpiresAfter: positive(d.ExpiresAfter), RetryAfter: positive(d.RetryAfter),
	}
	for _, n := range d.Needs {
		out.Needs = append(out.Needs, &acmv1.Need{Action: n.Action, Subject: n.Subject, Parameters: structOf(n.Parameters)})
	}
	return out
}

func reasonsOf(rs []decision.Reason) []*acmv1.Reason {
	var out []*acmv1.Reason
	for _, r := range rs {
		out = append(out, &acmv1.Reason{Code: r.Code, Message: r.Message, Details: structOf(r.Details), RetryAfter: positive(r.RetryAfter), Disabled: r.Disabled})
	}
	return out
}

// positive leaves out what is not set.
func positive(d time.Duration) *durationpb.Duration {
	if d <= 0 {
		return nil
	}
	return durationpb.New(d)
}

// structOf gives JSON values as a Struct. What is no JSON is shown as text: details must never cost a decision.
func structOf(values map[string]any) *structpb.Struct {
	if len(values) == 0 {
		return nil
	}
	s, err := viaJSON(values)
	if err != nil {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"text": structpb.NewStringValue(fmt.Sprint(values))}}
	}
	return s
}

func viaJSON(v any) (*structpb.Struct, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, s.UnmarshalJSON(raw)
}

func stampOf(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
