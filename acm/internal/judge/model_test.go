package judge

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/acm/internal/decision"
)

// model is the operator's side as it may be at its worst: answers are lost, late or repeated, a new
// leader comes while the old one still acts on what it was approved, and the ACM restarts.
type model struct {
	*court
	// running are steps that somebody has begun; finished ones leave.
	running map[int]string
	leader  *leader
	old     []*leader
	epoch   int64
}

// leader is one session; it acts on its approvals until they expire on its own clock.
type leader struct {
	id        string
	term      int64
	since     time.Time
	number    uint64
	approvals map[int]approval
	last      *decision.State
	sent      time.Time
	// call numbers the calls; only the newest one's answer is taken, and once.
	call  int
	epoch int64
	// acted are decisions that are used up; an answer that repeats one says nothing new.
	acted map[string]bool
}

type approval struct {
	id    string
	until time.Time
}

func (m *model) elect() {
	if m.leader != nil {
		m.old = append(m.old, m.leader)
	}
	term := int64(1)
	if m.leader != nil {
		term = m.leader.term + 1
	}
	m.leader = &leader{id: fmt.Sprintf("s%d", term), term: term, since: m.clock.Now(), approvals: map[int]approval{}, acted: map[string]bool{}}
}

// question is an honest request: what runs, what this leader holds, and everybody else waiting.
// Wishes come and go, so only some wait at a time.
func (m *model) question(wishes []bool) *decision.State {
	l := m.leader
	l.number++
	s := m.request()
	s.Session = decision.Session{ID: l.id, Term: l.term, Age: m.clock.Since(l.since)}
	s.RequestNumber = l.number
	for i := range 5 {
		if id, ok := m.running[i]; ok {
			s.Instances = append(s.Instances, runs(i, id))
			continue
		}
		if wishes[i] {
			s.Instances = append(s.Instances, waits(i))
		}
		if a, ok := l.approvals[i]; ok && m.clock.Now().Before(a.until) {
			s.Holding = append(s.Holding, decision.Holding{Step: step(i), DecisionID: a.id})
		} else {
			delete(l.approvals, i)
		}
	}
	l.last, l.sent = s, m.clock.Now()
	l.call++
	return s
}

// take is the arrival of an answer at the session that asked, in time or late.
func (m *model) take(l *leader, call int, a decision.Answer, sent time.Time) {
	if call != l.call || a.Epoch < l.epoch {
		return // a later call, or a later term, voids it
	}
	l.call++
	l.last, l.epoch = nil, a.Epoch
	for _, d := range a.Decisions {
		if d.Verdict == decision.Approve && !l.acted[d.ID] {
			l.approvals[d.Index] = approval{id: d.ID, until: sent.Add(d.ExpiresAfter)}
		}
	}
}

func (m *model) act(l *leader, i int) {
	a, ok := l.approvals[i]
	if !ok || !m.clock.Now().Before(a.until) {
		return
	}
	delete(l.approvals, i)
	l.acted[a.id] = true
	m.running[i] = a.id
	require.Len(m.t, m.running, 1, "two steps run that are only safe alone")
}

func TestNoSequenceOfRequestsExpiryRestartsAndSessionsApprovesTwoStepsThatAreOnlySafeAlone(t *testing.T) {
	acted := 0
	for range 20 { // the faults that were found here needed thousands of sequences
		rapid.Check(t, func(t *rapid.T) { acted += playModel(t) })
	}
	require.Greater(t, acted, 200, "the sequences hardly ever get anywhere")
}

// playModel plays one sequence and counts the steps that were acted on.
func playModel(t *rapid.T) int {
	acted := 0
	m := &model{court: convene(t), running: map[int]string{}}
	m.elect()
	var delayed []func()
	t.Repeat(map[string]func(*rapid.T){
		"ask": func(t *rapid.T) {
			wishes := rapid.SliceOfN(rapid.Bool(), 5, 5).Draw(t, "wishes")
			if rapid.IntRange(0, 3).Draw(t, "facts are new") > 0 {
				m.judge.Evaluate(context.Background(), m.question(wishes))
				m.clock.Step(time.Millisecond)
				m.collect()
			}
			l, s := m.leader, m.question(wishes)
			a, sent, call := m.judge.Evaluate(context.Background(), s), l.sent, l.call
			switch rapid.IntRange(0, 3).Draw(t, "answer") {
			case 0: // lost
			case 1:
				delayed = append(delayed, func() { m.take(l, call, a, sent) })
			default:
				m.take(l, call, a, sent)
			}
		},
		"ask the same again": func(*rapid.T) {
			l := m.leader
			if l.last != nil {
				l.call++
				m.take(l, l.call, m.judge.Evaluate(context.Background(), l.last), m.clock.Now())
			}
		},
		"a late answer": func(*rapid.T) {
			if len(delayed) > 0 {
				delayed[0]()
				delayed = delayed[1:]
			}
		},
		"act": func(*rapid.T) {
			before := len(m.running)
			for i := range 5 {
				m.act(m.leader, i)
			}
			acted += len(m.running) - before
		},
		"old leaders act": func(*rapid.T) {
			for _, l := range m.old {
				for i := range 5 {
					m.act(l, i)
				}
			}
		},
		"finish": func(*rapid.T) { clear(m.running) },
		"time passes": func(t *rapid.T) {
			m.clock.Step(time.Duration(rapid.SampledFrom([]int{1, 3, 20, 29, 36}).Draw(t, "s")) * time.Second)
		},
		"a new leader": func(*rapid.T) { m.elect() },
		"the ACM restarts": func(*rapid.T) {
			m.epoch++
			m.judge.Begin(m.epoch, false)
		},
	})
	return acted
}
