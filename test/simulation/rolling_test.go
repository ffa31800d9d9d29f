package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/simulation/apiserver"
)

// misfortuneAt is what happens right after one write of a rollout.
type misfortuneAt struct {
	name string
	// strike happens inside the operator's write: it may end it, or lose its answer.
	strike func(*World) error
}

var misfortunes = []misfortuneAt{
	{"the operator dies", func(w *World) error {
		w.note("CRASH")
		panic(crash{})
	}},
	{"the answer is lost", func(w *World) error {
		w.note("LOST")
		return apiserver.ErrLost
	}},
	{"the ACM restarts", func(w *World) error {
		w.restartACM()
		return nil
	}},
	{"both die", func(w *World) error {
		w.restartACM()
		panic(crash{})
	}},
}

// rollout rolls a set of three from v1 to v2 with a misfortune after its n-th write, 0 for none, and says how many writes
// of the operator it took.
func rollout(t *testing.T, n int, strike func(*World) error) int {
	t.Helper()
	ctx := t.Context()
	w := atRest(t, 11, "etcd", 3)
	claims, writes, struck := w.claimUIDs(), 0, n == 0
	w.onWrite = func(apiserver.Write) error {
		writes++
		if writes != n || struck {
			return nil
		}
		struck = true
		return strike(w)
	}
	w.roll(ctx, "v2")
	w.settle(ctx, t, patience)
	w.rest(ctx, t)
	require.Empty(t, w.watch.violations, "%s", w.Tail(200))
	require.True(t, struck, "the rollout has fewer than %d writes", n)

	require.Equal(t, map[string]string{"db-0": "v2", "db-1": "v2", "db-2": "v2"}, w.images())
	require.Equal(t, claims, w.claimUIDs())
	require.Equal(t, 3, w.watch.deletions, "each pod is deleted once:\n%s", w.Tail(200))
	require.Len(t, w.watch.removed, 3)
	require.Equal(t, 1, w.watch.maxDown)
	require.Len(t, w.API.Objects(revisionKind), 2)
	for _, s := range objects[*v1alpha1.StatefulPod](w, identityKind) {
		require.Nil(t, w.openGrant(s.Name), "%s is not done", s.Name)
		require.Equal(t, w.set().Status.UpdateRevision, s.Spec.Revision)
	}
	for _, op := range objects[*v1alpha1.Operation](w, operationKind) {
		require.True(t, op.Ended(), "%s is not complete", op.Name)
	}
	require.Equal(t, 6, w.watch.grants-w.watch.returns, "three pods came and three were replaced; what was granted besides was taken back")
	return writes
}

// TestRollingUpdateCrashAfterEachWrite: whatever dies or is lost after whichever write, the end is the same, and each pod
// is deleted once.
func TestRollingUpdateCrashAfterEachWrite(t *testing.T) {
	all := rollout(t, 0, nil)
	require.Greater(t, all, 20, "a rollout of three takes that many writes at least")
	t.Logf("an undisturbed rollout takes %d writes", all)
	for _, m := range misfortunes {
		for n := 1; n <= all; n++ {
			t.Run(fmt.Sprintf("%s after write %d", m.name, n), func(t *testing.T) {
				t.Parallel()
				rollout(t, n, m.strike)
			})
		}
	}
}

// TestAnACMThatRestartsBetweenAnswerAndGrantCostsNothingButTime: the approval it forgot is reported back to it as held.
func TestAnACMThatRestartsBetweenAnswerAndGrantCostsNothingButTime(t *testing.T) {
	ctx := t.Context()
	w := atRest(t, 3, "etcd", 3)
	approvals, grants := w.watch.approvals, w.watch.grants
	w.roll(ctx, "v2")
	w.until(ctx, t, "an approval", func() bool { return w.watch.approvals > approvals })
	require.Equal(t, grants, w.watch.grants, "it is not recorded yet")
	w.restartACM()
	w.settle(ctx, t, patience)
	require.Equal(t, 3, w.watch.deletions)
	require.Equal(t, 1, w.watch.maxDown)
	require.Equal(t, map[string]string{"db-0": "v2", "db-1": "v2", "db-2": "v2"}, w.images())
}

// lateDelete is a world in which the delete of one pod was sent and does not land yet, not even when it is sent again
// under the same approval. It returns when that approval runs out.
func lateDelete(t *testing.T) (*World, time.Time) {
	t.Helper()
	w := atRest(t, 5, "etcd", 3)
	decision, until := "", time.Time{}
	w.delay = func(wr apiserver.Write) bool {
		if wr.Kind != "Pod" {
			return false
		}
		g := w.openGrant(wr.Key.Name)
		if decision == "" {
			a, known := w.watch.approval(wr.Key.Name, g)
			require.True(t, known)
			decision, until = g.Decision, a.until
		}
		return g.Decision == decision
	}
	w.roll(t.Context(), "v2")
	w.until(t.Context(), t, "a delete on its way", func() bool { return w.API.Late() > 0 })
	return w, until
}

func (w *World) downNow() int {
	down := 0
	for _, s := range objects[*v1alpha1.StatefulPod](w, identityKind) {
		if !w.watch.readyOf(s.Name) {
			down++
		}
	}
	return down
}

func rolledOut(t *testing.T, w *World) {
	t.Helper()
	for w.API.Late() > 0 {
		w.land()
	}
	w.settle(t.Context(), t, patience)
	require.Equal(t, 1, w.watch.maxDown)
	require.Equal(t, 3, w.watch.deletions, "%s", w.Tail(200))
	require.Equal(t, map[string]string{"db-0": "v2", "db-1": "v2", "db-2": "v2"}, w.images())
}

// A DELETE that was sent at 29 s and lands at 41 s. Until its Pod is marked it may happen, so the pod counts as in flight.
func TestADeleteThatLandsAfterItsApprovalRanOutRemovesNothing(t *testing.T) {
	w, until := lateDelete(t)
	w.during(t.Context(), t, until.Add(-time.Millisecond).Sub(w.Clock.Now()), func() { require.Zero(t, w.watch.deletions) })
	w.during(t.Context(), t, 11*time.Second, func() { require.LessOrEqual(t, w.downNow(), 1) })
	deleted := w.watch.deletions
	for w.API.Late() > 0 {
		w.land()
	}
	require.Equal(t, deleted, w.watch.deletions, "what landed late found its Pod marked, or gone:\n%s", w.Tail(100))
	rolledOut(t, w)
}

// The mark changes nothing but the Pod's resourceVersion, and that is what stops the late delete.
func TestADeleteThatLandsAfterItsPodWasMarkedRemovesNothing(t *testing.T) {
	for _, who := range []string{"the same session", "the next session"} {
		t.Run(who, func(t *testing.T) {
			w, _ := lateDelete(t)
			w.acmUp, w.acmAway = false, true
			if who == "the next session" {
				w.replaceOperator()
			}
			before := w.podUIDs()
			w.until(t.Context(), t, "the mark", func() bool {
				for _, p := range objects[*corev1.Pod](w, podKind) {
					if p.Annotations[v1alpha1.AnnotationAbandoned] != "" {
						return true
					}
				}
				return false
			})
			w.land()
			w.during(t.Context(), t, time.Minute, func() { require.Equal(t, before, w.podUIDs()) })
			require.Zero(t, w.watch.deletions)
			w.acmUp, w.acmAway = true, false
			rolledOut(t, w)
		})
	}
}

func TestADeleteThatLandsAfterItsSenderDiedCountsAsTheAct(t *testing.T) {
	w, until := lateDelete(t)
	w.operator.stop()
	w.operator, w.operatorAway = nil, true
	w.during(t.Context(), t, until.Add(11*time.Second).Sub(w.Clock.Now()), func() { require.Zero(t, w.watch.deletions) })
	w.land()
	require.Equal(t, 1, w.watch.deletions)
	w.operatorAway = false
	rolledOut(t, w)
}

func TestADeleteThatLandsWhileTheNextSessionTakesItBackIsOneRemoval(t *testing.T) {
	w, _ := lateDelete(t)
	w.replaceOperator()
	w.during(t.Context(), t, 12*time.Second, func() { require.LessOrEqual(t, w.downNow(), 1) })
	rolledOut(t, w)
}
