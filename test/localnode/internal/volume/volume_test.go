package volume

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/test/localnode/internal/render"
)

func text(content string) file { return file{[]byte(content), 0o644} }

func read(t *testing.T, path ...string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(raw)
}

func TestThreeSwapsInARowShowWholeVersionsOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	var links []string
	for _, version := range []string{"1", "2", "3"} {
		require.NoError(t, writeAll(dir, map[string]file{"a": text(version), "sub/b": text(version), "only" + version: text("")}))
		require.Equal(t, version, read(t, dir, "a"))
		require.Equal(t, version, read(t, dir, "sub", "b"))
		link, err := os.Readlink(filepath.Join(dir, dataLink))
		require.NoError(t, err)
		require.NotContains(t, links, link)
		links = append(links, link)
	}
	require.NoFileExists(t, filepath.Join(dir, "only1"))
	require.FileExists(t, filepath.Join(dir, "only3"))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 5, "..data, one folder, a, sub, only3")
}

func TestAnUnchangedVolumeIsNotTouched(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "v")
	files := map[string]file{"a": text("1"), "b": text("2")}
	require.NoError(t, writeAll(dir, files))
	before, err := os.Readlink(filepath.Join(dir, dataLink))
	require.NoError(t, err)
	require.NoError(t, writeAll(dir, files))
	after, err := os.Readlink(filepath.Join(dir, dataLink))
	require.NoError(t, err)
	require.Equal(t, before, after)
	delete(files, "b")
	require.NoError(t, writeAll(dir, files))
	require.NoFileExists(t, filepath.Join(dir, "b"))
	require.NoError(t, writeAll(filepath.Join(t.TempDir(), "empty"), nil))
}

type fixture struct {
	*Manager
	client *fake.Clientset
	clock  *clocktesting.FakePassiveClock
	root   string
}

func manager(t *testing.T, objects ...runtime.Object) fixture {
	client, root := fake.NewClientset(objects...), t.TempDir()
	c := clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0))
	return fixture{New(client, c, filepath.Join(root, "pods"), []string{root}), client, c, root}
}

func podWith(source corev1.VolumeSource) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid", Labels: map[string]string{"a": "b"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "sa", Volumes: []corev1.Volume{{Name: "v", VolumeSource: source}}},
	}
}

func ref(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

var configMap = &corev1.ConfigMap{
	ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cm"}, Data: map[string]string{"k": "1"}, BinaryData: map[string][]byte{"b": {0, 1}},
}

func TestAProjectedVolumeJoinsItsSources(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Data: map[string][]byte{"x": []byte("y")}}
	m := manager(t, configMap, secret)
	readOnly := int32(0o400)
	dirs, err := m.Mount(t.Context(), podWith(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("cm"), Items: []corev1.KeyToPath{{Key: "k", Path: "conf/k", Mode: &readOnly}}}},
		{Secret: &corev1.SecretProjection{LocalObjectReference: ref("s")}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "ip", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}}},
	}}}), render.Place{PodIP: "127.0.60.1"})
	require.NoError(t, err)
	require.Equal(t, "1", read(t, dirs["v"], "conf", "k"))
	require.Equal(t, "y", read(t, dirs["v"], "x"))
	require.Equal(t, "127.0.60.1", read(t, dirs["v"], "ip"))
	info, err := os.Stat(filepath.Join(dirs["v"], "conf", "k"))
	require.NoError(t, err)
	require.EqualValues(t, 0o400, info.Mode().Perm())
	require.NoError(t, m.Unmount("uid"))
	require.NoDirExists(t, m.PodDir("uid"))
}

func TestAConfigMapVolumeFollowsItsObject(t *testing.T) {
	m := manager(t, configMap)
	pod := podWith(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("cm")}})
	dirs, err := m.Mount(t.Context(), pod, render.Place{})
	require.NoError(t, err)
	require.Equal(t, "\x00\x01", read(t, dirs["v"], "b"))
	changed := configMap.DeepCopy()
	changed.Data["k"] = "2"
	_, err = m.client.CoreV1().ConfigMaps("ns").Update(t.Context(), changed, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, m.Refresh(t.Context(), pod, render.Place{}))
	require.Equal(t, "2", read(t, dirs["v"], "k"))
}

func TestATokenIsAskedForOnceAndAgainBeforeItExpires(t *testing.T) {
	m := manager(t)
	asked := 0
	m.client.PrependReactor("create", "serviceaccounts", func(a k8stesting.Action) (bool, runtime.Object, error) {
		require.Equal(t, "token", a.GetSubresource())
		asked++
		return true, &authv1.TokenRequest{Status: authv1.TokenRequestStatus{
			Token: string(rune('0' + asked)), ExpirationTimestamp: metav1.NewTime(m.clock.Now().Add(100 * time.Second))}}, nil
	})
	pod := podWith(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}})
	dirs, err := m.Mount(t.Context(), pod, render.Place{})
	require.NoError(t, err)
	after := func(d time.Duration) string {
		m.clock.SetTime(m.clock.Now().Add(d))
		require.NoError(t, m.Refresh(t.Context(), pod, render.Place{}))
		return read(t, dirs["v"], "token")
	}
	require.Equal(t, "1", after(79*time.Second))
	require.Equal(t, "2", after(time.Second))
}

func TestWhatIsWrongWithAVolumeIsSaid(t *testing.T) {
	bound := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bound", UID: "c1"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}}
	stolen := bound.DeepCopy()
	stolen.Name, stolen.UID = "stolen", "c2"
	pending := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pending"}}
	m := manager(t, configMap, bound, stolen, pending)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef: &corev1.ObjectReference{UID: "c1"}, PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: m.root + "/pv"}}}}
	_, err := m.client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{})
	require.NoError(t, err)
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	cm := func(items ...corev1.KeyToPath) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("cm"), Items: items}}
	}
	for want, source := range map[string]corev1.VolumeSource{
		"volume v: claim pending is not bound":            claim("pending"),
		"volume v: reading claim none":                    claim("none"),
		"volume v: volume pv is bound to another claim":   claim("stolen"),
		"volume v: looking for the directory":             claim("bound"),
		"volume v: key no is not in config map cm":        cm(corev1.KeyToPath{Key: "no", Path: "x"}),
		"volume v: path ../../x leaves the volume":        cm(corev1.KeyToPath{Key: "k", Path: "../../x"}),
		"volume v: path /etc is outside the folders":      {HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}},
		"volume v: path " + m.root + "x is outside":       {HostPath: &corev1.HostPathVolumeSource{Path: m.root + "x"}},
		"volume v: path " + m.root + "/../x is outside":   {HostPath: &corev1.HostPathVolumeSource{Path: m.root + "/../x"}},
		"volume v: this kind of volume is not supported":  {NFS: &corev1.NFSVolumeSource{}},
		"volume v: downward API file f: resourceFieldRef": {DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{Path: "f"}}}},
	} {
		_, err := m.Mount(t.Context(), podWith(source), render.Place{})
		require.ErrorContains(t, err, want)
	}
	require.NoError(t, os.Mkdir(m.root+"/pv", 0o755))
	dirs, err := m.Mount(t.Context(), podWith(claim("bound")), render.Place{})
	require.NoError(t, err)
	require.Equal(t, m.root+"/pv", dirs["v"])
}
