package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
)

// settled is how long a whole rolling update of three members may take on a busy machine.
const settled = 3 * time.Minute

// until polls a question about the cluster; its error says what is still missing.
func until(ctx context.Context, limit time.Duration, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting %s for %s: %w", limit, what, err)
		case <-tick.C:
		}
	}
}

// holds asks again and again for the whole time and ends at the first error.
func holds(ctx context.Context, duration time.Duration, ask func(context.Context) error) error {
	end := time.NewTimer(duration)
	defer end.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := ask(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-tick.C:
		}
	}
}

func (d *demo) set(ctx context.Context) (*v1alpha1.LiStatefulSet, error) {
	lss := &v1alpha1.LiStatefulSet{}
	err := d.s.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: "etcd"}, lss)
	return lss, err
}

// edit changes the set as a user does, again when somebody else was faster.
func (d *demo) edit(ctx context.Context, change func(*v1alpha1.LiStatefulSet) error) error {
	return until(ctx, 30*time.Second, "the edit to be accepted", func(ctx context.Context) error {
		lss, err := d.set(ctx)
		if err != nil {
			return err
		}
		if err := change(lss); err != nil {
			return err
		}
		return d.s.Client.Update(ctx, lss)
	})
}

// round changes an annotation of the pod template: a new revision, and a restart of every member.
func (d *demo) round(ctx context.Context, n int) error {
	d.rec.Say("-- the user edits the pod template (round %d)", n)
	return d.edit(ctx, func(lss *v1alpha1.LiStatefulSet) error {
		return annotateTemplate(lss, "demo.assent.dev/round", fmt.Sprint(n))
	})
}

// whole waits until the set is Ready at the spec's generation and returns it.
func (d *demo) whole(ctx context.Context) error {
	return until(ctx, settled, "the set to be Ready", func(ctx context.Context) error {
		lss, err := d.set(ctx)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(lss.Status.Conditions, v1alpha1.ConditionReady)
		if lss.Status.ObservedGeneration == lss.Generation && ready != nil && ready.Status == "True" && ready.ObservedGeneration == lss.Generation && lss.Status.UpdatedReplicas == *lss.Spec.Replicas {
			return nil
		}
		return fmt.Errorf("%d of %d available, %d updated, %s %s", lss.Status.AvailableReplicas, *lss.Spec.Replicas, lss.Status.UpdatedReplicas, lss.Status.Summary.State, lss.Status.Summary.WaitingFor)
	})
}

// deployment is the newest deployment Operation of the set.
func (d *demo) deployment(ctx context.Context) (*v1alpha1.Operation, error) {
	ops := &v1alpha1.OperationList{}
	if err := d.s.Client.List(ctx, ops, client.InNamespace("default")); err != nil {
		return nil, err
	}
	var newest *v1alpha1.Operation
	for i := range ops.Items {
		op := &ops.Items[i]
		if op.Spec.Type == v1alpha1.Deployment && (newest == nil || newest.CreationTimestamp.Before(&op.CreationTimestamp) || len(op.Name) > len(newest.Name) || len(op.Name) == len(newest.Name) && op.Name > newest.Name) {
			newest = op
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("no deployment exists yet")
	}
	return newest, nil
}

// instance waits until the newest deployment made since after has an instance that fits.
func (d *demo) instance(ctx context.Context, after, what string, fits func(v1alpha1.InstanceStatus) bool) (v1alpha1.InstanceStatus, error) {
	var found v1alpha1.InstanceStatus
	err := until(ctx, settled, what, func(ctx context.Context) error {
		op, err := d.deployment(ctx)
		if err != nil {
			return err
		}
		if op.Name == after {
			return fmt.Errorf("%s is still the newest deployment", after)
		}
		for _, in := range op.Status.Instances {
			if fits(in) {
				found = in
				return nil
			}
		}
		return fmt.Errorf("%s is %s: %s %s", op.Name, op.Status.State, op.Status.Reason, op.Status.Message)
	})
	return found, err
}

// newestName is the name of the newest deployment, or empty.
func (d *demo) newestName(ctx context.Context) string {
	op, err := d.deployment(ctx)
	if err != nil {
		return ""
	}
	return op.Name
}

// show prints what kubectl shows to a person.
func (d *demo) show(ctx context.Context, args ...string) (string, error) {
	text, err := d.s.Kubectl(ctx, args...)
	if err != nil {
		return text, fmt.Errorf("running kubectl %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	d.rec.Say("$ kubectl %s\n%s", strings.Join(args, " "), indent(text))
	return text, nil
}

func indent(text string) string {
	return "            " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n            ")
}

func (d *demo) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := d.s.Client.Get(ctx, types.NamespacedName{Namespace: "default", Name: name}, pod)
	return pod, err
}

func podReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

func hasReason(in v1alpha1.InstanceStatus, fits func(string) bool) bool {
	for _, r := range in.Reasons {
		if fits(r.Code) {
			return true
		}
	}
	return false
}
