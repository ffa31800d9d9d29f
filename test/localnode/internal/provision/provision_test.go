package provision

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

type power map[string]bool

func (p power) VolumeDir(node string) (string, bool, bool) {
	on, known := p[node]
	return filepath.Join(os.TempDir(), "unused"), known, on
}

type oneNode struct {
	dir string
	on  bool
}

func (o oneNode) VolumeDir(string) (string, bool, bool) { return o.dir, true, o.on }

func claim(edit ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	class := ClassName
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "u", Annotations: map[string]string{selectedNode: "n"}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("3Gi")}}},
	}
	for _, e := range edit {
		e(c)
	}
	return c
}

func classes(reclaim corev1.PersistentVolumeReclaimPolicy) map[string]*storagev1.StorageClass {
	return map[string]*storagev1.StorageClass{ClassName: {ObjectMeta: metav1.ObjectMeta{Name: ClassName}, ReclaimPolicy: &reclaim}}
}

func TestOnlyAClaimThatWaitsForOneOfOurNodesGetsAVolume(t *testing.T) {
	other, block := "other", corev1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		on   bool
		want bool
	}{
		"waits":              {func(*corev1.PersistentVolumeClaim) {}, true, true},
		"node without power": {func(*corev1.PersistentVolumeClaim) {}, false, false},
		"no node chosen":     {func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }, true, false},
		"bound":              {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, true, false},
		"other class":        {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &other }, true, false},
		"block device":       {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }, true, false},
		"being deleted":      {func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, true, false},
	} {
		dir, client := t.TempDir(), fake.NewClientset()
		p := New(client, clock.RealClock{}, logr.Discard(), oneNode{dir, c.on}, dir)
		for range 2 { // the second time the cache has not seen the first
			require.NoError(t, p.provision(t.Context(), claim(c.edit), classes(corev1.PersistentVolumeReclaimRetain)))
		}
		pvs, err := client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		if !c.want {
			require.Empty(t, pvs.Items, name)
			continue
		}
		require.Len(t, pvs.Items, 1, name)
		pv := pvs.Items[0]
		require.DirExists(t, pv.Spec.Local.Path)
		require.Equal(t, "n", nodeOf(&pv))
		require.EqualValues(t, "u", pv.Spec.ClaimRef.UID)
		require.Equal(t, corev1.PersistentVolumeReclaimRetain, pv.Spec.PersistentVolumeReclaimPolicy)
		require.Equal(t, "3Gi", pv.Spec.Capacity.Storage().String())
	}
	p := New(fake.NewClientset(), clock.RealClock{}, logr.Discard(), power{}, "/x")
	require.NoError(t, p.provision(t.Context(), claim(), classes(corev1.PersistentVolumeReclaimDelete)), "somebody else's node")
}

func TestAReleasedVolumeIsRemovedOnlyWhenItsDiskCanBeReached(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.PersistentVolume)
		on   bool
		gone bool
	}{
		"released":           {func(*corev1.PersistentVolume) {}, true, true},
		"node without power": {func(*corev1.PersistentVolume) {}, false, false},
		"bound":              {func(pv *corev1.PersistentVolume) { pv.Status.Phase = corev1.VolumeBound }, true, false},
		"to be retained": {func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, true, false},
		"of another provisioner": {func(pv *corev1.PersistentVolume) { pv.Annotations = nil }, true, false},
		"outside our folder":     {func(pv *corev1.PersistentVolume) { pv.Spec.Local.Path += "/../../elsewhere" }, true, false},
	} {
		dir := t.TempDir()
		pv := Volume(claim(), classes(corev1.PersistentVolumeReclaimDelete)[ClassName], "n", dir)
		pv.Status.Phase = corev1.VolumeReleased
		path := pv.Spec.Local.Path
		require.NoError(t, os.Mkdir(path, 0o755))
		c.edit(pv)
		client := fake.NewClientset(pv)
		p := New(client, clock.RealClock{}, logr.Discard(), oneNode{dir, c.on}, dir)
		require.NoError(t, p.reclaim(t.Context(), pv))
		_, err := client.CoreV1().PersistentVolumes().Get(t.Context(), pv.Name, metav1.GetOptions{})
		require.Equal(t, c.gone, apierrors.IsNotFound(err), name)
		_, err = os.Stat(path)
		require.Equal(t, c.gone, errors.Is(err, os.ErrNotExist), name)
	}
}

func TestAFailedWriteIsAnErrorAndTheNextLookSucceeds(t *testing.T) {
	dir, client := t.TempDir(), fake.NewClientset()
	fail := true
	client.PrependReactor("create", "persistentvolumes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return fail, nil, errors.New("no")
	})
	p := New(client, clock.RealClock{}, logr.Discard(), oneNode{dir, true}, dir)
	require.ErrorContains(t, p.provision(t.Context(), claim(), classes(corev1.PersistentVolumeReclaimDelete)), "creating the volume of claim ns/c: no")
	fail = false
	require.NoError(t, p.provision(t.Context(), claim(), classes(corev1.PersistentVolumeReclaimDelete)))
}
