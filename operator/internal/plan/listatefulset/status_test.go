package listatefulset

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
)

func requireCondition(t require.TestingT, s v1alpha1.LiStatefulSetStatus, kind string, want metav1.ConditionStatus, message string) {
	c := meta.FindStatusCondition(s.Conditions, kind)
	require.NotNil(t, c, kind)
	require.Equal(t, want, c.Status, "%s: %s", kind, c.Message)
	require.Contains(t, c.Message, message)
}

func TestASettledSetIsReadyAndStable(t *testing.T) {
	s := set("db", 3, "a").settle().Set.Status
	require.Equal(t, int32(3), s.Replicas)
	require.Equal(t, int32(3), s.ReadyReplicas)
	require.Equal(t, int32(3), s.AvailableReplicas)
	require.Equal(t, int32(3), s.UpdatedReplicas)
	require.Equal(t, revisionOf("a"), s.UpdateRevision)
	require.Equal(t, revisionOf("a"), s.CurrentRevision)
	require.Equal(t, "0-2", s.EverAvailable)
	require.Equal(t, "assent.dev/set=db", s.Selector)
	require.Equal(t, stateStable, s.Summary.State)
	require.Empty(t, s.Summary.WaitingFor)
	requireCondition(t, s, v1alpha1.ConditionReady, metav1.ConditionTrue, "3 of 3 available, 3 at "+revisionOf("a"))
	requireCondition(t, s, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "")
	requireCondition(t, s, v1alpha1.ConditionStalled, metav1.ConditionFalse, "")
	requireCondition(t, s, v1alpha1.ConditionTemplateValid, metav1.ConditionTrue, "")
	requireCondition(t, s, v1alpha1.ConditionApplicationAgreed, metav1.ConditionTrue, "")
}

func TestTheSummarySaysWhoWaitsForWhat(t *testing.T) {
	type change func(w *world)
	op := func(kind v1alpha1.OperationType, state v1alpha1.InstanceState, code, message string) change {
		return func(w *world) {
			w.Operations = append(w.Operations, operation("db-0-x-1", kind, "db-1", state, code, message))
		}
	}
	for name, c := range map[string]struct {
		changes        []change
		state, waiting string
	}{
		"deferred":  {[]change{op(v1alpha1.Deployment, v1alpha1.Waiting, "quorum.majority", "1 of 3 voters would be up, 2 needed")}, stateWaiting, "db-1: quorum.majority: 1 of 3 voters would be up, 2 needed"},
		"denied":    {[]change{op(v1alpha1.Deployment, v1alpha1.Denied, "team.freeze", "no deployments this week")}, stateDenied, "db-1: team.freeze: no deployments this week"},
		"verifying": {[]change{op(v1alpha1.Deployment, v1alpha1.Verifying, "", "not available yet")}, stateUpdating, "db-1: not available yet"},
		"adding":    {[]change{op(v1alpha1.ScaleOut, v1alpha1.Granted, "", "granted")}, stateScalingOut, "db-1: granted"},
		"removing":  {[]change{op(v1alpha1.ScaleOut, v1alpha1.Granted, "", "x"), op(v1alpha1.ScaleIn, v1alpha1.Acting, "", "stopping")}, stateScalingIn, "db-1: stopping"},
		"paused": {[]change{op(v1alpha1.Deployment, v1alpha1.Waiting, "set.paused", "x"), func(w *world) { w.Set.Spec.Paused = v1alpha1.PausedRollout }},
			statePaused, "spec.paused: Rollout; remove it to go on"},
		"paused, but scaling": {[]change{op(v1alpha1.ScaleOut, v1alpha1.Waiting, "cap.full", "x"), func(w *world) { w.Set.Spec.Paused = v1alpha1.PausedRollout }},
			stateWaiting, "db-1: cap.full: x"},
		"not asked": {[]change{op(v1alpha1.ScaleOut, v1alpha1.Waiting, "acm.not_asked", "nobody was asked yet"), func(w *world) {
			w.Operations[0].Status = v1alpha1.OperationStatus{}
		}}, stateScalingOut, "db-0-x-1: acm.not_asked: nobody was asked yet"},
		"a pod died": {[]change{func(w *world) { w.Pods[2].Status.Available, w.Pods[2].Status.Message = false, "Pod is starting" }},
			stateRestoring, "db-2: Pod is starting"},
		"staged, not ordered": {[]change{func(w *world) { w.Pods = w.Pods[:2] }}, stateScalingOut, "Operations to be made"},
		"nothing":             {nil, stateStable, ""},
	} {
		w := set("db", 3, "a").settle()
		for _, change := range c.changes {
			change(w)
		}
		s := Make(w.Input).Status.Summary
		require.Equal(t, c.state, s.State, name)
		require.Equal(t, c.waiting, s.WaitingFor, name)
	}
}

func TestSinceStaysWhileOnlyTheWordsChange(t *testing.T) {
	w := set("db", 3, "a").settle()
	w.Operations = []v1alpha1.Operation{operation("db-0-dep-1", v1alpha1.Deployment, "db-1", v1alpha1.Waiting, "budget.set", "3 in flight")}
	w.store(Make(w.Input))
	since := w.Set.Status.Summary.Since
	require.Equal(t, noon.Add(-time.Minute), since.Time, "as the Operation says")

	w.Now = noon.Add(time.Hour)
	w.Operations[0] = operation("db-0-dep-1", v1alpha1.Deployment, "db-1", v1alpha1.Waiting, "budget.set", "2 in flight")
	w.Operations[0].Status.Since = &metav1.Time{Time: w.Now}
	w.store(Make(w.Input))
	require.Equal(t, since, w.Set.Status.Summary.Since)
	require.Contains(t, w.Set.Status.Summary.WaitingFor, "2 in flight")

	w.Operations = nil
	w.store(Make(w.Input))
	require.Equal(t, stateStable, w.Set.Status.Summary.State)
	require.Equal(t, w.Now, w.Set.Status.Summary.Since.Time)
}

func TestADenialStallsTheSetAndItsEndUnstallsIt(t *testing.T) {
	w := set("db", 3, "a").settle()
	w.Operations = []v1alpha1.Operation{operation("db-0-dep-1", v1alpha1.Deployment, "db-1", v1alpha1.Denied, "team.freeze", "not this week")}
	p := Make(w.Input)
	require.True(t, p.StatusUrgent)
	requireCondition(t, p.Status, v1alpha1.ConditionStalled, metav1.ConditionTrue, "db-1: team.freeze: not this week")
	requireCondition(t, p.Status, v1alpha1.ConditionProgressing, metav1.ConditionTrue, "db-1: team.freeze: not this week")
	requireCondition(t, p.Status, v1alpha1.ConditionReady, metav1.ConditionFalse, "")
	w.store(p)
	w.Operations[0].Status.Instances[0].State = v1alpha1.Withdrawn
	p = Make(w.Input)
	require.True(t, p.StatusUrgent)
	requireCondition(t, p.Status, v1alpha1.ConditionStalled, metav1.ConditionFalse, "")
}

func TestAPodThatTakesTooLongIsSaidAtItsDeadline(t *testing.T) {
	w := set("db", 3, "a").settle()
	w.Set.Spec.ProgressDeadlineSeconds = ptr.To(int32(60))
	w.Pods[1].Status.Available = false
	w.Pods[1].Status.Since = &metav1.Time{Time: noon.Add(-59 * time.Second)}
	p := Make(w.Input)
	requireCondition(t, p.Status, v1alpha1.ConditionStalled, metav1.ConditionFalse, "")
	require.Equal(t, noon.Add(time.Second), p.LookAgain)
	w.Now = p.LookAgain
	p = Make(w.Input)
	requireCondition(t, p.Status, v1alpha1.ConditionStalled, metav1.ConditionTrue, "db-1")
	require.Zero(t, p.LookAgain)
}

func TestSetsOfOneApplicationMustAgree(t *testing.T) {
	w := set("db", 1, "a").settle()
	sibling := *set("search", 1, "a").Set
	sibling.Spec.Application = "db"
	w.Siblings = []v1alpha1.LiStatefulSet{*w.Set, sibling}
	requireCondition(t, Make(w.Input).Status, v1alpha1.ConditionApplicationAgreed, metav1.ConditionTrue, "")

	w.Siblings[1].Spec.ACM = "other"
	s := Make(w.Input).Status
	requireCondition(t, s, v1alpha1.ConditionApplicationAgreed, metav1.ConditionFalse, "search: policy etcd, ACM other")
	requireCondition(t, s, v1alpha1.ConditionStalled, metav1.ConditionTrue, "application.conflict")

	w.Siblings[1].Spec.Application = "another"
	requireCondition(t, Make(w.Input).Status, v1alpha1.ConditionApplicationAgreed, metav1.ConditionTrue, "")
}

func TestOnceAvailableIsRememberedUntilTheIndexIsGoneForGood(t *testing.T) {
	w := set("db", 4, "a").settle()
	w.Pods = w.Pods[:1] // three identities were deleted by somebody
	w.Pods[0].Status.EverAvailable = false
	require.Equal(t, "0-3", Make(w.Input).Status.EverAvailable)
	w.store(Make(w.replicas(2).Input))
	require.Equal(t, "0-1", w.Set.Status.EverAvailable)
	w.store(Make(w.replicas(4).Input))
	require.Equal(t, "0-1", w.Set.Status.EverAvailable, "2 and 3 start anew")
}

func TestTheCurrentRevisionIsTheLastThatAllPodsHadInCommon(t *testing.T) {
	w := set("db", 2, "a").settle().image("b")
	w.store(Make(w.Input))
	require.Equal(t, revisionOf("a"), w.Set.Status.CurrentRevision)
	w.Pods[1] = identity("db", 1, revisionOf("b"))
	w.store(Make(w.Input))
	require.Equal(t, revisionOf("a"), w.Set.Status.CurrentRevision)
	require.Equal(t, int32(1), w.Set.Status.UpdatedReplicas)
	w.settle()
	require.Equal(t, revisionOf("b"), w.Set.Status.CurrentRevision)
}

func TestAPodThatMayBeTakenAwayDoesNotCountAsAvailable(t *testing.T) {
	w := set("db", 3, "a").settle()
	w.Pods[2].Spec.Grant = &v1alpha1.Grant{Stage: v1alpha1.StageRemove, Decision: "d2"}
	require.Equal(t, int32(2), Make(w.Input).Status.AvailableReplicas)
	w.Pods[2].Status.Finished = "d2"
	require.Equal(t, int32(3), Make(w.Input).Status.AvailableReplicas)
}

func TestAPodThatTheAPIServerRefusesStallsTheSet(t *testing.T) {
	w := set("db", 3, "a").settle()
	meta.SetStatusCondition(&w.Pods[1].Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionPodAccepted, Status: metav1.ConditionFalse, Reason: "Refused", Message: "the API server refuses: no volume nov",
	})
	s := Make(w.Input).Status
	requireCondition(t, s, v1alpha1.ConditionStalled, metav1.ConditionTrue, w.Pods[1].Name+": the API server refuses: no volume nov")
}
