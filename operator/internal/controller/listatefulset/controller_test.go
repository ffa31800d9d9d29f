package listatefulset

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/kube"
	"assent.dev/assent/operator/internal/metrics"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/wrap"
	"assent.dev/assent/test/wrap/live"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// world is one namespace of a real API server and a controller that is stepped by hand.
type world struct {
	*testing.T
	client.Client
	ns     string
	clock  *clocktesting.FakePassiveClock
	faults *wrap.Faults
	events *events.FakeRecorder
	c      *Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	_, c := live.Cluster(t)
	w := &world{T: t, Client: c, ns: live.Namespace(t, c), clock: clocktesting.NewFakePassiveClock(time.Now())}
	w.restart(nil)
	return w
}

// restart begins a new process whose cache is the reader, or live when there is none.
func (w *world) restart(cached client.Reader) *world {
	if cached == nil {
		cached = w.Client
	}
	m, err := metrics.New(nil)
	require.NoError(w, err)
	w.faults = &wrap.Faults{Client: w.Client}
	w.events = events.NewFakeRecorder(1000)
	w.c = New(kube.Deps{Cached: cached, Live: w.Client, Writer: w.faults, Clock: w.clock, Events: w.events, Metrics: m})
	return w
}

func (w *world) reconcile(name string) (reconcile.Result, error) {
	return w.c.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.ns, Name: name}})
}

// settle reconciles until nothing is to be written anymore.
func (w *world) settle(name string) {
	w.Helper()
	for range 20 {
		before := len(w.faults.Writes)
		_, err := w.reconcile(name)
		require.NoError(w, err)
		if len(w.faults.Writes) == before {
			return
		}
		w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	}
	require.Fail(w, "it never comes to rest", strings.Join(w.faults.Writes, "\n"))
}

func (w *world) create(o client.Object) { require.NoError(w, w.Create(w.Context(), o)) }

func (w *world) set(name string) *v1alpha1.LiStatefulSet {
	s := &v1alpha1.LiStatefulSet{}
	require.NoError(w, w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, s))
	return s
}

func (w *world) edit(name string, change func(*v1alpha1.LiStatefulSetSpec)) {
	s := w.set(name)
	change(&s.Spec)
	require.NoError(w, w.Update(w.Context(), s))
}

func (w *world) revisions() []string {
	list := &v1alpha1.RevisionList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	names := []string{}
	for _, r := range list.Items {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) index(name string) *v1alpha1.PodIndex {
	x := &v1alpha1.PodIndex{}
	require.NoError(w, w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, x))
	return x
}

// identity stores an available StatefulPod of the set, as later links of the chain would.
func (w *world) identity(set *v1alpha1.LiStatefulSet, index int32, revision string) {
	p := &v1alpha1.StatefulPod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: v1alpha1.PodName(set.Name, index, 0),
			Labels:          map[string]string{v1alpha1.LabelSet: set.Name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind("LiStatefulSet"))},
		},
		Spec: v1alpha1.StatefulPodSpec{
			Set: set.Name, Application: set.ApplicationName(), Index: index, Revision: revision, State: v1alpha1.Running,
		},
	}
	w.create(p)
	p.Status = v1alpha1.StatefulPodStatus{Available: true, EverAvailable: true, PodRevision: revision}
	require.NoError(w, w.Status().Update(w.Context(), p))
}

func (w *world) told() []string {
	var lines []string
	for {
		select {
		case e := <-w.events.Events:
			lines = append(lines, e)
		default:
			return lines
		}
	}
}

func TestANewSetIsStagedAndSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Obj())
	w.settle("db")
	require.Len(t, w.revisions(), 1)
	require.Len(t, w.index("db-0").Spec.Indices, 3)
	s := w.set("db")
	require.Equal(t, int64(1), s.Status.ObservedGeneration)
	require.Equal(t, "ScalingOut", s.Status.Summary.State)
	require.True(t, meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionTemplateValid))

	service := &corev1.Service{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(s), service))
	require.Equal(t, corev1.ClusterIPNone, service.Spec.ClusterIP)
	require.True(t, service.Spec.PublishNotReadyAddresses)
	require.True(t, metav1.IsControlledBy(service, s))
	told := strings.Join(w.told(), "\n")
	require.Contains(t, told, "RevisionCreated")
	require.Contains(t, told, "0-2 at "+w.revisions()[0])
}

func TestAnUpgradeWithUnchangedObjectsWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(300).Obj())
	w.settle("db")
	w.restart(nil)
	_, err := w.reconcile("db")
	require.NoError(t, err)
	require.Empty(t, w.faults.Writes)
	require.Empty(t, w.told())
}

func TestOP07ARestartWithAnEmptyCacheMakesNoSecondRevision(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Obj())
	w.settle("db")
	revisions, staged := w.revisions(), w.index("db-0")
	for range 20 {
		w.restart(wrap.NewEmpty(w.Client, &v1alpha1.RevisionList{}, &v1alpha1.PodIndexList{}))
		_, err := w.reconcile("db")
		require.NoError(t, err)
		require.Empty(t, w.faults.Writes)
	}
	require.Equal(t, revisions, w.revisions())
	require.Equal(t, staged.ResourceVersion, w.index("db-0").ResourceVersion)
}

func TestOP08TwoRevisionsOfEqualContentStageNothingNew(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Obj())
	w.settle("db")
	twin := &v1alpha1.Revision{}
	require.NoError(t, w.Get(t.Context(), client.ObjectKey{Namespace: w.ns, Name: w.revisions()[0]}, twin))
	twin = &v1alpha1.Revision{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "db-0000000000", Labels: twin.Labels, OwnerReferences: twin.OwnerReferences},
		Spec:       twin.Spec,
	}
	w.create(twin)
	staged := w.index("db-0")
	w.settle("db")
	w.restart(nil)
	w.settle("db")
	require.Equal(t, staged.ResourceVersion, w.index("db-0").ResourceVersion)
}

func TestOP09GoingBackReusesTheRevision(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2).Image("a").Obj())
	w.settle("db")
	a := w.revisions()[0]
	w.identity(w.set("db"), 0, a)
	w.identity(w.set("db"), 1, a)
	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Template = wrap.Template("b") })
	w.settle("db")
	require.NotEqual(t, a, w.set("db").Status.UpdateRevision)
	require.Len(t, w.revisions(), 2)

	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Template = wrap.Template("a") })
	w.settle("db")
	s := w.set("db")
	require.Equal(t, a, s.Status.UpdateRevision)
	require.Equal(t, int32(2), s.Status.UpdatedReplicas)
	require.Len(t, w.revisions(), 2)
	for _, e := range w.index("db-0").Spec.Indices {
		require.Equal(t, a, e.Revision)
	}
}

func TestOP19ACacheThatStillShowsTheOldReplicasStagesNothing(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2).Obj())
	w.settle("db")
	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = ptr.To(int32(1)) })
	stale, err := wrap.NewStale(t.Context(), w.Client, w.ns, &v1alpha1.LiStatefulSetList{}, &v1alpha1.PodIndexList{})
	require.NoError(t, err)
	onlyOldSet, err := wrap.NewStale(t.Context(), w.Client, w.ns, &v1alpha1.LiStatefulSetList{})
	require.NoError(t, err)
	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = ptr.To(int32(2)) })
	w.settle("db")

	for name, cached := range map[string]client.Reader{"all is old": stale, "only the set is old": onlyOldSet} {
		w.restart(cached)
		_, err := w.reconcile("db")
		require.NoError(t, err, name)
		for _, e := range w.index("db-0").Spec.Indices {
			require.Equal(t, v1alpha1.Present, e.Presence, name)
		}
	}
}

func TestOP20ASmallerVolumeIsRefusedAndTheRestGoesOn(t *testing.T) {
	w := newWorld(t)
	volume := func(size string) []v1alpha1.VolumeClaimTemplate {
		return []v1alpha1.VolumeClaimTemplate{{Name: "data", Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}},
		}}}
	}
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2).Edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.VolumeClaimTemplates = volume("15Gi")
	}).Obj())
	w.settle("db")
	before := w.index("db-0")

	s := w.set("db")
	s.Spec.VolumeClaimTemplates = volume("10Gi")
	err := w.Update(t.Context(), s)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "spec.volumeClaimTemplates: cannot be changed in this version")
	w.settle("db")
	require.Equal(t, before.ResourceVersion, w.index("db-0").ResourceVersion)
	require.NotContains(t, strings.Join(w.faults.Writes, "\n"), "delete")

	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = ptr.To(int32(3)) })
	w.settle("db")
	require.Len(t, w.index("db-0").Spec.Indices, 3)
}

func TestATemplateThatCannotBeUsedStagesNothingAndNamesTheField(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.Template.Raw = []byte(`{"spec":{"containers":[{"name":"a","imag":"b"}]}}`)
	}).Obj())
	w.settle("db")
	require.Empty(t, w.revisions())
	s := w.set("db")
	require.Equal(t, "Invalid", s.Status.Summary.State)
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionTemplateValid)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Contains(t, c.Message, "spec.containers[0].imag")
	require.Contains(t, strings.Join(w.told(), "\n"), "Warning TemplateInvalid")

	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Template = wrap.Template("a") })
	w.settle("db")
	require.Len(t, w.revisions(), 1)
	require.True(t, meta.IsStatusConditionTrue(w.set("db").Status.Conditions, v1alpha1.ConditionTemplateValid))
}

func TestAPredecessorsPodIndexIsWaitedForAndNeverTakenOver(t *testing.T) {
	w := newWorld(t)
	old := &v1alpha1.PodIndex{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "db-0", Labels: map[string]string{v1alpha1.LabelSet: "db"}},
		Spec:       v1alpha1.PodIndexSpec{Set: "db", Application: "db", SetGeneration: 7},
	}
	w.create(old)
	w.create(wrap.LiStatefulSet(w.ns, "db").Obj())
	result, err := w.reconcile("db")
	require.NoError(t, err)
	require.Positive(t, result.RequeueAfter)
	require.Empty(t, w.index("db-0").Spec.Indices)
	require.Contains(t, strings.Join(w.told(), "\n"), "NameTaken")

	require.NoError(t, w.Delete(t.Context(), old))
	w.settle("db")
	require.Len(t, w.index("db-0").Spec.Indices, 1)
}

func TestNothingIsMadeInANamespaceThatIsGoing(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Obj())
	require.NoError(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	result, err := w.reconcile("db")
	require.NoError(t, err)
	require.Zero(t, result)
	require.Empty(t, w.revisions())
}

func TestASetThatIsGoingIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	s := wrap.LiStatefulSet(w.ns, "db").Obj()
	s.Finalizers = []string{"example.com/hold"}
	w.create(s)
	cached, err := wrap.NewStale(t.Context(), w.Client, w.ns, &v1alpha1.LiStatefulSetList{})
	require.NoError(t, err)
	require.NoError(t, w.Delete(t.Context(), s))
	w.restart(cached) // the cache does not know yet
	_, err = w.reconcile("db")
	require.NoError(t, err)
	require.Empty(t, w.faults.Writes)
}

func TestStatusIsWrittenAtMostOnceASecondUnlessItMatters(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Obj())
	w.settle("db")
	a := w.revisions()[0]
	w.identity(w.set("db"), 0, a)
	_, err := w.reconcile("db")
	require.NoError(t, err)
	w.identity(w.set("db"), 1, a)
	result, err := w.reconcile("db")
	require.NoError(t, err)
	require.InDelta(t, time.Second, result.RequeueAfter, float64(time.Second))
	require.Equal(t, int32(1), w.set("db").Status.AvailableReplicas, "a count waits its turn")
	w.clock.SetTime(w.clock.Now().Add(time.Second))
	_, err = w.reconcile("db")
	require.NoError(t, err)
	require.Equal(t, int32(2), w.set("db").Status.AvailableReplicas)

	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Template.Raw = []byte(`{}`) })
	_, err = w.reconcile("db")
	require.NoError(t, err)
	require.Equal(t, "Invalid", w.set("db").Status.Summary.State, "a condition does not")
}

func TestSetsOfOneApplicationAreComparedAndToldOfEachOther(t *testing.T) {
	w := newWorld(t)
	w.create(wrap.LiStatefulSet(w.ns, "a").Edit(func(s *v1alpha1.LiStatefulSetSpec) { s.Application = "shop" }).Obj())
	w.create(wrap.LiStatefulSet(w.ns, "b").Edit(func(s *v1alpha1.LiStatefulSetSpec) { s.Application, s.Policy = "shop", "etcd" }).Obj())
	w.settle("a")
	require.True(t, meta.IsStatusConditionFalse(w.set("a").Status.Conditions, v1alpha1.ConditionApplicationAgreed))
	require.Contains(t, strings.Join(w.told(), "\n"), "ApplicationConflict")
	require.Equal(t, []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: w.ns, Name: "b"}}}, w.c.siblings(t.Context(), w.set("a")))
}

// end is what an undisturbed run leaves, without what differs between any two runs.
func (w *world) end(name string) []string {
	lines := w.revisions()
	indexes := &v1alpha1.PodIndexList{}
	require.NoError(w, w.List(w.Context(), indexes, client.InNamespace(w.ns)))
	for i := range indexes.Items {
		for _, e := range indexes.Items[i].Spec.Indices {
			lines = append(lines, strings.Join([]string{indexes.Items[i].Name, v1alpha1.PodName("", e.Index, 0), string(e.Presence), e.Revision}, " "))
		}
	}
	services := &corev1.ServiceList{}
	require.NoError(w, w.List(w.Context(), services, client.InNamespace(w.ns)))
	for _, s := range services.Items {
		lines = append(lines, "Service "+s.Name)
	}
	s := w.set(name)
	for _, c := range s.Status.Conditions {
		lines = append(lines, c.Type+" "+string(c.Status))
	}
	return append(lines, s.Status.UpdateRevision, s.Status.Summary.State)
}

// story is a set that is made, rolled, shrunk and rolled back, with the old Revisions pruned.
func (w *world) story() {
	limit := func(s *v1alpha1.LiStatefulSetSpec) { s.RevisionHistoryLimit = ptr.To(int32(0)) }
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(258).Image("a").Edit(limit).Obj())
	for _, change := range []func(*v1alpha1.LiStatefulSetSpec){
		func(*v1alpha1.LiStatefulSetSpec) {},
		func(s *v1alpha1.LiStatefulSetSpec) { s.Template = wrap.Template("b") },
		func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = ptr.To(int32(255)) },
		func(s *v1alpha1.LiStatefulSetSpec) { s.Template = wrap.Template("c") },
	} {
		w.edit("db", change)
		w.survive("db")
	}
}

// survive reconciles to rest; when the process is killed, a new one goes on.
func (w *world) survive(name string) {
	for range 40 {
		before := len(w.faults.Writes)
		_, err := w.reconcile(name)
		if err != nil {
			require.ErrorIs(w, err, wrap.ErrCrash)
			w.restart(nil)
			continue
		}
		w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
		if len(w.faults.Writes) == before {
			return
		}
	}
	require.Fail(w, "it never comes to rest")
}

func TestKilledAtAnyWriteTheEndIsTheSame(t *testing.T) {
	undisturbed := newWorld(t)
	undisturbed.story()
	want, writes := undisturbed.end("db"), len(undisturbed.faults.Writes)
	require.Greater(t, writes, 12)
	for n := 1; n <= writes; n++ {
		for _, lost := range []bool{false, true} {
			w := newWorld(t)
			w.faults.FailAt, w.faults.Lost = n, lost
			w.story()
			require.Equal(t, want, w.end("db"), "killed at write %d, lost %v: %s", n, lost, undisturbed.faults.Writes[n-1])
		}
	}
}
