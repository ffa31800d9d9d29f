package controlplane

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestWhatAnOwnerLeavesIsCollected(t *testing.T) {
	c, ctx := clients(t, ForTest(t).Config()).CoreV1().ConfigMaps("default"), t.Context()
	owner, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, c.Delete(ctx, "owner", metav1.DeleteOptions{}))
	soon(t, "the owned object goes", func(ctx context.Context) (bool, error) {
		_, err := c.Get(ctx, "owned", metav1.GetOptions{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func TestANamespaceGetsItsAccountAndGoesWithItsContent(t *testing.T) {
	c, ctx := clients(t, ForTest(t).Config()).CoreV1(), t.Context()
	_, err := c.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "short"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	soon(t, "its default service account", func(ctx context.Context) (bool, error) {
		_, err := c.ServiceAccounts("short").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, client.IgnoreNotFound(err)
	})
	require.NoError(t, c.Namespaces().Delete(ctx, "short", metav1.DeleteOptions{}))
	soon(t, "the namespace goes", func(ctx context.Context) (bool, error) {
		_, err := c.Namespaces().Get(ctx, "short", metav1.GetOptions{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

func TestAReadyPodIsInItsServiceAndCountsForItsDisruptionBudget(t *testing.T) {
	c, ctx := clients(t, ForTest(t).Config()), t.Context()
	fakeNode(t, c, "fake-endpoints")
	labels := map[string]string{"app": "counted"}
	_, err := c.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "counted"},
		Spec:       corev1.ServiceSpec{Selector: labels, ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "counted"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.CoreV1().Pods("default").Create(ctx, onePod("counted", labels), metav1.CreateOptions{})
	require.NoError(t, err)
	soon(t, "the pod is an endpoint", func(ctx context.Context) (bool, error) {
		slices, err := c.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=counted"})
		return err == nil && len(slices.Items) == 1 && len(slices.Items[0].Endpoints) == 1 && ptr.Deref(slices.Items[0].Endpoints[0].Conditions.Ready, false), err
	})
	soon(t, "the budget counts it", func(ctx context.Context) (bool, error) {
		budget, err := c.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "counted", metav1.GetOptions{})
		return err == nil && budget.Status.CurrentHealthy == 1 && budget.Status.DisruptionsAllowed == 0, err
	})
	err = c.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "counted", Namespace: "default"}})
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
}

func TestAClaimIsBoundToAVolume(t *testing.T) {
	c, ctx := clients(t, ForTest(t).Config()), t.Context()
	_, err := c.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Provisioner: "kubernetes.io/no-provisioner",
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	_, err = c.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "by-hand", Capacity: size, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = c.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("by-hand"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: size},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	soon(t, "the claim is bound", func(ctx context.Context) (bool, error) {
		claim, err := c.CoreV1().PersistentVolumeClaims("default").Get(ctx, "by-hand", metav1.GetOptions{})
		return err == nil && claim.Status.Phase == corev1.ClaimBound && claim.Spec.VolumeName == "by-hand", err
	})
}
