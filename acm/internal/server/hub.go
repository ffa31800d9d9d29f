package server

import (
	"sync"

	acmv1 "assent.dev/assent/proto/acm/v1"
)

// hub passes the nudges of one application to whoever watches it. A watcher that is slow gets the newest one: asking
// again once is enough for any number of changes.
type hub struct {
	mu       sync.Mutex
	watchers map[chan *acmv1.WatchResponse]bool
}

func (h *hub) send(cause string, epoch int64) {
	h.put(&acmv1.WatchResponse{Cause: cause, Epoch: epoch})
}

// expel ends all streams: another replica decides, and only that one knows when asking again is worth it.
func (h *hub) expel() { h.put(nil) }

func (h *hub) put(n *acmv1.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		select {
		case <-w:
		default:
		}
		w <- n
	}
}

func (h *hub) join() chan *acmv1.WatchResponse {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watchers == nil {
		h.watchers = map[chan *acmv1.WatchResponse]bool{}
	}
	w := make(chan *acmv1.WatchResponse, 1)
	h.watchers[w] = true
	return w
}

func (h *hub) leave(w chan *acmv1.WatchResponse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

// hubOf gives the application's hub, which outlives the application; the caller holds s.mu.
func (s *Server) hubOf(k key) *hub {
	if s.hubs[k] == nil {
		s.hubs[k] = &hub{}
	}
	return s.hubs[k]
}
