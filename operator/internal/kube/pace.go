package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// Pace lets something happen for a key at most once an interval. Safe for concurrent use.
type Pace struct {
	clock    clock.PassiveClock
	interval time.Duration

	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

// NewPace makes a pace of one an interval.
func NewPace(c clock.PassiveClock, interval time.Duration) *Pace {
	return &Pace{clock: c, interval: interval, last: map[types.NamespacedName]time.Time{}}
}

// Sooner is the smaller of two waits, of which one that is not positive does not count.
func Sooner(a, b time.Duration) time.Duration {
	switch {
	case a <= 0:
		return max(0, b)
	case b <= 0:
		return a
	}
	return min(a, b)
}

// Wait is how long to wait for the key's next turn; 0 when it is now.
func (p *Pace) Wait(key types.NamespacedName) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last, known := p.last[key]
	if !known {
		return 0
	}
	return max(0, p.interval-p.clock.Since(last))
}

// Done notes that it happened now.
func (p *Pace) Done(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last[key] = p.clock.Now()
}

// Forget drops a key that is gone.
func (p *Pace) Forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}
