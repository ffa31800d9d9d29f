package operation

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	plan "assent.dev/assent/operator/internal/plan/operation"
)

// listen takes the end of the question under way, if there is one: approvals go to the register, words to the memory.
func (c *Controller) listen(name types.NamespacedName, app *application) {
	now := c.deps.Clock.Now()
	answer, arrived := c.asker.Answer(name)
	end := app.dialog.GiveUp(now, c.timeout)
	if arrived && end == nil {
		end = app.dialog.Receive(answer, now, c.timeout)
	}
	if end == nil {
		return
	}
	approvals, words := plan.Take(app.dialog.Asked, *end, app.words, now)
	for _, a := range approvals {
		c.deps.Approvals.Receive(a)
	}
	for ref, word := range words {
		app.words[ref] = word
	}
}

// ask asks if it is time to, and returns when it will be. While nothing is open it asks once more, so that the ACM sees
// the last end, and then stops listening.
func (c *Controller) ask(name types.NamespacedName, app *application, p plan.Plan) time.Duration {
	if !p.Open && app.dialog.Told(p.Question) {
		c.asker.Unfollow(name)
		return 0
	}
	now := c.deps.Clock.Now()
	c.asker.Follow(name, p.Question.Policy, p.Question.ACM)
	app.dialog.Nudged = c.asker.Nudged(name) || app.dialog.Nudged
	due, at := app.dialog.Due(p.Question, now, c.timeout)
	if !due {
		return at.Sub(now)
	}
	c.asker.Ask(app.dialog.Ask(p.Question, p.About, now))
	return c.timeout + time.Millisecond
}
