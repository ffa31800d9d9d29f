package simulation

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/api/v1alpha1"
)

// atRest is a world whose set of the given size is up, with nothing left to do.
func atRest(t testing.TB, seed uint64, policy string, replicas int32) *World {
	t.Helper()
	w := begin(t, seed, policy)
	w.create(t.Context(), replicas, "v1")
	w.settle(t.Context(), t, patience)
	w.rest(t.Context(), t)
	return w
}

// rest steps until the operator has had nothing to write for a while.
func (w *World) rest(ctx context.Context, t testing.TB) {
	t.Helper()
	quiet, writes := 0, w.writes
	for range patience {
		w.Step(ctx)
		if quiet++; w.writes != writes {
			quiet, writes = 0, w.writes
		}
		if quiet > 300 {
			return
		}
	}
	require.Fail(t, "the operator does not come to rest", "%s", w.Tail(60))
}

// until steps until something is so.
func (w *World) until(ctx context.Context, t testing.TB, what string, so func() bool) {
	t.Helper()
	for range patience {
		if so() {
			return
		}
		w.Step(ctx)
		require.Empty(t, w.watch.violations, "%s", w.Tail(120))
	}
	require.Fail(t, "it never came to "+what, "%s", w.Tail(120))
}

// during steps for a while of the world's time and looks after each step.
func (w *World) during(ctx context.Context, t testing.TB, d time.Duration, look func()) {
	t.Helper()
	for end := w.Clock.Now().Add(d); w.Clock.Now().Before(end); {
		w.Step(ctx)
		require.Empty(t, w.watch.violations, "%s", w.Tail(120))
		look()
	}
}

func (w *World) pod(name string) *corev1.Pod {
	for _, p := range objects[*corev1.Pod](w, podKind) {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// uids of pods or claims by name.
func (w *World) podUIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, p := range objects[*corev1.Pod](w, podKind) {
		uids[p.Name] = p.UID
	}
	return uids
}

func (w *World) claimUIDs() map[string]types.UID {
	uids := map[string]types.UID{}
	for _, c := range objects[*corev1.PersistentVolumeClaim](w, claimKind) {
		uids[c.Name] = c.UID
	}
	return uids
}

// images are the versions that pods run, by pod.
func (w *World) images() map[string]string {
	images := map[string]string{}
	for _, p := range objects[*corev1.Pod](w, podKind) {
		_, images[p.Name], _ = strings.Cut(p.Spec.Containers[0].Image, ":")
	}
	return images
}

// state of a pod's newest instance of that type; empty when there is none.
func (w *World) state(pod string, kind v1alpha1.OperationType) v1alpha1.InstanceState {
	state := v1alpha1.InstanceState("")
	newest := time.Time{}
	for _, op := range objects[*v1alpha1.Operation](w, operationKind) {
		for _, i := range op.Status.Instances {
			if i.Pod == pod && op.Spec.Type == kind && !op.CreationTimestamp.Time.Before(newest) {
				state, newest = i.State, op.CreationTimestamp.Time
			}
		}
	}
	return state
}

// openGrant is the grant of an identity that is not finished; nil when there is none.
func (w *World) openGrant(pod string) *v1alpha1.Grant {
	s := w.watch.identity(pod)
	if s == nil || s.Spec.Grant == nil || s.Status.Finished == s.Spec.Grant.Decision {
		return nil
	}
	return s.Spec.Grant
}

// replaceOperator ends the operator between two steps and starts the next one.
func (w *World) replaceOperator() {
	if w.operator != nil {
		w.operator.stop()
	}
	w.startOperator()
}
