package install_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
)

// step is how long one step of the chain may take on a busy machine.
const step = time.Minute

// Both programs run with the arguments of their Deployments, the bundles as their ConfigMaps give them and the
// tokens of their service accounts, and take a set through its whole life. Whatever they need that no role
// grants shows here: a step does not happen, or a log says "forbidden".
func TestTheProgramsTakeASetThroughItsLifeWithTheirOwnAccountsOnly(t *testing.T) {
	cp, c := cluster(t)
	acm, address := startACM(t, cp)
	operator := startOperator(t, cp, "default", address)
	takeThroughLife(t, c)
	requireNothingForbidden(t, acm, operator)
}

func TestTheNamespacedOperatorNeedsRightsInItsNamespaceOnly(t *testing.T) {
	cp, err := controlplane.Start(t.Context(), planeOptions())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Stop()) })
	c := installed(t, cp, "crd", "overlays/namespaced")
	acm, address := startACM(t, cp)
	operator := startOperator(t, cp, "overlays/namespaced", address)
	takeThroughLife(t, c)
	requireNothingForbidden(t, acm, operator)

	for _, text := range []string{"list core/pods kube-system", "list core/pods -", "create core/pods kube-system", "list assent.dev/listatefulsets -"} {
		require.False(t, may(t, c, "assent-operator", parse(t, text)), text)
	}
}

func TestDE01RemovingAndReinstallingTheOperatorKeepsSetsPodsAndVolumes(t *testing.T) {
	cp, c := cluster(t)
	addNodesAndVolumes(t, c)
	key := client.ObjectKey{Namespace: "default", Name: "kept"}
	runPrograms := func(t *testing.T) {
		t.Helper()
		_, address := startACM(t, cp)
		startOperator(t, cp, "default", address)
	}
	t.Run("installed", func(t *testing.T) {
		runPrograms(t)
		require.NoError(t, c.Create(t.Context(), lifeSet(key)))
		reaches(t, c, key, "two pods are made", func(s *v1alpha1.LiStatefulSet) bool { return s.Status.AvailableReplicas == 2 })
	})
	before := identities(t, c, key)
	require.Len(t, before, 5, "a set, two pods, two claims: %v", before)

	def := filepath.Join(configDir, "default")
	require.NoError(t, install.Delete(t.Context(), cp.Config(), def))
	require.Eventually(t, func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: namespace}, &corev1.Namespace{}))
	}, step, tick, "the namespace goes")
	require.Equal(t, before, identities(t, c, key), "after the removal")

	require.NoError(t, install.Apply(t.Context(), cp.Config(), def))
	t.Run("installed again", func(t *testing.T) {
		runPrograms(t)
		edit(t, c, key, func(s *v1alpha1.LiStatefulSet) { three := int32(3); s.Spec.Replicas = &three })
		reaches(t, c, key, "a third pod is made", func(s *v1alpha1.LiStatefulSet) bool { return s.Status.AvailableReplicas == 3 })
	})
	require.Subset(t, identities(t, c, key), before, "what there was is what there is")
}

// identities gives the UIDs of a set, its pods and its claims by kind and name.
func identities(t *testing.T, c client.Client, key client.ObjectKey) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	var set v1alpha1.LiStatefulSet
	require.NoError(t, c.Get(t.Context(), key, &set))
	found["set"] = set.UID
	of := []client.ListOption{client.InNamespace(key.Namespace), client.MatchingLabels{v1alpha1.LabelSet: key.Name}}
	var pods corev1.PodList
	require.NoError(t, c.List(t.Context(), &pods, of...))
	for _, p := range pods.Items {
		found["pod "+p.Name] = p.UID
	}
	var claims corev1.PersistentVolumeClaimList
	require.NoError(t, c.List(t.Context(), &claims, of...))
	for _, p := range claims.Items {
		found["claim "+p.Name] = p.UID
	}
	return found
}

// takeThroughLife makes a set, updates it, loses one of its pods, shrinks it and deletes it.
func takeThroughLife(t *testing.T, c client.Client) {
	t.Helper()
	addNodesAndVolumes(t, c)
	key := client.ObjectKey{Namespace: "default", Name: "life"}
	require.NoError(t, c.Create(t.Context(), lifeSet(key)))
	reaches(t, c, key, "two pods are made", func(s *v1alpha1.LiStatefulSet) bool { return s.Status.AvailableReplicas == 2 })

	edit(t, c, key, func(s *v1alpha1.LiStatefulSet) { s.Spec.Template.Raw = template("two") })
	reaches(t, c, key, "both are replaced", func(s *v1alpha1.LiStatefulSet) bool {
		return s.Status.UpdatedReplicas == 2 && s.Status.ObservedGeneration == s.Generation
	})

	restored(t, c, client.ObjectKey{Namespace: "default", Name: "life-0"})

	edit(t, c, key, func(s *v1alpha1.LiStatefulSet) { one := int32(1); s.Spec.Replicas = &one })
	reaches(t, c, key, "the highest is removed", func(s *v1alpha1.LiStatefulSet) bool { return s.Status.Replicas == 1 })
	var claim corev1.PersistentVolumeClaim
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "data-life-1"}, &claim), "its claim is kept")

	require.NoError(t, c.Delete(t.Context(), &v1alpha1.LiStatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "life"}}))
	require.Eventually(t, func() bool {
		var pods corev1.PodList
		require.NoError(t, c.List(t.Context(), &pods, client.InNamespace("default"), client.MatchingLabels{v1alpha1.LabelSet: "life"}))
		return len(pods.Items) == 0
	}, step, tick, "a deleted set's pods go")
}

// The ACM is ready only when every bundle passed its gate, own tests included, so this holds the mounted
// ConfigMaps to be complete as well as the account to be enough.
func TestTheACMServesTheMountedBundlesUnderItsOwnAccount(t *testing.T) {
	cp, _ := cluster(t)
	acm, _ := startACM(t, cp)
	require.Equal(t, "ok\n", get(t.Context(), acm.health+"/readyz"), "what is wrong with bundles follows the ok")
	metrics := get(t.Context(), acm.metrics+"/metrics")
	for _, bundle := range []string{"default", "etcd"} {
		require.Regexp(t, `assent_acm_bundle_info\{policy="`+bundle+`",revision="[^"]+"\} 1`, metrics)
	}
	requireNothingForbidden(t, acm)
}

// startACM runs the ACM as its Deployment says, on the bundles that are mounted there, and gives its address.
func startACM(t *testing.T, cp *controlplane.ControlPlane) (acm *program, address string) {
	t.Helper()
	objects, bundles, address := build(t, "default"), t.TempDir(), freeAddress(t)
	mountBundles(t, objects, bundles)
	return run(t, cp, objects, "assent-acm", ":50051", address, "=/bundles", "="+bundles), address
}

func startOperator(t *testing.T, cp *controlplane.ControlPlane, layer, acm string) *program {
	t.Helper()
	return run(t, cp, build(t, layer), "assent-operator", "dns:///assent-acm."+namespace+".svc:50051", acm)
}

// run starts the program of a Deployment under the Deployment's account.
func run(t *testing.T, cp *controlplane.ControlPlane, objects []*unstructured.Unstructured, name string, here ...string) *program {
	t.Helper()
	pod := deployment(t, objects, name).Spec.Template.Spec
	kubeconfig, err := cp.KubeconfigFor(t.Context(), namespace, pod.ServiceAccountName)
	require.NoError(t, err)
	return start(t, pod.Containers[0], kubeconfig, here...)
}

func requireNothingForbidden(t *testing.T, programs ...*program) {
	t.Helper()
	for _, p := range programs {
		for line := range strings.Lines(p.log.String()) {
			require.NotContains(t, strings.ToLower(line), "forbidden", p.name)
			require.NotContains(t, strings.ToLower(line), "cannot set blockownerdeletion", p.name)
		}
	}
}

// addNodesAndVolumes makes nodes of which kwok says that they are ready, and volumes for all claims that tests make.
func addNodesAndVolumes(t *testing.T, c client.Client) {
	t.Helper()
	for i := range 8 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("fake-%d", i),
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			Labels:      map[string]string{corev1.LabelHostname: fmt.Sprintf("fake-%d", i), corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i)},
		}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("50"),
		}}}
		node.Status.Capacity = node.Status.Allocatable
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), node)))
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("fake-%d", i)}, Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: "by-hand",
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
		}}
		require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), volume)))
	}
}

func lifeSet(key client.ObjectKey) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "LiStatefulSet",
		"metadata": map[string]any{"namespace": key.Namespace, "name": key.Name},
		"spec": map[string]any{
			"policy": "default", "replicas": int64(2),
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "life"}}, "spec": map[string]any{
				"containers": []any{map[string]any{"name": "main", "image": "life:one", "volumeMounts": []any{map[string]any{"name": "data", "mountPath": "/data"}}}},
			}},
			"volumeClaimTemplates": []any{map[string]any{"name": "data", "spec": map[string]any{
				"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "by-hand",
				"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
			}}},
		},
	}}
}

func template(tag string) []byte {
	return fmt.Appendf(nil, `{"metadata":{"labels":{"app":"life"}},"spec":{"containers":[{"name":"main","image":"life:%s","volumeMounts":[{"name":"data","mountPath":"/data"}]}]}}`, tag)
}

func edit(t *testing.T, c client.Client, key client.ObjectKey, change func(*v1alpha1.LiStatefulSet)) {
	t.Helper()
	var s v1alpha1.LiStatefulSet
	require.NoError(t, c.Get(t.Context(), key, &s))
	before := s.DeepCopy()
	change(&s)
	require.NoError(t, c.Patch(t.Context(), &s, client.MergeFrom(before)))
}

// reaches waits until the set is as done says; a failure shows the set's last status.
func reaches(t *testing.T, c client.Client, key client.ObjectKey, what string, done func(*v1alpha1.LiStatefulSet) bool) {
	t.Helper()
	var last v1alpha1.LiStatefulSet
	err := wait.PollUntilContextTimeout(t.Context(), tick, step, true, func(ctx context.Context) (bool, error) {
		var now v1alpha1.LiStatefulSet
		if err := c.Get(ctx, key, &now); err != nil {
			return false, err
		}
		last = now
		return done(&last), nil
	})
	require.NoError(t, err, "%s: %+v", what, last.Status)
}

// restored deletes a pod behind the operator's back and waits for its successor.
func restored(t *testing.T, c client.Client, key client.ObjectKey) {
	t.Helper()
	var old corev1.Pod
	require.NoError(t, c.Get(t.Context(), key, &old))
	require.NoError(t, c.Delete(t.Context(), &old, client.GracePeriodSeconds(0)))
	require.Eventually(t, func() bool {
		var now corev1.Pod
		err := c.Get(t.Context(), key, &now)
		require.NoError(t, client.IgnoreNotFound(err))
		if err != nil || now.UID == old.UID {
			return false
		}
		for _, condition := range now.Status.Conditions {
			if condition.Type == corev1.PodReady {
				return condition.Status == corev1.ConditionTrue
			}
		}
		return false
	}, step, tick, "the pod comes back")
}
