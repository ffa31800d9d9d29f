package operation

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/operator/internal/plan/statefulpod"
)

// wish is whether what an instance is for is still wanted.
type wish string

const (
	// wishUnknown: the staging that is seen is older than the instance's claim, or not seen at all.
	wishUnknown wish = "unknown"
	wishSame    wish = "same"
	// wishChanged: the index is not wanted anymore, or wanted differently.
	wishChanged wish = "changed"
)

// todo is what has to be written before an instance can go on.
type todo string

const (
	todoNothing todo = ""
	// todoReturn: take the grant back.
	todoReturn todo = "return"
	// todoRemove: delete the identity, whose Pod is gone.
	todoRemove todo = "remove"
)

// view is everything that an instance's state depends on.
type view struct {
	operation string
	kind      v1alpha1.OperationType
	target    v1alpha1.Target
	// before is the recorded state; empty when none is.
	before v1alpha1.InstanceState
	wish   wish
	// identity is nil when it is not seen; absent says that it is proven not to exist.
	identity *v1alpha1.StatefulPod
	absent   bool
	// pod is the identity's own Pod; nil when there is none.
	pod *corev1.Pod
	// approval of the grant's decision in this session; nil when there is none.
	approval *approval.Held
	session  string
	// parked: the last word is a denial that still holds.
	parked bool
	now    time.Time
}

// standing is where an instance is.
type standing struct {
	state v1alpha1.InstanceState
	todo  todo
	// certain, for todoReturn: no act can be on its way.
	certain bool
	// code says why, for todoReturn.
	code string
	// by names the Operation that took over, for Superseded.
	by string
}

// project derives an instance's state. Ends are for ever; everything else follows from the grant, the Pod and the wish.
func project(v view) standing {
	if v.before.Ended() {
		return standing{state: v.before}
	}
	if v.identity == nil || v.identity.Spec.Grant == nil || v.identity.Spec.Grant.Operation != v.operation {
		return ungranted(v)
	}
	if !statefulpod.Open(v.identity) {
		return standing{state: v1alpha1.Succeeded}
	}
	switch statefulpod.EvidenceOf(v.identity, v.pod) {
	case statefulpod.Acted:
		return acted(v)
	case statefulpod.Changed:
		return changed()
	}
	return notActed(v)
}

// ungranted is an instance without a grant of its own.
func ungranted(v view) standing {
	switch {
	case v.identity == nil && v.kind == v1alpha1.ScaleIn && v.absent:
		return standing{state: v1alpha1.Succeeded}
	case v.identity == nil && v.kind != v1alpha1.ScaleOut:
		return missing(v)
	case v.identity != nil && v.before.InFlight() && statefulpod.Open(v.identity):
		return standing{state: v1alpha1.Superseded, by: v.identity.Spec.Grant.Operation}
	case v.wish == wishChanged:
		return withdrawn(v)
	case v.identity != nil && !statefulpod.Open(v.identity) && already(v):
		return standing{state: v1alpha1.Withdrawn}
	case v.parked:
		return standing{state: v1alpha1.Denied}
	}
	return standing{state: v1alpha1.Waiting}
}

// missing is a change of an identity that is not seen.
func missing(v view) standing {
	if v.absent {
		return standing{state: v1alpha1.Withdrawn}
	}
	return standing{state: v1alpha1.Waiting}
}

// withdrawn undoes what a scale-out has prepared before it ends. An identity that has got a Pod after all is left to a
// scale-in.
func withdrawn(v view) standing {
	prepared := v.kind == v1alpha1.ScaleOut && v.identity != nil && v.identity.Spec.State == v1alpha1.Stopped
	if prepared && v.pod == nil && !statefulpod.Open(v.identity) {
		return standing{state: v1alpha1.Waiting, todo: todoRemove}
	}
	return standing{state: v1alpha1.Withdrawn}
}

// already says whether the identity is approved as the instance wants it without its doing.
func already(v view) bool {
	s := &v.identity.Spec
	if s.State != v1alpha1.Running {
		return false
	}
	switch v.kind {
	case v1alpha1.ScaleOut:
		return true
	case v1alpha1.Deployment:
		// A Pod that an earlier leader made late may be behind what is approved.
		made := v.pod == nil || statefulpod.AtApproved(v.identity, v.pod)
		return made && s.Revision == v.target.Revision && s.Restart == v.target.Restart
	}
	return false
}

// acted is an instance past its act: it goes on to its end, or yields while its pod is down anyway.
func acted(v view) standing {
	gone := v.pod == nil
	switch {
	case v.kind == v1alpha1.ScaleIn && gone:
		return standing{state: v1alpha1.Acting, todo: todoRemove}
	case v.kind == v1alpha1.ScaleIn:
		return standing{state: v1alpha1.Acting}
	case !gone && string(v.pod.UID) == v.identity.Spec.Grant.PodUID:
		return standing{state: v1alpha1.Acting}
	case v.wish == wishChanged && !statefulpod.AvailabilityOf(v.identity, v.pod, v.now).Available:
		return standing{state: v1alpha1.Superseded}
	}
	return standing{state: v1alpha1.Verifying}
}

// changed is an instance whose pod is not the one that was judged. A delete of that one cannot hit this one.
func changed() standing {
	return standing{state: v1alpha1.Granted, todo: todoReturn, certain: true, code: question.CodeStateChanged}
}

// notActed is a granted instance whose act is not seen: it may be on its way, be still to come, or never come.
func notActed(v view) standing {
	g := v.identity.Spec.Grant
	granted := standing{state: v1alpha1.Granted}
	back := standing{state: v1alpha1.Granted, todo: todoReturn, code: question.CodeGrantExpired}
	abandoned := v.pod != nil && v.pod.Annotations[v1alpha1.AnnotationAbandoned] == g.Decision
	switch {
	case abandoned:
		back.certain = true
		return back
	case g.Session != v.session && g.Stage == v1alpha1.StageAdd:
		back.certain = true
		return back
	case g.Session != v.session:
		// The earlier session's call may still be on its way until the pod is marked.
		return granted
	case v.approval == nil:
		back.certain = true
		return back
	case v.approval.Phase == approval.Acted:
		return standing{state: v1alpha1.Acting}
	case !v.approval.Revocable() && g.Stage == v1alpha1.StageAdd && v.approval.Expired(v.now):
		// A late create disturbs nobody: the Pod that it makes is found and asked about.
		back.certain = true
		return back
	case !v.approval.Revocable():
		return granted
	case v.approval.Expired(v.now):
		return back
	case v.wish == wishChanged, statefulpod.Recovered(v.identity, v.pod, v.now):
		back.code = question.CodeStateChanged
		return back
	}
	return granted
}
