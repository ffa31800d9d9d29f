package wrap

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Stale is a reader that shows some kinds as they were when it was made, whatever happened since, and reads the others
// live: a cache that lags.
type Stale struct {
	live  client.Client
	kinds map[schema.GroupVersionKind][]runtime.Object
}

// NewStale freezes the kinds of the lists as a namespace has them now.
func NewStale(ctx context.Context, live client.Client, namespace string, lists ...client.ObjectList) (*Stale, error) {
	s := NewEmpty(live, lists...)
	for _, list := range lists {
		if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("freezing %T: %w", list, err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			return nil, fmt.Errorf("freezing %T: %w", list, err)
		}
		s.kinds[itemKind(list, live.Scheme())] = items
	}
	return s, nil
}

// NewEmpty shows nothing of the kinds of the lists: a cache that has just started.
func NewEmpty(live client.Client, lists ...client.ObjectList) *Stale {
	s := &Stale{live: live, kinds: map[schema.GroupVersionKind][]runtime.Object{}}
	for _, list := range lists {
		s.kinds[itemKind(list, live.Scheme())] = nil
	}
	return s
}

func itemKind(list client.ObjectList, scheme *runtime.Scheme) schema.GroupVersionKind {
	gvk, err := apiutil.GVKForObject(list, scheme)
	if err != nil {
		panic(err) // a test that asks for an unknown kind
	}
	gvk.Kind = gvk.Kind[:len(gvk.Kind)-len("List")]
	return gvk
}

// Get reads the frozen object, or a live one of another kind.
func (s *Stale) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(o, s.live.Scheme())
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", o, err)
	}
	items, frozen := s.kinds[gvk]
	if !frozen {
		return s.live.Get(ctx, key, o, opts...)
	}
	for _, item := range items {
		if client.ObjectKeyFromObject(item.(client.Object)) == key {
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(item.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, key.Name)
}

// List reads the frozen objects that match, or live ones of another kind.
func (s *Stale) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	items, frozen := s.kinds[itemKind(list, s.live.Scheme())]
	if !frozen {
		return s.live.List(ctx, list, opts...)
	}
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	var match []runtime.Object
	for _, item := range items {
		if o.LabelSelector == nil || o.LabelSelector.Matches(labels.Set(item.(client.Object).GetLabels())) {
			match = append(match, item.DeepCopyObject())
		}
	}
	return meta.SetList(list, match)
}
