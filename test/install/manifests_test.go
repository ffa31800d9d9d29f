package install_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"assent.dev/assent/test/install"
)

const (
	repository = "../.."
	configDir  = repository + "/config"
	namespace  = "assent-system"
)

func build(t *testing.T, layer string) []*unstructured.Unstructured {
	t.Helper()
	objects, err := install.Build(filepath.Join(configDir, layer))
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	return objects
}

// each gives the objects of one kind, decoded strictly: a misspelled field fails the test.
func each[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) []T {
	t.Helper()
	var all []T
	for _, o := range objects {
		if o.GetKind() == kind {
			var typed T
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &typed, true), "%s %s", kind, o.GetName())
			all = append(all, typed)
		}
	}
	return all
}

func deployment(t *testing.T, objects []*unstructured.Unstructured, name string) *appsv1.Deployment {
	t.Helper()
	for _, d := range each[appsv1.Deployment](t, objects, "Deployment") {
		if d.Name == name {
			return &d
		}
	}
	require.Failf(t, "no such Deployment", "%s", name)
	return nil
}

func TestEveryLayerBuildsFromItsOwnTree(t *testing.T) {
	for _, layer := range []string{"crd", "rbac", "operator", "acm", "default", "samples", "overlays/out-of-cluster", "overlays/namespaced"} {
		t.Run(layer, func(t *testing.T) { build(t, layer) })
	}
}

func TestDE01TheDefaultLayerHoldsNoCRDSoThatDeletingItDeletesNone(t *testing.T) {
	for _, layer := range []string{"default", "overlays/out-of-cluster", "overlays/namespaced"} {
		for _, o := range build(t, layer) {
			require.NotEqual(t, "CustomResourceDefinition", o.GetKind(), layer)
			require.NotEqual(t, "assent.dev", o.GroupVersionKind().Group, layer)
		}
	}
	for _, o := range build(t, "crd") {
		require.Equal(t, "CustomResourceDefinition", o.GetKind())
	}
}

func TestDE04BundlesKeepTheirNamesAndAreMountedSoThatEditsArrive(t *testing.T) {
	objects := build(t, "default")
	have := map[string]bool{}
	for _, c := range each[corev1.ConfigMap](t, objects, "ConfigMap") {
		have[c.Name] = true
	}
	pod := deployment(t, objects, "assent-acm").Spec.Template
	for _, v := range pod.Spec.Volumes {
		for _, s := range v.Projected.Sources {
			require.True(t, have[s.ConfigMap.Name], "volume %s mounts ConfigMap %s", v.Name, s.ConfigMap.Name)
		}
	}
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		require.Empty(t, m.SubPath, "a subPath mount is never updated")
	}
	for key := range pod.Annotations {
		require.NotContains(t, key, "checksum", "a checksum restarts the ACM at every edit")
	}
}

// The ConfigMaps, seen through the mounts of the ACM's Deployment, are the bundles of the repository: every
// file that counts, and nothing else.
func TestWhatTheACMMountsIsWhatTheRepositoryHolds(t *testing.T) {
	objects := build(t, "default")
	mounted := map[string]string{}
	mountRoot := t.TempDir()
	mountBundles(t, objects, mountRoot)
	require.NoError(t, filepath.WalkDir(mountRoot, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(mountRoot, p)
		if err != nil {
			return err
		}
		// Without the folder through which the kubelet swaps versions: <bundle>/..v1/<file>.
		if _, below, ok := strings.Cut(rel, "/..v1/"); ok {
			raw, err := os.ReadFile(p)
			mounted[path.Join(strings.Split(rel, "/")[0], below)] = string(raw)
			return err
		}
		return nil
	}))

	wanted := map[string]string{}
	source := filepath.Join(repository, "bundles")
	require.NoError(t, filepath.WalkDir(source, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(source, p)
		if err != nil {
			return err
		}
		if !strings.Contains(rel, "/") || strings.HasSuffix(rel, ".md") {
			return nil
		}
		raw, err := os.ReadFile(p)
		wanted[filepath.ToSlash(rel)] = string(raw)
		return err
	}))
	require.Equal(t, wanted, mounted, "bundles/kustomization.yaml and the volumes in config/acm/deployment.yaml must name every file of every bundle")
}

// mountBundles writes the ACM's volumes below root/<bundle>, in the layout in which the kubelet keeps them.
func mountBundles(t *testing.T, objects []*unstructured.Unstructured, root string) {
	t.Helper()
	content := map[string]map[string]string{}
	for _, c := range each[corev1.ConfigMap](t, objects, "ConfigMap") {
		content[c.Name] = c.Data
	}
	pod := deployment(t, objects, "assent-acm").Spec.Template.Spec
	volumes := map[string]*corev1.ProjectedVolumeSource{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = v.Projected
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		bundle, ok := strings.CutPrefix(m.MountPath, "/bundles/")
		require.True(t, ok, "mount %s", m.MountPath)
		require.NotNil(t, volumes[m.Name], "volume %s", m.Name)
		files := map[string]string{}
		for _, s := range volumes[m.Name].Sources {
			maps.Copy(files, projected(t, content[s.ConfigMap.Name], s.ConfigMap.Items))
		}
		writeVolume(t, filepath.Join(root, bundle), files)
	}
}

// projected gives a ConfigMap's texts by path: the items' when there are any, else the keys.
func projected(t *testing.T, content map[string]string, items []corev1.KeyToPath) map[string]string {
	t.Helper()
	if len(items) == 0 {
		return content
	}
	files := map[string]string{}
	for _, item := range items {
		text, ok := content[item.Key]
		require.True(t, ok, "key %s", item.Key)
		files[item.Path] = text
	}
	return files
}

func writeVolume(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		full := filepath.Join(dir, "..v1", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o600))
	}
	require.NoError(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	entries, err := os.ReadDir(filepath.Join(dir, "..v1"))
	require.NoError(t, err)
	for _, e := range entries {
		require.NoError(t, os.Symlink(filepath.Join("..data", e.Name()), filepath.Join(dir, e.Name())))
	}
}

func TestNoRoleGrantsMoreThanNamedVerbsOnNamedResources(t *testing.T) {
	objects := build(t, "default")
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range each[rbacv1.ClusterRole](t, objects, "ClusterRole") {
		rules["ClusterRole "+r.Name] = r.Rules
	}
	for _, r := range each[rbacv1.Role](t, objects, "Role") {
		require.Equal(t, namespace, r.Namespace, "Role %s", r.Name)
		rules["Role "+r.Name] = r.Rules
	}
	require.Contains(t, rules, "ClusterRole assent-operator")
	require.Contains(t, rules, "ClusterRole assent-acm")
	for role, list := range rules {
		for _, r := range list {
			for _, word := range append(append(append([]string{}, r.Verbs...), r.Resources...), r.APIGroups...) {
				require.NotContains(t, word, "*", role)
			}
			for _, verb := range r.Verbs {
				require.NotContains(t, []string{"escalate", "bind", "impersonate", "deletecollection"}, verb, role)
			}
			require.NotContains(t, r.Resources, "secrets", role)
			require.Empty(t, r.NonResourceURLs, role)
		}
	}
}

func TestBothProgramsRunWithoutPrivilegesTwiceAndUnderProbes(t *testing.T) {
	objects := build(t, "default")
	for _, name := range []string{"assent-operator", "assent-acm"} {
		d := deployment(t, objects, name)
		require.Equal(t, namespace, d.Namespace)
		require.EqualValues(t, 2, *d.Spec.Replicas, name)
		pod := d.Spec.Template.Spec
		require.Equal(t, name, pod.ServiceAccountName)
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		c := pod.Containers[0]
		require.NotNil(t, c.ReadinessProbe, name)
		require.NotNil(t, c.LivenessProbe, name)
		require.NotEqual(t, c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path, "not ready is no reason to be restarted")
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
		require.NotEmpty(t, c.Resources.Requests)
		require.NotEmpty(t, c.Resources.Limits.Memory().String())
	}
}

func TestOutOfClusterIsTheDefaultWithoutPods(t *testing.T) {
	inside, outside := build(t, "default"), build(t, "overlays/out-of-cluster")
	for _, o := range append(append([]*unstructured.Unstructured{}, inside...), outside...) {
		if o.GetKind() == "Deployment" {
			require.NoError(t, unstructured.SetNestedField(o.Object, int64(0), "spec", "replicas"))
		}
	}
	require.Equal(t, inside, outside)
	for _, d := range each[appsv1.Deployment](t, build(t, "overlays/out-of-cluster"), "Deployment") {
		require.Zero(t, *d.Spec.Replicas)
	}
}
