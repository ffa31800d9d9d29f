package listatefulset

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/indexrange"
)

// staged tells a block as "r1: 0-2; absent: 3".
func staged(x *v1alpha1.PodIndex) string {
	by := map[string][]int32{}
	for _, e := range x.Spec.Indices {
		k := e.Revision
		if e.Presence == v1alpha1.Absent {
			k = "absent"
		}
		by[k] = append(by[k], e.Index)
	}
	var parts []string
	for k, indices := range by {
		parts = append(parts, fmt.Sprintf("%s: %s", k, indexrange.Format(indexrange.Of(indices))))
	}
	slices.Sort(parts)
	return fmt.Sprint(parts)
}

func revisionOf(image string) string {
	tmpl, err := ReadTemplate(template(image).Raw)
	if err != nil {
		panic(err)
	}
	return RevisionName("db", tmpl.Canonical, 0)
}

func TestANewSetGetsARevisionItsBlocksAndAService(t *testing.T) {
	w := set("db", 300, "a")
	p := Make(w.Input)
	require.Equal(t, revisionOf("a"), p.Revision.Name)
	require.Equal(t, "uid-set", string(p.Revision.OwnerReferences[0].UID))
	require.Len(t, p.Staging.Create, 2)
	require.Equal(t, "db-1", p.Staging.Create[0].Name, "the highest block comes first")
	require.Equal(t, "["+revisionOf("a")+": 256-299]", staged(&p.Staging.Create[0]))
	require.Equal(t, "["+revisionOf("a")+": 0-255]", staged(&p.Staging.Create[1]))
	require.Equal(t, int64(1), p.Staging.Create[0].Spec.SetGeneration)
	require.True(t, p.Service.Spec.PublishNotReadyAddresses)
	require.Equal(t, map[string]string{v1alpha1.LabelSet: "db"}, p.Service.Spec.Selector)
}

func TestAShrinkingSetStagesTheHighestIndicesAbsent(t *testing.T) {
	w := set("db", 5, "a").settle().replicas(2)
	p := Make(w.Input)
	require.Len(t, p.Staging.Update, 1)
	require.Equal(t, "[absent: 2-4 "+revisionOf("a")+": 0-1]", staged(&p.Staging.Update[0]))
	w.settle().replicas(3)
	require.Equal(t, "[absent: 3-4 "+revisionOf("a")+": 0-2]", staged(&Make(w.Input).Staging.Update[0]))
}

func TestAnIdentityBeyondWhatWasEverStagedIsStagedAbsent(t *testing.T) {
	w := set("db", 1, "a")
	w.Pods = []v1alpha1.StatefulPod{identity("db", 7, "old")}
	require.Equal(t, "[absent: 7 "+revisionOf("a")+": 0]", staged(&Make(w.Input).Staging.Create[0]))
}

func TestOP19ASetSeenOlderThanWhatWasStagedChangesNothing(t *testing.T) {
	w := set("db", 2, "a").settle()
	old := w.Set.DeepCopy()
	w.replicas(1).settle().replicas(2).settle()
	w.Set = old
	require.Equal(t, Plan{Stale: true}, Make(w.Input))
}

func TestAnEditThatStagesNothingNewIsRecordedInEveryBlock(t *testing.T) {
	w := set("db", 300, "a").settle().edit(func(s *v1alpha1.LiStatefulSetSpec) { s.Paused = v1alpha1.PausedAll })
	p := Make(w.Input)
	require.Len(t, p.Staging.Update, 2)
	for i := range p.Staging.Update {
		require.Equal(t, int64(2), p.Staging.Update[i].Spec.SetGeneration)
	}
}

func TestStagingLeavesMaintenanceWishesAlone(t *testing.T) {
	w := set("db", 2, "a").settle()
	wish := []v1alpha1.MaintenanceWish{{Index: 1, Mode: "temporary", Cause: "maintenance"}}
	w.Indexes[0].Spec.Maintenance = wish
	p := Make(w.image("b").Input)
	require.Equal(t, wish, p.Staging.Update[0].Spec.Maintenance)
}

func TestABrokenTemplateStagesNothingAndSaysWhy(t *testing.T) {
	w := set("db", 2, "a").settle()
	w.edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.Template.Raw = []byte(`{"spec":{"containerz":[]}}`)
		s.Replicas = ptr.To(int32(9))
	})
	p := Make(w.Input)
	require.True(t, p.Staging.Empty())
	require.Nil(t, p.Revision)
	require.Empty(t, p.Unused)
	require.Equal(t, stateInvalid, p.Status.Summary.State)
	requireCondition(t, p.Status, v1alpha1.ConditionTemplateValid, metav1.ConditionFalse, `unknown field "spec.containerz"`)
	requireCondition(t, p.Status, v1alpha1.ConditionStalled, metav1.ConditionTrue, `unknown field "spec.containerz"`)
	require.Equal(t, revisionOf("a"), p.Status.UpdateRevision)
}

func TestOP09GoingBackReusesTheRevisionAndLeavesPodsThatNeverLeftIt(t *testing.T) {
	w := set("db", 3, "a").settle().image("b")
	p := Make(w.Input)
	w.store(p)
	w.Pods[2] = identity("db", 2, revisionOf("b"))
	w.image("a")
	p = Make(w.Input)
	require.Nil(t, p.Revision)
	require.Equal(t, revisionOf("a"), p.Status.UpdateRevision)
	w.store(p)
	require.Equal(t, "["+revisionOf("a")+": 0-2]", staged(&w.Indexes[0]))
	require.Equal(t, revisionOf("a"), w.Pods[0].Spec.Revision, "as staged: nothing is ordered for it")
	require.Len(t, w.Revisions, 2)
}

func TestOP08TwoRevisionsOfEqualContentRollNothing(t *testing.T) {
	w := set("db", 3, "a").settle()
	twin := *w.Revisions[0].DeepCopy()
	twin.Name = "aaa"
	w.Revisions = append(w.Revisions, twin)
	w.Pods[1] = identity("db", 1, "aaa")
	w.Indexes[0].Spec.Indices[1].Revision = "aaa"
	w.Set.Status.UpdateRevision = ""
	for range 3 {
		p := Make(w.Input)
		require.Nil(t, p.Revision)
		require.True(t, p.Staging.Empty(), "each index keeps the twin it has")
		require.Equal(t, int32(3), p.Status.UpdatedReplicas)
		w.store(p)
		slices.Reverse(w.Revisions)
	}
}

func TestADifferentTemplateUnderTheSameNameGetsASuffix(t *testing.T) {
	w := set("db", 1, "a")
	other := NewRevision(w.Set, []byte(`{"other":true}`), 0)
	other.Name = revisionOf("a")
	w.Revisions = []v1alpha1.Revision{*other}
	p := Make(w.Input)
	require.Equal(t, revisionOf("a")+"-1", p.Revision.Name)
	require.Equal(t, revisionOf("a")+"-1", p.Staging.Create[0].Spec.Indices[0].Revision)
}

func TestTheHistoryLimitRemovesTheOldestUnusedRevision(t *testing.T) {
	w := set("db", 1, "v0").settle()
	w.Set.Spec.RevisionHistoryLimit = ptr.To(int32(2))
	for i := 1; i <= 4; i++ {
		w.Now = w.Now.Add(time.Minute)
		w.image(fmt.Sprintf("v%d", i)).settle()
	}
	var left []string
	for _, r := range w.Revisions {
		left = append(left, r.Name)
	}
	require.Equal(t, []string{revisionOf("v2"), revisionOf("v3"), revisionOf("v4")}, left)
}

func TestARevisionThatAnythingNamesIsNeverRemoved(t *testing.T) {
	for name, use := range map[string]func(w *world, r string){
		"staged":   func(w *world, r string) { w.Indexes[0].Spec.Indices[0].Revision = r },
		"approved": func(w *world, r string) { w.Pods[0].Spec.Revision = r },
		"run":      func(w *world, r string) { w.Pods[0].Status.PodRevision = r },
		"gone back to": func(w *world, r string) {
			w.Pods[0].Spec.Grant = &v1alpha1.Grant{Previous: &v1alpha1.Approved{Revision: r}}
		},
		"claimed": func(w *world, r string) {
			w.Indexes[0].Status.Claims = []v1alpha1.Claim{{Target: v1alpha1.Target{Revision: r}}}
		},
		"current":        func(w *world, r string) { w.Set.Status.CurrentRevision = r },
		"ordered":        func(w *world, r string) { w.Operations[0].Spec.Target.Revision = r },
		"nothing at all": func(*world, string) {},
	} {
		w := set("db", 1, "a").settle().image("b").settle()
		w.Set.Spec.RevisionHistoryLimit = ptr.To(int32(0))
		w.Revisions = []v1alpha1.Revision{*NewRevision(w.Set, []byte(`{"old":1}`), 0), w.Revisions[len(w.Revisions)-1]}
		w.Operations = []v1alpha1.Operation{operation("db-0-dep-1", v1alpha1.Deployment, "db-0", v1alpha1.Waiting, "x", "y")}
		use(w, w.Revisions[0].Name)
		require.Equal(t, name == "nothing at all", len(Make(w.Input).Unused) == 1, name)
	}
}

func TestAServiceOfSomebodyElseIsLeftAloneAndSaid(t *testing.T) {
	w := set("db", 1, "a").settle()
	w.Service = service(nil, "db")
	p := Make(w.Input)
	require.Nil(t, p.Service)
	requireCondition(t, p.Status, v1alpha1.ConditionStalled, metav1.ConditionTrue, "Service db exists and is not this set's")
	w.Service = service(w.Set, "db")
	require.NotNil(t, Make(w.Input).Service, "ours, but not as wanted")
}

// course is a set that a user edits at random while an operator carries plans out.
type course struct{ w *world }

func (c *course) edit(t *rapid.T) {
	c.w.edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.Replicas = ptr.To(rapid.Int32Range(0, 600).Draw(t, "replicas"))
		s.Template = template(rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "image"))
		s.RevisionHistoryLimit = ptr.To(rapid.Int32Range(0, 2).Draw(t, "limit"))
	})
}

func (c *course) carryOut(*rapid.T) { c.w.store(Make(c.w.Input)) }

func (c *course) settle(*rapid.T) { c.w.settle() }

func (c *course) tick(*rapid.T) { c.w.Now = c.w.Now.Add(time.Minute) }

func (c *course) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){"edit": c.edit, "carry out": c.carryOut, "settle": c.settle, "tick": c.tick}
}

func TestStagedIsExactlyTheLowestIndicesAndPlanningAgainPlansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &course{set("db", rapid.Int32Range(0, 600).Draw(t, "first"), "a")}
		t.Repeat(c.actions())
		c.carryOut(t)
		c.carryOut(t) // the status of a Revision made in the first pass
		var present []int32
		for _, x := range c.w.Indexes {
			for _, e := range x.Spec.Indices {
				require.Equal(t, x.Spec.Block, e.Index/v1alpha1.BlockSize)
				if e.Presence == v1alpha1.Present {
					present = append(present, e.Index)
					require.True(t, slices.ContainsFunc(c.w.Revisions, func(r v1alpha1.Revision) bool { return r.Name == e.Revision }))
				}
			}
		}
		want := ""
		if n := Replicas(c.w.Set); n > 0 {
			want = indexrange.Format([]indexrange.Range{{First: 0, Last: n - 1}})
		}
		require.Equal(t, want, indexrange.Format(indexrange.Of(present)))
		requireIdle(t, c.w)
	})
}

// requireIdle is invariant 9: objects as left, one look, zero writes.
func requireIdle(t *rapid.T, w *world) {
	p := Make(w.Input)
	require.Nil(t, p.Revision)
	require.True(t, p.Staging.Empty())
	require.Nil(t, p.Service)
	require.Empty(t, p.RevisionStatus)
	require.Empty(t, p.Unused)
	require.False(t, p.StatusUrgent)
	require.Equal(t, w.Set.Status, p.Status)
}

func TestTheOrderOfSlicesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &course{set("db", 3, "a")}
		t.Repeat(c.actions())
		want := Make(c.w.Input)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for _, x := range c.w.Indexes {
			shuffle(r, x.Spec.Indices)
		}
		shuffle(r, c.w.Indexes)
		shuffle(r, c.w.Pods)
		shuffle(r, c.w.Revisions)
		// A block whose entries are in another order is staged in order again.
		for i := range c.w.Indexes {
			slices.SortFunc(c.w.Indexes[i].Spec.Indices, func(a, b v1alpha1.StagedIndex) int { return int(a.Index - b.Index) })
		}
		require.Equal(t, want, Make(c.w.Input))
	})
}

func TestPlanningChangesNothingThatItWasShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &course{set("db", 3, "a")}
		t.Repeat(c.actions())
		before, err := json.Marshal(c.w.Input)
		require.NoError(t, err)
		Make(c.w.Input)
		after, err := json.Marshal(c.w.Input)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	})
}

func shuffle[T any](r *rand.Rand, s []T) {
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}
