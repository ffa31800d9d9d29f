package install_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	controlplane.Main(m)
}

// cluster is a control plane with the CRDs and the default layer applied, and an administrator's client.
func cluster(t *testing.T) (*controlplane.ControlPlane, client.Client) {
	t.Helper()
	cp := controlplane.ForTest(t, planeOptions())
	return cp, installed(t, cp, "crd", "default")
}

// planeOptions: owner references are checked as strict clusters do, so that a missing right to set finalizers shows.
func planeOptions() controlplane.Options {
	return controlplane.Options{
		ControllerManager: true, Scheduler: true, Kwok: true,
		APIServerArgs: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	}
}

func installed(t *testing.T, cp *controlplane.ControlPlane, layers ...string) client.Client {
	t.Helper()
	for _, layer := range layers {
		require.NoError(t, install.Apply(t.Context(), cp.Config(), filepath.Join(configDir, layer)))
	}
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	c, err := client.New(cp.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return c
}

func sample(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return build(t, "samples")
}

func TestApplyingTwiceChangesNothing(t *testing.T) {
	cp, c := cluster(t)
	version := func() string {
		var d appsv1.Deployment
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "assent-acm"}, &d))
		return string(d.UID) + d.Annotations["deployment.kubernetes.io/revision"]
	}
	before := version()
	require.NoError(t, install.Apply(t.Context(), cp.Config(), filepath.Join(configDir, "default")))
	require.Equal(t, before, version())
}

func TestApplyNamesTheObjectThatIsRefused(t *testing.T) {
	cp, _ := cluster(t)
	dir := t.TempDir()
	write(t, dir, "kustomization.yaml", "resources: [bad.yaml]")
	write(t, dir, "bad.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Bad_Name, namespace: default}\n")
	err := install.Apply(t.Context(), cp.Config(), dir)
	require.ErrorContains(t, err, "applying ConfigMap default/Bad_Name")
}

func TestBuildRefusesFilesOutsideTheTreeAsKubectlDoes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "outside.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
	write(t, filepath.Join(dir, "in"), "kustomization.yaml", "resources: [../outside.yaml]")
	_, err := install.Build(filepath.Join(dir, "in"))
	require.ErrorContains(t, err, "building")
}

func TestBothDeploymentsPassTheNamespacesPodSecurity(t *testing.T) {
	_, c := cluster(t)
	for _, name := range []string{"assent-operator", "assent-acm"} {
		require.Eventually(t, func() bool {
			var pods corev1.PodList
			require.NoError(t, c.List(t.Context(), &pods, client.InNamespace(namespace), client.MatchingLabels{"app.kubernetes.io/name": name}))
			return len(pods.Items) == 2 && pods.Items[0].Spec.ServiceAccountName == name
		}, 30*time.Second, 50*time.Millisecond, "two pods of %s under their own account", name)
	}
}

// The sample is what people copy: its objects, and the pods that it asks for, must be such that a real API server takes them.
func TestTheSampleIsAccepted(t *testing.T) {
	_, c := cluster(t)
	for _, o := range sample(t) {
		require.NoError(t, c.Create(t.Context(), o.DeepCopy(), client.DryRunAll), "%s", o.GetKind())
	}
	set := object(t, sample(t), "LiStatefulSet")
	raw, found, err := unstructured.NestedMap(set.Object, "spec", "template")
	require.NoError(t, err)
	require.True(t, found)
	text, err := yaml.Marshal(raw)
	require.NoError(t, err)
	var template corev1.PodTemplateSpec
	require.NoError(t, yaml.UnmarshalStrict(text, &template))
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name, pod.Namespace = "etcd-0", set.GetNamespace()
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	require.NoError(t, c.Create(t.Context(), pod, client.DryRunAll))
}

func object(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind {
			return o
		}
	}
	require.Failf(t, "no such object", "%s", kind)
	return nil
}
