package apiserver

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tables hold objects by kind, each kind ordered by namespace and name. Objects in them never change: a write replaces.
type tables map[schema.GroupVersionKind]*table

type table struct {
	objects []client.Object
	byKey   map[types.NamespacedName]client.Object
}

func byName(o client.Object, key types.NamespacedName) int {
	if c := strings.Compare(o.GetNamespace(), key.Namespace); c != 0 {
		return c
	}
	return strings.Compare(o.GetName(), key.Name)
}

func (t tables) get(i id) (client.Object, bool) {
	if t[i.gvk] == nil {
		return nil, false
	}
	o, ok := t[i.gvk].byKey[i.key]
	return o, ok
}

// list is shared with the table: it is read at once and never changed.
func (t tables) list(gvk schema.GroupVersionKind) []client.Object {
	if t[gvk] == nil {
		return nil
	}
	return t[gvk].objects
}

func (t tables) put(i id, o client.Object) {
	kind := t[i.gvk]
	if kind == nil {
		kind = &table{byKey: map[types.NamespacedName]client.Object{}}
		t[i.gvk] = kind
	}
	kind.byKey[i.key] = o
	at, there := slices.BinarySearchFunc(kind.objects, i.key, byName)
	kind.objects = slices.Clone(kind.objects)
	if there {
		kind.objects[at] = o
		return
	}
	kind.objects = slices.Insert(kind.objects, at, o)
}

func (t tables) remove(i id) {
	kind := t[i.gvk]
	if kind == nil {
		return
	}
	delete(kind.byKey, i.key)
	if at, there := slices.BinarySearchFunc(kind.objects, i.key, byName); there {
		kind.objects = slices.Delete(slices.Clone(kind.objects), at, at+1)
	}
}

// kinds are those that were ever held, ordered by name.
func (t tables) kinds() []schema.GroupVersionKind {
	kinds := make([]schema.GroupVersionKind, 0, len(t))
	for gvk := range t {
		kinds = append(kinds, gvk)
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return kinds
}

func (t tables) all() []client.Object {
	var out []client.Object
	for _, gvk := range t.kinds() {
		out = append(out, t[gvk].objects...)
	}
	return out
}
