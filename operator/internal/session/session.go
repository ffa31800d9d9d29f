package session

import (
	"time"

	"k8s.io/utils/clock"
)

// Session is one leadership term. Immutable.
type Session struct {
	// ID is unique for ever; it stands in every grant of this term.
	ID string
	// Term grows with every term of the same operator.
	Term int64

	began time.Time
	clock clock.PassiveClock
}

// New begins a term now.
func New(id string, term int64, c clock.PassiveClock) *Session {
	return &Session{ID: id, Term: term, began: c.Now(), clock: c}
}

// Age is the time since the term began, on the monotonic clock.
func (s *Session) Age() time.Duration { return s.clock.Now().Sub(s.began) }
