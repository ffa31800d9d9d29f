package simulation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/simulation/apiserver"
)

// Two sets of one application are approved in one batch; one's record conflicts until its approval has run out.
func TestTwoSetsInOneBatchOfWhichOneCannotBeRecordedInTime(t *testing.T) {
	ctx := t.Context()
	w := begin(t, 21, "default")
	two := func(s *v1alpha1.LiStatefulSetSpec) { s.ApplicationMaxUnavailable = ptr.To[int32](2) }
	w.createSet(ctx, "db", 2, "v1", two)
	w.createSet(ctx, "log", 2, "v1", two)
	w.settle(ctx, t, patience)
	w.rest(ctx, t)
	w.watch.maxDown = 0
	var refusedFrom time.Time
	refused := ""
	w.refuse = func(wr apiserver.Write) error {
		next, ok := wr.After.(*v1alpha1.StatefulPod)
		if !ok || wr.Verb != apiserver.Update || next.Spec.Grant == nil || next.Spec.Set != "log" {
			return nil
		}
		if refused == "" {
			refused, refusedFrom = next.Spec.Grant.Decision, w.Clock.Now()
		}
		if w.Clock.Since(refusedFrom) > 31*time.Second {
			return nil
		}
		return apierrors.NewConflict(schema.GroupResource{Resource: "statefulpods"}, next.Name, nil)
	}
	w.editSet(ctx, "db", "version v2", func(s *v1alpha1.LiStatefulSetSpec) { s.Template = template("v2") })
	w.editSet(ctx, "log", "version v2", func(s *v1alpha1.LiStatefulSetSpec) { s.Template = template("v2") })
	w.settle(ctx, t, patience)
	require.NotEmpty(t, refused)
	require.Greater(t, w.Clock.Since(refusedFrom), 31*time.Second)
	require.NotContains(t, w.watch.spent, refused, "what could not be recorded in time was not acted on")
	require.Equal(t, 4, w.watch.deletions)
	require.LessOrEqual(t, w.watch.maxDown, 2)
}

func TestAScaleInWithdrawnBeforeItsActTouchesNoPod(t *testing.T) {
	for _, when := range []string{"waiting", "granted"} {
		t.Run(when, func(t *testing.T) {
			ctx := t.Context()
			w := atRest(t, 31, "etcd", 3)
			before := w.podUIDs()
			hold := func(apiserver.Write) error { return nil }
			if when == "granted" {
				// Nobody may act: deletes are refused until the wish is back.
				hold = func(wr apiserver.Write) error {
					if wr.Verb == apiserver.Delete {
						return errRefused
					}
					return nil
				}
			}
			w.refuse = hold
			w.scale(ctx, 2)
			w.until(ctx, t, when, func() bool {
				if when == "granted" {
					return w.openGrant("db-2") != nil
				}
				return w.state("db-2", v1alpha1.ScaleIn) == v1alpha1.Waiting
			})
			w.scale(ctx, 3)
			w.until(ctx, t, "the withdrawal", func() bool { return w.state("db-2", v1alpha1.ScaleIn) == v1alpha1.Withdrawn })
			w.refuse = nil
			w.settle(ctx, t, patience)
			require.Equal(t, before, w.podUIDs())
			require.Zero(t, w.watch.deletions)
		})
	}
}

func TestAScaleInWithdrawnAfterItsActGoesToItsEndAndTheIndexIsMadeAnew(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 32, "etcd", 3)
	before, claims := w.podUIDs(), w.claimUIDs()
	w.scale(ctx, 2)
	w.until(ctx, t, "the act", func() bool { return w.watch.deletions == 1 })
	w.scale(ctx, 3)
	w.settle(ctx, t, patience)
	require.Equal(t, v1alpha1.Succeeded, w.state("db-2", v1alpha1.ScaleIn))
	require.Equal(t, 1, w.watch.deletions)
	after := w.podUIDs()
	require.Equal(t, before["db-0"], after["db-0"])
	require.Equal(t, before["db-1"], after["db-1"])
	require.NotEqual(t, before["db-2"], after["db-2"])
	require.Equal(t, claims, w.claimUIDs(), "the index finds its data again")
}

func TestOP01_ABadImageThenRollBackTouchesOnlyTheBrokenPod(t *testing.T) {
	for seed := range uint64(5) {
		ctx := t.Context()
		w := atRest(t, 41+seed, "etcd", 3)
		before := w.podUIDs()
		w.roll(ctx, "broken")
		w.until(ctx, t, "a broken pod", func() bool {
			for _, v := range w.images() {
				if v == "broken" {
					return true
				}
			}
			return false
		})
		w.during(ctx, t, time.Minute, func() {})
		require.Equal(t, 1, w.watch.deletions, "the rollout stands at the first broken pod")
		hit := ""
		for name, version := range w.images() {
			if version == "broken" {
				hit = name
			}
		}
		w.roll(ctx, "v1")
		w.settle(ctx, t, patience)
		require.Equal(t, 2, w.watch.deletions)
		require.Equal(t, 1, w.watch.maxDown)
		require.Len(t, w.API.Objects(revisionKind), 2)
		for name, uid := range w.podUIDs() {
			if name != hit {
				require.Equal(t, before[name], uid)
			}
		}
	}
}

func TestOP02_AFirstRevisionThatNeverWorkedIsReplacedEverywhere(t *testing.T) {
	ctx := t.Context()
	w := begin(t, 51, "etcd")
	w.create(ctx, 3, "broken")
	w.until(ctx, t, "three broken pods", func() bool { return len(w.images()) == 3 })
	w.during(ctx, t, 30*time.Second, func() {})
	w.roll(ctx, "v1")
	w.settle(ctx, t, patience)
	require.Equal(t, map[string]string{"db-0": "v1", "db-1": "v1", "db-2": "v1"}, w.images())
}

func TestOP03_ACrashLoopingPodIsUpdatedFirst(t *testing.T) {
	for _, name := range []string{"db-0", "db-1", "db-2"} {
		ctx := t.Context()
		w := atRest(t, 61, "etcd", 3)
		w.nodes.crash(ctx, w.pod(name), time.Hour)
		w.during(ctx, t, 10*time.Second, func() {})
		w.roll(ctx, "v2")
		w.until(ctx, t, "the first removal", func() bool { return w.watch.deletions == 1 })
		require.Contains(t, w.watch.removedNames, name)
		w.settle(ctx, t, patience)
		require.Equal(t, 3, w.watch.deletions)
		require.LessOrEqual(t, w.watch.maxDown, 1)
	}
}

func TestADeletedSetWithRetainLeavesItsClaims(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 71, "etcd", 3)
	claims := w.claimUIDs()
	w.nodes.must(w.user.Delete(ctx, w.set()))
	w.until(ctx, t, "nothing left of the set", func() bool {
		left := 0
		for _, kind := range []schema.GroupVersionKind{podKind, identityKind, operationKind, indexKind, revisionKind} {
			left += len(w.API.Objects(kind))
		}
		return left == 0
	})
	w.during(ctx, t, time.Minute, func() { require.Empty(t, w.API.Objects(podKind)) })
	require.Zero(t, w.watch.deletions, "the garbage collector takes the pods, not the operator")
	require.Equal(t, claims, w.claimUIDs())
	w.create(ctx, 3, "v1")
	w.settle(ctx, t, patience)
	require.Equal(t, claims, w.claimUIDs(), "a set of the same name finds its data again")
}

func TestADeletedNamespaceIsLeftAloneWithoutErrors(t *testing.T) {
	for seed := range uint64(10) {
		ctx := t.Context()
		w := atRest(t, 81+seed, "etcd", 3)
		w.nodes.must(w.user.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		w.roll(ctx, "v2")
		w.until(ctx, t, "a rollout under way", func() bool { return w.watch.deletions == 1 })
		ns := w.API.Objects(namespaceKind)[0]
		w.nodes.must(w.user.Delete(ctx, ns))
		made := map[string]bool{}
		w.onWrite = func(wr apiserver.Write) error {
			if wr.Verb == apiserver.Create {
				made[wr.String()] = true
			}
			return nil
		}
		w.until(ctx, t, "an empty namespace", func() bool {
			left := 0
			for _, kind := range []schema.GroupVersionKind{podKind, claimKind, setKind, identityKind, operationKind, indexKind, revisionKind} {
				left += len(w.API.Objects(kind))
			}
			return left == 0
		})
		w.rest(ctx, t)
		require.Empty(t, made)
		require.Empty(t, w.watch.violations, "%s", w.Tail(100))
	}
}

func TestTheSecondBlockTakesIndex256(t *testing.T) {
	ctx := t.Context()
	w := begin(t, 91, "default")
	w.pace = 200 * time.Microsecond
	w.create(ctx, 256, "v1")
	w.settle(ctx, t, 20*patience)
	require.Len(t, w.API.Objects(indexKind), 1)
	before := w.podUIDs()
	w.scale(ctx, 257)
	w.settle(ctx, t, patience)
	require.Len(t, w.API.Objects(indexKind), 2)
	require.Equal(t, "1", w.watch.identity("db-256").Labels[v1alpha1.LabelBlock])
	require.Equal(t, v1alpha1.Succeeded, w.state("db-256", v1alpha1.ScaleOut))
	after := w.podUIDs()
	delete(after, "db-256")
	require.Equal(t, before, after)
	w.scale(ctx, 256)
	w.settle(ctx, t, patience)
	require.Equal(t, before, w.podUIDs())
}

func TestAnUpgradeOfTheOperatorWithUnchangedObjectsWritesNothing(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 101, "etcd", 3)
	before := w.API.Version()
	for range 3 {
		w.replaceOperator()
		w.during(ctx, t, time.Minute, func() {})
	}
	require.Equal(t, before, w.API.Version(), "%s", w.Tail(30))
}

func TestOP07_TwentyRestartsMakeNoRevision(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 111, "etcd", 3)
	w.roll(ctx, "v2")
	for range 20 {
		w.during(ctx, t, 700*time.Millisecond, func() { require.LessOrEqual(t, len(w.API.Objects(revisionKind)), 2) })
		w.replaceOperator()
	}
	w.settle(ctx, t, patience)
	require.Len(t, w.API.Objects(revisionKind), 2)
	require.Equal(t, 3, w.watch.deletions)
}

// A cache that still shows one replica, after two, one and two were asked for.
func TestOP19_AStaleCacheScalesNothingIn(t *testing.T) {
	for _, held := range []map[schema.GroupVersionKind]bool{
		{setKind: true}, {setKind: true, indexKind: true}, {indexKind: true}, {setKind: true, indexKind: true, operationKind: true},
	} {
		for seed := range uint64(5) {
			ctx := t.Context()
			w := atRest(t, 121+seed, "default", 2)
			before := w.podUIDs()
			w.scale(ctx, 1)
			w.until(ctx, t, "the scale-in's order", func() bool { return w.state("db-1", v1alpha1.ScaleIn) == v1alpha1.Waiting })
			w.operator.held = held
			w.scale(ctx, 2)
			w.during(ctx, t, 2*time.Minute, func() { require.Zero(t, w.watch.deletions, "%s", w.Tail(100)) })
			require.Nil(t, w.openGrant("db-1"))
			w.operator.held = nil
			w.settle(ctx, t, patience)
			require.Equal(t, before, w.podUIDs())
			require.Zero(t, w.watch.deletions)
		}
	}
}

func TestGR01_WithoutAnACMNothingIsTakenAndWhatIsMissingComesBack(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 131, "etcd", 3)
	w.acmUp, w.acmAway = false, true
	killed := w.pod("db-1")
	w.nodes.must(w.API.Client("somebody").Delete(ctx, killed))
	w.watch.misfortune()
	w.roll(ctx, "v2")
	w.until(ctx, t, "the killed pod's return", func() bool {
		p := w.pod("db-1")
		return p != nil && p.UID != killed.UID && readyPod(p)
	})
	require.Equal(t, "v1", w.images()["db-1"], "as approved, not as wished")
	w.during(ctx, t, 5*time.Minute, func() { require.Zero(t, w.watch.deletions) })
	require.Contains(t, w.set().Status.Summary.WaitingFor, "acm.unavailable")
	w.acmUp, w.acmAway = true, false
	w.settle(ctx, t, patience)
	require.Equal(t, 3, w.watch.deletions)
	require.Equal(t, 1, w.watch.maxDown)
}

// Somebody deletes the first pod of a scale-out before anything about it is recorded: it is put back, in the same session.
func TestAFirstPodThatIsLostBeforeItIsNotedIsPutBack(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 141, "etcd", 3)
	w.onWrite = func(wr apiserver.Write) error {
		if wr.Kind == "Pod" && wr.Verb == apiserver.Create {
			w.onWrite = nil
			w.nodes.must(w.API.Client("somebody").Delete(ctx, w.pod("db-3")))
		}
		return nil
	}
	w.scale(ctx, 4)
	w.settle(ctx, t, patience)
	require.Nil(t, w.onWrite, "it was lost")
	require.Zero(t, w.watch.deletions)
	require.Equal(t, 4, w.watch.grants, "one approval is enough")
}
