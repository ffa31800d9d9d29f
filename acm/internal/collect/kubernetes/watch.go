package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// watchState knows which watches stand.
type watchState struct {
	mu       sync.Mutex
	problems map[string]string
	// current numbers the watches of a resource, so that the end of an old one is not that of its successor.
	current map[string]int
}

func newWatchState() *watchState {
	return &watchState{problems: map[string]string{}, current: map[string]int{}}
}

// problem tells which watch does not stand, and why; empty when all do.
func (w *watchState) problem() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, resource := range slices.Sorted(maps.Keys(w.problems)) {
		if text := w.problems[resource]; text != "" {
			return resource + ": " + text
		}
	}
	return ""
}

func (w *watchState) set(resource, problem string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems[resource] = problem
	w.current[resource]++
	return w.current[resource]
}

func (w *watchState) ended(resource string, number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.current[resource] == number {
		w.problems[resource] = "the watch has ended and is being renewed"
	}
}

// of lists and watches a resource, all namespaces, and keeps the state.
func (w *watchState) of(resource string, client rest.Interface, label string) cache.ListerWatcher {
	w.set(resource, "not listed yet")
	lw := cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector, o.FieldSelector = label, fields.Everything().String()
	})
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, o)
			if err != nil {
				w.set(resource, fmt.Sprintf("listing: %v", err))
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			i, err := lw.WatchWithContext(ctx, o)
			if err != nil {
				w.set(resource, fmt.Sprintf("watching: %v", err))
				return nil, err
			}
			return &standing{Interface: i, state: w, resource: resource, number: w.set(resource, "")}, nil
		},
	}
}

// standing is a watch that tells when it is stopped.
type standing struct {
	watch.Interface
	state    *watchState
	resource string
	number   int
}

// Stop ends the watch; the reflector calls it at every end.
func (s *standing) Stop() {
	s.state.ended(s.resource, s.number)
	s.Interface.Stop()
}
