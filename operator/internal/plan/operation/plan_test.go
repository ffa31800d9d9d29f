package operation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/indexrange"
	"assent.dev/assent/operator/internal/plan/question"
)

func TestOP01_ABadRevisionNeverBlocksItsOwnRepair(t *testing.T) {
	w := app().set("db", 3, "r1").running("db", "r1", 0, 1, 2).stage("db", "bad")
	op := w.order("db", v1alpha1.Deployment, 1, "bad", 0, 1, 2)
	w.approve("d1", op, "db-2")
	require.Equal(t, []string{"db-2"}, granted(w.step()))
	w.held("d1").Phase = approval.Acted
	w.start("db-2", "bad").fail("db-2")
	require.Equal(t, []string{"db-0 Waiting acm.not_asked", "db-1 Waiting acm.not_asked", "db-2 Verifying"}, states(w.step(), w, op))

	w.stage("db", "good")
	p := w.step()
	require.Equal(t, []string{"db-0 Withdrawn", "db-1 Withdrawn", "db-2 Superseded"}, states(p, w, op))
	require.Equal(t, "revision good", w.operation(op).Status.Instances[2].SupersededBy)
	require.True(t, p.Statuses[0].Urgent)

	next := w.order("db", v1alpha1.Deployment, 2, "good", 0, 1, 2)
	p = Make(w.Input)
	require.Equal(t, []string{"db-0", "db-1", "db-2"}, asks(p))
	w.approve("d2", next, "db-0").approve("d3", next, "db-2")
	p = w.step()
	require.Equal(t, []string{"db-2"}, granted(p), "the pod that is down, not a second one")
	require.True(t, w.identity("db-2").Spec.Grant.Repair)
	require.Equal(t, "bad", w.identity("db-2").Spec.Grant.Previous.Revision)
	require.Equal(t, []string{"db-0 Waiting cap.full", "db-1 Waiting acm.not_asked", "db-2 Granted"}, states(w.step(), w, next))
	w.act("db-2")
	require.Equal(t, "db-2 Succeeded", states(w.step(), w, next)[2])
}

func TestOP01_GoingBackToTheOldRevisionRepairsTheBrokenPodOnly(t *testing.T) {
	w := app().set("db", 3, "r1").running("db", "r1", 0, 1, 2).stage("db", "bad")
	op := w.order("db", v1alpha1.Deployment, 1, "bad", 0, 1, 2)
	w.approve("d1", op, "db-2").step()
	w.start("db-2", "bad").fail("db-2")
	w.stage("db", "r1").step()
	next := w.order("db", v1alpha1.Deployment, 2, "r1", 2)
	w.approve("d2", next, "db-2")
	require.Equal(t, []string{"db-2"}, granted(w.step()))
	w.act("db-2").step()
	require.True(t, w.operation(op).Ended() && w.operation(next).Ended())
	require.Equal(t, "r1", w.identity("db-0").Spec.Revision)
}

func TestOP02_AFirstRevisionThatNeverWorkedIsReplacedOnAllPods(t *testing.T) {
	w := app().set("db", 3, "bad").running("db", "bad", 0, 1, 2).fail("db-0", "db-1", "db-2")
	for i := range w.Identities {
		w.Identities[i].Status.EverAvailable = false
	}
	w.stage("db", "good")
	op := w.order("db", v1alpha1.Deployment, 1, "good", 0, 1, 2)
	for n := range 3 {
		for _, i := range Make(w.Input).Question.Instances {
			w.approve(fmt.Sprintf("d%d-%s", n, i.Pod), i.Operation, i.Pod)
		}
		p := w.step()
		require.Len(t, p.Grants, 1, "one repair at a time under a cap of one")
		w.act(p.Grants[0].Identity.Name).step()
	}
	require.True(t, w.operation(op).Ended())
}

func TestOP03_ADownPodHasTheBudgetAndIsTheOneThatIsUpdated(t *testing.T) {
	w := app().set("db", 3, "r1").running("db", "r1", 0, 1, 2).fail("db-0").stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1, 2)
	w.approve("d2", op, "db-2").approve("d1", op, "db-1").approve("d0", op, "db-0")
	require.Equal(t, []string{"db-0"}, granted(w.step()))
	require.Equal(t, "db-2 Waiting cap.full", states(w.step(), w, op)[2])
}

func TestAScaleOutIsGrantedByMakingTheIdentity(t *testing.T) {
	w := app().set("db", 1, "r1", func(s *v1alpha1.LiStatefulSetSpec) {
		s.MinReadySeconds = 7
		s.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{{Name: "data"}}
	})
	op := w.order("db", v1alpha1.ScaleOut, 1, "r1", 0)
	w.approve("d1", op, "db-0")
	w.held("d1").Parameters = map[string]string{"seed": "yes"}
	p := w.step()
	require.Equal(t, []string{"db-0"}, granted(p))
	s := w.identity("db-0")
	require.Equal(t, v1alpha1.StatefulPodSpec{
		Set: "db", Application: "app", Revision: "r1", State: v1alpha1.Running, MinReadySeconds: 7,
		Claims: []v1alpha1.VolumeClaimTemplate{{Name: "data"}}, Parameters: map[string]string{"seed": "yes"},
		Grant: &v1alpha1.Grant{
			Operation: op, Type: v1alpha1.ScaleOut, Stage: v1alpha1.StageAdd, Decision: "d1", Session: "s1",
			Previous: &v1alpha1.Approved{Revision: "r1", State: v1alpha1.Stopped},
		},
	}, s.Spec)
	require.Equal(t, map[string]string{
		v1alpha1.LabelApplication: "app", v1alpha1.LabelSet: "db", v1alpha1.LabelBlock: "0", v1alpha1.LabelIndex: "0", v1alpha1.LabelIncarnation: "0",
	}, s.Labels)
	require.True(t, metav1.IsControlledBy(s, &w.Sets[0]))

	w.Now = w.Now.Add(time.Minute)
	p = w.step()
	require.True(t, p.Returns[0].WithoutPod)
	require.Equal(t, v1alpha1.Stopped, w.identity("db-0").Spec.State, "not acted on in time: nothing is made until granted anew")
	require.Equal(t, []string{"db-0 Waiting grant.expired"}, states(w.step(), w, op))
	require.Equal(t, []string{"db-0"}, asks(Make(w.Input)))
}

func TestAScaleInIsDoneWhenPodAndIdentityAreGone(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "", 1)
	op := w.order("db", v1alpha1.ScaleIn, 1, "", 1)
	w.approve("d1", op, "db-1")
	p := w.step()
	require.True(t, p.Grants[0].ConfirmAbsent)
	require.Equal(t, v1alpha1.Stopped, w.identity("db-1").Spec.State)
	require.Empty(t, w.step().Removals, "the Pod is still there")
	w.terminate("db-1")
	require.Equal(t, []string{"db-1 Acting"}, states(w.step(), w, op))
	w.stop("db-1")
	require.Len(t, w.step().Removals, 1)
	require.Equal(t, []string{"db-1 Succeeded"}, states(w.step(), w, op))
	require.True(t, w.operation(op).Ended())
}

func TestAScaleInWithdrawnBeforeTheActGoesBackAndAfterItGoesOn(t *testing.T) {
	begin := func() (*store, string) {
		w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "", 1)
		op := w.order("db", v1alpha1.ScaleIn, 1, "", 1)
		w.approve("d1", op, "db-1").step()
		return w, op
	}
	w, op := begin()
	w.stage("db", "r1", 1).step()
	require.Equal(t, v1alpha1.Running, w.identity("db-1").Spec.State)
	require.Nil(t, w.identity("db-1").Spec.Grant)
	require.Equal(t, []string{"db-1 Withdrawn"}, states(w.step(), w, op))

	w, op = begin()
	w.terminate("db-1").stage("db", "r1", 1)
	require.Empty(t, w.step().Returns)
	w.stop("db-1").step()
	w.step()
	require.Nil(t, w.identity("db-1"))
	require.Equal(t, []string{"db-1 Succeeded"}, states(w.step(), w, op))
}

func TestAnActUnderWayIsNotRevoked(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 1)
	w.approve("d1", op, "db-1").step()
	w.held("d1").Phase = approval.Begun
	w.stage("db", "r3")
	w.Now = w.Now.Add(time.Minute)
	require.Empty(t, w.step().Returns)
	require.Equal(t, []string{"db-1 Granted"}, states(w.step(), w, op))
}

func TestADeleteSentInTimeThatLandsLateStaysInFlightUntilItIsSettled(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.approve("d1", op, "db-1").step()
	w.held("d1").Phase = approval.Unknown // sent at 29 s, no answer
	w.Now = w.Now.Add(31 * time.Second)
	p := w.step()
	require.Equal(t, []string{"db-0 Waiting acm.not_asked", "db-1 Granted"}, states(p, w, op))
	require.Equal(t, []question.Holding{{
		Step: question.Step{
			Operation: op, Type: v1alpha1.Deployment, Stage: v1alpha1.StageRemove, Set: "db", Pod: "db-1", Index: 1,
		},
		Decision: "d1", OutcomeUnknown: true,
	}}, p.Question.Holding)
	w.approve("d2", op, "db-0")
	require.Empty(t, w.step().Grants, "it counts against the budget")

	landed := *w
	landed.Pods = append([]corev1.Pod(nil), w.Pods...)
	landed.terminate("db-1") // it lands at 41 s
	require.Equal(t, "db-1 Acting", states(Make(landed.Input), &landed, op)[1])

	w.pod("db-1").DeletionTimestamp = nil
	w.pod("db-1").Annotations = map[string]string{v1alpha1.AnnotationAbandoned: "d1"}
	p = w.step()
	require.True(t, p.Returns[0].Certain)
	require.Equal(t, "r1", w.identity("db-1").Spec.Revision)
	require.Equal(t, "db-1 Waiting grant.expired", states(w.step(), w, op)[1])
}

func TestTwoSetsInOneBatchOfWhichOneWriteConflictsPastExpiry(t *testing.T) {
	w := app().set("a", 2, "r1", maxUnavailable("1")).set("b", 2, "r1", maxUnavailable("1"))
	w.Sets[0].Spec.ApplicationMaxUnavailable = ptr.To(int32(2))
	w.running("a", "r1", 0, 1).running("b", "r1", 0, 1).stage("a", "r2").stage("b", "r2")
	opA := w.order("a", v1alpha1.Deployment, 1, "r2", 0, 1)
	opB := w.order("b", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.approve("da", opA, "a-1").approve("db", opB, "b-1")
	p := Make(w.Input)
	require.Equal(t, []string{"a-1", "b-1"}, granted(p))
	w.storeGrant(p.Grants[0]) // the other write conflicts
	p = Make(w.Input)
	require.Equal(t, []string{"b-1"}, granted(p), "tried again")
	require.Equal(t, "db", p.Question.Holding[0].Decision, "held for as long as it may be used")
	require.Equal(t, []string{"a-0", "b-0"}, asks(p), "what is held is not asked for again")
	w.Now = w.Now.Add(time.Minute)
	w.held("da").Phase = approval.Begun
	p = w.step()
	require.Empty(t, p.Grants)
	require.Equal(t, []string{"db"}, p.Void)
	require.Empty(t, p.Question.Holding, "not listed, so released")
	require.Equal(t, "b-1 Waiting grant.expired", states(p, w, opB)[1])
	require.Equal(t, "a-1 Granted", states(p, w, opA)[1])
}

func TestOnlyOneOperationExecutesOnAnIndex(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	dep := w.order("db", v1alpha1.Deployment, 1, "r2", 1)
	dis := w.order("db", v1alpha1.Deployment, 2, "r2", 1)
	w.approve("d1", dep, "db-1").approve("d2", dis, "db-1")
	p := w.step()
	require.Equal(t, []string{"db-1"}, granted(p))
	require.Equal(t, []string{"db-1 Waiting pod.busy"}, states(p, w, dis))
	require.NotContains(t, asks(w.step()), "db-1")
	w.act("db-1")
	w.approve("d3", dis, "db-1")
	p = Make(w.Input)
	require.Empty(t, p.Grants, "the first one's end is not recorded yet, and the grant is its evidence")
	require.True(t, p.Statuses[0].Urgent)
}

func TestAnEndIsRecordedBeforeItsEvidenceIsOverwritten(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	dep := w.order("db", v1alpha1.Deployment, 1, "r2", 1)
	w.approve("d1", dep, "db-1").step()
	w.act("db-1").stage("db", "", 1)
	in := w.order("db", v1alpha1.ScaleIn, 2, "", 1)
	w.approve("d2", in, "db-1")
	p := Make(w.Input)
	require.Empty(t, p.Grants)
	require.Empty(t, p.Void)
	w.step()
	require.True(t, w.operation(dep).Ended())
	require.Equal(t, []string{"db-1"}, granted(w.step()))
}

func TestANewSessionTakesBackWhatNobodyActedOnAndGoesOnWithWhatWas(t *testing.T) {
	w := app().set("db", 4, "r1", maxUnavailable("3")).running("db", "r1", 0, 1, 2).stage("db", "r2")
	dep := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1, 2)
	out := w.order("db", v1alpha1.ScaleOut, 2, "r2", 3)
	w.approve("d0", dep, "db-0").approve("d1", dep, "db-1").approve("d2", dep, "db-2").approve("d3", out, "db-3").step()
	w.terminate("db-1")
	w.stop("db-2")
	w.Session, w.Held, w.Words = "s2", nil, map[Ref]Word{}
	p := w.step()
	require.Equal(t, []string{"db-0 Granted", "db-1 Acting", "db-2 Verifying"}, states(p, w, dep))
	require.Equal(t, v1alpha1.Stopped, w.identity("db-3").Spec.State, "no Pod is made until granted anew")
	require.Len(t, p.Returns, 1, "the delete of the old session may still land")
	w.pod("db-0").Annotations = map[string]string{v1alpha1.AnnotationAbandoned: "d0"}
	w.step()
	p = w.step()
	require.Equal(t, "r1", w.identity("db-0").Spec.Revision)
	require.Equal(t, []string{"db-0 Waiting grant.expired", "db-1 Acting", "db-2 Verifying"}, states(p, w, dep))
	require.Equal(t, []string{"db-0", "db-3"}, asks(p))
}

func TestAnACMThatRestartsBetweenAnswerAndGrantIsToldOfTheGrant(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.approve("d1", op, "db-1").step()
	q := Make(w.Input).Question
	require.Equal(t, "d1", q.Instances[1].Decision)
	require.Equal(t, v1alpha1.Granted, q.Instances[1].State)
}

func TestAnOperationThatIsGoneHoldsNoPod(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 1)
	w.approve("d1", op, "db-1").step()
	w.Operations = nil
	next := w.order("db", v1alpha1.Deployment, 2, "r2", 1)
	require.Empty(t, asks(Make(w.Input)), "it may only be late")
	w.OperationsGone[op] = true
	w.step()
	require.Nil(t, w.identity("db-1").Spec.Grant)
	require.Equal(t, []string{"db-1 Waiting acm.not_asked"}, states(w.step(), w, next))
}

func TestAnInstanceWhoseStagingIsNotSeenYetSaysWhatItWaitsFor(t *testing.T) {
	w := app().set("db", 3, "r1").running("db", "r1", 0, 1, 2).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 1)
	w.index("db").Generation = 1
	require.Equal(t, []string{"db-1 Waiting acm.not_asked"}, states(w.step(), w, op))
}

func TestApprovalsAreUsedOnlyForWhatWasJudged(t *testing.T) {
	begin := func() (*store, string) {
		w := app().set("db", 3, "r1").running("db", "r1", 0, 1, 2).stage("db", "r2")
		op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1, 2)
		return w.approve("d1", op, "db-1"), op
	}
	for name, c := range map[string]struct {
		change func(*store)
		code   string
	}{
		"another pod":                      {func(w *store) { w.start("db-1", "r1") }, question.CodeStateChanged},
		"no pod":                           {func(w *store) { w.stop("db-1") }, question.CodeStateChanged},
		"judged as down, and back":         {func(w *store) { w.held("d1").PodDown = true }, question.CodeStateChanged},
		"another stage":                    {func(w *store) { w.held("d1").Stage = v1alpha1.StageRelease }, question.CodeStateChanged},
		"expired":                          {func(w *store) { w.Now = w.Now.Add(30 * time.Second) }, question.CodeGrantExpired},
		"staging not seen":                 {func(w *store) { w.index("db").Generation = 1 }, question.CodeStateChanged},
		"paused":                           {func(w *store) { w.Sets[0].Spec.Paused = v1alpha1.PausedAll }, question.CodePaused},
		"rollout paused":                   {func(w *store) { w.Sets[0].Spec.Paused = v1alpha1.PausedRollout }, question.CodePaused},
		"cap spent":                        {func(w *store) { w.fail("db-0") }, question.CodeCapFull},
		"a pod of which nothing is seen":   {func(w *store) { w.stop("db-0") }, question.CodeCapFull},
		"a decision that was used already": {func(w *store) { w.identity("db-1").Status.Finished = "d1" }, question.CodeMalformed},
	} {
		w, op := begin()
		c.change(w)
		p := w.step()
		require.Empty(t, p.Grants, name)
		require.Equal(t, []string{"d1"}, p.Void, name)
		if c.code == question.CodeCapFull {
			require.Contains(t, asks(p), "db-1", "asked about again at once: "+name)
		}
		require.Equal(t, c.code, w.Words[Ref{op, "db-1"}].Code(), name)
		require.NotEmpty(t, w.Words[Ref{op, "db-1"}].Reasons[0].Message, name)
	}
	w, _ := begin()
	w.held("d1").Pod = "unknown"
	p := w.step()
	require.Empty(t, p.Grants)
	require.Equal(t, []string{"d1"}, p.Void, "an unknown pod is ignored")
}

func TestPauseStopsNewGrantsOnly(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0).stage("db", "r2", 0)
	dep := w.order("db", v1alpha1.Deployment, 1, "r2", 0)
	out := w.order("db", v1alpha1.ScaleOut, 2, "r1", 1)
	w.Sets[0].Spec.Paused = v1alpha1.PausedRollout
	p := w.step()
	require.Equal(t, []string{"db-0 Waiting set.paused"}, states(p, w, dep))
	require.Equal(t, []string{"db-1"}, asks(p))
	w.Sets[0].Spec.Paused = v1alpha1.PausedAll
	require.Empty(t, asks(w.step()))
	require.Equal(t, []string{"db-1 Waiting set.paused"}, states(w.step(), w, out))
	w.Sets[0].Spec.Paused = ""
	require.Equal(t, []string{"db-0", "db-1"}, asks(w.step()))
	require.Equal(t, []string{"db-0 Waiting acm.not_asked"}, states(w.step(), w, dep))
}

func TestSetsThatDisagreeGrantNothing(t *testing.T) {
	w := app().set("a", 2, "r1").set("b", 1, "r1").running("a", "r1", 0, 1).running("b", "r1", 0).stage("a", "r2")
	op := w.order("a", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.approve("d1", op, "a-1")
	w.Sets[1].Spec.Policy = "other"
	p := w.step()
	require.Empty(t, p.Grants)
	require.False(t, p.Open)
	require.Equal(t, []string{"a-0 Waiting application.conflict", "a-1 Waiting application.conflict"}, states(p, w, op))
	require.Contains(t, w.operation(op).Status.Message, "sets a and b of the application name different policies (etcd, other)")
}

func TestADenialParksUntilItIsLookedAtAgain(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1)
	p := w.step()
	asked := Asked{Question: p.Question, About: p.About, SentAt: w.Now}
	_, words := Take(asked, question.Answer{Decisions: []question.Decision{
		{ID: "no", Operation: op, Pod: "db-1", Stage: v1alpha1.StageRemove, Verdict: question.Deny, Reasons: []v1alpha1.Reason{{Code: "team.freeze", Message: "not this week"}}},
	}}, w.Words, w.Now)
	for r, word := range words {
		w.Words[r] = word
	}
	p = w.step()
	require.Equal(t, []string{"db-0 Waiting acm.malformed", "db-1 Denied team.freeze"}, states(p, w, op))
	require.Equal(t, noon.Add(10*time.Minute), w.operation(op).Status.Instances[1].RetryAt.Time)
	require.Equal(t, noon.Add(10*time.Minute), p.Wake)
	require.Equal(t, v1alpha1.Denied, p.Question.Instances[1].State, "the ACM may think again, so it is told")

	w.Words = map[Ref]Word{} // a new session has only what is recorded
	require.Equal(t, "db-1 Denied team.freeze", states(w.step(), w, op)[1])
	w.Now = w.Now.Add(10 * time.Minute)
	require.Equal(t, []string{"db-0", "db-1"}, asks(w.step()))

	w.Now = noon
	w.approve("d1", op, "db-1")
	require.Equal(t, []string{"db-1"}, granted(w.step()), "an approval lifts the denial")
}

func TestTheQuestionHoldsTheWholeApplication(t *testing.T) {
	w := app().set("db", 3, "r1", maxUnavailable("34%")).running("db", "r1", 0, 1).fail("db-0").stage("db", "r2", 0, 1)
	w.Sets[0].Status.EverAvailable = "2,9"
	dep := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.order("db", v1alpha1.ScaleOut, 2, "r1", 2)
	w.approve("d0", dep, "db-0").step()
	q := Make(w.Input).Question
	require.Equal(t, []question.Set{{
		Name: "db", Wanted: []indexrange.Range{{First: 0, Last: 2}}, EverAvailable: []indexrange.Range{{First: 0, Last: 2}}, MaxUnavailable: 2, Revision: "r1",
	}}, q.Sets)
	require.Equal(t, []question.Summary{
		{Name: dep, Type: v1alpha1.Deployment, Total: 2, Running: 1, Waiting: 1},
		{Name: "db-0-out-2", Type: v1alpha1.ScaleOut, Total: 1, Waiting: 1},
	}, q.Operations)
	require.Len(t, q.Instances, 3)
	require.Equal(t, question.Instance{
		Step:  question.Step{Operation: dep, Type: v1alpha1.Deployment, Stage: v1alpha1.StageRemove, Set: "db", Pod: "db-0"},
		State: v1alpha1.Granted, Cause: "rollout", RevisionTo: "r2", WaitingSince: noon, StateSince: noon, Decision: "d0", Key: "db-0-dep-1/0/r2/",
	}, q.Instances[0])
	require.Equal(t, []bool{false, true}, []bool{q.Pods[0].Ready, q.Pods[1].Ready})
	require.EqualValues(t, 2, q.MaxUnavailable)
	require.Equal(t, "etcd", q.Policy)
	require.Equal(t, "default", q.ACM)
}

func TestLeftoversOfADeletedSetOfTheSameNameAreNotTouched(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.approve("d1", op, "db-1")
	w.Sets[0].UID = "another"
	p := w.step()
	require.Empty(t, p.Grants)
	require.Empty(t, p.Statuses)
	require.False(t, p.Open)
	require.Empty(t, p.Question.Pods)
}

func TestASetThatIsBeingDeletedIsLeftToItsOwners(t *testing.T) {
	w := app().set("db", 2, "r1").running("db", "r1", 0, 1).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0, 1)
	w.approve("d1", op, "db-1")
	w.Sets[0].DeletionTimestamp = &metav1.Time{Time: noon}
	require.Empty(t, w.step().Grants)
}

func TestTheOrderOfTheListsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := fleet(t)
		for i := range w.Operations {
			for _, inst := range w.Operations[i].Spec.Instances {
				if rapid.Bool().Draw(t, "approved") {
					w.approve("d-"+inst.Pod, w.Operations[i].Name, inst.Pod)
				}
			}
		}
		want := Make(w.Input)
		seed := rapid.Uint64().Draw(t, "seed")
		r := rand.New(rand.NewPCG(seed, seed))
		w.Sets, w.Indexes, w.Operations = shuffled(r, w.Sets), shuffled(r, w.Indexes), shuffled(r, w.Operations)
		w.Identities, w.Pods, w.Held = shuffled(r, w.Identities), shuffled(r, w.Pods), shuffled(r, w.Held)
		require.Equal(t, want, Make(w.Input))
	})
}

func shuffled[T any](r *rand.Rand, list []T) []T {
	other := slices.Clone(list)
	r.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
	return other
}

func TestAStatusIsNotWrittenForAMessageOrAnAge(t *testing.T) {
	w := app().set("db", 1, "r1").running("db", "r1", 0).stage("db", "r2")
	op := w.order("db", v1alpha1.Deployment, 1, "r2", 0)
	w.step()
	say := func(code, message string) {
		w.Words[Ref{op, "db-0"}] = machinery(w.Words[Ref{op, "db-0"}], v1alpha1.Reason{Code: code, Message: message})
	}
	say("quorum.majority", "1 of 3 voters would be up, 2 needed")
	require.Len(t, w.step().Statuses, 1)
	require.Equal(t, "db-0: 1 of 3 voters would be up, 2 needed", w.operation(op).Status.Message)
	require.Equal(t, "quorum.majority", w.operation(op).Status.Reason)
	say("quorum.majority", "other words")
	w.Now = w.Now.Add(time.Minute)
	require.Empty(t, w.step().Statuses)
	say("leader.last", "other words")
	require.Len(t, w.step().Statuses, 1)
}
