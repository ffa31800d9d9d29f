package kube

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Written remembers what this process wrote until its cache shows it, so that nobody decides on what was before his own
// write. Safe for concurrent use.
type Written[T client.Object] struct {
	mu      sync.Mutex
	objects map[types.NamespacedName]T
}

// NewWritten makes an empty memory.
func NewWritten[T client.Object]() *Written[T] {
	return &Written[T]{objects: map[types.NamespacedName]T{}}
}

// Note remembers the answer of a write. The object must not be changed afterwards.
func (w *Written[T]) Note(o T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	if old, known := w.objects[key]; !known || !Older(o, old) {
		w.objects[key] = o
	}
}

// Forget drops what was remembered of an object, because it is gone.
func (w *Written[T]) Forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, key)
}

// Latest is the newer of what the cache shows and what was written. It forgets what the cache has caught up with.
func (w *Written[T]) Latest(cached T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := client.ObjectKeyFromObject(cached)
	mine, known := w.objects[key]
	if !known {
		return cached
	}
	if Older(cached, mine) {
		return mine
	}
	delete(w.objects, key)
	return cached
}

// Missing lists what was written and is in none of the keys seen: it has not reached the cache yet, or is gone already.
// Only a live read can tell.
func (w *Written[T]) Missing(seen func(types.NamespacedName) bool, belongs func(T) bool) []T {
	w.mu.Lock()
	defer w.mu.Unlock()
	var missing []T
	for key, o := range w.objects {
		if !seen(key) && belongs(o) {
			missing = append(missing, o)
		}
	}
	return missing
}
