package simulation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/simulation/apiserver"
)

// template is a pod template that differs by version; version "broken" never becomes Ready.
func template(version string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"metadata":{"labels":{"app":"db"}},"spec":{"containers":[{"image":"db:%s","name":"db"}]}}`, version)}
}

// create applies the first set.
func (w *World) create(ctx context.Context, replicas int32, version string) {
	w.createSet(ctx, setName, replicas, version, nil)
}

// createSet applies a set of the application; change may be nil.
func (w *World) createSet(ctx context.Context, name string, replicas int32, version string, change func(*v1alpha1.LiStatefulSetSpec)) {
	w.note("the user creates set %s: %d replicas of %s", name, replicas, version)
	set := &v1alpha1.LiStatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.LiStatefulSetSpec{
			Application: setName, Policy: w.policy, Replicas: &replicas, Template: template(version),
			VolumeClaimTemplates: []v1alpha1.VolumeClaimTemplate{{Name: "data", Spec: corev1.PersistentVolumeClaimSpec{}}},
		},
	}
	if change != nil {
		change(&set.Spec)
	}
	w.nodes.must(w.user.Create(ctx, set))
}

// edit changes the first set.
func (w *World) edit(ctx context.Context, what string, change func(*v1alpha1.LiStatefulSetSpec)) {
	w.editSet(ctx, setName, what, change)
}

func (w *World) editSet(ctx context.Context, name, what string, change func(*v1alpha1.LiStatefulSetSpec)) {
	set := w.setNamed(name).DeepCopy()
	change(&set.Spec)
	w.note("the user edits set %s: %s", name, what)
	w.nodes.must(w.user.Update(ctx, set))
}

func (w *World) roll(ctx context.Context, version string) {
	w.edit(ctx, "version "+version, func(s *v1alpha1.LiStatefulSetSpec) { s.Template = template(version) })
}

func (w *World) scale(ctx context.Context, replicas int32) {
	w.edit(ctx, fmt.Sprintf("%d replicas", replicas), func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = &replicas })
}

// whim is a random edit.
func (w *World) whim(ctx context.Context) {
	switch w.Rand.IntN(6) {
	case 0, 1:
		w.roll(ctx, fmt.Sprintf("v%d", 1+w.Rand.IntN(3)))
	case 2:
		w.roll(ctx, "broken")
	case 3, 4:
		w.scale(ctx, int32(1+w.Rand.IntN(5)))
	case 5:
		mode := []v1alpha1.PauseMode{"", v1alpha1.PausedRollout, v1alpha1.PausedAll}[w.Rand.IntN(3)]
		w.edit(ctx, fmt.Sprintf("paused %q", mode), func(s *v1alpha1.LiStatefulSetSpec) { s.Paused = mode })
	}
}

// settled says whether every set is as the user wants it and says so itself; otherwise what is missing.
func (w *World) settled() error {
	sets := objects[*v1alpha1.LiStatefulSet](w, setKind)
	if len(sets) == 0 {
		return fmt.Errorf("there is no set")
	}
	for _, set := range sets {
		if err := w.settledSet(set); err != nil {
			return fmt.Errorf("set %s: %w", set.Name, err)
		}
	}
	for _, op := range objects[*v1alpha1.Operation](w, operationKind) {
		for _, i := range op.Status.Instances {
			if !i.State.Ended() {
				return fmt.Errorf("%s of %s is %s", i.Pod, op.Name, i.State)
			}
		}
	}
	return nil
}

func (w *World) settledSet(set *v1alpha1.LiStatefulSet) error {
	ready := meta.FindStatusCondition(set.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case set.Status.ObservedGeneration != set.Generation:
		return fmt.Errorf("generation %d is observed, %d is there", set.Status.ObservedGeneration, set.Generation)
	case ready == nil || ready.Status != metav1.ConditionTrue:
		return fmt.Errorf("it is not Ready: %s, %s", set.Status.Summary.State, set.Status.Summary.WaitingFor)
	case set.Status.UpdatedReplicas != *set.Spec.Replicas || set.Status.Replicas != *set.Spec.Replicas:
		return fmt.Errorf("%d of %d replicas exist, %d are updated", set.Status.Replicas, *set.Spec.Replicas, set.Status.UpdatedReplicas)
	}
	return w.truly(set)
}

// truly compares the pods themselves with what the set's status says of them.
func (w *World) truly(set *v1alpha1.LiStatefulSet) error {
	n := int32(0)
	for _, p := range objects[*corev1.Pod](w, podKind) {
		if p.Labels[v1alpha1.LabelSet] != set.Name {
			continue
		}
		n++
		if !readyPod(p) || p.DeletionTimestamp != nil || p.Labels[v1alpha1.LabelRevision] != set.Status.UpdateRevision {
			return fmt.Errorf("it calls itself Ready, but Pod %s is not", p.Name)
		}
	}
	if n != *set.Spec.Replicas {
		return fmt.Errorf("there are %d pods, want %d", n, *set.Spec.Replicas)
	}
	return nil
}

// describe says what a write did, as a person would.
func describe(wr apiserver.Write) string {
	extra := ""
	switch o := wr.After.(type) {
	case *v1alpha1.StatefulPod:
		if wr.Verb == apiserver.Status {
			extra = fmt.Sprintf(" available=%t acted=%s finished=%s", o.Status.Available, o.Status.Acted, o.Status.Finished)
			break
		}
		extra = fmt.Sprintf(" %s at %s", o.Spec.State, o.Spec.Revision)
		if g := o.Spec.Grant; g != nil {
			extra += fmt.Sprintf(" under %s of %s (%s)", g.Decision, g.Operation, g.Session)
		}
	case *v1alpha1.Operation:
		for _, i := range o.Status.Instances {
			extra += fmt.Sprintf(" %s=%s", i.Pod, i.State)
			if len(i.Reasons) > 0 && !i.State.Ended() {
				extra += "(" + i.Reasons[0].Code + ")"
			}
		}
	case *v1alpha1.LiStatefulSet:
		if wr.Verb == apiserver.Status {
			extra = fmt.Sprintf(" %s, %d available, %d updated", o.Status.Summary.State, o.Status.AvailableReplicas, o.Status.UpdatedReplicas)
		}
	case *v1alpha1.PodIndex:
		if wr.Verb == apiserver.Status {
			extra = fmt.Sprintf(" sequence %d, %d claims", o.Status.Sequence, len(o.Status.Claims))
		}
	}
	return wr.String() + extra
}
