package podindex

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
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

// world is a set in a namespace of a real API server and a controller that is stepped by hand.
type world struct {
	*testing.T
	client.Client
	ns     string
	set    *v1alpha1.LiStatefulSet
	clock  *clocktesting.FakePassiveClock
	faults *wrap.Faults
	events *events.FakeRecorder
	c      *Controller
}

func newWorld(t *testing.T) *world {
	t.Helper()
	_, c := live.Cluster(t)
	w := &world{T: t, Client: c, ns: live.Namespace(t, c), clock: clocktesting.NewFakePassiveClock(time.Now())}
	w.set = wrap.LiStatefulSet(w.ns, "db").Obj()
	require.NoError(t, c.Create(t.Context(), w.set))
	w.restart(nil)
	return w
}

// restart begins a new process whose cache is the reader, or live when there is none.
func (w *world) restart(cached client.Reader) {
	if cached == nil {
		cached = w.Client
	}
	m, err := metrics.New(nil)
	require.NoError(w, err)
	w.faults = &wrap.Faults{Client: w.Client}
	w.events = events.NewFakeRecorder(1000)
	w.c = New(kube.Deps{Cached: cached, Live: w.Client, Writer: w.faults, Clock: w.clock, Events: w.events, Metrics: m})
}

// freeze is a cache in which the kinds of the lists stay as they are now.
func (w *world) freeze(lists ...client.ObjectList) client.Reader {
	s, err := wrap.NewStale(w.Context(), w.Client, w.ns, lists...)
	require.NoError(w, err)
	return s
}

func entries(revision string, present []int32, absent ...int32) []v1alpha1.StagedIndex {
	var list []v1alpha1.StagedIndex
	for _, i := range present {
		list = append(list, v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Present, Revision: revision})
	}
	for _, i := range absent {
		list = append(list, v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Absent})
	}
	slices.SortFunc(list, func(a, b v1alpha1.StagedIndex) int { return int(a.Index - b.Index) })
	return list
}

// stage writes a block as the listatefulset controller does.
func (w *world) stage(block int32, list []v1alpha1.StagedIndex) {
	x := &v1alpha1.PodIndex{}
	key := client.ObjectKey{Namespace: w.ns, Name: v1alpha1.PodIndexName("db", block)}
	if err := w.Get(w.Context(), key, x); err == nil {
		x.Spec.Indices = list
		x.Spec.SetGeneration++
		require.NoError(w, w.Update(w.Context(), x))
		return
	}
	require.NoError(w, w.Create(w.Context(), &v1alpha1.PodIndex{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.ns, Name: key.Name,
			Labels: map[string]string{
				v1alpha1.LabelSet: "db", v1alpha1.LabelApplication: "db", v1alpha1.LabelBlock: strconv.Itoa(int(block)),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.set, v1alpha1.GroupVersion.WithKind("LiStatefulSet"))},
		},
		Spec: v1alpha1.PodIndexSpec{Set: "db", Application: "db", Block: block, SetGeneration: 1, Indices: list},
	}))
}

// pods stores available identities, as later links of the chain would.
func (w *world) pods(revision string, indices ...int32) {
	for _, i := range indices {
		p := &v1alpha1.StatefulPod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.ns, Name: v1alpha1.PodName("db", i, 0), Labels: map[string]string{v1alpha1.LabelSet: "db"},
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(w.set, v1alpha1.GroupVersion.WithKind("LiStatefulSet"))},
			},
			Spec: v1alpha1.StatefulPodSpec{Set: "db", Application: "db", Index: i, Revision: revision, State: v1alpha1.Running},
		}
		require.NoError(w, w.Create(w.Context(), p))
		p.Status = v1alpha1.StatefulPodStatus{Available: true, EverAvailable: true, PodRevision: revision}
		require.NoError(w, w.Status().Update(w.Context(), p))
	}
}

func (w *world) pod(index int32) *v1alpha1.StatefulPod {
	p := &v1alpha1.StatefulPod{}
	require.NoError(w, w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.PodName("db", index, 0)}, p))
	return p
}

func (w *world) reconcile(block int32) reconcile.Result {
	w.Helper()
	result, err := w.try(block)
	require.NoError(w, err)
	return result
}

func (w *world) try(block int32) (reconcile.Result, error) {
	return w.c.Reconcile(w.Context(), request(w.ns, v1alpha1.PodIndexName("db", block)))
}

// settle reconciles until nothing is to be written anymore.
func (w *world) settle(block int32) {
	w.Helper()
	for range 20 {
		before := len(w.faults.Writes)
		w.reconcile(block)
		if len(w.faults.Writes) == before {
			return
		}
		w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
	}
	require.Fail(w, "it never comes to rest", strings.Join(w.faults.Writes, "\n"))
}

func (w *world) index(block int32) *v1alpha1.PodIndex {
	x := &v1alpha1.PodIndex{}
	require.NoError(w, w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.PodIndexName("db", block)}, x))
	return x
}

// operations tells each Operation as "db-0-dep-1 r2 [db-0 db-1]".
func (w *world) operations() []string {
	list := &v1alpha1.OperationList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	lines := []string{}
	for _, o := range list.Items {
		var pods []string
		for _, i := range o.Spec.Instances {
			pods = append(pods, i.Pod)
		}
		lines = append(lines, o.Name+" "+o.Spec.Target.Revision+" ["+strings.Join(pods, " ")+"]")
	}
	slices.Sort(lines)
	return lines
}

func (w *world) operation(name string) *v1alpha1.Operation {
	o := &v1alpha1.Operation{}
	require.NoError(w, w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, o))
	return o
}

// end records an end of every instance, or of the named pods, as the operation controller does.
func (w *world) end(name string, state v1alpha1.InstanceState, pods ...string) {
	o := w.operation(name)
	o.Status.Instances = nil
	for _, i := range o.Spec.Instances {
		s := v1alpha1.InstanceStatus{Index: i.Index, Pod: i.Pod, State: v1alpha1.Waiting}
		if len(pods) == 0 || slices.Contains(pods, i.Pod) {
			s.State = state
		}
		o.Status.Instances = append(o.Status.Instances, s)
	}
	if o.Ended() {
		o.Status.CompletedAt = &metav1.Time{Time: w.clock.Now()}
	}
	require.NoError(w, w.Status().Update(w.Context(), o))
}

func (w *world) told() string {
	var lines []string
	for {
		select {
		case e := <-w.events.Events:
			lines = append(lines, e)
		default:
			return strings.Join(lines, "\n")
		}
	}
}

func TestABlockIsClaimedInTheLedgerBeforeItsOperationIsMade(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r1", []int32{0, 1, 2}))
	w.reconcile(0)
	require.Equal(t, []string{"update-status PodIndex db-0", "create Operation db-0-out-1"}, w.faults.Writes)
	require.Equal(t, []string{"db-0-out-1 r1 [db-0 db-1 db-2]"}, w.operations())
	x, op := w.index(0), w.operation("db-0-out-1")
	require.Equal(t, int64(1), x.Status.Sequence)
	require.Equal(t, x.Generation, x.Status.ObservedGeneration)
	require.Equal(t, int32(3), x.Status.Wanted)
	require.Equal(t, int32(1), x.Status.Open)
	require.True(t, metav1.IsControlledBy(op, x))
	require.Contains(t, w.told(), "OperationCreated")
}

func TestAnUpgradeWithUnchangedObjectsWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r2", []int32{0, 1}, 2))
	w.pods("r1", 0, 1, 2)
	w.settle(0)
	require.Len(t, w.operations(), 2)
	w.restart(nil)
	w.reconcile(0)
	require.Empty(t, w.faults.Writes)
	require.Empty(t, w.told())
}

func TestCR01ACacheThatDoesNotShowTheClaimOrTheOperationMakesNoSecondOne(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r2", []int32{0, 1, 2}))
	w.pods("r1", 0, 1, 2)
	neither := w.freeze(&v1alpha1.PodIndexList{}, &v1alpha1.OperationList{})
	noOperation := w.freeze(&v1alpha1.OperationList{})
	w.reconcile(0)
	want := []string{"db-0-dep-1 r2 [db-0 db-1 db-2]"}
	require.Equal(t, want, w.operations())

	for name, cached := range map[string]client.Reader{"neither": neither, "no Operation": noOperation} {
		w.restart(cached)
		for range 3 {
			w.reconcile(0)
		}
		require.Empty(t, w.faults.Writes, name)
		require.Equal(t, want, w.operations(), name)
	}
}

func TestCR01TheProcessThatMadeAnOperationWaitsForItsCacheWithoutLiveReads(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r1", []int32{0}))
	behind := w.freeze(&v1alpha1.OperationList{})
	w.reconcile(0)
	reads := &counting{Reader: w.Client}
	w.c.deps.Cached, w.c.deps.Live = behind, reads
	result := w.reconcile(0)
	require.Zero(t, reads.n, "what was just written is expected, not looked for")
	require.Positive(t, result.RequeueAfter)

	// If it does not appear for a while, somebody may have removed it: that is looked up.
	require.NoError(t, w.Delete(t.Context(), w.operation("db-0-out-1")))
	w.clock.SetTime(w.clock.Now().Add(patience + time.Second))
	w.reconcile(0)
	require.Positive(t, reads.n)
	require.Equal(t, []string{"db-0-out-1 r1 [db-0]"}, w.operations(), "created as claimed")
}

// counting counts reads.
type counting struct {
	client.Reader
	n int
}

func (c *counting) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	c.n++
	return c.Reader.Get(ctx, key, o, opts...)
}

func (c *counting) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.n++
	return c.Reader.List(ctx, list, opts...)
}

func TestCR01ACrashBetweenClaimAndOperationIsRepairedAsClaimed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		w := newWorld(t)
		w.stage(0, entries("r1", []int32{0, 1}))
		w.faults.FailAt, w.faults.Lost = 2, lost
		_, err := w.try(0)
		require.ErrorIs(t, err, wrap.ErrCrash)
		require.Len(t, w.index(0).Status.Claims, 1)
		// Another wish comes before the successor starts: what was claimed is still made as it was.
		w.stage(0, entries("r2", []int32{0, 1}))
		w.restart(nil)
		w.settle(0)
		require.Equal(t, []string{"db-0-out-1 r1 [db-0 db-1]"}, w.operations(), "lost %v", lost)
		require.Equal(t, int64(1), w.index(0).Status.Sequence)
	}
}

func TestCR01AnOperationOfAPredecessorIsNeverAdopted(t *testing.T) {
	w := newWorld(t)
	old := &v1alpha1.Operation{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "db-0-out-1", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodIndex", Name: "db-0", UID: "an-earlier-one"},
		}},
		Spec: v1alpha1.OperationSpec{
			Set: "db", Application: "db", PodIndex: "db-0", Type: v1alpha1.ScaleOut, Cause: "edit", Generation: 9,
			Instances: []v1alpha1.OperationInstance{{Index: 7, Pod: "db-7"}},
		},
	}
	require.NoError(t, w.Create(t.Context(), old))
	w.stage(0, entries("r1", []int32{0}))
	result := w.reconcile(0)
	require.Equal(t, takenRetry, result.RequeueAfter)
	require.Contains(t, w.told(), "NameTaken")
	require.Equal(t, []string{"db-0-out-1  [db-7]"}, w.operations())

	require.NoError(t, w.Delete(t.Context(), old))
	w.settle(0)
	require.Equal(t, []string{"db-0-out-1 r1 [db-0]"}, w.operations())
}

func TestOP19ACacheThatStillShowsAnIndexAbsentRemovesNothing(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r1", []int32{0, 1}))
	w.pods("r1", 0, 1)
	w.settle(0)
	w.stage(0, entries("r1", []int32{0}, 1)) // 2 -> 1, and the operator is away
	all := w.freeze(&v1alpha1.PodIndexList{}, &v1alpha1.OperationList{}, &v1alpha1.StatefulPodList{}, &v1alpha1.LiStatefulSetList{})
	w.stage(0, entries("r1", []int32{0, 1})) // 1 -> 2
	w.restart(all)
	for range 3 {
		w.reconcile(0)
	}
	require.Empty(t, w.operations())
	require.Empty(t, w.index(0).Status.Claims)
}

func TestOP09IdentitiesThatNeverLeftTheRevisionGoneBackToAreInNoOperation(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("b", []int32{0, 1, 2}))
	w.pods("a", 0, 1, 2)
	w.settle(0)
	p := w.pod(2) // one pod was replaced
	p.Spec.Revision = "b"
	require.NoError(t, w.Update(t.Context(), p))

	w.stage(0, entries("a", []int32{0, 1, 2}))
	w.end("db-0-dep-1", v1alpha1.Withdrawn)
	w.settle(0)
	require.Equal(t, []string{"db-0-dep-1 b [db-0 db-1 db-2]", "db-0-dep-2 a [db-2]"}, w.operations())
}

func TestOP14ShrinkingTakesOneIndexAtATimeAcrossBlocks(t *testing.T) {
	w := newWorld(t)
	w.stage(1, entries("r1", nil, 256))
	w.stage(0, entries("r1", []int32{0}, 255))
	w.pods("r1", 0, 255, 256)
	require.Equal(t, turnRetry, w.reconcile(0).RequeueAfter, "256 goes first")
	require.Empty(t, w.operations())
	w.settle(1)
	w.reconcile(0)
	require.Equal(t, []string{"db-1-in-1  [db-256]"}, w.operations())

	require.NoError(t, w.Delete(t.Context(), w.pod(256)))
	w.end("db-1-in-1", v1alpha1.Succeeded)
	w.settle(1)
	w.settle(0)
	require.Equal(t, []string{"db-0-in-1  [db-255]", "db-1-in-1  [db-256]"}, w.operations())
}

func TestAnInstanceThatEndsIsReleasedSoonAndTheLastOneAtOnce(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r2", []int32{0, 1}))
	w.pods("r1", 0, 1)
	w.settle(0)
	w.reconcile(0)
	for i, name := range []string{"db-1", "db-0"} {
		p := w.pod(int32(1 - i))
		p.Spec.Revision = "r2"
		require.NoError(t, w.Update(t.Context(), p))
		if name == "db-1" {
			w.end("db-0-dep-1", v1alpha1.Succeeded, "db-1")
			w.reconcile(0)
			require.True(t, w.index(0).Status.Claims[0].Instances[1].Released)
		}
	}
	w.end("db-0-dep-1", v1alpha1.Succeeded)
	w.reconcile(0)
	require.Empty(t, w.index(0).Status.Claims, "no second has passed, but the claim is done with")
}

func TestACompleteOperationIsKeptForAnHour(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r1", []int32{0}))
	w.settle(0)
	w.pods("r1", 0)
	w.end("db-0-out-1", v1alpha1.Succeeded)
	w.settle(0)
	result := w.reconcile(0)
	require.InDelta(t, time.Hour, result.RequeueAfter, float64(time.Minute), "it is looked at again when the time is up")
	require.Len(t, w.operations(), 1)
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.reconcile(0)
	require.Empty(t, w.operations())
	require.Contains(t, w.told(), "OperationRemoved")
	require.Equal(t, int64(1), w.index(0).Status.Sequence, "its number never comes back")
}

func TestNothingIsClaimedForASetThatIsGoing(t *testing.T) {
	w := newWorld(t)
	w.set.Finalizers = []string{"example.com/hold"}
	require.NoError(t, w.Update(t.Context(), w.set))
	w.stage(0, entries("r1", []int32{0}))
	behind := w.freeze(&v1alpha1.LiStatefulSetList{})
	require.NoError(t, w.Delete(t.Context(), w.set))
	w.restart(behind)
	w.reconcile(0)
	require.Empty(t, w.operations())
	require.Empty(t, w.index(0).Status.Claims)
}

func TestNothingIsMadeInANamespaceThatIsGoing(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r1", []int32{0}))
	require.NoError(t, w.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}))
	require.Zero(t, w.reconcile(0))
	require.Empty(t, w.operations())
}

func TestABlockThatIsGoneIsForgotten(t *testing.T) {
	w := newWorld(t)
	w.stage(0, entries("r1", []int32{0}))
	w.reconcile(0)
	require.Len(t, w.c.expected.byIndex, 1)
	require.NoError(t, w.Delete(t.Context(), w.index(0)))
	require.Zero(t, w.reconcile(0))
	require.Empty(t, w.c.expected.byIndex)
}

func TestAChangeIsForItsOwnBlockAndAScaleInForTheOneBelowToo(t *testing.T) {
	name := func(o client.Object) (names []string) {
		for _, r := range Requests(o) {
			names = append(names, r.Name)
		}
		return names
	}
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "db-1"}
	require.Equal(t, []string{"db-1", "db-0"}, name(&v1alpha1.PodIndex{ObjectMeta: meta, Spec: v1alpha1.PodIndexSpec{Set: "db", Block: 1}}))
	require.Equal(t, []string{"db-0"}, name(&v1alpha1.Operation{Spec: v1alpha1.OperationSpec{PodIndex: "db-0"}}))
	require.Equal(t, []string{"db-1"}, name(&v1alpha1.StatefulPod{Spec: v1alpha1.StatefulPodSpec{Set: "db", Index: 256}}))
	require.Empty(t, name(&corev1.Pod{}))
}

// life is a block that is filled, rolled, given another wish and shrunk, while everything ordered is carried out.
func (w *world) life() {
	for _, list := range [][]v1alpha1.StagedIndex{
		entries("r1", []int32{0, 1, 2}), entries("r2", []int32{0, 1, 2}), entries("r2", []int32{0}, 1, 2), entries("r2", []int32{0, 1, 2}),
	} {
		w.stage(0, list)
		for range 30 {
			before := len(w.faults.Writes)
			_, err := w.try(0)
			switch {
			case err != nil:
				require.ErrorIs(w, err, wrap.ErrCrash)
				w.restart(nil)
			case len(w.faults.Writes) == before && !w.carryOut():
				before = -1
			}
			w.clock.SetTime(w.clock.Now().Add(2 * time.Second))
			if before == -1 {
				break
			}
		}
	}
}

// carryOut does what one open Operation says and says whether there was one.
func (w *world) carryOut() bool {
	list := &v1alpha1.OperationList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	for o := range list.Items {
		op := &list.Items[o]
		if op.Ended() {
			continue
		}
		for _, i := range op.Spec.Instances {
			switch op.Spec.Type {
			case v1alpha1.ScaleOut:
				w.pods(op.Spec.Target.Revision, i.Index)
			case v1alpha1.ScaleIn:
				require.NoError(w, w.Delete(w.Context(), w.pod(i.Index)))
			default:
				p := w.pod(i.Index)
				p.Spec.Revision = op.Spec.Target.Revision
				require.NoError(w, w.Update(w.Context(), p))
			}
		}
		w.end(op.Name, v1alpha1.Succeeded)
		return true
	}
	return false
}

// left is what a run leaves: every Operation ever made, the ledger and the identities.
func (w *world) left() []string {
	lines := w.operations()
	s := w.index(0).Status
	lines = append(lines, strconv.Itoa(int(s.Sequence)), strconv.Itoa(len(s.Claims)), strconv.Itoa(int(s.Settled)))
	list := &v1alpha1.StatefulPodList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	for _, p := range list.Items {
		lines = append(lines, p.Name+" "+p.Spec.Revision)
	}
	return lines
}

func TestKilledAtAnyWriteTheSameOperationsAreMade(t *testing.T) {
	undisturbed := newWorld(t)
	undisturbed.life()
	want, writes := undisturbed.left(), len(undisturbed.faults.Writes)
	require.Equal(t, []string{
		"db-0-dep-2 r2 [db-0 db-1 db-2]", "db-0-in-3  [db-2]", "db-0-in-4  [db-1]", "db-0-out-1 r1 [db-0 db-1 db-2]", "db-0-out-5 r2 [db-1 db-2]",
	}, undisturbed.operations())
	require.Greater(t, writes, 10)
	for n := 1; n <= writes; n++ {
		for _, lost := range []bool{false, true} {
			w := newWorld(t)
			w.faults.FailAt, w.faults.Lost = n, lost
			w.life()
			require.Equal(t, want, w.left(), "killed at write %d, lost %v: %s", n, lost, undisturbed.faults.Writes[n-1])
		}
	}
}
