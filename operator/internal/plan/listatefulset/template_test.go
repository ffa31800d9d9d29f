package listatefulset

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestATemplateThatCannotBeUsedNamesTheFieldAndWhatToWrite(t *testing.T) {
	for raw, want := range map[string]string{
		``:    "spec.template: reading JSON: EOF",
		`[]`:  "spec.template: an object is needed",
		`{}`:  "spec.template.spec.containers: at least one container is needed",
		`{}1`: "spec.template: more than one JSON value",
		`{"spec":{"containers":[{"name":"a","imag":"b"}]}}`:                                   `unknown field "spec.containers[0].imag"; correct or remove the field`,
		`{"spec":{"containers":{"name":"a"}}}`:                                                "cannot unmarshal object into Go struct field",
		`{"spec":{"restartPolicy":"Never","containers":[{"name":"a"}]}}`:                      "spec.template.spec.restartPolicy: Never is not possible here; write Always",
		`{"metadata":{"labels":{"assent.dev/set":"x"}},"spec":{"containers":[{"name":"a"}]}}`: "spec.template.metadata.labels[assent.dev/set]",
	} {
		_, err := ReadTemplate([]byte(raw))
		require.ErrorContains(t, err, want, raw)
	}
}

func TestCanonicalIgnoresOrderSpaceAndNullsAndNothingElse(t *testing.T) {
	a, err := Canonical([]byte(`{ "b": [1, null, {"y": null, "x": "<&>"}], "a": 1.50, "c": null }`))
	require.NoError(t, err)
	require.Equal(t, `{"a":1.50,"b":[1,null,{"x":"<&>"}]}`, string(a))
}

// The hash of a stored template may never change between versions, or an upgrade would replace every pod.
func TestTheNameOfARevisionIsFixedForEver(t *testing.T) {
	w := set("db", 3, "etcd:3.5")
	tmpl, err := ReadTemplate(w.Set.Spec.Template.Raw)
	require.NoError(t, err)
	require.Equal(t, "db-55c631b23c", RevisionName("db", tmpl.Canonical, 0))
	require.Equal(t, "db-55c631b23c-2", RevisionName("db", tmpl.Canonical, 2))
}

func TestCanonicalIsAFixedPointAndKeepsTheValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := map[string]any{"k": value(3).Draw(t, "value")}
		raw, err := json.Marshal(value)
		require.NoError(t, err)
		once, err := Canonical(raw)
		require.NoError(t, err)
		twice, err := Canonical(once)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
		indented, err := json.MarshalIndent(value, " ", "\t")
		require.NoError(t, err)
		third, err := Canonical(indented)
		require.NoError(t, err)
		require.Equal(t, string(once), string(third))
	})
}

func value(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.String().AsAny(), rapid.Int().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil),
	}
	if depth > 0 {
		leaves = append(leaves, rapid.SliceOfN(value(depth-1), 0, 3).AsAny(), rapid.MapOfN(rapid.StringN(1, 5, -1), value(depth-1), 0, 3).AsAny())
	}
	return rapid.OneOf(leaves...)
}
