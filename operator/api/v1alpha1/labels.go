package v1alpha1

// Labels and annotations that the operator sets on everything it makes.
const (
	// LabelApplication carries the application's name.
	LabelApplication = "assent.dev/application"
	// LabelSet carries the LiStatefulSet's name.
	LabelSet = "assent.dev/set"
	// LabelBlock carries the number of the block of indices.
	LabelBlock = "assent.dev/block"
	// LabelIndex carries the pod's index.
	LabelIndex = "assent.dev/index"
	// LabelIncarnation carries the pod's incarnation; 0 for the first.
	LabelIncarnation = "assent.dev/incarnation"
	// LabelRevision carries the name of the Revision a Pod was made from.
	LabelRevision = "assent.dev/revision"
	// LabelRestart carries the restart id a Pod was made for; absent while there was none.
	LabelRestart = "assent.dev/restart"
	// LabelOperationType carries an Operation's type.
	LabelOperationType = "assent.dev/operation-type"

	// AnnotationParameterPrefix precedes approval parameters on a Pod.
	AnnotationParameterPrefix = "assent.dev/"
	// AnnotationNeeds lists, as JSON, what would make a deferred step safe.
	AnnotationNeeds = "assent.dev/needs"
	// AnnotationAbandoned is written on a Pod to make a late delete fail its resourceVersion precondition.
	AnnotationAbandoned = "assent.dev/abandoned"
)
