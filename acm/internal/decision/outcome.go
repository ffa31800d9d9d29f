package decision

import "fmt"

// Type is an operation's type.
type Type string

// Operation types.
const (
	ScaleOut   Type = "scale-out"
	ScaleIn    Type = "scale-in"
	Deployment Type = "deployment"
	Disruption Type = "disruption"
	Swap       Type = "swap"
)

// Stage is the part of an operation that needs an approval of its own.
type Stage string

// Stages.
const (
	StageAdd     Stage = "add"
	StageUpdate  Stage = "update"
	StageRemove  Stage = "remove"
	StageRelease Stage = "release"
)

// Verdict is the answer to a question.
type Verdict string

// Verdicts: not now, ask again (defer); never in this form (deny); go (approve).
const (
	Approve Verdict = "approve"
	Defer   Verdict = "defer"
	Deny    Verdict = "deny"
)

// Codes of the machinery that this side gives. They equal the dotted texts of proto acm.v1.ReasonCode.
const (
	CodePolicyUndefined   = "policy.undefined"
	CodePolicyConflict    = "policy.conflict"
	CodePolicyError       = "policy.error"
	CodePolicyTimeout     = "policy.timeout"
	CodePolicyNoApproval  = "policy.no_approval"
	CodePolicyMalformed   = "policy.malformed"
	CodeFactsStale        = "facts.stale"
	CodeFactsMissing      = "facts.missing"
	CodeFactsBehind       = "facts.behind"
	CodeBundleMissing     = "bundle.missing"
	CodeBundleInvalid     = "bundle.invalid"
	CodeACMTimeout        = "acm.timeout"
	CodeACMStarting       = "acm.starting"
	CodeACMNotDeciding    = "acm.not_deciding"
	CodeACMMalformed      = "acm.malformed"
	CodeCapFull           = "cap.full"
	CodePodBusy           = "pod.busy"
	CodeSessionSuperseded = "session.superseded"
)

// Outcome is what a policy said to one question, before anything is made of it. The engine fills
// it; Combine judges it. When Err is set the rest is ignored and the verdict is defer.
type Outcome struct {
	// Deny, Defer and Warn are the members of the policy's reason sets as decoded JSON: string, bool, nil,
	// float64 or json.Number, []any, map[string]any. They may be malformed.
	Deny, Defer, Warn []any
	// Approve is the policy's approve as decoded JSON; nil when it is undefined.
	Approve any
	Err     *MachineryError
}

// MachineryError is a failure of anything but the policy's own judgement. It always ends in a
// defer with its code. Message is one line for people: what failed, where (file:line), what to do.
type MachineryError struct {
	Code    string
	Message string
	// Details are shown beside the message; JSON values only. May be nil.
	Details map[string]any
}

// Error gives code and message.
func (e *MachineryError) Error() string { return fmt.Sprintf("%s: %s", e.Code, e.Message) }
