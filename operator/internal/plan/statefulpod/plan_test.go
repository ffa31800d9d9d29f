package statefulpod

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
)

func TestOneThingIsDoneAtATimeAndOnlyWhatIsApproved(t *testing.T) {
	dep, in, out := v1alpha1.Deployment, v1alpha1.ScaleIn, v1alpha1.ScaleOut
	for name, c := range map[string]struct {
		l        *look
		verb     Verb
		decision string
	}{
		"a missing Pod is put back":                                     {identity(), CreatePod, ""},
		"a running Pod is left alone":                                   {identity().pod("u1", "r1"), Nothing, ""},
		"a terminating Pod is waited for":                               {identity().pod("u1", "r1", terminating), Nothing, ""},
		"a Pod that ended for good is cleared away":                     {identity().pod("u1", "r1", failed), ClearPod, ""},
		"a stopped identity gets no Pod":                                {identity().granted(in, ""), Nothing, ""},
		"a Pod of a predecessor is waited for":                          {identity().pod("u1", "r1", func(p *corev1.Pod) { p.OwnerReferences = nil }), Nothing, ""},
		"the first Pod needs the approval":                              {identity().granted(out, ""), CreatePod, "d1"},
		"the first Pod is not made after expiry":                        {identity().granted(out, "").approval(approval.Recorded, 0), Nothing, ""},
		"the first Pod is not made under another session":               {identity().granted(out, "").session("s2"), Nothing, ""},
		"the first Pod is not made under a revoked approval":            {identity().granted(out, "").unapproved(), Nothing, ""},
		"a first Pod that was made and got lost is put back":            {identity().granted(out, "").actedOn().session("s2"), CreatePod, ""},
		"a first Pod that got lost before it was noted is put back":     {identity().granted(out, "").approval(approval.Acted, 0), CreatePod, ""},
		"but not by another session":                                    {identity().granted(out, "").approval(approval.Acted, 0).session("s2"), Nothing, ""},
		"an approved deployment removes exactly that Pod":               {identity().granted(dep, "u1").pod("u1", "r0"), DeletePod, "d1"},
		"another Pod than the one judged is left alone":                 {identity().granted(dep, "u0").pod("u1", "r0"), Nothing, ""},
		"an expired approval removes nothing":                           {identity().granted(dep, "u1").pod("u1", "r0").approval(approval.Recorded, 0), Nothing, ""},
		"a revoked approval removes nothing":                            {identity().granted(dep, "u1").pod("u1", "r0").unapproved(), Nothing, ""},
		"an approval that was acted on removes nothing again":           {identity().granted(dep, "u1").pod("u1", "r0").approval(approval.Acted, time.Second), Nothing, ""},
		"an approval of another session is abandoned, not acted on":     {identity().granted(dep, "u1").pod("u1", "r0").session("s2"), Abandon, "d1"},
		"an abandoned one stays abandoned":                              {identity().granted(dep, "u1").pod("u1", "r0", marked("d1")).session("s2"), Nothing, ""},
		"a mark of an older decision does not count":                    {identity().granted(dep, "u1").pod("u1", "r0", marked("d0")).session("s2"), Abandon, "d1"},
		"an act of unknown outcome is sent again while it may be":       {identity().granted(dep, "u1").pod("u1", "r0").approval(approval.Unknown, time.Second), DeletePod, "d1"},
		"an act of unknown outcome is abandoned after expiry":           {identity().granted(dep, "u1").pod("u1", "r0").approval(approval.Unknown, 0), Abandon, "d1"},
		"a pod that is down is repaired":                                {identity().granted(dep, "u1").pod("u1", "r0", unready).repair(), DeletePod, "d1"},
		"a pod that came back since is not taken as a repair":           {identity().granted(dep, "u1").pod("u1", "r0").repair(), Nothing, ""},
		"a repair of unknown outcome of what came back is abandoned":    {identity().granted(dep, "u1").pod("u1", "r0").repair().approval(approval.Unknown, time.Second), Abandon, "d1"},
		"the replacement is made without asking again":                  {identity().granted(dep, "u1").session("s2"), CreatePod, ""},
		"a finished grant removes nothing more":                         {identity().granted(dep, "u1").pod("u1", "r1").finished(), Nothing, ""},
		"an approved scale-in removes the Pod":                          {identity().granted(in, "u1").pod("u1", "r1"), DeletePod, "d1"},
		"a removed Pod of a scale-in is not put back":                   {identity().granted(in, "u1").actedOn(), Nothing, ""},
		"the Revision is waited for":                                    {func() *look { l := identity(); l.Revision = nil; return l }(), Nothing, ""},
		"an identity that is being deleted does nothing":                {func() *look { l := identity(); l.Identity.DeletionTimestamp = &metav1.Time{Time: noon}; return l }(), Nothing, ""},
		"a failed Pod whose removal is approved goes by that":           {identity().granted(dep, "u1").pod("u1", "r0", failed), DeletePod, "d1"},
		"OP-17 a Pod is not made while a claim is being deleted":        {identity().claims("data").claim("data-db-0", deleting), Nothing, ""},
		"OP-17 a Pod waits for no claim of another name":                {identity().claims("data").claim("data-db-0").claim("other", deleting), CreatePod, ""},
		"a failed Pod that the grant's judgment does not cover is left": {identity().granted(dep, "u0").pod("u1", "r0", failed), Nothing, ""},
	} {
		p := Make(c.l.Input)
		require.Equal(t, c.verb, p.Verb, name)
		require.Equal(t, c.decision, p.Decision, name)
	}
}

func deleting(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: noon} }

func TestOP17_APendingPodWhoseClaimIsMissingGetsItMade(t *testing.T) {
	p := Make(identity().claims("data", "log").claim("log-db-0").pod("u1", "r1", pendingPod).Input)
	require.Equal(t, Nothing, p.Verb)
	require.Len(t, p.CreateClaims, 1)
	require.Equal(t, "data-db-0", p.CreateClaims[0].Name)
	require.Empty(t, p.CreateClaims[0].OwnerReferences, "claims outlive what they are for")

	running := Make(identity().claims("data").pod("u1", "r1").Input)
	require.Empty(t, running.CreateClaims, "a Pod that runs has its volume")
}

func TestOP17_TheWaitForAClaimSaysWhichAndWhatEndsIt(t *testing.T) {
	p := Make(identity().claims("data").claim("data-db-0", deleting).Input)
	require.Equal(t, "claim data-db-0 is being deleted since 12:00:00 UTC; the Pod is made once it is gone and made anew", p.Wait)
	require.Equal(t, p.Wait, p.Status.Message)
	require.True(t, p.WriteStatus)
}

func TestClaimsAreMadeForAScaleOutOnlyUnderItsApproval(t *testing.T) {
	require.Len(t, Make(identity().claims("data").granted(v1alpha1.ScaleOut, "").Input).CreateClaims, 1)
	require.Empty(t, Make(identity().claims("data").granted(v1alpha1.ScaleOut, "").session("s2").Input).CreateClaims)
}

func TestThePodCarriesItsIdentity(t *testing.T) {
	l := identity().claims("data")
	l.Identity.Spec.Index, l.Identity.Spec.Restart = 3, "again"
	l.Identity.Spec.Parameters = map[string]string{"mode": "safe"}
	l.Revision.Spec.Template.Raw = []byte(`{"metadata":{"labels":{"team":"a"}},"spec":{
		"containers":[{"name":"main","env":[{"name":"ASSENT_SET","value":"mine"},{"name":"ME","value":"$(ASSENT_INDEX)"}]}],
		"initContainers":[{"name":"init"}],"volumes":[{"name":"data","emptyDir":{}},{"name":"tmp","emptyDir":{}}],
		"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]}}`)
	pod := Make(l.claim("data-db-0").Input).Pod
	require.NotNil(t, pod)
	require.Equal(t, map[string]string{
		"team": "a", v1alpha1.LabelApplication: "app", v1alpha1.LabelSet: "db", v1alpha1.LabelIndex: "3",
		v1alpha1.LabelIncarnation: "0", v1alpha1.LabelRevision: "r1", v1alpha1.LabelRestart: "again",
	}, pod.Labels)
	require.Equal(t, "safe", pod.Annotations["assent.dev/mode"])
	require.True(t, Owned(l.Identity, pod))
	require.Equal(t, "db-0", pod.Spec.Hostname)
	require.Equal(t, "db", pod.Spec.Subdomain)
	main := pod.Spec.Containers[0].Env
	require.Equal(t, []string{"ASSENT_INDEX=3", "ASSENT_INCARNATION=0", "ASSENT_REVISION=r1", "ASSENT_APPLICATION=app", "ASSENT_SET=mine", "ME=$(ASSENT_INDEX)"}, lines(main))
	require.Len(t, pod.Spec.InitContainers[0].Env, 5)
	require.Equal(t, "tmp", pod.Spec.Volumes[0].Name)
	require.Equal(t, "data-db-0", pod.Spec.Volumes[1].PersistentVolumeClaim.ClaimName)
	require.Len(t, pod.Spec.Tolerations, 2, "one is the user's own")
	require.Equal(t, corev1.TaintNodeUnreachable, pod.Spec.Tolerations[1].Key)
	require.Nil(t, pod.Spec.Tolerations[1].TolerationSeconds)
}

func lines(env []corev1.EnvVar) []string {
	var out []string
	for _, e := range env {
		out = append(out, e.Name+"="+e.Value)
	}
	return out
}

func TestAvailableMeansReadyLongEnoughAtWhatWasActedOn(t *testing.T) {
	dep := v1alpha1.Deployment
	for name, c := range map[string]struct {
		l    *look
		want bool
		in   time.Duration
	}{
		"ready":                           {identity().pod("u1", "r1"), true, 0},
		"no Pod":                          {identity(), false, 0},
		"not ready":                       {identity().pod("u1", "r1", unready), false, 0},
		"terminating":                     {identity().pod("u1", "r1", terminating), false, 0},
		"another revision":                {identity().pod("u1", "r9"), false, 0},
		"ready, not long enough":          {seconds(7200, identity().pod("u1", "r1")), false, time.Hour},
		"ready just long enough":          {seconds(3600, identity().pod("u1", "r1")), true, 0},
		"granted and not yet acted on":    {identity().granted(dep, "u1").pod("u1", "r0"), true, 0},
		"its removal has begun":           {identity().granted(dep, "u1").pod("u1", "r0", terminating), false, 0},
		"replaced":                        {identity().granted(dep, "u1").pod("u2", "r1"), true, 0},
		"a scale-in not yet acted on":     {identity().granted(v1alpha1.ScaleIn, "u1").pod("u1", "r1"), true, 0},
		"a scale-in that was acted on":    {identity().granted(v1alpha1.ScaleIn, "u1"), false, 0},
		"seen by its node in an old form": {identity().pod("u1", "r1", func(p *corev1.Pod) { p.Generation, p.Status.ObservedGeneration = 3, 2 }), false, 0},
	} {
		a := AvailabilityOf(c.l.Identity, c.l.Pod, noon)
		require.Equal(t, c.want, a.Available, name)
		require.Equal(t, c.in, a.In, name)
		require.Equal(t, c.want, a.Message == "", name)
	}
}

func seconds(n int32, l *look) *look {
	l.Identity.Spec.MinReadySeconds = n
	return l
}

func TestAGrantIsFinishedWhenThePodIsAvailableAsApproved(t *testing.T) {
	dep := v1alpha1.Deployment
	for name, c := range map[string]struct {
		l               *look
		acted, finished string
	}{
		"not acted on":                                      {identity().granted(dep, "u1").pod("u1", "r0"), "", ""},
		"the old Pod terminates":                            {identity().granted(dep, "u1").pod("u1", "r0", terminating), "d1", ""},
		"the old Pod is gone":                               {identity().granted(dep, "u1"), "d1", ""},
		"the new Pod is not ready":                          {identity().granted(dep, "u1").pod("u2", "r1", unready), "d1", ""},
		"the new Pod is available":                          {identity().granted(dep, "u1").pod("u2", "r1"), "d1", "d1"},
		"an old Pod came in between":                        {identity().granted(dep, "u1").pod("u2", "r0"), "", ""},
		"a scale-out's Pod is there":                        {identity().granted(v1alpha1.ScaleOut, "").pod("u1", "r1"), "d1", "d1"},
		"a scale-in ends with the pod's identity, not here": {identity().granted(v1alpha1.ScaleIn, "u1"), "d1", ""},
	} {
		s := Make(c.l.Input).Status
		require.Equal(t, c.acted, s.Acted, name)
		require.Equal(t, c.finished, s.Finished, name)
	}
}

func TestAPodThatIsReplacedAsApprovedCostsOneStatusWrite(t *testing.T) {
	steady := identity().pod("u0", "r0")
	steady.Identity.Spec.Revision = "r0"
	first := Make(steady.Input)
	require.True(t, first.WriteStatus)
	before := first.Status

	steps := []*look{
		identity().granted(v1alpha1.Deployment, "u0").pod("u0", "r0"),
		identity().granted(v1alpha1.Deployment, "u0").pod("u0", "r0", terminating),
		identity().granted(v1alpha1.Deployment, "u0"),
		identity().granted(v1alpha1.Deployment, "u0").pod("u1", "r1", pendingPod, fresh),
		identity().granted(v1alpha1.Deployment, "u0").pod("u1", "r1", unready, fresh),
		identity().granted(v1alpha1.Deployment, "u0").pod("u1", "r1", fresh),
	}
	writes := 0
	for _, l := range steps {
		l.Identity.Status = before
		if p := Make(l.Input); p.WriteStatus {
			writes++
			before = p.Status
		}
	}
	require.Equal(t, 1, writes)
	require.Equal(t, "d1", before.Finished)
	require.Equal(t, "u1", before.PodUID)

	slow := identity().granted(v1alpha1.Deployment, "u0").pod("u1", "r1", unready)
	slow.Identity.Status = first.Status
	require.True(t, Make(slow.Input).WriteStatus, "what takes long is told")
}

func fresh(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(noon) }

func TestALostPodIsReportedWithItsCause(t *testing.T) {
	known := Make(identity().pod("u1", "r1").Input).Status
	l := identity().pod("u1", "r1", failed)
	l.Identity.Status = known
	p := Make(l.Input)
	require.True(t, p.WriteStatus)
	require.False(t, p.Status.Available)
	require.True(t, p.Status.EverAvailable)
	require.Equal(t, "the Pod was stopped by somebody else: Evicted", condition(p, v1alpha1.ConditionPodLost).Message)

	gone := identity()
	gone.Identity.Status = known
	require.Equal(t, metav1.ConditionTrue, condition(Make(gone.Input), v1alpha1.ConditionPodLost).Status)

	back := identity().pod("u2", "r1")
	back.Identity.Status = p.Status
	require.Equal(t, metav1.ConditionFalse, condition(Make(back.Input), v1alpha1.ConditionPodLost).Status)

	ours := identity().granted(v1alpha1.Deployment, "u1")
	ours.Identity.Status = known
	require.Nil(t, condition(Make(ours.Input), v1alpha1.ConditionPodLost), "we took it ourselves")
}

func condition(p Plan, kind string) *metav1.Condition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// drawn is any state of affairs around one identity.
func drawn(t *rapid.T) *look {
	l := identity()
	if rapid.Bool().Draw(t, "claims") {
		l.claims("data")
		switch rapid.IntRange(0, 2).Draw(t, "claim") {
		case 1:
			l.claim("data-db-0")
		case 2:
			l.claim("data-db-0", deleting)
		}
	}
	types_ := []v1alpha1.OperationType{"", v1alpha1.ScaleOut, v1alpha1.ScaleIn, v1alpha1.Deployment}
	if kind := rapid.SampledFrom(types_).Draw(t, "type"); kind != "" {
		l.granted(kind, rapid.SampledFrom([]string{"", "u1", "u2"}).Draw(t, "uid"))
		phases := []approval.Phase{approval.Received, approval.Recorded, approval.Begun, approval.Unknown, approval.Acted}
		l.approval(rapid.SampledFrom(phases).Draw(t, "phase"), time.Duration(rapid.IntRange(-1, 1).Draw(t, "left"))*time.Second)
		switch rapid.IntRange(0, 3).Draw(t, "session") {
		case 0:
			l.session("s2")
		case 1:
			l.unapproved()
		}
		switch rapid.IntRange(0, 2).Draw(t, "progress") {
		case 0:
			l.finished()
		case 1:
			l.actedOn()
		}
	}
	shapes := map[string]func(*corev1.Pod){
		"ready": func(*corev1.Pod) {}, "unready": unready, "pending": pendingPod, "terminating": terminating, "failed": failed,
		"marked": marked("d1"), "foreign": func(p *corev1.Pod) { p.OwnerReferences = nil },
	}
	if shape := rapid.SampledFrom([]string{"", "ready", "unready", "pending", "terminating", "failed", "marked", "foreign"}).Draw(t, "pod"); shape != "" {
		uid := types.UID(rapid.SampledFrom([]string{"u1", "u2"}).Draw(t, "pod uid"))
		l.pod(uid, rapid.SampledFrom([]string{"r0", "r1"}).Draw(t, "revision"), shapes[shape])
	}
	return l
}

func TestNoPodThatRunsIsRemovedWithoutAnApprovalThatHoldsNow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawn(t)
		p := Make(l.Input)
		switch p.Verb {
		case DeletePod:
			g := l.Identity.Spec.Grant
			require.True(t, Open(l.Identity) && Removing(g))
			require.Equal(t, "s1", l.Session)
			require.Equal(t, g.PodUID, string(l.Pod.UID))
			require.True(t, Owned(l.Identity, l.Pod))
			require.NotNil(t, l.Approval)
			require.False(t, l.Approval.Expired(l.Now))
			require.Equal(t, "d1", p.Decision)
		case ClearPod:
			require.Equal(t, corev1.PodFailed, l.Pod.Status.Phase)
		case CreatePod:
			require.Nil(t, l.Pod)
			require.Equal(t, v1alpha1.Running, l.Identity.Spec.State)
		}
	})
}

func TestAStatusThatWasStoredIsNotWrittenAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawn(t)
		p := Make(l.Input)
		l.Identity.Status = p.Status
		again := Make(l.Input)
		require.False(t, again.WriteStatus, "%+v\n%+v", p.Status, again.Status)
	})
}
