package operation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/question"
)

// scene is what an instance is projected from, in words.
type scene struct {
	kind   v1alpha1.OperationType
	before v1alpha1.InstanceState
	wish   wish
	// grant: "", mine, finished, other (another Operation's, open), done (another's, finished), foreign (mine, of another
	// session).
	grant string
	// pod: "", judged, terminating, new (at the approved revision, not ready), up (the same, available), wrong (another at
	// the old revision), marked (judged, abandoned).
	pod string
	// identity: "", none, absent, stopped, target (approved as wanted already).
	identity string
	phase    approval.Phase
	expired  bool
	parked   bool
	repair   bool
}

func (s scene) view() view {
	v := view{
		operation: "op", kind: s.kind, target: v1alpha1.Target{Revision: "r2"}, before: s.before, wish: s.wish,
		session: "s1", parked: s.parked, now: noon,
	}
	if v.wish == "" {
		v.wish = wishSame
	}
	if s.identity == "none" || s.identity == "absent" {
		v.absent = s.identity == "absent"
		return v
	}
	v.identity = &v1alpha1.StatefulPod{ObjectMeta: metav1.ObjectMeta{UID: "identity"}}
	spec := &v.identity.Spec
	spec.Revision, spec.State = "r1", v1alpha1.Running
	switch s.identity {
	case "stopped":
		spec.State = v1alpha1.Stopped
	case "target":
		spec.Revision = "r2"
	}
	if s.grant != "" {
		s.give(&v)
	}
	v.pod = s.thePod(spec.Revision)
	return v
}

func (s scene) give(v *view) {
	g := &v1alpha1.Grant{Operation: "op", Type: s.kind, Stage: stageOf(s.kind), Decision: "d1", Session: "s1", PodUID: "judged", Repair: s.repair}
	spec := &v.identity.Spec
	g.Previous = &v1alpha1.Approved{Revision: "r1", State: v1alpha1.Running}
	spec.Grant = g
	switch s.kind {
	case v1alpha1.ScaleIn:
		spec.State = v1alpha1.Stopped
	case v1alpha1.ScaleOut:
		g.PodUID, g.Previous.State, spec.Revision = "", v1alpha1.Stopped, "r2"
	default:
		spec.Revision = "r2"
	}
	switch s.grant {
	case "finished":
		v.identity.Status.Finished = "d1"
	case "foreign":
		g.Session = "s0"
	case "other", "done":
		g.Operation = "op2"
		if s.grant == "done" {
			v.identity.Status.Finished = "d1"
		}
	}
	if s.phase != "" {
		left := time.Second
		if s.expired {
			left = 0
		}
		v.approval = &approval.Held{Approval: approval.Approval{Decision: "d1", Deadline: noon.Add(left)}, Phase: s.phase}
	}
}

func (s scene) thePod(approved string) *corev1.Pod {
	if s.pod == "" {
		return nil
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(s.pod), Labels: map[string]string{v1alpha1.LabelRevision: approved},
		OwnerReferences: []metav1.OwnerReference{{UID: "identity", Controller: ptr.To(true)}},
	}}
	ready := corev1.ConditionTrue
	switch s.pod {
	case "judged":
		p.Labels[v1alpha1.LabelRevision] = "r1"
	case "terminating":
		p.UID, p.DeletionTimestamp = "judged", &metav1.Time{Time: noon}
	case "marked":
		p.UID, p.Annotations = "judged", map[string]string{v1alpha1.AnnotationAbandoned: "d1"}
	case "new":
		ready = corev1.ConditionFalse
	case "wrong":
		p.Labels[v1alpha1.LabelRevision] = "r1"
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

func TestEveryStateFollowsFromGrantPodAndWish(t *testing.T) {
	const (
		dep, in, out = v1alpha1.Deployment, v1alpha1.ScaleIn, v1alpha1.ScaleOut
		w, d, g, a   = v1alpha1.Waiting, v1alpha1.Denied, v1alpha1.Granted, v1alpha1.Acting
		v, s, x, sup = v1alpha1.Verifying, v1alpha1.Succeeded, v1alpha1.Withdrawn, v1alpha1.Superseded
		rec, beg     = approval.Recorded, approval.Begun
	)
	is := func(state v1alpha1.InstanceState) standing { return standing{state: state} }
	back := func(code string, certain bool) standing {
		return standing{state: g, todo: todoReturn, code: code, certain: certain}
	}
	expired, changed := question.CodeGrantExpired, question.CodeStateChanged
	for name, c := range map[string]struct {
		scene scene
		want  standing
	}{
		// Nothing granted.
		"claimed":                                        {scene{kind: dep, pod: "judged"}, is(w)},
		"claimed, staging not seen":                      {scene{kind: dep, pod: "judged", wish: wishUnknown}, is(w)},
		"denied":                                         {scene{kind: dep, pod: "judged", parked: true}, is(d)},
		"denied, then a key that changed":                {scene{kind: dep, before: d, pod: "judged"}, is(w)},
		"the wish went away":                             {scene{kind: dep, before: w, pod: "judged", wish: wishChanged}, is(x)},
		"the wish went away after a denial":              {scene{kind: dep, before: d, parked: true, pod: "judged", wish: wishChanged}, is(x)},
		"approved as wanted without our doing":           {scene{kind: dep, pod: "up", identity: "target"}, is(x)},
		"approved as wanted, run as before":              {scene{kind: dep, pod: "wrong", identity: "target"}, is(w)},
		"another Operation has the pod":                  {scene{kind: dep, grant: "other", pod: "judged"}, is(w)},
		"another Operation had the pod":                  {scene{kind: in, grant: "done", pod: "up"}, is(w)},
		"the grant was taken over":                       {scene{kind: in, before: v, grant: "other", pod: "new"}, standing{state: sup, by: "op2"}},
		"the grant was taken back":                       {scene{kind: dep, before: g, pod: "judged"}, is(w)},
		"the identity is not seen":                       {scene{kind: dep, identity: "none"}, is(w)},
		"the identity is gone":                           {scene{kind: dep, before: w, identity: "absent"}, is(x)},
		"a scale-out without identity":                   {scene{kind: out, identity: "none"}, is(w)},
		"a scale-out without identity, not wanted":       {scene{kind: out, identity: "none", wish: wishChanged}, is(x)},
		"a scale-out that went back":                     {scene{kind: out, identity: "stopped"}, is(w)},
		"a scale-out that went back, not wanted":         {scene{kind: out, identity: "stopped", wish: wishChanged}, standing{state: w, todo: todoRemove}},
		"a scale-out not wanted, whose Pod came late":    {scene{kind: out, identity: "stopped", pod: "new", wish: wishChanged}, is(x)},
		"a scale-out of what exists":                     {scene{kind: out, pod: "up"}, is(x)},
		"a scale-in of what is gone":                     {scene{kind: in, before: a, identity: "absent"}, is(s)},
		"a scale-in of what is not seen":                 {scene{kind: in, before: a, identity: "none"}, is(w)},
		"a scale-in not wanted anymore":                  {scene{kind: in, pod: "up", wish: wishChanged}, is(x)},
		"a scale-in of a stopped identity without grant": {scene{kind: in, identity: "stopped"}, is(w)},

		// Granted, not acted on.
		"granted":                              {scene{kind: dep, grant: "mine", pod: "judged", phase: rec}, is(g)},
		"granted, receipt not noted yet":       {scene{kind: dep, grant: "mine", pod: "judged", phase: approval.Received}, is(g)},
		"expired":                              {scene{kind: dep, grant: "mine", pod: "judged", phase: rec, expired: true}, back(expired, false)},
		"being acted on":                       {scene{kind: dep, grant: "mine", pod: "judged", phase: beg, expired: true}, is(g)},
		"of unknown outcome":                   {scene{kind: dep, grant: "mine", pod: "judged", phase: approval.Unknown, expired: true}, is(g)},
		"of unknown outcome, abandoned":        {scene{kind: dep, grant: "mine", pod: "marked", phase: approval.Unknown, expired: true}, back(expired, true)},
		"accepted, not seen yet":               {scene{kind: dep, grant: "mine", pod: "judged", phase: approval.Acted}, is(a)},
		"revoked":                              {scene{kind: dep, grant: "mine", pod: "judged"}, back(expired, true)},
		"wish changed before the act":          {scene{kind: dep, grant: "mine", pod: "judged", phase: rec, wish: wishChanged}, back(changed, false)},
		"wish changed during the act":          {scene{kind: dep, grant: "mine", pod: "judged", phase: beg, wish: wishChanged}, is(g)},
		"a repair of what has come back":       {scene{kind: dep, grant: "mine", pod: "judged", phase: rec, repair: true}, back(changed, false)},
		"the same, during the act":             {scene{kind: dep, grant: "mine", pod: "judged", phase: beg, repair: true}, is(g)},
		"of an earlier session":                {scene{kind: dep, grant: "foreign", pod: "judged"}, is(g)},
		"of an earlier session, abandoned":     {scene{kind: dep, grant: "foreign", pod: "marked"}, back(expired, true)},
		"another pod came in between":          {scene{kind: dep, grant: "mine", pod: "wrong", phase: rec}, back(changed, true)},
		"a scale-in, another pod in between":   {scene{kind: in, grant: "mine", pod: "new", phase: rec}, back(changed, true)},
		"a first Pod to make":                  {scene{kind: out, grant: "mine", phase: rec}, is(g)},
		"a first Pod not made in time":         {scene{kind: out, grant: "mine", phase: rec, expired: true}, back(expired, false)},
		"a first Pod of unknown outcome":       {scene{kind: out, grant: "mine", phase: approval.Unknown}, is(g)},
		"a first Pod of unknown outcome, late": {scene{kind: out, grant: "mine", phase: approval.Unknown, expired: true}, back(expired, true)},
		"a first Pod of an earlier session":    {scene{kind: out, grant: "foreign"}, back(expired, true)},
		"a scale-in withdrawn before the act":  {scene{kind: in, grant: "mine", pod: "judged", phase: rec, wish: wishChanged}, back(changed, false)},

		// Acted on.
		"terminating":                              {scene{kind: dep, grant: "mine", pod: "terminating", phase: approval.Acted}, is(a)},
		"terminating, of an earlier session":       {scene{kind: dep, grant: "foreign", pod: "terminating"}, is(a)},
		"terminating, wish changed":                {scene{kind: dep, grant: "mine", pod: "terminating", wish: wishChanged}, is(a)},
		"gone":                                     {scene{kind: dep, grant: "foreign"}, is(v)},
		"replaced, not ready":                      {scene{kind: dep, grant: "foreign", pod: "new"}, is(v)},
		"replaced and available":                   {scene{kind: dep, grant: "mine", pod: "up"}, is(v)},
		"replaced, not ready, wish changed":        {scene{kind: dep, grant: "mine", pod: "new", wish: wishChanged}, is(sup)},
		"gone, wish changed":                       {scene{kind: dep, grant: "mine", wish: wishChanged}, is(sup)},
		"replaced and available, wish changed":     {scene{kind: dep, grant: "mine", pod: "up", wish: wishChanged}, is(v)},
		"a first Pod, not ready":                   {scene{kind: out, grant: "foreign", pod: "new"}, is(v)},
		"a first Pod, not ready, not wanted":       {scene{kind: out, grant: "mine", pod: "new", wish: wishChanged}, is(sup)},
		"a scale-in whose Pod terminates":          {scene{kind: in, grant: "foreign", pod: "terminating"}, is(a)},
		"a scale-in whose Pod is gone":             {scene{kind: in, grant: "foreign"}, standing{state: a, todo: todoRemove}},
		"a scale-in withdrawn after the act":       {scene{kind: in, grant: "mine", pod: "terminating", wish: wishChanged}, is(a)},
		"a scale-in withdrawn after the Pod's end": {scene{kind: in, grant: "mine", wish: wishChanged}, standing{state: a, todo: todoRemove}},

		// Ends.
		"finished":                       {scene{kind: dep, grant: "finished", pod: "up"}, is(s)},
		"finished, wish changed since":   {scene{kind: dep, grant: "finished", pod: "up", wish: wishChanged}, is(s)},
		"finished, lost since":           {scene{kind: dep, grant: "finished"}, is(s)},
		"succeeded stays":                {scene{kind: dep, before: s, grant: "other", pod: "new"}, is(s)},
		"withdrawn stays":                {scene{kind: dep, before: x, pod: "judged"}, is(x)},
		"superseded stays":               {scene{kind: dep, before: sup, grant: "mine", pod: "up"}, is(sup)},
		"superseded stays when finished": {scene{kind: dep, before: sup, grant: "finished", pod: "up"}, is(sup)},
	} {
		require.Equal(t, c.want, project(c.scene.view()), name)
	}
}
