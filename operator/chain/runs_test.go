package chain

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/wrap"
)

// three is a set of three pods, up and at rest.
func three(t *testing.T) *world {
	t.Helper()
	return newWorld(t, controlplane.Options{}).threeUp()
}

func (w *world) threeUp() *world {
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Image("app:1"))
	w.rest()
	require.Equal(w, []string{"db-0=app:1", "db-1=app:1", "db-2=app:1"}, w.images())
	w.most, w.deleted = 0, nil
	return w
}

func TestARollingUpdateReplacesOnePodAtATimeEachUnderItsOwnApproval(t *testing.T) {
	w := three(t)
	w.edit("db", image("app:2"))
	w.rest()
	require.Equal(t, []string{"db-0=app:2", "db-1=app:2", "db-2=app:2"}, w.images())
	require.Equal(t, 1, w.most)
	require.Len(t, w.deleted, 3)
	require.Equal(t, 0, w.openOperations())
}

func TestAtRestNothingIsWrittenAndNothingIsAsked(t *testing.T) {
	w := three(t)
	w.restart()
	asked := len(w.acm.questions)
	for range 5 {
		w.round()
	}
	require.Empty(t, w.faults.Writes, "an upgrade of the operator with unchanged objects")
	require.Len(t, w.acm.questions, asked)
}

func TestOP01_ABadImageIsRepairedByTheNextRevisionWithoutAnyHelp(t *testing.T) {
	w := three(t)
	w.acm.judge = lastFirst
	w.edit("db", image("app:bad"))
	w.until("a broken pod", w.has("db-0-dep-2 db-2 Verifying"))
	before := w.uids()
	w.edit("db", image("app:3"))
	w.until("the repair", func() bool { return w.pod("db-2") != nil && w.pod("db-2").Spec.Containers[0].Image == "app:3" })
	require.Equal(t, before["db-0"], w.uids()["db-0"])
	require.Equal(t, before["db-1"], w.uids()["db-1"])
	require.Contains(t, w.instances(), "db-0-dep-2 db-2 Superseded")
	w.rest()
	require.Equal(t, []string{"db-0=app:3", "db-1=app:3", "db-2=app:3"}, w.images())
	require.Equal(t, 1, w.most)
}

func TestOP01_ABadImageThenRollBackTouchesOnlyTheBrokenPod(t *testing.T) {
	w := three(t)
	w.acm.judge = lastFirst
	w.edit("db", image("app:bad"))
	w.until("a broken pod", w.has("db-0-dep-2 db-2 Verifying"))
	before := w.uids()
	w.edit("db", image("app:1"))
	w.rest()
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1", "db-2=app:1"}, w.images())
	require.Equal(t, before["db-0"], w.uids()["db-0"])
	require.Equal(t, before["db-1"], w.uids()["db-1"])
	require.Equal(t, []string{"db-2", "db-2"}, w.deleted)
	require.Equal(t, 1, w.most)
}

// lastFirst approves the highest waiting index, and nothing while a pod is in flight.
func lastFirst(q question.Question, i question.Instance) question.Decision {
	for _, other := range q.Instances {
		if other.State == v1alpha1.Waiting && other.Index > i.Index {
			return deferred("test.order", "the highest first")
		}
	}
	return question.Decision{Verdict: question.Approve}
}

func TestOP02_AFirstRevisionThatNeverWorkedIsReplacedEverywhere(t *testing.T) {
	w := newWorld(t, controlplane.Options{})
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Image("app:bad"))
	w.until("three broken pods", func() bool {
		return len(w.images()) == 3 && w.has("db-0-out-1 db-0 Verifying")() && w.has("db-0-out-1 db-2 Verifying")()
	})
	w.edit("db", image("app:2"))
	w.rest()
	require.Equal(t, []string{"db-0=app:2", "db-1=app:2", "db-2=app:2"}, w.images())
}

func TestOP03_AtNoTimeAreTwoPodsDown(t *testing.T) {
	w := three(t)
	w.crash("db-0")
	w.edit("db", image("app:2"))
	w.until("the broken pod's update", func() bool { return w.pod("db-0") != nil && w.pod("db-0").Spec.Containers[0].Image == "app:2" })
	require.Equal(t, []string{"db-0"}, w.deleted, "the pod that is down goes first, whatever the ACM approves")
	w.rest()
	require.Equal(t, 1, w.most)
	require.Len(t, w.deleted, 3)
}

func TestOP17_APodIsMadeOnceItsTerminatingClaimIsGone(t *testing.T) {
	w := newWorld(t, controlplane.Options{})
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(1).Edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{claimTemplate("data")}
	}))
	w.rest()
	claim := &corev1.PersistentVolumeClaim{}
	require.True(t, w.get("data-db-0", claim))
	first := claim.UID
	claim.Finalizers = []string{"test.dev/keep"}
	require.NoError(t, w.Update(t.Context(), claim))
	require.NoError(t, w.Delete(t.Context(), claim))
	w.kill("db-0")
	for range 5 {
		w.round()
	}
	require.Nil(t, w.pod("db-0"), "it would never find its volume")
	require.Contains(t, w.identity("db-0").Status.Message, "claim data-db-0 is being deleted since")
	require.True(t, w.get("data-db-0", claim))
	claim.Finalizers = nil
	require.NoError(t, w.Update(t.Context(), claim))
	w.rest()
	require.NotNil(t, w.pod("db-0"))
	require.True(t, w.get("data-db-0", claim))
	require.NotEqual(t, first, claim.UID)
}

func TestOP19_AScaleInIsNotGrantedOnAStaleCache(t *testing.T) {
	w := three(t)
	w.edit("db", replicas(2))
	w.until("the claim", func() bool { return w.openOperations() == 1 })
	stale, err := wrap.NewStale(t.Context(), w.Client, w.ns, &v1alpha1.LiStatefulSetList{}, &v1alpha1.PodIndexList{}, &v1alpha1.OperationList{})
	require.NoError(t, err)
	w.edit("db", replicas(3))
	restaged := false
	for range 8 {
		links, err := New(Options{
			Cached: stale, Live: w.Client, Writer: w.faults, Clock: w.clock, Session: w.session, Term: w.term, Asker: w.acm, Timeout: 2 * time.Second,
		})
		require.NoError(t, err)
		// The first look of a session is live; a second one is not, and sees the smaller set.
		w.drive(links[2])
		for range 3 {
			w.drive(links[2])
			w.acm.deliver()
		}
		w.drive(links[3])
		require.Nil(t, openGrant(w.identity("db-2")))
		if !restaged {
			w.drive(w.links[0])
			restaged = true
		}
	}
	approved := slices.ContainsFunc(w.acm.questions, func(q question.Question) bool {
		return slices.ContainsFunc(q.Instances, func(i question.Instance) bool { return i.Type == v1alpha1.ScaleIn })
	})
	require.True(t, approved, "the ACM was asked, and approves everything")
	require.Empty(t, w.deleted)
	w.restart()
	w.rest()
	require.Empty(t, w.deleted)
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1", "db-2=app:1"}, w.images())
}

func TestOP19_AScaleInWhoseIndexIsWantedAgainIsNotCarriedOut(t *testing.T) {
	w := newSmallWorld(t).threeUp()
	w.edit("db", replicas(2))
	w.until("an answer", func() bool { return w.acm.answer != nil && len(w.acm.answer.Decisions) == 1 })
	w.drive(w.links[2])
	require.NotNil(t, openGrant(w.identity("db-2")))
	w.edit("db", replicas(3))
	w.drive(w.links[0])
	w.drive(w.links[3])
	require.Empty(t, w.deleted)
	w.rest()
	require.Empty(t, w.deleted)
	require.Contains(t, w.instances(), "db-0-in-2 db-2 Withdrawn")
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1", "db-2=app:1"}, w.images())
}

// openGrant is the identity's grant; nil once it is finished.
func openGrant(s *v1alpha1.StatefulPod) *v1alpha1.Grant {
	if g := s.Spec.Grant; g != nil && s.Status.Finished != g.Decision {
		return g
	}
	return nil
}

func TestGR01_WithoutAnACMNothingIsDisruptedAndWhatIsMissingComesBack(t *testing.T) {
	w := three(t)
	w.acm.away = true
	w.edit("db", image("app:2"))
	w.until("the wait", w.has("db-0-dep-2 db-2 Waiting acm.unavailable"))
	w.kill("db-1")
	w.until("the pod's return", func() bool { return w.pod("db-1") != nil })
	require.Equal(t, "app:1", w.pod("db-1").Spec.Containers[0].Image)
	for range 20 {
		w.round()
	}
	require.Empty(t, w.deleted)
	w.acm.away = false
	w.rest()
	require.Equal(t, []string{"db-0=app:2", "db-1=app:2", "db-2=app:2"}, w.images())
}

func TestGR02_ASilentACMIsATimeoutAndItsLateAnswerIsDropped(t *testing.T) {
	w := three(t)
	w.acm.silent = true
	w.edit("db", image("app:2"))
	w.until("the wait", w.has("db-0-dep-2 db-2 Waiting acm.timeout"))
	late := w.acm.questions[0]
	for _, q := range w.acm.questions {
		if len(q.Instances) > 0 && q.Instances[0].Type == v1alpha1.Deployment {
			late = q
			break
		}
	}
	w.acm.answer = w.acm.answerTo(late)
	require.NotEmpty(t, w.acm.answer.Decisions)
	w.drive(w.links[2])
	w.drive(w.links[3])
	require.Empty(t, w.deleted)
	for _, s := range w.identities() {
		require.Nil(t, openGrant(&s))
	}
	w.acm.silent = false
	w.rest()
	require.Equal(t, []string{"db-0=app:2", "db-1=app:2", "db-2=app:2"}, w.images())
}

func TestCR01_ACacheThatLagsMakesNothingTwice(t *testing.T) {
	w := newWorld(t, controlplane.Options{})
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2).Image("app:1"))
	empty := wrap.NewEmpty(w.Client, &v1alpha1.OperationList{}, &v1alpha1.StatefulPodList{}, &corev1.PodList{})
	for range 6 {
		links, err := New(Options{
			Cached: empty, Live: w.Client, Writer: w.faults, Clock: w.clock, Session: w.session, Term: w.term, Asker: w.acm, Timeout: 2 * time.Second,
		})
		require.NoError(t, err)
		w.links = links
		w.round()
		w.round()
	}
	require.LessOrEqual(t, len(w.operations()), 1)
	w.restart()
	w.rest()
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1"}, w.images())
	require.Len(t, w.operations(), 1)
	require.Empty(t, w.deleted)
}

// TestTheRollingUpdateSurvivesACrashAtEveryWrite kills the operator at its n-th write since the edit, before and after the
// write is carried out, for every n that the undisturbed run has.
func TestTheRollingUpdateSurvivesACrashAtEveryWrite(t *testing.T) {
	undisturbed := newSmallWorld(t).threeUp()
	undisturbed.restart()
	undisturbed.edit("db", image("app:2"))
	undisturbed.rest()
	want := undisturbed.ends()
	for n := range len(undisturbed.faults.Writes) {
		for _, lost := range []bool{false, true} {
			t.Run(fmt.Sprintf("%02d %s, answer lost %t", n+1, undisturbed.faults.Writes[n], lost), func(t *testing.T) {
				w := newSmallWorld(t).threeUp()
				before := w.uids()
				w.restart()
				w.faults.FailAt, w.faults.Lost = n+1, lost
				w.edit("db", image("app:2"))
				w.rest()
				require.Equal(t, 1, w.restarts)
				require.Equal(t, want, w.ends())
				require.LessOrEqual(t, w.most, 1)
				slices.Sort(w.deleted)
				require.Equal(t, []string{"db-0", "db-1", "db-2"}, w.deleted, "each Pod once")
				for pod, uid := range w.uids() {
					require.NotEqual(t, before[pod], uid)
				}
			})
		}
	}
}

// ends is what has to be the same however a run went.
func (w *world) ends() []string {
	return append(w.images(), w.instances()...)
}

func TestAScaleInGoesOneByOneAndKeepsTheClaims(t *testing.T) {
	w := newWorld(t, controlplane.Options{})
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{claimTemplate("data")}
	}))
	w.rest()
	w.edit("db", replicas(1))
	w.rest()
	require.Equal(t, []string{"db-2", "db-1"}, w.deleted)
	require.Equal(t, []string{"db-0=app:1"}, w.images())
	require.Len(t, w.identities(), 1)
	for i := range 3 {
		require.True(t, w.get(fmt.Sprintf("data-db-%d", i), &corev1.PersistentVolumeClaim{}))
	}
	w.edit("db", replicas(2))
	w.rest()
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1"}, w.images())
}

func TestAScaleInThatIsWithdrawnBeforeTheActRemovesNothingAndAfterItIsUndoneByAScaleOut(t *testing.T) {
	w := three(t)
	w.acm.judge = func(question.Question, question.Instance) question.Decision { return deferred("test.no", "not yet") }
	w.edit("db", replicas(2))
	w.until("the wait", w.has("db-0-in-2 db-2 Waiting test.no"))
	before := w.uids()
	w.edit("db", replicas(3))
	w.until("the withdrawal", w.has("db-0-in-2 db-2 Withdrawn"))
	require.Equal(t, before, w.uids())

	w.acm.judge = nil
	w.held["db-2"] = true
	w.edit("db", replicas(2))
	w.until("the act", w.has("db-0-in-3 db-2 Acting"))
	w.edit("db", replicas(3))
	for range 5 {
		w.round()
	}
	require.Contains(t, w.instances(), "db-0-in-3 db-2 Acting")
	delete(w.held, "db-2")
	w.rest()
	require.Contains(t, w.instances(), "db-0-in-3 db-2 Succeeded")
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1", "db-2=app:1"}, w.images())
	require.NotEqual(t, before["db-2"], w.uids()["db-2"])
}

func TestTwoSetsOfOneApplicationShareTheApplicationsCap(t *testing.T) {
	w := newWorld(t, controlplane.Options{})
	two := intstr.FromInt32(2)
	for _, name := range []string{"a", "b"} {
		w.create(wrap.LiStatefulSet(w.ns, name).Replicas(3).Edit(func(s *v1alpha1.LiStatefulSetSpec) {
			s.Application, s.MaxUnavailable = "shop", &two
		}))
	}
	w.rest()
	w.most = 0
	w.edit("a", image("app:2"))
	w.edit("b", image("app:2"))
	w.rest()
	require.Equal(t, 2, w.most)
	require.Len(t, w.deleted, 6)
	for _, q := range w.acm.questions {
		require.Equal(t, "shop", q.Application.Name)
	}
}

func TestANewSessionActsOnNoGrantOfTheOld(t *testing.T) {
	w := three(t)
	w.acm.judge = lastFirst
	w.edit("db", image("app:2"))
	w.until("a question", func() bool {
		return w.openOperations() == 1 && w.acm.pending == nil && w.acm.answer != nil && len(w.acm.answer.Decisions) == 3
	})
	w.drive(w.links[2])
	granted := w.identity("db-2").Spec.Grant
	require.NotNil(t, openGrant(w.identity("db-2")))
	w.restart()
	w.drive(w.links[2])
	w.drive(w.links[3])
	require.Equal(t, granted.Decision, w.pod("db-2").Annotations[v1alpha1.AnnotationAbandoned], "the late delete of the old session fails")
	require.Empty(t, w.deleted)
	w.drive(w.links[2])
	require.Nil(t, w.identity("db-2").Spec.Grant)
	w.rest()
	slices.Sort(w.deleted)
	require.Equal(t, []string{"db-0", "db-1", "db-2"}, w.deleted)
	require.Equal(t, 1, w.most)
}

func TestAnACMThatRestartsBetweenAnswerAndGrantIsToldOfIt(t *testing.T) {
	w := three(t)
	w.acm.judge = lastFirst
	w.edit("db", image("app:2"))
	w.until("an answer", func() bool { return w.acm.answer != nil && len(w.acm.answer.Decisions) == 3 })
	w.acm.epoch++
	asked := len(w.acm.questions)
	w.drive(w.links[2])
	require.Greater(t, len(w.acm.questions), asked)
	q := w.acm.questions[len(w.acm.questions)-1]
	flying := slices.IndexFunc(q.Instances, func(i question.Instance) bool { return i.State == v1alpha1.Granted })
	require.GreaterOrEqual(t, flying, 0)
	require.True(t, strings.HasPrefix(q.Instances[flying].Decision, "e1-"))
	w.rest()
	require.Equal(t, 1, w.most)
	require.Len(t, w.deleted, 3)
}

// TestADeleteSentInTimeThatLandsLate sends a delete whose answer never comes. It may land before the operator has settled
// it, or long after the approval has run out.
func TestADeleteSentInTimeThatLandsLate(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := newSmallWorld(t).threeUp()
		w.acm.judge = lastFirst
		w.slow = true
		w.edit("db", image("app:2"))
		w.until("a delete of unknown outcome", func() bool { return len(w.late) > 0 })
		require.NotNil(t, openGrant(w.identity("db-2")))
		return w
	}
	t.Run("before expiry it is the approved act", func(t *testing.T) {
		w := begin(t)
		require.NoError(t, w.late[0]())
		w.slow = false
		w.rest()
		require.Equal(t, []string{"db-1", "db-0"}, w.deleted, "db-2 is not deleted again")
		require.Equal(t, []string{"db-0=app:2", "db-1=app:2", "db-2=app:2"}, w.images())
		require.Equal(t, 1, w.most)
	})
	t.Run("after expiry it was abandoned and fails", func(t *testing.T) {
		w := begin(t)
		decision := w.identity("db-2").Spec.Grant.Decision
		w.until("the end of the approval", func() bool { return w.pod("db-2").Annotations[v1alpha1.AnnotationAbandoned] == decision })
		for _, land := range w.late {
			require.True(t, apierrors.IsConflict(land()), "it lands at 41 s")
		}
		require.Nil(t, w.pod("db-2").DeletionTimestamp)
		w.until("the return of the grant", func() bool {
			g := openGrant(w.identity("db-2"))
			return g == nil || g.Decision != decision
		})
		w.slow, w.late = false, nil
		w.rest()
		require.Equal(t, []string{"db-2", "db-1", "db-0"}, w.deleted)
		require.Equal(t, 1, w.most)
	})
	t.Run("in flight until it is settled", func(t *testing.T) {
		w := begin(t)
		w.acm.judge = nil
		for range 10 {
			w.round()
		}
		require.Empty(t, w.deleted)
		q := w.acm.questions[len(w.acm.questions)-1]
		require.True(t, q.Holding[0].OutcomeUnknown)
		for _, name := range []string{"db-0", "db-1"} {
			require.Nil(t, openGrant(w.identity(name)), "the cap is spent")
		}
	})
}

func TestDeletingASetKeepsItsClaimsAndAsksNobody(t *testing.T) {
	w := newWorld(t, controlplane.Options{ControllerManager: true})
	w.accounts()
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2).Edit(func(s *v1alpha1.LiStatefulSetSpec) {
		s.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{claimTemplate("data")}
	}))
	w.rest()
	set := &v1alpha1.LiStatefulSet{}
	require.True(t, w.get("db", set))
	w.acm.away = true
	require.NoError(t, w.Delete(t.Context(), set))
	w.eventually("the end of all that was the set's", func() bool {
		return len(w.identities())+len(w.operations())+len(w.images()) == 0
	})
	require.Empty(t, w.deleted, "its owner's garbage, not our act")
	for i := range 2 {
		claim := &corev1.PersistentVolumeClaim{}
		require.True(t, w.get(fmt.Sprintf("data-db-%d", i), claim))
		require.Nil(t, claim.DeletionTimestamp)
	}
}

func TestInANamespaceThatIsBeingDeletedNothingIsMadeAgain(t *testing.T) {
	w := newWorld(t, controlplane.Options{ControllerManager: true})
	w.accounts()
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2))
	w.rest()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.ns}}
	require.NoError(t, w.Delete(t.Context(), ns))
	w.eventually("the end of the namespace", func() bool {
		return apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	})
}

func TestEveryWaitSaysWhoAndWhat(t *testing.T) {
	w := three(t)
	w.acm.judge = func(question.Question, question.Instance) question.Decision {
		return deferred("quorum.majority", "1 of 3 voters would be up, 2 needed")
	}
	w.edit("db", image("app:2"))
	w.until("the wait", w.has("db-0-dep-2 db-0 Waiting quorum.majority"))
	for _, o := range w.operations() {
		if !o.Ended() {
			require.Equal(t, "quorum.majority", o.Status.Reason)
			require.Equal(t, "db-0: 1 of 3 voters would be up, 2 needed", o.Status.Message)
			require.NotNil(t, o.Status.Since)
		}
	}
	w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Paused = v1alpha1.PausedRollout })
	w.until("the pause", w.has("db-0-dep-2 db-0 Waiting set.paused"))
}

func claimTemplate(name string) v1alpha1.VolumeClaimTemplate {
	return v1alpha1.VolumeClaimTemplate{Name: name, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}},
	}}
}
