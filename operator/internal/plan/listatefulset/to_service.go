package listatefulset

import (
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// toService wants the governing Service: headless, named as the set, one DNS name a pod, published before the pod is
// ready because members of a cluster have to find each other first. The second result says who has the name already.
func toService(set *v1alpha1.LiStatefulSet, have *corev1.Service) (want *corev1.Service, taken string) {
	if have != nil && !metav1.IsControlledBy(have, set) {
		return nil, fmt.Sprintf("Service %s exists and is not this set's, so pods get no names under it; rename or delete it", have.Name)
	}
	want = &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: set.Name, Namespace: set.Namespace,
			Labels: map[string]string{v1alpha1.LabelApplication: set.ApplicationName(), v1alpha1.LabelSet: set.Name},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind("LiStatefulSet")),
			},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
			Selector: map[string]string{v1alpha1.LabelSet: set.Name},
		},
	}
	if have != nil && serviceIsAsWanted(have, want) {
		return nil, ""
	}
	return want, ""
}

func serviceIsAsWanted(have, want *corev1.Service) bool {
	for k, v := range want.Labels {
		if have.Labels[k] != v {
			return false
		}
	}
	return have.Spec.ClusterIP == want.Spec.ClusterIP && have.Spec.PublishNotReadyAddresses &&
		maps.Equal(have.Spec.Selector, want.Spec.Selector)
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
