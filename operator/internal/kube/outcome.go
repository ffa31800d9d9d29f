package kube

import (
	"errors"
	"net/http"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/internal/session"
)

// OutcomeOf tells from a write's error whether it happened. A clear refusal by the API server is Refused; a broken
// connection, a passed deadline or a server error leaves it Lost, since the request may still be carried out.
func OutcomeOf(err error) session.Outcome {
	if err == nil {
		return session.Done
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		if code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout {
			return session.Refused
		}
	}
	return session.Lost
}

// IsNamespaceTerminating says whether a create was refused because its namespace is going.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Older says whether a was stored before b; both are versions of one object or of objects of one kind. The API server
// guarantees since Kubernetes 1.35 that resourceVersions of a kind compare as numbers. An unreadable version is older
// than every other.
func Older(a, b client.Object) bool { return version(a) < version(b) }

func version(o client.Object) uint64 {
	v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
