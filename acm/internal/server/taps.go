package server

import (
	"sync"

	"assent.dev/assent/acm/internal/judge"
)

// tapSize is how many decisions a slow reader may be behind before it misses some.
const tapSize = 256

// taps hands decisions to whoever reads along. Deciding never waits for them.
type taps struct {
	mu   sync.Mutex
	open map[chan judge.Entry]bool
}

// Decided passes the entry on; readers whose buffer is full miss it.
func (t *taps) Decided(e judge.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		select {
		case c <- e:
		default:
		}
	}
}

func (t *taps) join() chan judge.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[chan judge.Entry]bool{}
	}
	c := make(chan judge.Entry, tapSize)
	t.open[c] = true
	return c
}

func (t *taps) leave(c chan judge.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.open, c)
}
