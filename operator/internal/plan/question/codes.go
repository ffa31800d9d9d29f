package question

// Reason codes that the operator gives itself or acts on. They are the protocol's.
const (
	CodeUnavailable  = "acm.unavailable"
	CodeTimeout      = "acm.timeout"
	CodeStarting     = "acm.starting"
	CodeNotDeciding  = "acm.not_deciding"
	CodeMalformed    = "acm.malformed"
	CodeNotAsked     = "acm.not_asked"
	CodeCapFull      = "cap.full"
	CodePodBusy      = "pod.busy"
	CodeConflict     = "application.conflict"
	CodeSessionOld   = "session.superseded"
	CodePaused       = "set.paused"
	CodeGrantExpired = "grant.expired"
	CodeStateChanged = "state.changed"
	CodePodRefused   = "pod.refused"
)
