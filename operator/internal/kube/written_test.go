package kube

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/internal/session"
)

func pod(uid, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: types.UID(uid), ResourceVersion: version}}
}

var key = types.NamespacedName{Namespace: "ns", Name: "db-0"}

func anybody(*corev1.Pod) bool { return true }

func TestTheNewerOfCacheAndOwnWriteIsSeen(t *testing.T) {
	w := NewWritten[*corev1.Pod]()
	w.Note(pod("u", "10"))
	w.Note(pod("u", "9"))
	seen, ok := w.Latest(pod("u", "9"))
	require.True(t, ok)
	require.Equal(t, "10", seen.ResourceVersion, "9 is older than 10, as numbers")
	seen, _ = w.Latest(pod("u", "11"))
	require.Equal(t, "11", seen.ResourceVersion)
	seen, _ = w.Latest(pod("u", "9"))
	require.Equal(t, "9", seen.ResourceVersion, "what the cache caught up with is forgotten")
}

func TestWhatIsGoneIsNotSeenUntilAnotherComes(t *testing.T) {
	w := NewWritten[*corev1.Pod]()
	w.NoteGone(pod("u", "10"))
	_, ok := w.Latest(pod("u", "10"))
	require.False(t, ok)
	seen, ok := w.Latest(pod("v", "12"))
	require.True(t, ok)
	require.Equal(t, types.UID("v"), seen.UID)
}

func TestOwnWritesThatTheCacheLacksAreListed(t *testing.T) {
	w := NewWritten[*corev1.Pod]()
	w.Note(pod("u", "10"))
	require.Len(t, w.Missing(nil, anybody), 1)
	require.Empty(t, w.Missing(map[types.NamespacedName]bool{key: true}, anybody))
	require.Empty(t, w.Missing(nil, func(*corev1.Pod) bool { return false }))
	w.NoteGone(pod("u", "10"))
	require.Empty(t, w.Missing(nil, anybody))
	_, ok := w.Latest(pod("u", "10"))
	require.True(t, ok, "the cache agreed that it is gone, so the memory of it is dropped")
}

func TestOnlyAClearRefusalMeansThatNothingHappened(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		err  error
		want session.Outcome
	}{
		"accepted":        {nil, session.Done},
		"conflict":        {apierrors.NewConflict(pods, "db-0", errors.New("changed")), session.Refused},
		"gone":            {apierrors.NewNotFound(pods, "db-0"), session.Refused},
		"forbidden":       {apierrors.NewForbidden(pods, "db-0", errors.New("quota")), session.Refused},
		"too many":        {apierrors.NewTooManyRequests("later", 1), session.Refused},
		"wrapped":         {fmt.Errorf("deleting: %w", apierrors.NewConflict(pods, "db-0", nil)), session.Refused},
		"server error":    {apierrors.NewInternalError(errors.New("etcd")), session.Lost},
		"server timeout":  {apierrors.NewTimeoutError("slow", 1), session.Lost},
		"passed deadline": {fmt.Errorf("deleting: %w", context.DeadlineExceeded), session.Lost},
		"broken pipe":     {errors.New("connection reset"), session.Lost},
	} {
		require.Equal(t, c.want, OutcomeOf(c.err), name)
	}
}
