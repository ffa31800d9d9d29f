package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Written remembers what this process wrote, or read live, until its cache shows it, so that nobody decides on what was
// before his own write. Safe for concurrent use.
type Written[T client.Object] struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]written[T]
}

type written[T client.Object] struct {
	object T
	gone   bool
}

// NewWritten makes an empty memory.
func NewWritten[T client.Object]() *Written[T] {
	return &Written[T]{objects: map[types.NamespacedName]written[T]{}}
}

// Note remembers the answer of a write or of a live read. The object must not be changed afterwards.
func (w *Written[T]) Note(o T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old, known := w.objects[key]; !known || !Older(o, old.object) {
		w.objects[key] = written[T]{object: o}
	}
}

// NoteGone remembers that this very object does not exist anymore.
func (w *Written[T]) NoteGone(o T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[client.ObjectKeyFromObject(o)] = written[T]{object: o, gone: true}
}

// Latest is the newer of what the cache shows and what is remembered, and false if the object is known to be gone. It
// forgets what the cache has caught up with.
func (w *Written[T]) Latest(cached T) (T, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	mine, known := w.objects[key]
	switch {
	case !known:
		return cached, true
	case mine.gone && mine.object.GetUID() == cached.GetUID():
		return cached, false
	case !mine.gone && Older(cached, mine.object):
		return mine.object, true
	}
	delete(w.objects, key)
	return cached, true
}

// Missing lists what is remembered, belongs, and is not seen in the cache: it has not got there yet, or is gone again.
// Only a live read can tell. What was remembered as gone is forgotten, since the cache agrees.
func (w *Written[T]) Missing(seen map[types.NamespacedName]bool, belongs func(T) bool) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []T
	for key, mine := range w.objects {
		switch {
		case seen[key] || !belongs(mine.object):
		case mine.gone:
			delete(w.objects, key)
		default:
			missing = append(missing, mine.object)
		}
	}
	return missing
}
