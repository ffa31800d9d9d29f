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
	objects map[id]client.Object
	queues  map[schema.GroupVersionKind][]Change
	stop    func()
}

// NewCache lists everything as it is now and follows the changes from here on.
func (s *Server) NewCache() *Cache {
	c := &Cache{scheme: s.scheme, objects: map[id]client.Object{}, queues: map[schema.GroupVersionKind][]Change{}}
	for i, o := range s.objects {
		c.objects[i] = o.DeepCopyObject().(client.Object)
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
		delete(c.objects, i)
	} else {
		c.objects[i] = ch.Object
	}
	return ch.Object, true
}

// All returns every object seen, for the first reconciles of a new process.
func (c *Cache) All() []client.Object {
	ids := make([]id, 0, len(c.objects))
	for i := range c.objects {
		ids = append(ids, i)
	}
	sort.Slice(ids, func(a, b int) bool {
		return ids[a].gvk.Kind+ids[a].key.String() < ids[b].gvk.Kind+ids[b].key.String()
	})
	out := make([]client.Object, 0, len(ids))
	for _, i := range ids {
		out = append(out, c.objects[i])
	}
	return out
}

// Get reads from the cache.
func (c *Cache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, c.scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	found, ok := c.objects[id{gvk, key}]
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
	var objects []client.Object
	for _, o := range c.All() {
		if kind, err := apiutil.GVKForObject(o, c.scheme); err == nil && kind == gvk {
			objects = append(objects, o.DeepCopyObject().(client.Object))
		}
	}
	return fill(list, objects, opts)
}
