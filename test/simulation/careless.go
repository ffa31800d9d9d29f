package simulation

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	acmv1 "assent.dev/assent/proto/acm/v1"
)

// careless is an ACM that must never be: it approves whatever it is asked, at once, forgets that it did, and now and
// then gives two decisions one name. With it, what the operator itself guarantees stands alone: its lock, its cap, its
// deadlines, one act for each approval.
type careless struct {
	w     *World
	given int
	last  map[string]string
}

// evaluate approves everything that waits, and more: also what is executing already.
func (c *careless) evaluate(r *acmv1.EvaluateRequest) *acmv1.EvaluateResponse {
	answer := &acmv1.EvaluateResponse{SessionId: r.GetSession().GetId(), RequestNumber: r.GetRequestNumber()}
	for _, i := range r.GetInstances() {
		c.given++
		id := fmt.Sprintf("careless-%d", c.given)
		if old := c.last[i.GetPod()]; old != "" && c.w.chance(50) {
			id = old
		}
		c.last[i.GetPod()] = id
		answer.Decisions = append(answer.Decisions, &acmv1.Decision{
			DecisionId: id, Operation: i.GetOperation(), Pod: i.GetPod(), Stage: i.GetStage(),
			Verdict: acmv1.Verdict_VERDICT_APPROVE, ExpiresAfter: durationpb.New(time.Duration(1+c.w.Rand.IntN(30)) * time.Second),
		})
	}
	return answer
}
