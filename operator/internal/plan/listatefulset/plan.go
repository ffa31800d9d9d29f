package listatefulset

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Input is one look at a set and everything that belongs to it. Nothing in it is changed.
type Input struct {
	Set *v1alpha1.LiStatefulSet
	// Revisions, Indexes, Operations and Pods (identities) that this very set owns.
	Revisions  []v1alpha1.Revision
	Indexes    []v1alpha1.PodIndex
	Operations []v1alpha1.Operation
	Pods       []v1alpha1.StatefulPod
	// Siblings are the sets of the same application and namespace, with or without this one.
	Siblings []v1alpha1.LiStatefulSet
	// Service of the set's name; nil when there is none.
	Service *corev1.Service
	// Ready is how many Pods of the set are Ready.
	Ready int32
	Now   time.Time
}

// Plan is what should be written, in the order of its fields.
type Plan struct {
	// Stale: the set seen is older than what was already staged from it. Then nothing else is planned.
	Stale bool
	// Revision to create; nil when the template has one.
	Revision *v1alpha1.Revision
	Staging  Staging
	// Service to apply; nil when it is as wanted or not ours to touch.
	Service *corev1.Service
	// RevisionStatus has the Revisions whose status changes.
	RevisionStatus []v1alpha1.Revision
	// Unused Revisions beyond the history limit, oldest first. Removing one wants a live look first.
	Unused []v1alpha1.Revision
	// Status of the set, and whether it has to be written now. Otherwise at most once a second.
	Status       v1alpha1.LiStatefulSetStatus
	StatusUrgent bool
	// LookAgain is when a deadline passes; zero for never.
	LookAgain time.Time
}

// Make plans. A template that cannot be used stages nothing and leaves what was staged.
func Make(in Input) Plan {
	if newestStaged(in.Indexes) > in.Set.Generation {
		return Plan{Stale: true}
	}
	p := Plan{}
	tmpl, problem := ReadTemplate(in.Set.Spec.Template.Raw)
	var revisions revisions
	if problem == nil {
		revisions = toRevisions(in, tmpl)
		p.Revision = revisions.create
		p.Staging = toPodIndexes(in, revisions)
	}
	var taken string
	p.Service, taken = toService(in.Set, in.Service)
	p.RevisionStatus = toRevisionStatus(in, revisions)
	p.Unused = unused(in, revisions)
	p.Status, p.LookAgain = toStatus(in, facts{revisions: revisions, staging: p.Staging, template: problem, serviceTaken: taken})
	p.StatusUrgent = urgent(in.Set.Status, p.Status)
	return p
}

func newestStaged(indexes []v1alpha1.PodIndex) int64 {
	var newest int64
	for i := range indexes {
		newest = max(newest, indexes[i].Spec.SetGeneration)
	}
	return newest
}
