package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Pods is the narrow seam through which Pods, claims and identities change. Every verb sends one request.
type Pods struct {
	client client.Client
}

// NewPods makes the seam over a client.
func NewPods(c client.Client) *Pods { return &Pods{client: c} }

// CreatePod creates a Pod. After a nil error it exists as answered, in pod. AlreadyExists is an error: the caller looks
// who owns the one that is there.
func (p *Pods) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if err := p.client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	return nil
}

// DeletePod deletes exactly the Pod that was read: same UID, same resourceVersion. After a nil error its termination has
// begun or it is gone. A conflict means that nothing was deleted.
func (p *Pods) DeletePod(ctx context.Context, pod *corev1.Pod) error {
	pre := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if err := p.client.Delete(ctx, pod, pre, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
	}
	return nil
}

// AbandonDelete marks the Pod that was read, so that a delete of it that is still on its way fails its precondition.
// After a nil error no delete of the given decision can happen anymore.
func (p *Pods) AbandonDelete(ctx context.Context, pod *corev1.Pod, decision string) error {
	marked := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, v1alpha1.AnnotationAbandoned, decision)
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := p.client.Patch(ctx, marked, patch); err != nil {
		return fmt.Errorf("marking pod %s as not to be deleted under decision %s: %w", pod.Name, decision, err)
	}
	return nil
}

// CreateClaim creates a claim. After a nil error, AlreadyExists included, a claim of that name exists.
func (p *Pods) CreateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if err := p.client.Create(ctx, claim); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating claim %s: %w", claim.Name, err)
	}
	return nil
}

// Identities is the seam through which the approved side of a StatefulPod changes.
type Identities struct {
	client client.Client
}

// NewIdentities makes the seam over a client.
func NewIdentities(c client.Client) *Identities { return &Identities{client: c} }

// Create makes a StatefulPod with its first grant. After a nil error it is stored as answered, in pod.
func (i *Identities) Create(ctx context.Context, pod *v1alpha1.StatefulPod) error {
	if err := i.client.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating identity %s: %w", pod.Name, err)
	}
	return nil
}

// Update stores what is approved, if the StatefulPod is still the one that was read. A conflict means that nothing was
// stored.
func (i *Identities) Update(ctx context.Context, pod *v1alpha1.StatefulPod) error {
	if err := i.client.Update(ctx, pod); err != nil {
		return fmt.Errorf("updating identity %s: %w", pod.Name, err)
	}
	return nil
}

// Delete removes exactly the StatefulPod that was read: same UID, same resourceVersion. After a nil error, NotFound
// included, it is gone.
func (i *Identities) Delete(ctx context.Context, pod *v1alpha1.StatefulPod) error {
	pre := client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	err := i.client.Delete(ctx, pod, pre, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting identity %s: %w", pod.Name, err)
	}
	return nil
}
