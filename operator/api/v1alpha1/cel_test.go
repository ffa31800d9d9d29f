package v1alpha1_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
)

const crdDir = "../../../config/crd"

func TestMain(m *testing.M) { controlplane.Main(m) }

// refusal is one object, or one edit of a good object, that a CRD rule must refuse in words that name the
// field and say what to write instead.
type refusal struct {
	// object is the kind of base to start from.
	object string
	// edit makes the object bad. With created it is an update of the object as it was.
	edit    func(object)
	created bool
	// before changes the base first, for rules about what may follow what.
	before func(object)
	// field and advice must both be in the API server's answer; rule is the beginning of the rule's message.
	field, advice string
}

type object map[string]any

// set puts a value at a dotted path; nil removes it.
func set(path string, value any) func(object) {
	return func(o object) {
		keys := strings.Split(path, ".")
		at := map[string]any(o)
		for _, k := range keys[:len(keys)-1] {
			next, ok := at[k].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[k] = next
			}
			at = next
		}
		if value == nil {
			delete(at, keys[len(keys)-1])
			return
		}
		at[keys[len(keys)-1]] = value
	}
}

var bases = map[string]string{
	"set": `
apiVersion: assent.dev/v1alpha1
kind: LiStatefulSet
spec:
  policy: etcd
  replicas: 3
  template: {metadata: {labels: {app: etcd}}, spec: {containers: [{name: etcd, image: "etcd:1"}]}}
  volumeClaimTemplates:
  - name: data
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`,
	"revision": `
apiVersion: assent.dev/v1alpha1
kind: Revision
spec:
  set: etcd
  template: {metadata: {labels: {app: etcd}}, spec: {containers: [{name: etcd, image: "etcd:1"}]}}
`,
	"podindex": `
apiVersion: assent.dev/v1alpha1
kind: PodIndex
spec:
  set: etcd
  application: etcd
  block: 0
  setGeneration: 1
  indices: [{index: 0, presence: Present, revision: etcd-1}]
`,
	"operation": `
apiVersion: assent.dev/v1alpha1
kind: Operation
spec:
  set: etcd
  application: etcd
  podIndex: etcd-0
  type: deployment
  cause: rollout
  generation: 1
  target: {revision: etcd-2}
  instances: [{index: 0, incarnation: 0, pod: etcd-0}]
`,
	"statefulpod": `
apiVersion: assent.dev/v1alpha1
kind: StatefulPod
spec: {set: etcd, application: etcd, index: 0, incarnation: 0, revision: etcd-1, state: Running}
`,
}

var otherTemplate = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "etcd", "image": "etcd:2"}}}}

// claimTemplates gives one template a size.
func claimTemplates(storage ...string) []any {
	var all []any
	for i, s := range storage {
		all = append(all, map[string]any{"name": []string{"data", "wal"}[i], "spec": map[string]any{
			"accessModes": []any{"ReadWriteOnce"},
			"resources":   map[string]any{"requests": map[string]any{"storage": s}},
		}})
	}
	return all
}

var refusals = map[string]refusal{
	"a name too long for pods and claims": {
		object: "set", edit: set("metadata.name", strings.Repeat("a", 41)),
		field: "metadata.name", advice: "at most 40 characters",
	},
	"a name that is no DNS label": {
		object: "set", edit: set("metadata.name", "etcd.db"),
		field: "metadata.name", advice: "must be a DNS label",
	},
	"another application": {
		object: "set", created: true, edit: set("spec.application", "other"),
		field: "spec.application", advice: "create a new LiStatefulSet instead",
	},
	"an application taken away": {
		object: "set", created: true, before: set("spec.application", "db"), edit: set("spec.application", nil),
		field: "spec.application", advice: "create a new LiStatefulSet instead",
	},
	"another identity": {
		object: "set", created: true, edit: set("spec.identity", "Incarnation"),
		field: "spec.identity", advice: "create a new LiStatefulSet instead",
	},
	"canaries": {
		object: "set", edit: set("spec.canaries", []any{map[string]any{"name": "c", "count": int64(1), "template": otherTemplate}}),
		field: "spec.canaries", advice: "remove it and roll the whole set with spec.template",
	},
	"a restart": {
		object: "set", edit: set("spec.restart.id", "1"),
		field: "spec.restart", advice: "change an annotation in spec.template.metadata",
	},
	"an update in place": {
		object: "set", edit: set("spec.update", "InPlaceIfPossible"),
		field: "spec.update", advice: "write Replace or remove the field",
	},
	"reserved indices": {
		object: "set", edit: set("spec.reservedIndices", []any{int64(1)}),
		field: "spec.reservedIndices", advice: "remove it",
	},
	"a restore that asks": {
		object: "set", edit: set("spec.restore", "RequireApproval"),
		field: "spec.restore", advice: "write Auto or remove the field",
	},
	"a swap": {
		object: "set", edit: set("spec.swap.order", "AddFirst"),
		field: "spec.swap", advice: "remove it",
	},
	"a disruption": {
		object: "set", edit: set("spec.disruption.return", "Auto"),
		field: "spec.disruption", advice: "remove it",
	},
	"an eviction": {
		object: "set", edit: set("spec.eviction.pdb", "Managed"),
		field: "spec.eviction", advice: "remove it",
	},
	"a traffic drain": {
		object: "set", edit: set("spec.trafficDrain.timeoutSeconds", int64(5)),
		field: "spec.trafficDrain", advice: "use a preStop hook",
	},
	"claims deleted after a scale-in": {
		object: "set", edit: set("spec.retention.whenScaled", "Delete"),
		field: "spec.retention.whenScaled", advice: "write Retain or remove the field",
	},
	"claims deleted with the set": {
		object: "set", edit: set("spec.retention.whenDeleted", "Delete"),
		field: "spec.retention.whenDeleted", advice: "write Retain or remove the field",
	},
	"claims not used again": {
		object: "set", edit: set("spec.retention.reuse", false),
		field: "spec.retention.reuse", advice: "write true or remove the field",
	},
	"identity by index": {
		object: "set", edit: set("spec.identity", "Index"),
		field: "spec.identity", advice: "write Incarnation or remove the field",
	},
	"deletion protection": {
		object: "set", edit: set("spec.deletionProtection", true),
		field: "spec.deletionProtection", advice: "write false or remove the field",
	},
	"rules for scale-in": {
		object: "set", edit: set("spec.scaleIn.maxPercent", int64(10)),
		field: "spec.scaleIn", advice: "remove it",
	},
	"a larger volume": {
		object: "set", created: true, edit: set("spec.volumeClaimTemplates", claimTemplates("2Gi")),
		field: "spec.volumeClaimTemplates", advice: "create a new LiStatefulSet for other volumes",
	},
	"TestOP20 a smaller volume": {
		object: "set", created: true, before: set("spec.volumeClaimTemplates", claimTemplates("15Gi")), edit: set("spec.volumeClaimTemplates", claimTemplates("10Gi")),
		field: "spec.volumeClaimTemplates", advice: "keep the old templates",
	},
	"a second volume": {
		object: "set", created: true, edit: set("spec.volumeClaimTemplates", claimTemplates("1Gi", "1Gi")),
		field: "spec.volumeClaimTemplates", advice: "keep the old templates",
	},
	"volumes taken away": {
		object: "set", created: true, edit: set("spec.volumeClaimTemplates", nil),
		field: "spec.volumeClaimTemplates", advice: "keep the old templates",
	},
	"volumes for a set that had none": {
		object: "set", created: true, before: set("spec.volumeClaimTemplates", nil), edit: set("spec.volumeClaimTemplates", claimTemplates("1Gi")),
		field: "spec.volumeClaimTemplates", advice: "create a new LiStatefulSet for other volumes",
	},
	"a budget of nothing": {
		object: "set", edit: set("spec.maxUnavailable", int64(0)),
		field: "spec.maxUnavailable", advice: "want a number of at least 1, or 1% to 100%",
	},
	"TestOP04 a budget of no per cent": {
		object: "set", edit: set("spec.maxUnavailable", "0%"),
		field: "spec.maxUnavailable", advice: "want a number of at least 1, or 1% to 100%",
	},
	"a budget above all": {
		object: "set", edit: set("spec.maxUnavailable", "101%"),
		field: "spec.maxUnavailable", advice: "want a number of at least 1, or 1% to 100%",
	},
	"another template in a Revision": {
		object: "revision", created: true, edit: set("spec.template", otherTemplate),
		field: "spec", advice: "edit the LiStatefulSet's spec.template",
	},
	"another set of a Revision": {
		object: "revision", created: true, edit: set("spec.set", "other"),
		field: "spec", advice: "edit the LiStatefulSet's spec.template",
	},
	"another block of a PodIndex": {
		object: "podindex", created: true, edit: set("spec.block", int64(1)),
		field: "spec.block", advice: "never change",
	},
	"another target of an Operation": {
		object: "operation", created: true, edit: set("spec.target.revision", "etcd-3"),
		field: "spec", advice: "edit the LiStatefulSet, which withdraws it",
	},
	"another instance of an Operation": {
		object: "operation", created: true, edit: set("spec.instances", []any{map[string]any{"index": int64(1), "incarnation": int64(0), "pod": "etcd-1"}}),
		field: "spec", advice: "edit the LiStatefulSet, which withdraws it",
	},
	"another index of a StatefulPod": {
		object: "statefulpod", created: true, edit: set("spec.index", int64(1)),
		field: "spec.index", advice: "an identity never changes",
	},
}

// accepted are edits of a created object that every rule must let pass, and objects that use what is available.
var accepted = map[string]struct {
	object string
	edit   func(object)
}{
	"another template":                   {"set", set("spec.template", otherTemplate)},
	"another number of pods":             {"set", set("spec.replicas", int64(5))},
	"a budget in pods":                   {"set", set("spec.maxUnavailable", int64(2))},
	"a budget in per cent":               {"set", set("spec.maxUnavailable", "34%")},
	"the same volumes":                   {"set", set("spec.volumeClaimTemplates", claimTemplates("1Gi"))},
	"a pause":                            {"set", set("spec.paused", "All")},
	"the update there is":                {"set", set("spec.update", "Replace")},
	"the restore there is":               {"set", set("spec.restore", "Auto")},
	"the retention there is":             {"set", set("spec.retention", map[string]any{"whenScaled": "Retain", "whenDeleted": "Retain", "reuse": true})},
	"deletion protection off":            {"set", set("spec.deletionProtection", false)},
	"empty lists":                        {"set", func(o object) { set("spec.canaries", []any{})(o); set("spec.reservedIndices", []any{})(o) }},
	"a label on a Revision":              {"revision", set("metadata.labels.x", "y")},
	"another staging":                    {"podindex", set("spec.indices", []any{map[string]any{"index": int64(0), "presence": "Absent"}})},
	"a label on an Operation":            {"operation", set("metadata.labels.x", "y")},
	"another approval of a StatefulPod":  {"statefulpod", set("spec.revision", "etcd-2")},
	"another approved state":             {"statefulpod", set("spec.state", "Stopped")},
	"a grant recorded on a StatefulPod":  {"statefulpod", set("spec.grant", map[string]any{"operation": "o", "type": "deployment", "stage": "remove", "decision": "d", "session": "s"})},
	"parameters of a StatefulPod's pods": {"statefulpod", set("spec.parameters.color", "blue")},
}

func TestRulesOfTheKindsRefuseWhatIsWrongAndSayWhatToWrite(t *testing.T) {
	c, rules := withCRDs(t)
	hit := map[string]bool{}
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			err := r.try(t.Context(), t, c)
			require.Error(t, err)
			require.ErrorContains(t, err, r.field)
			require.ErrorContains(t, err, r.advice)
			for _, message := range rules {
				if strings.Contains(err.Error(), message) {
					hit[message] = true
				}
			}
		})
	}
	require.ElementsMatch(t, rules, slices.Collect(maps.Keys(hit)), "each rule must refuse something in this table")
}

func TestRulesOfTheKindsLetPassWhatIsRight(t *testing.T) {
	c, _ := withCRDs(t)
	for name, a := range accepted {
		t.Run(name, func(t *testing.T) {
			o := build(t, a.object, nil)
			require.NoError(t, c.Create(t.Context(), o))
			a.edit(o.Object)
			require.NoError(t, c.Update(t.Context(), o))

			fresh := build(t, a.object, a.edit)
			require.NoError(t, c.Create(t.Context(), fresh), "what may be edited so may be created so")
		})
	}
}

// try makes the object, edits it as the case says and returns the API server's answer to the bad write.
func (r refusal) try(ctx context.Context, t *testing.T, c client.Client) error {
	t.Helper()
	if !r.created {
		return c.Create(ctx, build(t, r.object, r.edit))
	}
	o := build(t, r.object, r.before)
	require.NoError(t, c.Create(ctx, o))
	r.edit(o.Object)
	return c.Update(ctx, o)
}

// build gives a base under a name of its own, changed by edit unless that is nil.
func build(t *testing.T, base string, edit func(object)) *unstructured.Unstructured {
	t.Helper()
	o := object{}
	require.NoError(t, yaml.Unmarshal([]byte(bases[base]), &o))
	set("metadata.namespace", "default")(o)
	set("metadata.generateName", "cel-")(o)
	if edit != nil {
		edit(o)
	}
	return &unstructured.Unstructured{Object: o}
}

// withCRDs gives an administrator's client of an API server that serves the five kinds, and the messages of
// all rules in them.
func withCRDs(t *testing.T) (client.Client, []string) {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Options{})
	require.NoError(t, install.Apply(t.Context(), cp.Config(), crdDir))
	c, err := client.New(cp.Config(), client.Options{})
	require.NoError(t, err)
	crds, err := install.Build(crdDir)
	require.NoError(t, err)
	require.Len(t, crds, 5)
	messages := map[string]bool{}
	for _, crd := range crds {
		collectMessages(crd.Object, messages)
	}
	return c, slices.Collect(maps.Keys(messages))
}

func collectMessages(node any, into map[string]bool) {
	switch n := node.(type) {
	case map[string]any:
		if rules, ok := n["x-kubernetes-validations"].([]any); ok {
			for _, r := range rules {
				into[fmt.Sprint(r.(map[string]any)["message"])] = true
			}
		}
		for _, child := range n {
			collectMessages(child, into)
		}
	case []any:
		for _, child := range n {
			collectMessages(child, into)
		}
	}
}
