package kube

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Coalesce makes a watch handler that asks for the requests of an object after a delay, so that a burst of changes asks
// once. With no delay each change asks at once.
func Coalesce(delay time.Duration, requests func(client.Object) []reconcile.Request) handler.EventHandler {
	add := func(o client.Object, q queue) {
		for _, r := range requests(o) {
			q.AddAfter(r, delay)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc:  func(_ context.Context, e event.UpdateEvent, q queue) { add(e.ObjectNew, q) },
		DeleteFunc:  func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
		GenericFunc: func(_ context.Context, e event.GenericEvent, q queue) { add(e.Object, q) },
	}
}
