package record

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Quorum asks every etcd member for its status again and again.
type Quorum struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	up      map[string]bool
	samples int
	least   int
	changes []string
	last    uint64
	// led is when a member last named a leader; longest is the longest time in which none did.
	led     time.Time
	longest time.Duration
}

// WatchQuorum samples the members at these client addresses until Stop. Start it once all are up.
func WatchQuorum(ctx context.Context, endpoints []string, every time.Duration) (*Quorum, error) {
	ctx, cancel := context.WithCancel(ctx)
	q := &Quorum{stop: cancel, up: map[string]bool{}, least: len(endpoints), led: time.Now()}
	for _, e := range endpoints {
		q.up[e] = true
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{e}, Logger: zap.NewNop()})
		if err != nil {
			cancel()
			return nil, fmt.Errorf("connecting to %s: %w", e, err)
		}
		q.wg.Add(1)
		go func() {
			defer q.wg.Done()
			defer func() { _ = client.Close() }() // nothing to be done
			q.follow(ctx, client, e, every)
		}()
	}
	return q, nil
}

func (q *Quorum) follow(ctx context.Context, client *clientv3.Client, endpoint string, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		// A busy machine may answer late; a dead member refuses at once, so this limit costs no truth.
		ask, cancel := context.WithTimeout(ctx, 2*time.Second)
		status, err := client.Status(ask, endpoint)
		cancel()
		if ctx.Err() == nil {
			q.note(endpoint, status, err)
		}
	}
}

func (q *Quorum) note(endpoint string, status *clientv3.StatusResponse, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.samples++
	q.up[endpoint] = err == nil
	q.longest = max(q.longest, time.Since(q.led))
	if err == nil && status.Leader != 0 {
		q.led = time.Now()
		if status.Leader == status.Header.MemberId && q.last != status.Leader {
			q.last = status.Leader
			q.changes = append(q.changes, endpoint)
		}
	}
	n := 0
	for _, up := range q.up {
		if up {
			n++
		}
	}
	q.least = min(q.least, n)
}

// Stop ends the sampling.
func (q *Quorum) Stop() {
	q.stop()
	q.wg.Wait()
}

// Least is the smallest number of members that answered at once.
func (q *Quorum) Least() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.least
}

// Leader is the address of the member that last said it leads; empty before the first.
func (q *Quorum) Leader() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.changes) == 0 {
		return ""
	}
	return q.changes[len(q.changes)-1]
}

// LongestLeaderless is the longest time in which no member named a leader.
func (q *Quorum) LongestLeaderless() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.longest
}

// Samples is how many answers, or refusals, the numbers rest on.
func (q *Quorum) Samples() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.samples
}
