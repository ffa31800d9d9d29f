package listatefulset

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// world is a set and what belongs to it, built line by line.
type world struct{ Input }

func set(name string, replicas int32, image string) *world {
	return &world{Input{
		Now: noon,
		Set: &v1alpha1.LiStatefulSet{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "uid-" + "set", Generation: 1},
			Spec:       v1alpha1.LiStatefulSetSpec{Policy: "etcd", Replicas: ptr.To(replicas), Template: template(image)},
		},
	}}
}

func template(image string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","image":%q}]}}`, image)}
}

// edit changes the set as a user does: the generation grows.
func (w *world) edit(change func(*v1alpha1.LiStatefulSetSpec)) *world {
	w.Set = w.Set.DeepCopy()
	change(&w.Set.Spec)
	w.Set.Generation++
	return w
}

func (w *world) image(image string) *world {
	return w.edit(func(s *v1alpha1.LiStatefulSetSpec) { s.Template = template(image) })
}

func (w *world) replicas(n int32) *world {
	return w.edit(func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = ptr.To(n) })
}

// store is what an API server would hold after the plan was carried out.
func (w *world) store(p Plan) *world {
	if p.Revision != nil {
		w.Revisions = append(w.Revisions, *p.Revision)
	}
	for _, x := range p.Staging.Create {
		x.Generation, x.Status.ObservedGeneration = 1, 1
		w.Indexes = append(w.Indexes, x)
	}
	for _, x := range p.Staging.Update {
		x.Generation++
		x.Status.ObservedGeneration = x.Generation
		for i := range w.Indexes {
			if w.Indexes[i].Name == x.Name {
				w.Indexes[i] = x
			}
		}
	}
	if p.Service != nil {
		w.Service = p.Service
	}
	w.storeRevisions(p)
	w.Set = w.Set.DeepCopy()
	w.Set.Status = p.Status
	return w
}

func (w *world) storeRevisions(p Plan) {
	for _, r := range p.RevisionStatus {
		for i := range w.Revisions {
			if w.Revisions[i].Name == r.Name {
				w.Revisions[i] = r
			}
		}
	}
	gone := map[string]bool{}
	for _, r := range p.Unused {
		gone[r.Name] = true
	}
	var kept []v1alpha1.Revision
	for _, r := range w.Revisions {
		if !gone[r.Name] {
			kept = append(kept, r)
		}
	}
	w.Revisions = kept
}

// settle carries plans out until nothing is planned anymore, and makes the pods as staged and available.
func (w *world) settle() *world {
	for range 3 {
		w.store(Make(w.Input))
		w.Pods = nil
		for _, x := range w.Indexes {
			for _, e := range x.Spec.Indices {
				if e.Presence == v1alpha1.Present {
					w.Pods = append(w.Pods, identity(w.Set.Name, e.Index, e.Revision))
				}
			}
		}
		w.Ready = int32(len(w.Pods))
	}
	return w
}

func identity(set string, index int32, revision string) v1alpha1.StatefulPod {
	return v1alpha1.StatefulPod{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PodName(set, index, 0)},
		Spec:       v1alpha1.StatefulPodSpec{Set: set, Index: index, Revision: revision, State: v1alpha1.Running},
		Status: v1alpha1.StatefulPodStatus{
			Available: true, EverAvailable: true, PodRevision: revision, Since: &metav1.Time{Time: noon.Add(-time.Hour)},
		},
	}
}

// operation is an open one with one instance.
func operation(name string, kind v1alpha1.OperationType, pod string, state v1alpha1.InstanceState, code, message string) v1alpha1.Operation {
	return v1alpha1.Operation{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.OperationSpec{Type: kind, Instances: []v1alpha1.OperationInstance{{Pod: pod}}},
		Status: v1alpha1.OperationStatus{
			State: string(state), Reason: code, Message: pod + ": " + message, Since: &metav1.Time{Time: noon.Add(-time.Minute)},
			Instances: []v1alpha1.InstanceStatus{{Pod: pod, State: state, Reasons: []v1alpha1.Reason{{Code: code, Message: message}}}},
		},
	}
}

func service(owner *v1alpha1.LiStatefulSet, name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if owner != nil {
		s.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1alpha1.GroupVersion.WithKind("LiStatefulSet"))}
	}
	return s
}
