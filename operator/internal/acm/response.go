package acm

import (
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/runtime"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

const (
	// maxReasons and maxNeeds are what an Operation's status holds for one instance.
	maxReasons = 8
	maxNeeds   = 8
)

// parameterName is what may become the name of a Pod's annotation.
var parameterName = regexp.MustCompile(`^[a-z0-9.-]+$`)

// Decode is the end of a question to which a response came: an answer, or acm.malformed.
func Decode(r *acmv1.EvaluateResponse, q question.Question) question.Answer {
	answer, err := answerOf(r, q)
	if err != nil {
		return failed(q, question.CodeMalformed, fmt.Sprintf("ACM %q: %v", q.ACM, err))
	}
	return answer
}

// answerOf reads a response to the question with that session and number. What does not fit the question makes the
// whole answer malformed; a decision about a pod that was not asked about is harmless and stays.
func answerOf(r *acmv1.EvaluateResponse, q question.Question) (question.Answer, error) {
	a := question.Answer{Session: q.Session, Number: q.Number, Epoch: r.GetEpoch()}
	if r.GetSessionId() != q.Session || r.GetRequestNumber() != q.Number {
		return a, fmt.Errorf("the answer is for request %d of session %q, the question was %d of %q",
			r.GetRequestNumber(), r.GetSessionId(), q.Number, q.Session)
	}
	for _, d := range r.GetDecisions() {
		read, err := decisionOf(d)
		if err != nil {
			return a, fmt.Errorf("the decision on %s, pod %s: %w", d.GetOperation(), d.GetPod(), err)
		}
		a.Decisions = append(a.Decisions, read)
	}
	return a, nil
}

func decisionOf(d *acmv1.Decision) (question.Decision, error) {
	out := question.Decision{
		ID: d.GetDecisionId(), Operation: d.GetOperation(), Pod: d.GetPod(), Stage: v1alpha1.Stage(d.GetStage().Code()),
		Verdict: question.Verdict(d.GetVerdict().Code()), RetryAfter: positive(d.GetRetryAfter()),
	}
	if out.Stage == "" {
		return out, fmt.Errorf("stage %v is not known", d.GetStage())
	}
	for _, r := range d.GetReasons() {
		if len(out.Reasons) < maxReasons {
			out.Reasons = append(out.Reasons, v1alpha1.Reason{Code: r.GetCode(), Message: r.GetMessage()})
		}
	}
	for _, n := range d.GetNeeds() {
		if len(out.Needs) < maxNeeds {
			out.Needs = append(out.Needs, needOf(n))
		}
	}
	return out, judge(&out, d)
}

// judge checks what each verdict must come with.
func judge(out *question.Decision, d *acmv1.Decision) error {
	switch out.Verdict {
	case question.Approve:
		out.ExpiresAfter = positive(d.GetExpiresAfter())
		if out.ID == "" || out.ExpiresAfter == 0 {
			return fmt.Errorf("an approval needs a decision id and a time to expire after")
		}
		for k, v := range d.GetParameters() {
			if !parameterName.MatchString(k) {
				return fmt.Errorf("parameter %q: want lower case letters, digits, '.' and '-'", k)
			}
			if out.Parameters == nil {
				out.Parameters = map[string]string{}
			}
			out.Parameters[k] = v
		}
	case question.Defer, question.Deny:
		if len(out.Reasons) == 0 {
			return fmt.Errorf("a %s needs a reason", out.Verdict)
		}
	default:
		return fmt.Errorf("verdict %v is not known", d.GetVerdict())
	}
	return nil
}

func needOf(n *acmv1.Need) v1alpha1.Need {
	need := v1alpha1.Need{Action: n.GetAction(), Subject: n.GetSubject()}
	if raw := jsonOf(n.GetParameters()); raw != nil {
		need.Parameters = &runtime.RawExtension{Raw: raw}
	}
	return need
}

// jsonOf is nil for what is absent, empty or cannot be written as JSON.
func jsonOf(s *structpb.Struct) []byte {
	if len(s.GetFields()) == 0 {
		return nil
	}
	raw, err := json.Marshal(s.AsMap())
	if err != nil {
		return nil
	}
	return raw
}

// positive reads a duration; absent, invalid and negative ones are 0.
func positive(d *durationpb.Duration) time.Duration {
	if d == nil || !d.IsValid() {
		return 0
	}
	return max(0, d.AsDuration())
}
