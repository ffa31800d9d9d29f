// Package load writes to a real system all the time and remembers what it acknowledged, so that a test can
// say afterwards whether anything acknowledged was lost.
package load

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// prefix of the keys written; a run writes <prefix><number> = <number>.
const prefix = "load/"

// Etcd is a writer that puts one new key after another into an etcd cluster.
type Etcd struct {
	client *clientv3.Client
	pause  time.Duration
	stop   context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	acked    []int
	refused  int
	lastAck  time.Time
	longest  time.Duration
	longestT time.Time
}

// Report is what a writer saw.
type Report struct {
	// Acknowledged puts, and puts whose outcome is unknown (an error came back; the key may exist all the same).
	Acknowledged, Unknown int
	// Lost are acknowledged keys that a linearizable read at the end did not find with their value.
	Lost []string
	// LongestGap between two acknowledgements, and when it ended.
	LongestGap   time.Duration
	LongestGapAt time.Time
}

// StartEtcd begins writing through the given client endpoints, one put after another with a pause between them.
// An error of a single put is counted and never stops the writer. Stop it with Finish.
func StartEtcd(ctx context.Context, endpoints []string, pause time.Duration) (*Etcd, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, DialTimeout: 2 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		return nil, fmt.Errorf("connecting a writer to %s: %w", strings.Join(endpoints, ","), err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &Etcd{client: client, pause: pause, stop: cancel, done: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

func (w *Etcd) run(ctx context.Context) {
	defer close(w.done)
	tick := time.NewTicker(w.pause)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		put, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err := w.client.Put(put, fmt.Sprintf("%s%08d", prefix, n), fmt.Sprint(n))
		cancel()
		w.note(n, err)
	}
}

func (w *Etcd) note(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refused++
		return
	}
	now := time.Now()
	if gap := now.Sub(w.lastAck); !w.lastAck.IsZero() && gap > w.longest {
		w.longest, w.longestT = gap, now
	}
	w.lastAck = now
	w.acked = append(w.acked, n)
}

// Acknowledged tells how many puts were acknowledged so far.
func (w *Etcd) Acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

// Finish stops writing, reads everything back with linearizable reads and compares.
func (w *Etcd) Finish(ctx context.Context) (Report, error) {
	w.stop()
	<-w.done
	defer func() { _ = w.client.Close() }() // nothing can be done about a client that does not close
	found, err := w.readAll(ctx)
	if err != nil {
		return Report{}, err
	}
	r := Report{Acknowledged: len(w.acked), Unknown: w.refused, LongestGap: w.longest, LongestGapAt: w.longestT}
	for _, n := range w.acked {
		key := fmt.Sprintf("%s%08d", prefix, n)
		if found[key] != fmt.Sprint(n) {
			r.Lost = append(r.Lost, key)
		}
	}
	return r, nil
}

func (w *Etcd) readAll(ctx context.Context) (map[string]string, error) {
	const page = 5000
	found := map[string]string{}
	from, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	for {
		resp, err := w.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
		if err != nil {
			return nil, fmt.Errorf("reading back from %s: %w", from, err)
		}
		for _, kv := range resp.Kvs {
			found[string(kv.Key)] = string(kv.Value)
		}
		if !resp.More || len(resp.Kvs) == 0 {
			return found, nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
