package metrics

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func registered(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := New(reg)
	require.NoError(t, err)
	return m, reg
}

func TestEveryMetricIsNamedAsPrometheusWants(t *testing.T) {
	m, reg := registered(t)
	m.Decision("defer", "quorum.majority")
	m.Grant("deployment", "remove")
	m.Act("delete", "done")
	m.Write("Pod", "delete")
	m.Request("default", "answered", .01)
	m.Unavailable("ns", "db", 1)
	m.Leading(true)
	m.Instances("ns/db", map[InstanceKey]int{{"deployment", "Waiting"}: 2})
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 9)
	for _, f := range families {
		require.True(t, strings.HasPrefix(f.GetName(), "assent_operator_"), f.GetName())
		require.NotEmpty(t, f.GetHelp(), f.GetName())
		counter := f.GetMetric()[0].GetCounter() != nil
		require.Equal(t, counter, strings.HasSuffix(f.GetName(), "_total"), f.GetName())
	}
}

// values are the series of one metric: label values, joined by a space in the order of the label names, and the number.
func values(t *testing.T, reg *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "assent_operator_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			out[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

func TestRegisteringTwiceIsAnError(t *testing.T) {
	_, reg := registered(t)
	_, err := New(reg)
	require.ErrorContains(t, err, "registering a metric")
}

func TestReasonCodesOfBundlesCannotGrowTheLabelsWithoutBound(t *testing.T) {
	m, reg := registered(t)
	for i := range 3 * maxCodes {
		m.Decision("defer", fmt.Sprintf("team.code%d", i))
	}
	m.Decision("defer", "team.code0")
	counted := values(t, reg, "decisions_total")
	require.Len(t, counted, maxCodes+1)
	require.InDelta(t, 2, counted["team.code0 defer"], 0)
	require.InDelta(t, 2*maxCodes, counted[otherCode+" defer"], 0)
}

func TestInstancesAreSummedOverApplicationsAndForgottenWithThem(t *testing.T) {
	m, reg := registered(t)
	waiting, acting := InstanceKey{"deployment", "Waiting"}, InstanceKey{"deployment", "Acting"}
	m.Instances("ns/a", map[InstanceKey]int{waiting: 2, acting: 1})
	m.Instances("ns/b", map[InstanceKey]int{waiting: 3})
	of := func(k InstanceKey) float64 { return values(t, reg, "instances")[k.State+" "+k.Type] }
	require.InDelta(t, 5, of(waiting), 0)
	m.Instances("ns/a", map[InstanceKey]int{waiting: 1})
	require.InDelta(t, 4, of(waiting), 0)
	require.InDelta(t, 0, of(acting), 0)
	m.Instances("ns/b", nil)
	require.InDelta(t, 1, of(waiting), 0)
}

func TestAnACMIsUpWhileItAnswers(t *testing.T) {
	m, reg := registered(t)
	for outcome, up := range map[string]float64{"answered": 1, "timeout": 0, "unavailable": 0} {
		m.Request("default", outcome, .1)
		require.InDelta(t, up, values(t, reg, "acm_up")["default"], 0, outcome)
	}
}

func TestASetThatIsGoneHasNoMetrics(t *testing.T) {
	m, reg := registered(t)
	m.Unavailable("ns", "db", 2)
	require.Equal(t, map[string]float64{"ns db": 2}, values(t, reg, "unavailable_pods"))
	m.ForgetSet("ns", "db")
	require.Empty(t, values(t, reg, "unavailable_pods"))
}

var errDown = errors.New("down")

// down is a client whose writes fail.
type down struct{ client.Client }

func (down) Scheme() *runtime.Scheme { return clientgoscheme.Scheme }
func (down) Create(context.Context, client.Object, ...client.CreateOption) error {
	return errDown
}
func (down) Update(context.Context, client.Object, ...client.UpdateOption) error {
	return errDown
}
func (down) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return errDown
}
func (down) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return errDown
}
func (down) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return errDown
}
func (down) Status() client.SubResourceWriter { return downStatus{} }

type downStatus struct{ client.SubResourceWriter }

func (downStatus) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errDown
}
func (downStatus) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return errDown
}

func TestEveryWriteIsCountedAndItsErrorPassedOn(t *testing.T) {
	m, reg := registered(t)
	c, ctx := CountWrites(down{}, m), t.Context()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	patch := client.MergeFrom(pod)
	for verb, write := range map[string]func() error{
		"create":        func() error { return c.Create(ctx, pod) },
		"update":        func() error { return c.Update(ctx, pod) },
		"patch":         func() error { return c.Patch(ctx, pod, patch) },
		"delete":        func() error { return c.Delete(ctx, pod) },
		"update-status": func() error { return c.Status().Update(ctx, pod) },
		"patch-status":  func() error { return c.Status().Patch(ctx, pod, patch) },
	} {
		require.ErrorIs(t, write(), errDown, verb)
		require.InDelta(t, 1, values(t, reg, "api_writes_total")["Pod "+verb], 0, verb)
	}
	require.ErrorIs(t, c.Apply(ctx, applycore.Service("a", "ns")), errDown)
	require.InDelta(t, 1, values(t, reg, "api_writes_total")["Service apply"], 0)
}
