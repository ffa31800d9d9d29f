package wrap

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Set builds a LiStatefulSet.
type Set struct{ set v1alpha1.LiStatefulSet }

// LiStatefulSet starts a set of one pod under policy "default".
func LiStatefulSet(namespace, name string) *Set {
	s := &Set{v1alpha1.LiStatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1alpha1.LiStatefulSetSpec{Policy: "default"},
	}}
	return s.Image("app:1").Replicas(1)
}

// Replicas wants n pods.
func (s *Set) Replicas(n int32) *Set {
	s.set.Spec.Replicas = ptr.To(n)
	return s
}

// Image makes the template one container of that image.
func (s *Set) Image(image string) *Set {
	s.set.Spec.Template = Template(image)
	return s
}

// Edit changes the spec in any other way.
func (s *Set) Edit(change func(*v1alpha1.LiStatefulSetSpec)) *Set {
	change(&s.set.Spec)
	return s
}

// Obj is a copy of what was built.
func (s *Set) Obj() *v1alpha1.LiStatefulSet { return s.set.DeepCopy() }

// Template is one container of that image.
func Template(image string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"main","image":%q}]}}`, image)}
}
