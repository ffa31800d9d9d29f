package podindex

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// world is a block and what belongs to it, built line by line.
type world struct{ Input }

func block(set string, number int32) *world {
	x := &v1alpha1.PodIndex{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.PodIndexName(set, number), Namespace: "ns", UID: "uid", Generation: 1,
		},
		Spec: v1alpha1.PodIndexSpec{Set: set, Application: set, Block: number, SetGeneration: 1},
	}
	w := &world{Input{Index: x, Now: noon}}
	w.Blocks = []v1alpha1.PodIndex{*x}
	return w
}

func (w *world) present(revision string, indices ...int32) *world {
	for _, i := range indices {
		w.stage(v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Present, Revision: revision})
	}
	return w
}

func (w *world) absent(indices ...int32) *world {
	for _, i := range indices {
		w.stage(v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Absent})
	}
	return w
}

func (w *world) stage(e v1alpha1.StagedIndex) {
	at := slices.IndexFunc(w.Index.Spec.Indices, func(o v1alpha1.StagedIndex) bool { return o.Index == e.Index })
	if at < 0 {
		w.Index.Spec.Indices = append(w.Index.Spec.Indices, e)
	} else {
		w.Index.Spec.Indices[at] = e
	}
}

func (w *world) pods(revision string, indices ...int32) *world {
	for _, i := range indices {
		w.Pods = append(w.Pods, v1alpha1.StatefulPod{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PodName(w.Index.Spec.Set, i, 0)},
			Spec:       v1alpha1.StatefulPodSpec{Set: w.Index.Spec.Set, Index: i, Revision: revision, State: v1alpha1.Running},
			Status:     v1alpha1.StatefulPodStatus{Available: true},
		})
	}
	return w
}

// store is what an API server would hold after the plan was carried out.
func (w *world) store(p Plan) *world {
	w.Index = w.Index.DeepCopy()
	w.Index.Status = p.Status
	for _, op := range slices.Concat(p.Missing, p.Claimed) {
		op.CreationTimestamp = metav1.NewTime(w.Now)
		w.Operations = append(w.Operations, op)
	}
	return w
}

// end puts every instance of the Operation, or of the named indices, into a state.
func (w *world) end(name string, state v1alpha1.InstanceState, indices ...int32) *world {
	for o := range w.Operations {
		op := &w.Operations[o]
		if op.Name != name {
			continue
		}
		old := map[int32]v1alpha1.InstanceStatus{}
		for _, s := range op.Status.Instances {
			old[s.Index] = s
		}
		op.Status.Instances = nil
		for _, i := range op.Spec.Instances {
			s, ok := old[i.Index]
			if !ok {
				s = v1alpha1.InstanceStatus{Index: i.Index, Pod: i.Pod, State: v1alpha1.Waiting}
			}
			if len(indices) == 0 || slices.Contains(indices, i.Index) {
				s.State = state
			}
			op.Status.Instances = append(op.Status.Instances, s)
		}
		if op.Ended() {
			op.Status.CompletedAt = &metav1.Time{Time: w.Now}
		}
	}
	return w
}

func told(ops []v1alpha1.Operation) []string {
	lines := []string{}
	for _, o := range ops {
		var pods []string
		for _, i := range o.Spec.Instances {
			pods = append(pods, i.Pod)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %v", o.Name, o.Spec.Cause, o.Spec.Target.Revision, pods))
	}
	return lines
}

func TestEachDifferenceBecomesOneOrderPerTypeAndTarget(t *testing.T) {
	for name, c := range map[string]struct {
		w    *world
		want []string
	}{
		"a new set":              {block("db", 0).present("r1", 0, 1, 2), []string{"db-0-out-1 edit r1 [db-0 db-1 db-2]"}},
		"nothing to do":          {block("db", 0).present("r1", 0, 1).pods("r1", 0, 1), []string{}},
		"a new template":         {block("db", 0).present("r2", 0, 1).pods("r1", 0, 1), []string{"db-0-dep-1 rollout r2 [db-0 db-1]"}},
		"only some pods differ":  {block("db", 0).present("r2", 0, 1).pods("r1", 1).pods("r2", 0), []string{"db-0-dep-1 rollout r2 [db-1]"}},
		"shrinking goes by one":  {block("db", 0).present("r1", 0).absent(1, 2).pods("r1", 0, 1, 2), []string{"db-0-in-1 edit  [db-2]"}},
		"absent without a pod":   {block("db", 0).present("r1", 0).absent(1).pods("r1", 0), []string{}},
		"grows and is rolled":    {block("db", 0).present("r2", 0, 1).pods("r1", 0), []string{"db-0-dep-1 rollout r2 [db-0]", "db-0-out-2 edit r2 [db-1]"}},
		"indices of block three": {block("db", 3).present("r1", 768), []string{"db-3-out-1 edit r1 [db-768]"}},
	} {
		require.Equal(t, c.want, told(Make(c.w.Input).Claimed), name)
	}
}

func TestOP14AShrinkingSetIsTakenDownOneIndexAtATimeFromTheTop(t *testing.T) {
	w := block("db", 0).present("r1", 0).absent(1, 2, 3, 4).pods("r1", 0, 1, 2, 3, 4)
	var order []string
	for range 4 {
		p := Make(w.Input)
		require.Len(t, p.Claimed, 1)
		op := p.Claimed[0]
		order = append(order, op.Spec.Instances[0].Pod)
		w.store(p)
		again := Make(w.Input)
		require.Empty(t, again.Claimed, "a second scale-in while one is open")
		require.Equal(t, len(order) < 4, again.Turn, "more wait for their turn")
		w.Pods = slices.DeleteFunc(w.Pods, func(s v1alpha1.StatefulPod) bool { return s.Name == op.Spec.Instances[0].Pod })
		w.end(op.Name, v1alpha1.Succeeded)
	}
	require.Equal(t, []string{"db-4", "db-3", "db-2", "db-1"}, order)
	require.Empty(t, Make(w.Input).Claimed)
}

func TestDI10AnIndexThatIsDownIsRemovedBeforeAndBesideOneThatIsUp(t *testing.T) {
	w := block("db", 0).present("r1", 0).absent(1, 2, 3).pods("r1", 0, 1, 2, 3)
	up := func(yes bool, indices ...int32) {
		for i := range w.Pods {
			if slices.Contains(indices, w.Pods[i].Spec.Index) {
				w.Pods[i].Status.Available = yes
			}
		}
	}
	up(true, 0, 1, 2, 3)
	p := Make(w.Input)
	require.Equal(t, []string{"db-0-in-1 edit  [db-3]"}, told(p.Claimed))
	w.store(p)
	require.Empty(t, Make(w.Input).Claimed, "all are up: one at a time")

	up(false, 1)
	p = Make(w.Input)
	require.Equal(t, []string{"db-0-in-2 edit  [db-1]"}, told(p.Claimed), "db-3 may have to wait until db-1 is gone")
	w.store(p)
	up(false, 2)
	require.Empty(t, Make(w.Input).Claimed, "one that is down is enough")
}

func TestAHigherBlockShrinksFirstAndItsOpenScaleInIsWaitedFor(t *testing.T) {
	high := block("db", 1).absent(256).pods("r1", 256)
	low := block("db", 0).absent(255).pods("r1", 255, 256)
	low.Blocks = []v1alpha1.PodIndex{*low.Index, *high.Index}
	p := Make(low.Input)
	require.Empty(t, p.Claimed, "256 is higher")
	require.True(t, p.Turn)

	high.Blocks = low.Blocks
	claimed := Make(high.Input)
	require.Equal(t, []string{"db-1-in-1 edit  [db-256]"}, told(claimed.Claimed))
	high.store(claimed)
	low.Blocks[1] = *high.Index
	low.Pods = low.Pods[:1]
	p = Make(low.Input)
	require.Empty(t, p.Claimed, "the other block's scale-in is still claimed")
	require.True(t, p.Turn)

	low.Blocks[1].Status.Claims[0].Instances[0].Released = true
	require.Equal(t, []string{"db-0-in-1 edit  [db-255]"}, told(Make(low.Input).Claimed))
}

func TestCR01AnOperationThatTheCacheDoesNotShowIsCreatedAsWrittenNotAnew(t *testing.T) {
	w := block("db", 0).present("r2", 0, 1, 2).pods("r1", 0, 1, 2)
	first := Make(w.Input)
	w.store(first)
	w.Operations = nil // the crash between the two writes, or a cache that lags
	again := Make(w.Input)
	require.Empty(t, again.Claimed)
	require.Equal(t, first.Claimed, again.Missing)
	require.Equal(t, first.Status, again.Status)
}

func TestOP01ANewerTargetIsOrderedAsSoonAsTheOldInstanceHasEnded(t *testing.T) {
	w := block("db", 0).present("bad", 0, 1, 2).pods("r1", 0, 1, 2)
	w.store(Make(w.Input))
	w.Pods[2].Spec.Revision, w.Pods[2].Status.Available = "bad", false // granted, and now in ImagePullBackOff
	w.present("good", 0, 1, 2)
	w.Index.Generation++
	require.Empty(t, Make(w.Input).Claimed, "the old order still holds all three")

	w.end("db-0-dep-1", v1alpha1.Superseded, 2).end("db-0-dep-1", v1alpha1.Withdrawn, 0, 1)
	p := Make(w.Input)
	require.Equal(t, []string{"db-0-dep-2 rollout good [db-0 db-1 db-2]"}, told(p.Claimed))
	require.True(t, p.StatusUrgent)
	require.Len(t, p.Status.Claims, 1, "released and claimed anew in one update")

	// Going back instead: the pods that never left need nothing.
	w.present("r1", 0, 1, 2)
	require.Equal(t, []string{"db-0-dep-2 rollout r1 [db-2]"}, told(Make(w.Input).Claimed))
}

func TestOP02APodThatNeverBecameAvailableIsOrderedToTheGoodRevision(t *testing.T) {
	w := block("db", 0).present("bad", 0, 1, 2)
	w.store(Make(w.Input)).pods("bad", 0, 1, 2)
	for i := range w.Pods {
		w.Pods[i].Status.Available = false
	}
	w.present("good", 0, 1, 2)
	require.Equal(t, []string{"db-0-dep-2 rollout good [db-0 db-1 db-2]"}, told(Make(w.Input).Claimed),
		"although the scale-out has not ended")
}

func TestOP10AScaleInIsOrderedThoughADeploymentWaitsForTheSamePod(t *testing.T) {
	w := block("db", 0).present("r2", 0, 1).pods("r1", 0, 1)
	w.store(Make(w.Input)).absent(1)
	p := Make(w.Input)
	require.Equal(t, []string{"db-0-in-2 edit  [db-1]"}, told(p.Claimed))
	require.Len(t, p.Status.Claims, 2)
}

func TestAnIndexThatComesBackWhileItsScaleInActsWaitsForItToEnd(t *testing.T) {
	w := block("db", 0).absent(0).pods("r1", 0)
	w.store(Make(w.Input))
	w.Pods[0].Spec.State = v1alpha1.Stopped
	w.present("r1", 0)
	require.Empty(t, Make(w.Input).Claimed)
	w.Pods = nil
	w.end("db-0-in-1", v1alpha1.Succeeded)
	require.Equal(t, []string{"db-0-out-2 edit r1 [db-0]"}, told(Make(w.Input).Claimed))
}

func TestAnIdentityThatStoppedWithoutAnOrderIsStartedByAScaleOut(t *testing.T) {
	w := block("db", 0).present("r1", 0).pods("r1", 0)
	w.Pods[0].Spec.State = v1alpha1.Stopped
	require.Equal(t, []string{"db-0-out-1 edit r1 [db-0]"}, told(Make(w.Input).Claimed))
}

func TestNothingIsOrderedForASetThatIsGone(t *testing.T) {
	w := block("db", 0).present("r1", 0, 1)
	w.SetGone = true
	p := Make(w.Input)
	require.Empty(t, p.Claimed)
	require.Zero(t, p.Status.Sequence)
}

func TestTheHighestIncarnationIsKeptForEver(t *testing.T) {
	w := block("db", 0).present("r1", 0)
	w.Index.Status.Incarnations = []v1alpha1.IndexIncarnation{{Index: 0, Incarnation: 3}}
	p := Make(w.Input)
	require.Equal(t, "db-0-i3", p.Claimed[0].Spec.Instances[0].Pod)
	require.Equal(t, w.Index.Status.Incarnations, p.Status.Incarnations)
}

func TestARestartAloneIsItsOwnCause(t *testing.T) {
	w := block("db", 0).pods("r1", 0)
	w.stage(v1alpha1.StagedIndex{Index: 0, Presence: v1alpha1.Present, Revision: "r1", Restart: "monday"})
	p := Make(w.Input)
	require.Equal(t, []string{"db-0-dep-1 restart r1 [db-0]"}, told(p.Claimed))
	require.Equal(t, "monday", p.Claimed[0].Spec.Target.Restart)
}

func TestTheLedgerTellsHowFarTheBlockIs(t *testing.T) {
	w := block("db", 0).present("r2", 0, 1, 2).pods("r2", 0, 1).pods("r1", 2)
	w.Pods[1].Status.Available = false
	s := Make(w.Input).Status
	require.Equal(t, int32(3), s.Wanted)
	require.Equal(t, int32(1), s.Settled)
	require.Equal(t, int32(1), s.Open)
	require.Equal(t, int64(1), s.ObservedGeneration)
}

func TestOneEndedInstanceIsReleasedLazilyAndTheLastAtOnce(t *testing.T) {
	w := block("db", 0).present("r2", 0, 1).pods("r1", 0, 1)
	w.store(Make(w.Input))
	w.Pods[1].Spec.Revision = "r2"
	w.end("db-0-dep-1", v1alpha1.Succeeded, 1)
	p := Make(w.Input)
	require.False(t, p.StatusUrgent)
	require.True(t, p.Status.Claims[0].Instances[1].Released)
	w.Pods[0].Spec.Revision = "r2"
	w.end("db-0-dep-1", v1alpha1.Succeeded)
	p = Make(w.Input)
	require.True(t, p.StatusUrgent)
	require.Empty(t, p.Status.Claims)
}
