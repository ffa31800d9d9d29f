package render

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
)

func TestReferencesAreExpandedAsKubernetesDefines(t *testing.T) {
	known := map[string]string{"A": "1", "B": "$(A)", "E": ""}
	lookup := func(n string) (string, bool) { v, ok := known[n]; return v, ok }
	for in, want := range map[string]string{
		"":              "",
		"plain":         "plain",
		"$(A)":          "1",
		"x$(A)y$(A)":    "x1y1",
		"$(B)":          "$(A)", // what a reference brings in is not expanded again
		"$(E)":          "",
		"$(UNKNOWN)":    "$(UNKNOWN)",
		"$$(A)":         "$(A)",
		"$$$(A)":        "$1",
		"$$$$(A)":       "$$(A)",
		"$":             "$",
		"a$":            "a$",
		"$$":            "$",
		"$A":            "$A",
		"$(A":           "$(A",
		"$()":           "$()",
		"$(A)$(":        "1$(",
		"$($(A))":       "$($(A))",
		"price: 5$ $(A": "price: 5$ $(A",
	} {
		require.Equal(t, want, Expand(in, lookup), "%q", in)
	}
}

func TestTextWithoutADollarSignNeverChangesAndEscapedTextIsItself(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-z$()]{0,12}`).Draw(t, "text")
		lookup := func(string) (string, bool) { return "!", true }
		if !strings.Contains(text, "$") {
			require.Equal(t, text, Expand(text, lookup))
		}
		require.Equal(t, text, Expand(strings.ReplaceAll(text, "$", "$$"), lookup))
	})
}

func TestMountPathsBecomeRealDirectoriesWhereTheyAreWholePaths(t *testing.T) {
	mounts := []Mount{{"data", "/data", "/real/d"}, {"wal", "/data/wal/", "/real/w"}, {"tmp", "/tmp", "/tmp/x/tmp"}}
	for in, want := range map[string]string{
		"/data":                    "/real/d",
		"/data/":                   "/real/d/",
		"/data/etcd":               "/real/d/etcd",
		"--dir=/data/x":            "--dir=/real/d/x",
		"a:/data:/data/wal/1,/tmp": "a:/real/d:/real/w/1,/tmp/x/tmp",
		"'/data'":                  "'/real/d'",
		"cat </data/f>/tmp/g":      "cat </real/d/f>/tmp/x/tmp/g",
		"file:///data":             "file:///real/d",
		"/data2":                   "/data2",
		"/data.old":                "/data.old",
		"/var/data":                "/var/data",
		"./data":                   "./data",
		"http://host/data":         "http://host/data",
		"$(URL)/data":              "$(URL)/data",
		"//data":                   "//data",
		"data":                     "data",
		"":                         "",
	} {
		require.Equal(t, want, Rewrite(in, mounts), "%q", in)
	}
}

type objects map[string]map[string]string

func (o objects) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	if data, ok := o[name]; ok {
		return &corev1.ConfigMap{Data: data}, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (o objects) Secret(ctx context.Context, ns, name string) (*corev1.Secret, error) {
	cm, err := o.ConfigMap(ctx, ns, name)
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{Data: map[string][]byte{}}
	for k, v := range cm.Data {
		s.Data[k] = []byte(v)
	}
	return s, nil
}

func named(n string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: n} }

func TestTheEnvironmentIsBuiltInOrderAndMountPathsInItAreReal(t *testing.T) {
	yes := true
	c := &corev1.Container{
		Command: []string{"run", "$(D)"},
		Args:    []string{"--data=/data", "$(ASSENT_MOUNT_MY_DATA)", "$(PATH)"},
		EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("one")}},
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("two")}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("absent"), Optional: &yes}},
		},
		Env: []corev1.EnvVar{
			{Name: "A", Value: "a"}, {Name: "B", Value: "$(A)b"}, {Name: "EARLY", Value: "$(LATER)"}, {Name: "LATER", Value: "x"},
			{Name: "D", Value: "/data/$(A)"}, {Name: "T", Value: "$(D)"}, {Name: "HOME", Value: "/mine"},
			{Name: "OPTIONAL", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("two"), Key: "no", Optional: &yes}}},
		},
	}
	// The real directory lies beneath a mount path of the same pod, and must still come out whole.
	cmd, err := Render(t.Context(), objects{"one": {"K": "1", "L": "/data/l"}, "two": {"K": "2"}}, Input{
		Pod: &corev1.Pod{}, Container: c,
		Mounts: []Mount{{"my-data", "/data", "/tmp/pod/data"}, {"tmp", "/tmp", "/tmp/pod/tmp"}},
		Given:  map[string]string{"PATH": "/bin", "HOME": "/root"}, Services: map[string]string{"KUBERNETES_SERVICE_HOST": "h"},
	})
	require.NoError(t, err)
	require.Equal(t, []string{"run", "/tmp/pod/data/a", "--data=/tmp/pod/data", "/tmp/pod/data", "$(PATH)"}, cmd.Argv)
	require.Equal(t, []string{
		"A=a", "ASSENT_MOUNT_MY_DATA=/tmp/pod/data", "ASSENT_MOUNT_TMP=/tmp/pod/tmp", "B=ab", "D=/tmp/pod/data/a", "EARLY=$(LATER)",
		"HOME=/mine", "K=2", "KUBERNETES_SERVICE_HOST=h", "L=/tmp/pod/data/l", "LATER=x", "PATH=/bin", "T=/tmp/pod/data/a",
	}, cmd.Env)
}

func TestWhatAnEnvironmentLacksIsNamed(t *testing.T) {
	for want, e := range map[string]corev1.EnvVarSource{
		`env X: configmaps "gone" not found`:                     {ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("gone"), Key: "k"}},
		`env X: key k is not in secret here`:                     {SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("here"), Key: "k"}},
		`env X: field spec.foo is not known to a local node`:     {FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.foo"}},
		`env X: field metadata.foo['a'] is not known to a local`: {FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.foo['a']"}},
		`env X: this kind of valueFrom is not supported`:         {ResourceFieldRef: &corev1.ResourceFieldSelector{}},
	} {
		_, err := Render(t.Context(), objects{"here": {}}, Input{Pod: &corev1.Pod{}, Container: &corev1.Container{
			Command: []string{"x"}, Env: []corev1.EnvVar{{Name: "X", ValueFrom: &e}}}})
		require.ErrorContains(t, err, want)
	}
}

func TestFieldsOfAPod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: "ns", UID: "u", Labels: map[string]string{"b": "2", "a": `q"1`}, Annotations: map[string]string{"x/y": "z"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "sa"},
	}
	place := Place{NodeName: "node", HostIP: "127.0.0.1", PodIP: "127.0.60.3"}
	for path, want := range map[string]string{
		"metadata.name": "n", "metadata.namespace": "ns", "metadata.uid": "u", "metadata.labels['b']": "2", "metadata.labels['none']": "",
		"metadata.annotations['x/y']": "z", "metadata.labels": "a=\"q\\\"1\"\nb=\"2\"", "spec.nodeName": "node", "spec.serviceAccountName": "sa",
		"status.hostIP": "127.0.0.1", "status.podIP": "127.0.60.3", "status.podIPs": "127.0.60.3",
	} {
		got, err := Field(pod, place, path)
		require.NoError(t, err)
		require.Equal(t, want, got, path)
	}
}
