package operation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// store is an application and what a perfect API server would hold of it, built line by line.
type store struct {
	Input
	versions int
}

func app() *store {
	return &store{Input: Input{
		Application: types.NamespacedName{Namespace: "ns", Name: "app"}, Session: "s1", Term: 1, Now: noon,
		Words: map[Ref]Word{}, Absent: map[string]bool{}, OperationsGone: map[string]bool{},
	}}
}

func (w *store) version() string {
	w.versions++
	return fmt.Sprint(w.versions)
}

// set adds a set with replicas staged at revision, no pods.
func (w *store) set(name string, replicas int32, revision string, change ...func(*v1alpha1.LiStatefulSetSpec)) *store {
	s := v1alpha1.LiStatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("set-" + name), Generation: 1},
		Spec:       v1alpha1.LiStatefulSetSpec{Application: "app", Policy: "etcd", Replicas: ptr.To(replicas)},
	}
	for _, f := range change {
		f(&s.Spec)
	}
	s.Status.UpdateRevision = revision
	w.Sets = append(w.Sets, s)
	x := v1alpha1.PodIndex{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: v1alpha1.PodIndexName(name, 0), UID: types.UID("index-" + name), Generation: 1,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&s, v1alpha1.GroupVersion.WithKind("LiStatefulSet"))},
		},
		Spec: v1alpha1.PodIndexSpec{Set: name, Application: "app"},
	}
	for i := range replicas {
		x.Spec.Indices = append(x.Spec.Indices, v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Present, Revision: revision})
	}
	w.Indexes = append(w.Indexes, x)
	return w
}

// stage wants another revision of the named indices, or of all; an empty revision makes them absent.
func (w *store) stage(set, revision string, indices ...int32) *store {
	x := w.index(set)
	x.Generation++
	for i := range x.Spec.Indices {
		e := &x.Spec.Indices[i]
		if len(indices) > 0 && !slices.Contains(indices, e.Index) {
			continue
		}
		e.Revision, e.Presence = revision, v1alpha1.Present
		if revision == "" {
			e.Presence = v1alpha1.Absent
		}
	}
	return w
}

func (w *store) index(set string) *v1alpha1.PodIndex {
	for i := range w.Indexes {
		if w.Indexes[i].Spec.Set == set {
			return &w.Indexes[i]
		}
	}
	return nil
}

// running adds identities with available pods.
func (w *store) running(set, revision string, indices ...int32) *store {
	for _, i := range indices {
		s := v1alpha1.StatefulPod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ns", Name: v1alpha1.PodName(set, i, 0), UID: types.UID(fmt.Sprintf("identity-%s-%d", set, i)), ResourceVersion: w.version(),
				OwnerReferences: []metav1.OwnerReference{{Kind: "LiStatefulSet", Name: set, UID: types.UID("set-" + set), Controller: ptr.To(true)}},
			},
			Spec: v1alpha1.StatefulPodSpec{Set: set, Application: "app", Index: i, Revision: revision, State: v1alpha1.Running},
		}
		s.Status.EverAvailable, s.Status.Available = true, true
		w.Identities = append(w.Identities, s)
		w.start(s.Name, revision)
	}
	return w
}

// start makes the identity's Pod, Ready.
func (w *store) start(name, revision string) *store {
	w.stop(name)
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("pod-" + w.version()), ResourceVersion: w.version(),
			Labels: map[string]string{v1alpha1.LabelRevision: revision},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(w.identity(name), v1alpha1.GroupVersion.WithKind("StatefulPod")),
			},
		},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	w.Pods = append(w.Pods, p)
	return w
}

func (w *store) stop(name string) *store {
	w.Pods = slices.DeleteFunc(w.Pods, func(p corev1.Pod) bool { return p.Name == name })
	return w
}

func (w *store) fail(names ...string) *store {
	for _, n := range names {
		w.pod(n).Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return w
}

func (w *store) terminate(name string) *store {
	w.pod(name).DeletionTimestamp = &metav1.Time{Time: noon}
	return w
}

func (w *store) pod(name string) *corev1.Pod {
	for i := range w.Pods {
		if w.Pods[i].Name == name {
			return &w.Pods[i]
		}
	}
	return nil
}

func (w *store) identity(name string) *v1alpha1.StatefulPod {
	for i := range w.Identities {
		if w.Identities[i].Name == name {
			return &w.Identities[i]
		}
	}
	return nil
}

// order adds an Operation over indices.
func (w *store) order(set string, t v1alpha1.OperationType, sequence int64, revision string, indices ...int32) string {
	x := w.index(set)
	op := v1alpha1.Operation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: v1alpha1.OperationName(set, 0, t, sequence), Generation: 1, ResourceVersion: w.version(),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(x, v1alpha1.GroupVersion.WithKind("PodIndex"))},
		},
		Spec: v1alpha1.OperationSpec{
			Set: set, Application: "app", PodIndex: x.Name, Type: t, Cause: "rollout", Generation: x.Generation,
			Target: v1alpha1.Target{Revision: revision},
		},
	}
	op.UID = types.UID(op.Name)
	for _, i := range indices {
		op.Spec.Instances = append(op.Spec.Instances, v1alpha1.OperationInstance{Index: i, Pod: v1alpha1.PodName(set, i, 0)})
	}
	w.Operations = append(w.Operations, op)
	return op.Name
}

func (w *store) operation(name string) *v1alpha1.Operation {
	for i := range w.Operations {
		if w.Operations[i].Name == name {
			return &w.Operations[i]
		}
	}
	return nil
}

// approve receives an approval as the plan's question would have got it.
func (w *store) approve(decision, operation, pod string) *store {
	op := w.operation(operation)
	a := approval.Approval{
		Decision: decision, Application: w.Application, Operation: operation, Type: op.Spec.Type, Stage: stageOf(op.Spec.Type),
		Set: op.Spec.Set, Pod: pod, Deadline: w.Now.Add(30 * time.Second),
	}
	for _, i := range op.Spec.Instances {
		if i.Pod == pod {
			a.Index = i.Index
		}
	}
	about := Make(w.Input).About[Ref{operation, pod}]
	a.PodUID, a.PodDown = about.PodUID, about.Down
	w.Held = append(w.Held, approval.Held{Approval: a, Phase: approval.Received})
	return w
}

func (w *store) held(decision string) *approval.Held {
	for i := range w.Held {
		if w.Held[i].Decision == decision {
			return &w.Held[i]
		}
	}
	return nil
}

func (w *store) drop(decision string) {
	w.Held = slices.DeleteFunc(w.Held, func(h approval.Held) bool { return h.Decision == decision })
}

// step plans once and stores everything that the plan writes.
func (w *store) step() Plan {
	p := Make(w.Input)
	for _, d := range append(slices.Clone(p.Void), p.Forget...) {
		w.drop(d)
	}
	for _, r := range p.Returns {
		if r.Certain || w.held(r.Decision) == nil || w.held(r.Decision).Revocable() {
			w.drop(r.Decision)
			*w.identity(r.Identity.Name) = *r.Identity
			w.identity(r.Identity.Name).ResourceVersion = w.version()
		}
	}
	for _, r := range p.Removals {
		if name := r.Identity.Name; w.pod(name) == nil {
			w.Identities = slices.DeleteFunc(w.Identities, func(s v1alpha1.StatefulPod) bool { return s.Name == name })
			w.Absent[name] = true
		}
	}
	for _, g := range p.Grants {
		w.storeGrant(g)
	}
	for _, s := range p.Statuses {
		w.operation(s.Operation.Name).Status = s.Operation.Status
	}
	w.Words = p.Words
	return p
}

func (w *store) storeGrant(g Grant) {
	s := g.Identity.DeepCopy()
	s.ResourceVersion = w.version()
	if old := w.identity(s.Name); old != nil {
		*old = *s
	} else {
		s.UID = types.UID("identity-" + s.ResourceVersion)
		w.Identities = append(w.Identities, *s)
	}
	w.held(g.Decision).Phase = approval.Recorded
}

// act does what the statefulpod controller does about the identity's grant, all the way to its finish.
func (w *store) act(name string) *store {
	s := w.identity(name)
	w.held(s.Spec.Grant.Decision).Phase = approval.Acted
	if s.Spec.State == v1alpha1.Stopped {
		return w.stop(name)
	}
	w.start(name, s.Spec.Revision)
	s.Status.Acted, s.Status.Finished = s.Spec.Grant.Decision, s.Spec.Grant.Decision
	s.Status.EverAvailable = true
	return w
}

// states lists an Operation's instances as planned: "db-0 Waiting acm.not_asked".
func states(p Plan, w *store, operation string) []string {
	status := w.operation(operation).Status
	for _, s := range p.Statuses {
		if s.Operation.Name == operation {
			status = s.Operation.Status
		}
	}
	var list []string
	for _, i := range status.Instances {
		line := fmt.Sprintf("%s %s", i.Pod, i.State)
		if len(i.Reasons) > 0 {
			line += " " + i.Reasons[0].Code
		}
		list = append(list, line)
	}
	return list
}

func granted(p Plan) []string {
	list := []string{}
	for _, g := range p.Grants {
		list = append(list, g.Identity.Name)
	}
	return list
}

func maxUnavailable(v string) func(*v1alpha1.LiStatefulSetSpec) {
	parsed := intstr.Parse(v)
	return func(s *v1alpha1.LiStatefulSetSpec) { s.MaxUnavailable = &parsed }
}

// asks lists the pods that the question asks about.
func asks(p Plan) []string {
	list := []string{}
	for _, i := range p.Question.Instances {
		if i.State == v1alpha1.Waiting {
			list = append(list, i.Pod)
		}
	}
	return list
}
