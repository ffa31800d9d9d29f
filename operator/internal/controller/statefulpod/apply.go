package statefulpod

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/statefulpod"
	"assent.dev/assent/operator/internal/session"
)

// apply does the one thing that the plan, made from live reads, names.
func (c *Controller) apply(ctx context.Context, in plan.Input, p plan.Plan) error {
	if p.Verb == plan.CreatePod || len(p.CreateClaims) > 0 {
		if stands, err := c.setStands(ctx, in.Identity); err != nil || !stands {
			return err
		}
	}
	for _, claim := range p.CreateClaims {
		err := c.pods.CreateClaim(ctx, claim)
		c.deps.Metrics.Act("create-claim", string(kube.OutcomeOf(err)))
		if err != nil {
			return err
		}
	}
	switch p.Verb {
	case plan.CreatePod:
		return c.create(ctx, in, p)
	case plan.DeletePod:
		if again, err := c.wantedAgain(ctx, in.Identity); err != nil || again {
			return err
		}
		return c.under(ctx, in, p, func(ctx context.Context) error { return c.pods.DeletePod(ctx, in.Pod) })
	case plan.ClearPod:
		err := c.pods.DeletePod(ctx, in.Pod)
		c.deps.Metrics.Act(string(p.Verb), string(kube.OutcomeOf(err)))
		return err
	case plan.Abandon:
		return c.pods.AbandonDelete(ctx, in.Pod, p.Decision)
	}
	return nil
}

// create makes the Pod, under an approval if the plan names one.
func (c *Controller) create(ctx context.Context, in plan.Input, p plan.Plan) error {
	if p.Decision != "" {
		return c.under(ctx, in, p, func(ctx context.Context) error { return c.pods.CreatePod(ctx, p.Pod) })
	}
	err := c.pods.CreatePod(ctx, p.Pod)
	c.deps.Metrics.Act(string(p.Verb), string(kube.OutcomeOf(err)))
	if err == nil && p.Restores {
		event.PodRestored(c.deps.Events, in.Identity)
	}
	return err
}

// under acts while an approval lasts: the call's deadline is the approval's, and its outcome is told to the register.
func (c *Controller) under(ctx context.Context, in plan.Input, p plan.Plan, act func(context.Context) error) error {
	deadline, may := c.deps.Approvals.Begin(p.Decision)
	if !may {
		return nil // revoked or expired since the plan was made; whoever asked sees to it
	}
	ctx, cancel := context.WithTimeout(ctx, deadline.Sub(c.deps.Clock.Now()))
	defer cancel()
	err := act(ctx)
	outcome := kube.OutcomeOf(err)
	c.deps.Approvals.Settle(p.Decision, outcome)
	c.deps.Metrics.Act(string(p.Verb), string(outcome))
	if outcome == session.Done {
		event.Acted(c.deps.Events, in.Identity, string(p.Verb), p.Decision)
	}
	return err
}

// trouble remembers why the API server refused to make a Pod or claim, until it accepts. Safe for concurrent use.
type trouble struct {
	mu    sync.Mutex
	byKey map[types.NamespacedName]refusal
}

type refusal struct {
	text string
	wait time.Duration
}

func (t *trouble) of(key types.NamespacedName) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byKey[key].text
}

// note remembers a refusal and returns how long to wait before the next try.
func (t *trouble) note(key types.NamespacedName, text string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.byKey[key]
	r.text, r.wait = text, min(max(firstRetry, 2*r.wait), longestRetry)
	t.byKey[key] = r
	return r.wait
}

func (t *trouble) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byKey, key)
}

// refused says whether the API server does not want the object as it is, or not now: only a person, or time, can help.
func refused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}
