package apiserver

import (
	"context"
	"fmt"
	"sort"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Cache is what one process has seen of the server: a reader that lags. Changes wait in a queue for each kind, in
// order, until Deliver hands over the next one, just as a watch does.
type Cache struct {
	scheme  *runtime.Scheme
	objects tables
	queues  map[schema.GroupVersionKind][]Change
	stop    func()
}

// NewCache lists everything as it is now and follows the changes from here on.
func (s *Server) NewCache() *Cache {
	c := &Cache{scheme: s.scheme, objects: tables{}, queues: map[schema.GroupVersionKind][]Change{}}
	for gvk, t := range s.objects {
		for key, o := range t.byKey {
			c.objects.put(id{gvk, key}, o)
		}
	}
	c.stop = s.Watch(func(ch Change) { c.queues[ch.GVK] = append(c.queues[ch.GVK], ch) })
	return c
}

// Stop ends the watch: nothing new arrives anymore.
func (c *Cache) Stop() { c.stop() }

// Pending returns the kinds that have undelivered changes, sorted by name.
func (c *Cache) Pending() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for gvk, q := range c.queues {
		if len(q) > 0 {
			kinds = append(kinds, gvk)
		}
	}
	sort.Slice(kinds, func(a, b int) bool { return kinds[a].Kind < kinds[b].Kind })
	return kinds
}

// Deliver makes the next change of a kind visible and returns its object.
func (c *Cache) Deliver(gvk schema.GroupVersionKind) (client.Object, bool) {
	q := c.queues[gvk]
	if len(q) == 0 {
		return nil, false
	}
	ch := q[0]
	c.queues[gvk] = q[1:]
	i := id{gvk, client.ObjectKeyFromObject(ch.Object)}
	if ch.Deleted {
		c.objects.remove(i)
	} else {
		c.objects.put(i, ch.Object)
	}
	return ch.Object, true
}

// All returns every object seen, for the first reconciles of a new process, in a stable order. Copy before changing.
func (c *Cache) All() []client.Object { return c.objects.all() }

// Objects returns what is seen of a kind, ordered by namespace and name. Copy before changing.
func (c *Cache) Objects(gvk schema.GroupVersionKind) []client.Object { return c.objects.list(gvk) }

// Get reads from the cache.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	found, ok := c.objects.get(id{gvk, key})
	if !ok {
		return apierrors.NewNotFound(resource(gvk), key.Name)
	}
	copyInto(obj, found)
	return nil
}

// List reads from the cache.
func (c *Cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := listKind(list, c.scheme)
	if err != nil {
		return err
	}
	return fill(list, c.objects.list(gvk), opts)
}
