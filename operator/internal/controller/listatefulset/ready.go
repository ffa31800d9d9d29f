package listatefulset

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// readyChanged lets only those changes of a Pod through that change the count of ready ones.
var readyChanged = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return isReady(e.Object) },
	DeleteFunc:  func(e event.DeleteEvent) bool { return isReady(e.Object) },
	UpdateFunc:  func(e event.UpdateEvent) bool { return isReady(e.ObjectOld) != isReady(e.ObjectNew) },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

func isReady(o client.Object) bool {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
