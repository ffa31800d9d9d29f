package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
)

var podObject = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}}

// failing makes a writer whose writes fail with the errors in turn, then succeed. Attempts are sent on the channel.
func failing(verb string, errs ...error) (*writer, *clocktesting.FakeClock, chan int) {
	client, clock := fake.NewClientset(podObject), clocktesting.NewFakeClock(t0)
	attempts, n := make(chan int, 100), 0
	client.PrependReactor(verb, "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		n++
		attempts <- n
		if n <= len(errs) {
			return true, nil, errs[n-1]
		}
		return false, nil, nil
	})
	return newWriter(&Node{Client: client, Clock: clock, Log: logr.Discard()}, podObject), clock, attempts
}

func conflict() error {
	return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "p", errors.New("precondition"))
}

func TestAWriteIsRepeatedUntilItArrives(t *testing.T) {
	w, clock, attempts := failing("patch", errors.New("down"), conflict())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.run(ctx) }()
	w.set(corev1.PodStatus{Phase: corev1.PodRunning})
	for i := 1; i < 3; i++ {
		require.Equal(t, i, <-attempts)
		require.Eventually(t, clock.HasWaiters, 5*time.Second, time.Millisecond)
		clock.Step(200 * time.Millisecond)
	}
	require.Equal(t, 3, <-attempts)
	require.Eventually(t, func() bool {
		got, err := w.pods.Get(ctx, "p", metav1.GetOptions{})
		return err == nil && got.Status.Phase == corev1.PodRunning
	}, 5*time.Second, time.Millisecond)
	w.set(corev1.PodStatus{Phase: corev1.PodRunning})
	w.set(corev1.PodStatus{Phase: corev1.PodSucceeded})
	require.Equal(t, 4, <-attempts, "an equal status is not written, a changed one is")
	cancel()
	<-done
}

func TestAWriteStopsWhenItsPodIsGoneOrReplaced(t *testing.T) {
	for name, errs := range map[string][]error{
		"gone":      {apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "p")},
		"replaced":  {conflict(), conflict(), conflict(), conflict()},
		"malformed": {apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "p", nil)},
	} {
		w, clock, attempts := failing("delete", errs...)
		done := make(chan struct{})
		go func() { defer close(done); w.remove(t.Context(), corev1.PodStatus{}) }()
		for i := range errs {
			require.Equal(t, i+1, <-attempts, name)
			if i+1 < len(errs) {
				require.Eventually(t, clock.HasWaiters, 5*time.Second, time.Millisecond)
				clock.Step(2 * time.Second)
			}
		}
		<-done
	}
}
