package operation

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"time"

	"assent.dev/assent/operator/internal/plan/question"
)

const (
	// Heartbeat is how often the state is reported while anything is open; the protocol wants 5 s at most.
	Heartbeat = 4 * time.Second
	// nudgeGap is the least time between two questions of which the second only follows a nudge: an ACM that nudges without
	// end must not be asked without end.
	nudgeGap = 20 * time.Millisecond
	// firstRetry and lastRetry bound the back-off after a question without a usable answer.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Dialog is where the asking about one application stands. The zero value has asked nothing.
type Dialog struct {
	// Number of the last question.
	Number uint64
	// Outstanding: the last question has no end yet.
	Outstanding bool
	Asked       Asked
	// Epoch is the highest seen.
	Epoch int64
	// Fails counts questions in a row without a usable answer; RetryAt is when to ask again after one.
	Fails   int
	RetryAt time.Time
	// Print of what was asked last.
	Print uint64
	// Nudged: the ACM wants to be asked.
	Nudged bool
}

// Receive takes the end of a question. It is nil if the answer is for another question, or came later than timeout after
// the question was sent: that one has been given up, whatever it says.
func (d *Dialog) Receive(a question.Answer, now time.Time, timeout time.Duration) *question.Answer {
	if !d.Outstanding || a.Number != d.Number || a.Session != d.Asked.Question.Session {
		return nil
	}
	d.Outstanding = false
	switch {
	case now.After(d.Asked.SentAt.Add(timeout)) && a.Failure == "":
		a = question.Answer{Failure: question.CodeTimeout, Message: timeoutText(timeout)}
	case a.Failure == "" && a.Epoch < d.Epoch:
		a = question.Answer{
			Failure: question.CodeNotDeciding,
			Message: fmt.Sprintf("an ACM answered that has lost the application's Lease (epoch %d, seen %d); another one is asked", a.Epoch, d.Epoch),
		}
	}
	if a.Failure == "" {
		d.Epoch = a.Epoch
	}
	if a.Failure != "" || a.NotDeciding() {
		d.Fails++
		d.RetryAt = now.Add(backoff(d.Fails))
	} else {
		d.Fails = 0
	}
	return &a
}

// GiveUp ends a question whose answer is overdue; nil while it is not.
func (d *Dialog) GiveUp(now time.Time, timeout time.Duration) *question.Answer {
	if !d.Outstanding || !now.After(d.Asked.SentAt.Add(timeout)) {
		return nil
	}
	d.Outstanding = false
	d.Fails++
	d.RetryAt = now.Add(backoff(d.Fails))
	return &question.Answer{Failure: question.CodeTimeout, Message: timeoutText(timeout)}
}

func timeoutText(timeout time.Duration) string {
	return fmt.Sprintf("the ACM did not answer within %s; a late answer is dropped, it is asked again", timeout)
}

func backoff(fails int) time.Duration {
	return min(firstRetry<<min(fails-1, 10), lastRetry)
}

// Due says whether to ask now, and otherwise when to look again: on a change or a nudge at once, else by heartbeat, and
// after a failure only when its back-off has passed.
func (d *Dialog) Due(q question.Question, now time.Time, timeout time.Duration) (bool, time.Time) {
	if d.Outstanding {
		return false, d.Asked.SentAt.Add(timeout + time.Millisecond)
	}
	if d.Fails > 0 {
		return !now.Before(d.RetryAt), d.RetryAt
	}
	if d.Number == 0 || d.Print != printOf(q) {
		return true, time.Time{}
	}
	next := d.Asked.SentAt.Add(Heartbeat)
	if d.Nudged {
		next = d.Asked.SentAt.Add(nudgeGap)
	}
	return !now.Before(next), next
}

// Told says, for an application of which nothing is open anymore, whether the ACM knows: the same was said last, or it
// cannot be reached and will forget by itself.
func (d *Dialog) Told(q question.Question) bool {
	return d.Number == 0 || q.Policy == "" || !d.Outstanding && (d.Fails > 0 || d.Print == printOf(q))
}

// Ask numbers the question and notes it as sent.
func (d *Dialog) Ask(q question.Question, about map[Ref]About, now time.Time) question.Question {
	if q.ACM != d.Asked.Question.ACM {
		d.Epoch = 0 // another ACM counts its own terms
	}
	d.Number++
	d.Print = printOf(q)
	q.Number = d.Number
	d.Outstanding, d.Nudged = true, false
	d.Asked = Asked{Question: q, About: about, SentAt: now}
	return q
}

// printOf tells questions apart by what may change an answer: not by ages, nor by versions of pods that stay as ready as
// they were, of which the ACM knows itself.
func printOf(q question.Question) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%v %v %v %d %v\n", q.Application, q.Policy, q.Sets, q.MaxUnavailable, q.Holding)
	for i := range q.Instances {
		x := &q.Instances[i]
		fmt.Fprintf(h, "%v %s %s %s\n", x.Step, x.State, x.Decision, x.Key)
	}
	line := make([]byte, 0, 128)
	for i := range q.Pods {
		line = append(append(line[:0], q.Pods[i].Name...), ' ')
		line = strconv.AppendBool(append(line, q.Pods[i].UID...), q.Pods[i].Ready)
		h.Write(line)
	}
	return h.Sum64()
}
