package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
)

var podGVK = corev1.SchemeGroupVersion.WithKind("Pod")

func newServer(t *testing.T) *Server {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return New(scheme, clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0)))
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: "n"}}
}

func statefulPod(name string) *v1alpha1.StatefulPod {
	return &v1alpha1.StatefulPod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

func TestAStaleUpdateIsAConflict(t *testing.T) {
	s := newServer(t)
	c := s.Client("a")
	sp := statefulPod("db-0")
	require.NoError(t, c.Create(context.Background(), sp))
	stale := sp.DeepCopy()
	sp.Spec.Revision = "r1"
	require.NoError(t, c.Update(context.Background(), sp))
	stale.Spec.Revision = "r2"
	require.True(t, apierrors.IsConflict(c.Update(context.Background(), stale)))
	require.True(t, apierrors.IsAlreadyExists(c.Create(context.Background(), statefulPod("db-0"))))
}

func TestGenerationFollowsTheSpecAndStatusIsApart(t *testing.T) {
	s := newServer(t)
	c := s.Client("a")
	sp := statefulPod("db-0")
	require.NoError(t, c.Create(context.Background(), sp))
	require.EqualValues(t, 1, sp.Generation)
	sp.Status.Acted = "d1"
	sp.Spec.Revision = "ignored"
	require.NoError(t, c.Status().Update(context.Background(), sp))
	require.EqualValues(t, 1, sp.Generation)
	require.Equal(t, "d1", sp.Status.Acted)
	require.Empty(t, sp.Spec.Revision, "a status update must not write the spec")
	sp.Spec.Revision, sp.Status.Acted = "r1", "ignored"
	require.NoError(t, c.Update(context.Background(), sp))
	require.EqualValues(t, 2, sp.Generation)
	require.Equal(t, "d1", sp.Status.Acted, "an update must not write the status")
	before := sp.ResourceVersion
	require.NoError(t, c.Update(context.Background(), sp))
	require.Equal(t, before, sp.ResourceVersion, "a no-op update writes nothing")
}

func TestPreconditionsHoldAndAPodTerminatesUntilItsKubeletLetsGo(t *testing.T) {
	s := newServer(t)
	c := s.Client("a")
	p := pod("db-0")
	require.NoError(t, c.Create(context.Background(), p))
	wrong := types.UID("other")
	require.True(t, apierrors.IsConflict(c.Delete(context.Background(), p, client.Preconditions{UID: &wrong})))
	old := p.ResourceVersion
	p.Annotations = map[string]string{"x": "y"}
	require.NoError(t, c.Update(context.Background(), p))
	require.True(t, apierrors.IsConflict(c.Delete(context.Background(), p, client.Preconditions{ResourceVersion: &old})))
	require.NoError(t, c.Delete(context.Background(), p, client.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion}))
	require.NoError(t, c.Get(context.Background(), client.ObjectKeyFromObject(p), p))
	require.NotNil(t, p.DeletionTimestamp)
	require.NoError(t, c.Delete(context.Background(), p, client.GracePeriodSeconds(0)))
	require.True(t, apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(p), p)))
}

func TestGarbageFollowsItsOwner(t *testing.T) {
	s := newServer(t)
	c := s.Client("a")
	sp := statefulPod("db-0")
	require.NoError(t, c.Create(context.Background(), sp))
	p := pod("db-0")
	p.OwnerReferences = []metav1.OwnerReference{{UID: sp.UID, Name: sp.Name, Kind: "StatefulPod", APIVersion: "assent.dev/v1alpha1"}}
	require.NoError(t, c.Create(context.Background(), p))
	require.False(t, s.HasGarbage())
	require.NoError(t, c.Delete(context.Background(), sp))
	require.True(t, s.HasGarbage())
	s.CollectGarbage()
	require.NoError(t, c.Get(context.Background(), client.ObjectKeyFromObject(p), p))
	require.NotNil(t, p.DeletionTimestamp)
}

func TestAnAnswerCanBeLostAfterTheWriteHappened(t *testing.T) {
	s := newServer(t)
	s.Hooks.Stored = func(Write) error { return ErrLost }
	require.ErrorIs(t, s.Client("a").Create(context.Background(), pod("db-0")), ErrLost)
	s.Hooks = Hooks{Admit: func(Write) error { return errors.New("refused") }}
	require.ErrorContains(t, s.Client("a").Create(context.Background(), pod("db-1")), "refused")
	require.Len(t, s.Objects(podGVK), 1)
}

func TestACacheLagsKindByKindAndInOrder(t *testing.T) {
	s := newServer(t)
	c := s.Client("a")
	cache := s.NewCache()
	p := pod("db-0")
	require.NoError(t, c.Create(context.Background(), p))
	p.Labels = map[string]string{"a": "b"}
	require.NoError(t, c.Update(context.Background(), p))
	seen := &corev1.Pod{}
	require.True(t, apierrors.IsNotFound(cache.Get(context.Background(), client.ObjectKeyFromObject(p), seen)))
	_, ok := cache.Deliver(podGVK)
	require.True(t, ok)
	require.NoError(t, cache.Get(context.Background(), client.ObjectKeyFromObject(p), seen))
	require.Empty(t, seen.Labels)
	_, ok = cache.Deliver(podGVK)
	require.True(t, ok)
	pods := &corev1.PodList{}
	require.NoError(t, cache.List(context.Background(), pods, client.MatchingLabels{"a": "b"}))
	require.Len(t, pods.Items, 1)
	require.Empty(t, cache.Pending())
}
