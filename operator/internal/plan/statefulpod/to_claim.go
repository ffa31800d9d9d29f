package statefulpod

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// claims is what the identity's claims are like.
type claims struct {
	// missing ones have to be created.
	missing []*corev1.PersistentVolumeClaim
	// waits says what has to happen to claims before a Pod can be made; empty when nothing.
	waits string
}

// toClaims wants one claim a template. One that is being deleted is waited for: a Pod made before it is gone would never
// find its volume.
func toClaims(identity *v1alpha1.StatefulPod, have []corev1.PersistentVolumeClaim) claims {
	byName := make(map[string]*corev1.PersistentVolumeClaim, len(have))
	for i := range have {
		byName[have[i].Name] = &have[i]
	}
	var c claims
	var terminating []string
	for i := range identity.Spec.Claims {
		t := &identity.Spec.Claims[i]
		name := v1alpha1.ClaimName(t.Name, identity.Name)
		switch old := byName[name]; {
		case old == nil:
			c.missing = append(c.missing, newClaim(identity, t, name))
		case old.DeletionTimestamp != nil:
			terminating = append(terminating, fmt.Sprintf("%s is being deleted since %s", name, old.DeletionTimestamp.UTC().Format("15:04:05 MST")))
		}
	}
	if len(terminating) > 0 {
		c.waits = "claim " + strings.Join(terminating, ", claim ") + "; the Pod is made once it is gone and made anew"
	}
	return c
}

// newClaim has no owner: claims outlive their identity and their set.
func newClaim(identity *v1alpha1.StatefulPod, t *v1alpha1.VolumeClaimTemplate, name string) *corev1.PersistentVolumeClaim {
	labels := maps.Clone(t.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelApplication] = identity.Spec.Application
	labels[v1alpha1.LabelSet] = identity.Spec.Set
	labels[v1alpha1.LabelIndex] = strconv.Itoa(int(identity.Spec.Index))
	labels[v1alpha1.LabelIncarnation] = strconv.Itoa(int(identity.Spec.Incarnation))
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: identity.Namespace, Labels: labels, Annotations: maps.Clone(t.Annotations),
		},
		Spec: *t.Spec.DeepCopy(),
	}
}
