// Package v1alpha1 holds the five kinds of the chain from what a user wants to what runs:
//
//	LiStatefulSet -> Revision -> PodIndex -> Operation -> (ACM) -> StatefulPod -> Pod and PVCs
//
// Spec flows right and status flows back left. Each spec and each status has exactly one writer;
// the type's comment names it.
//
// +kubebuilder:object:generate=true
// +groupName=assent.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is assent.dev/v1alpha1.
	GroupVersion = schema.GroupVersion{Group: "assent.dev", Version: "v1alpha1"}
	// SchemeBuilder registers the five kinds.
	SchemeBuilder = runtime.NewSchemeBuilder(addKinds)
	// AddToScheme adds the five kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKinds(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&LiStatefulSet{}, &LiStatefulSetList{},
		&Revision{}, &RevisionList{},
		&PodIndex{}, &PodIndexList{},
		&Operation{}, &OperationList{},
		&StatefulPod{}, &StatefulPodList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
