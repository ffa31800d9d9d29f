package operation

import (
	"cmp"
	"fmt"
	"time"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/question"
)

// denialHolds is how long a denial stands when it does not say.
const denialHolds = 10 * time.Minute

// Asked is a question that was sent.
type Asked struct {
	Question question.Question
	About    map[Ref]About
	SentAt   time.Time
}

// Take understands an answer: the approvals that it gives and the new words about the instances asked for. Whatever is
// missing, malformed, doubled or about something not asked for approves nothing. The caller has made sure that it
// answers this question.
func Take(asked Asked, answer question.Answer, words map[Ref]Word, now time.Time) ([]approval.Approval, map[Ref]Word) {
	decisions := strictest(answer.Decisions)
	var approvals []approval.Approval
	said := map[Ref]Word{}
	seen := map[string]bool{}
	for _, i := range asked.Question.Instances {
		ref := Ref{i.Operation, i.Pod}
		about, waits := asked.About[ref]
		if !waits {
			continue
		}
		old := words[ref]
		d, answered := decisions[ref]
		switch {
		case answer.Failure != "":
			if i.State == v1alpha1.Waiting {
				said[ref] = machinery(old, v1alpha1.Reason{Code: answer.Failure, Message: answer.Message})
			}
		case !answered || d.Stage != i.Stage:
			if i.State == v1alpha1.Waiting {
				said[ref] = machinery(old, malformed("it says nothing about this pod and stage"))
			}
		case d.Verdict == question.Approve:
			a, why := approve(asked, i, d, about, now)
			if why.Code == "" && seen[d.ID] {
				why = malformed(fmt.Sprintf("decision id %s is used twice", d.ID))
			}
			if why.Code != "" {
				said[ref] = machinery(old, why)
				continue
			}
			seen[d.ID] = true
			approvals = append(approvals, a)
		default:
			said[ref] = refuse(old, d, about, now)
		}
	}
	return approvals, said
}

// strictest keeps one decision an instance; of several, the one that allows least.
func strictest(all []question.Decision) map[Ref]question.Decision {
	rank := map[question.Verdict]int{question.Deny: 0, question.Defer: 1, question.Approve: 2}
	byRef := map[Ref]question.Decision{}
	for _, d := range all {
		if _, known := rank[d.Verdict]; !known {
			d = question.Decision{ID: d.ID, Operation: d.Operation, Pod: d.Pod, Stage: d.Stage, Verdict: question.Defer}
		}
		ref := Ref{d.Operation, d.Pod}
		if old, ok := byRef[ref]; !ok || rank[d.Verdict] < rank[old.Verdict] {
			byRef[ref] = d
		}
	}
	return byRef
}

func approve(asked Asked, i question.Instance, d question.Decision, about About, now time.Time) (approval.Approval, v1alpha1.Reason) {
	deadline := asked.SentAt.Add(d.ExpiresAfter)
	switch {
	case d.ID == "":
		return approval.Approval{}, malformed("an approval has no decision id")
	case d.ExpiresAfter <= 0:
		return approval.Approval{}, malformed("an approval does not say when it expires")
	case !now.Before(deadline):
		return approval.Approval{}, reasonOf(question.CodeGrantExpired)
	}
	return approval.Approval{
		Decision: d.ID, Application: asked.Question.Application, Operation: i.Operation, Type: i.Type, Stage: i.Stage,
		Set: i.Set, Pod: i.Pod, Index: i.Index, Incarnation: i.Incarnation, Parameters: d.Parameters,
		PodUID: about.PodUID, PodDown: about.Down, Deadline: deadline,
	}, v1alpha1.Reason{}
}

func refuse(old Word, d question.Decision, about About, now time.Time) Word {
	if len(d.Reasons) == 0 {
		return machinery(old, malformed("it gives no reason"))
	}
	word := Word{
		Verdict: d.Verdict, Reasons: clip(d.Reasons), Needs: clip(d.Needs), WaitingSince: old.WaitingSince,
	}
	if d.Verdict == question.Deny {
		word.DecisionID, word.Key = d.ID, about.Key
		word.RetryAt = now.Add(cmp.Or(max(0, d.RetryAfter), denialHolds))
	}
	return word
}

func malformed(what string) v1alpha1.Reason {
	r := reasonOf(question.CodeMalformed)
	r.Message = "the ACM's answer cannot be used (" + what + "); it is asked again"
	return r
}
