package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"
)

// writer sends a pod's status to the API server: the newest only, again until it arrives, nothing when nothing changed.
// It patches, so what others wrote in conditions, labels and annotations stays; the UID in the patch keeps a status
// from landing on a successor of the same name.
type writer struct {
	pods  corev1client.PodInterface
	clock clock.Clock
	log   logr.Logger
	name  string
	uid   types.UID

	mu   sync.Mutex
	want *corev1.PodStatus
	wake chan struct{}
}

func newWriter(n *Node, pod *corev1.Pod) *writer {
	return &writer{
		pods: n.Client.CoreV1().Pods(pod.Namespace), clock: n.Clock, log: n.Log,
		name: pod.Name, uid: pod.UID, wake: make(chan struct{}, 1),
	}
}

// set hands over the status to write. It never blocks.
func (w *writer) set(s corev1.PodStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want != nil && equality.Semantic.DeepEqual(*w.want, s) {
		return
	}
	w.want = &s
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *writer) newest() *corev1.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.want
}

// run writes until ctx ends.
func (w *writer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.untilDone(ctx, func() error { return w.patch(ctx, w.newest()) })
		}
	}
}

// remove deletes the pod object after its last status has been written. It returns when the object is gone, or ctx ends.
func (w *writer) remove(ctx context.Context, last corev1.PodStatus) {
	w.untilDone(ctx, func() error { return w.patch(ctx, &last) })
	now := int64(0)
	w.untilDone(ctx, func() error {
		return w.pods.Delete(ctx, w.name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.uid},
		})
	})
}

// maxConflicts is after how many conflicts in a row another object is taken to have the name: a patch or a delete
// without a resourceVersion conflicts for its UID, and only rarely for too much traffic on the object.
const maxConflicts = 4

// untilDone repeats a write until it succeeds, its object is gone or replaced, it can never succeed, or ctx ends.
func (w *writer) untilDone(ctx context.Context, write func() error) {
	pause, conflicts := 100*time.Millisecond, 0
	for {
		err := write()
		if apierrors.IsConflict(err) {
			conflicts++
		}
		if err == nil || apierrors.IsNotFound(err) || conflicts == maxConflicts || ctx.Err() != nil {
			return
		}
		if !apierrors.IsConflict(err) {
			w.log.Error(err, "writing to the API server", "pod", w.name)
		}
		if apierrors.IsInvalid(err) {
			return
		}
		t := w.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C():
		}
		pause = min(2*pause, 2*time.Second)
	}
}

func (w *writer) patch(ctx context.Context, s *corev1.PodStatus) error {
	body, err := patchBody(w.uid, s)
	if err != nil {
		return err
	}
	_, err = w.pods.Patch(ctx, w.name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		return fmt.Errorf("writing the status of pod %s: %w", w.name, err)
	}
	return nil
}

// patchBody is the strategic merge patch that makes the owned fields of the status equal to s.
func patchBody(uid types.UID, s *corev1.PodStatus) ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encoding a pod status: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, fmt.Errorf("encoding a pod status: %w", err)
	}
	for _, name := range []string{"reason", "message"} {
		if _, ok := fields[name]; !ok {
			fields[name] = nil
		}
	}
	// A condition's cleared reason must be cleared in the merged one too.
	if list, ok := fields["conditions"].([]any); ok {
		for _, c := range list {
			for _, name := range []string{"reason", "message"} {
				if m, ok := c.(map[string]any); ok && m[name] == nil {
					m[name] = nil
				}
			}
		}
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
	if err != nil {
		return nil, fmt.Errorf("encoding a status patch: %w", err)
	}
	return body, nil
}
