package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Shared asks a cached List for objects that are shared with every other reader: they must not be changed.
const Shared = client.UnsafeDisableDeepCopy

// Owned says whether an owner of that UID is among the object's: a name alone may belong to a predecessor.
func Owned(o metav1.Object, owner types.UID) bool {
	for _, ref := range o.GetOwnerReferences() {
		if ref.UID == owner {
			return true
		}
	}
	return false
}
