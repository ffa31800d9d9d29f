package collect

import (
	"context"
	"time"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// loop runs one collector of one application.
type loop struct {
	*Application
	name     string
	settings map[string]any
	kick     chan struct{}
	cancel   context.CancelFunc
	done     chan struct{}
}

func (l *loop) stop() {
	l.cancel()
	<-l.done
}

func (l *loop) run(ctx context.Context, c Collector) {
	defer close(l.done)
	defer c.Close()
	wait := l.o.Interval
	for {
		began := l.o.Clock.Now()
		failed := l.collect(ctx, c, began)
		if ctx.Err() != nil {
			return
		}
		if failed {
			wait = min(2*wait, l.o.MostBackOff)
		} else {
			wait = l.o.Interval
		}
		if !l.rest(ctx, wait-l.o.Clock.Since(began)) {
			return
		}
	}
}

// rest waits for the next turn: the time, or somebody who asks; false when the loop has ended.
func (l *loop) rest(ctx context.Context, wait time.Duration) bool {
	timer := l.o.Clock.NewTimer(max(wait, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-l.kick:
	case <-timer.C():
	}
	return true
}

// collect publishes one attempt and says whether it failed as a whole.
func (l *loop) collect(ctx context.Context, c Collector, began time.Time) bool {
	found, err := c.Collect(ctx, l.store.Snapshot(), began)
	if ctx.Err() != nil {
		return false
	}
	r := facts.Report{Collector: l.name, OK: err == nil, AsOf: decision.Unix(began), Facts: found}
	if err != nil {
		r.Error, r.Facts = err.Error(), nil
	}
	l.store.Apply(facts.Changes{At: decision.Unix(l.o.Clock.Now()), Reports: []facts.Report{r}})
	return err != nil
}
