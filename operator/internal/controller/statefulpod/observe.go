package statefulpod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	plan "assent.dev/assent/operator/internal/plan/statefulpod"
)

// observe looks at an identity through a reader. It returns false if the identity is gone or going.
func (c *Controller) observe(ctx context.Context, r client.Reader, key types.NamespacedName) (plan.Input, bool, error) {
	in := plan.Input{Identity: &v1alpha1.StatefulPod{}, Session: c.deps.Session.ID, Trouble: c.trouble.of(key), Now: c.deps.Clock.Now()}
	found, err := get(ctx, r, key, in.Identity)
	if err != nil || !found || in.Identity.DeletionTimestamp != nil {
		return in, false, err
	}
	if g := in.Identity.Spec.Grant; g != nil {
		if held, known := c.deps.Approvals.Get(g.Decision); known {
			in.Approval = &held
		}
	}
	pod := &corev1.Pod{}
	if found, err = get(ctx, r, key, pod); err != nil {
		return in, false, err
	} else if found {
		in.Pod = pod
	}
	if in.Pod == nil {
		if in.Revision, err = c.revision(ctx, types.NamespacedName{Namespace: key.Namespace, Name: in.Identity.Spec.Revision}); err != nil {
			return in, false, err
		}
	}
	for i := range in.Identity.Spec.Claims {
		claim := corev1.PersistentVolumeClaim{}
		name := types.NamespacedName{Namespace: key.Namespace, Name: v1alpha1.ClaimName(in.Identity.Spec.Claims[i].Name, key.Name)}
		if found, err = get(ctx, r, name, &claim); err != nil {
			return in, false, err
		} else if found {
			in.Claims = append(in.Claims, claim)
		}
	}
	return in, true, nil
}

// revision reads from the cache first, since a Revision never changes; nil when it does not exist.
func (c *Controller) revision(ctx context.Context, key types.NamespacedName) (*v1alpha1.Revision, error) {
	for _, r := range []client.Reader{c.deps.Cached, c.deps.Live} {
		revision := &v1alpha1.Revision{}
		if found, err := get(ctx, r, key, revision); err != nil || found {
			return revision, err
		}
	}
	return nil, nil
}

// get tells not found apart from an error.
func get(ctx context.Context, r client.Reader, key types.NamespacedName, into client.Object) (bool, error) {
	err := r.Get(ctx, key, into)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %T %s: %w", into, key, err)
	}
	return true, nil
}

// setStands says, by a live read, whether the set that owns the identity exists and is not being deleted: nothing is
// created under one that goes.
func (c *Controller) setStands(ctx context.Context, identity *v1alpha1.StatefulPod) (bool, error) {
	owner := metav1.GetControllerOf(identity)
	if owner == nil {
		return false, nil
	}
	set := &v1alpha1.LiStatefulSet{}
	found, err := get(ctx, c.deps.Live, types.NamespacedName{Namespace: identity.Namespace, Name: owner.Name}, set)
	return err == nil && found && set.UID == owner.UID && set.DeletionTimestamp == nil, err
}

// wantedAgain says, by a live read, whether a scale-in's index is wanted after all: the wish may have changed since the
// grant, and the removal of an identity is the one act that nothing puts back.
func (c *Controller) wantedAgain(ctx context.Context, identity *v1alpha1.StatefulPod) (bool, error) {
	if identity.Spec.Grant.Type != v1alpha1.ScaleIn {
		return false, nil
	}
	index := &v1alpha1.PodIndex{}
	name := v1alpha1.PodIndexName(identity.Spec.Set, identity.Spec.Index/v1alpha1.BlockSize)
	found, err := get(ctx, c.deps.Live, types.NamespacedName{Namespace: identity.Namespace, Name: name}, index)
	if err != nil || !found {
		return true, err
	}
	for _, e := range index.Spec.Indices {
		if e.Index == identity.Spec.Index {
			return e.Presence == v1alpha1.Present, nil
		}
	}
	return false, nil
}
