package worker

import "time"

// Backoff bounds the pauses between restarts of a container that keeps ending.
type Backoff struct {
	// Initial is the pause before the second restart; the first restart comes at once, each later one waits twice as
	// long as the one before, up to Max. After 2 * Max without a restart the count begins anew. The kubelet has 10 s and 5 min.
	Initial, Max time.Duration
}

// restarts counts the restarts of one container.
type restarts struct {
	pause time.Duration
	last  time.Time
}

// next returns when a container that ended at exit may start again, and counts that restart.
func (r *restarts) next(b Backoff, exit time.Time) time.Time {
	if r.pause > 0 && exit.Sub(r.last) > 2*b.Max {
		r.pause = 0
	}
	at := exit.Add(r.pause)
	if r.pause == 0 {
		r.pause = b.Initial
	} else {
		r.pause *= 2
	}
	r.pause = min(r.pause, b.Max)
	r.last = at
	return at
}
