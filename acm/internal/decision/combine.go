package decision

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Reason is one argument of a policy or of the machinery, checked.
type Reason struct {
	Code    string
	Message string
	// RetryAfter is 0 when the reason names none.
	RetryAfter time.Duration
	Details    map[string]any
	Need       *Need
	// Disabled: an override switched the reason off; it did not count.
	Disabled bool
}

// Need names an action that would make a deferred step safe.
type Need struct {
	Action     string
	Subject    string
	Parameters map[string]any
}

// Judgement is a verdict with its reasons. Reasons are never empty for defer and deny.
type Judgement struct {
	Verdict    Verdict
	Reasons    []Reason
	Warnings   []Reason
	Needs      []Need
	RetryAfter time.Duration
}

// DefaultRetry is the answer's retry_after when no reason gives one.
const DefaultRetry = 5 * time.Second

const (
	maxRetry    = 24 * time.Hour
	quoteLimit  = 200
	bundleHint  = "nothing objected and nothing approved; the usual line is `approve if acm.clear`"
	overrideFmt = "disabled until %s by %s: %s"
)

var codePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$`)

// protected families of codes cannot be disabled.
var protected = []string{"policy.", "facts.", "bundle.", "acm."}

// Combine makes a verdict of what the policy said: machinery errors first, then disabled reasons
// become warnings, then deny > defer > approve, and nothing is a defer. A malformed reason never
// disappears and never denies: it is a defer of its own that quotes what was given. Beside a
// well-formed deny it is a warning, and a malformed warning stays one.
func Combine(o Outcome, disabled map[string]*Disabled) Judgement {
	if o.Err != nil {
		return Failed(o.Err)
	}
	c := combiner{disabled: disabled}
	deny, deferred := c.reasons("deny", o.Deny), c.reasons("defer", o.Defer)
	malformedReasons := c.malformed
	c.malformed = nil
	warn := c.reasons("warn", o.Warn)
	j := Judgement{Warnings: slices.Concat(c.muted, warn, c.malformed)}
	switch {
	case len(deny) > 0:
		j.Verdict, j.Reasons, j.Warnings = Deny, deny, append(j.Warnings, malformedReasons...)
	case len(deferred)+len(malformedReasons) > 0:
		j.Verdict, j.Reasons = Defer, append(deferred, malformedReasons...)
	case o.Approve == true:
		j.Verdict = Approve
	case o.Approve == nil || o.Approve == false:
		j.Verdict, j.Reasons = Defer, []Reason{{Code: CodePolicyNoApproval, Message: bundleHint}}
	default:
		j.Verdict, j.Reasons = Defer, []Reason{malformed("approve", o.Approve, "it is not a boolean")}
	}
	return j.finish()
}

// Failed is the defer that a failure of the machinery ends in.
func Failed(err *MachineryError) Judgement {
	return Judgement{Verdict: Defer, Reasons: []Reason{{Code: err.Code, Message: err.Message, Details: err.Details}}}.finish()
}

// Blocked is the judgement when something beyond the policy stands in the way as well: an approval
// becomes a defer, and whatever the policy said is shown beside the machinery's reason.
func (j Judgement) Blocked(err *MachineryError) Judgement {
	if j.Verdict == Approve {
		j.Verdict = Defer
	}
	j.Reasons = append(j.Reasons, Reason{Code: err.Code, Message: err.Message, Details: err.Details})
	return j.finish()
}

// finish sorts, and derives needs and retry_after.
func (j Judgement) finish() Judgement {
	sortReasons(j.Reasons)
	sortReasons(j.Warnings)
	seen := map[string]bool{}
	j.Needs = nil
	for _, r := range j.Reasons {
		j.RetryAfter = max(j.RetryAfter, r.RetryAfter)
		if r.Need == nil {
			continue
		}
		key := r.Need.Action + "\x00" + r.Need.Subject
		if !seen[key] {
			seen[key] = true
			j.Needs = append(j.Needs, *r.Need)
		}
	}
	if j.RetryAfter == 0 && j.Verdict == Defer {
		j.RetryAfter = DefaultRetry
	}
	return j
}

// sortReasons keeps policy order among equals: by code, then message.
func sortReasons(rs []Reason) {
	slices.SortStableFunc(rs, func(a, b Reason) int {
		if c := strings.Compare(a.Code, b.Code); c != 0 {
			return c
		}
		return strings.Compare(a.Message, b.Message)
	})
}

type combiner struct {
	disabled  map[string]*Disabled
	malformed []Reason
	muted     []Reason
}

// reasons checks the members of one set; malformed and disabled ones go aside.
func (c *combiner) reasons(rule string, raw []any) []Reason {
	var out []Reason
	for _, value := range raw {
		r, fault := parseReason(value)
		switch {
		case fault != "":
			c.malformed = append(c.malformed, malformed(rule, value, fault))
		case rule != "warn" && c.switchedOff(r.Code) != nil:
			d := c.switchedOff(r.Code)
			r.Disabled = true
			r.Message += " (" + fmt.Sprintf(overrideFmt, time.Unix(int64(d.Until), 0).UTC().Format(time.RFC3339), d.By, d.Why) + ")"
			c.muted = append(c.muted, r)
		default:
			out = append(out, r)
		}
	}
	return out
}

// switchedOff finds the override of a code or of its check (the first segment).
func (c *combiner) switchedOff(code string) *Disabled {
	for _, family := range protected {
		if strings.HasPrefix(code, family) {
			return nil
		}
	}
	if d := c.disabled[code]; d != nil {
		return d
	}
	check, _, _ := strings.Cut(code, ".")
	return c.disabled[check]
}

func malformed(rule string, value any, fault string) Reason {
	quoted, err := json.Marshal(value)
	if err != nil {
		quoted = []byte(fmt.Sprintf("%v", value))
	}
	if len(quoted) > quoteLimit {
		quoted = append(quoted[:quoteLimit:quoteLimit], "..."...)
	}
	return Reason{Code: CodePolicyMalformed, Message: fmt.Sprintf("%s gave %s: %s", rule, quoted, fault)}
}

// parseReason gives the reason, or what is wrong with it.
func parseReason(value any) (Reason, string) {
	object, ok := value.(map[string]any)
	if !ok {
		return Reason{}, "a reason is an object with code and message"
	}
	r := Reason{}
	if r.Code, ok = object["code"].(string); !ok || !codePattern.MatchString(r.Code) {
		return Reason{}, "its code is not a text such as check.what_is_wrong"
	}
	if r.Message, ok = object["message"].(string); !ok || r.Message == "" {
		return Reason{}, "it has no message"
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if fault := r.optional(key, object[key]); fault != "" {
			return Reason{}, fault
		}
	}
	return r, ""
}

func (r *Reason) optional(key string, value any) string {
	var ok bool
	switch key {
	case "code", "message":
		return ""
	case "retry_after":
		seconds, isNumber := number(value)
		if !isNumber || seconds <= 0 || seconds > maxRetry.Seconds() {
			return "its retry_after is not a number of seconds above 0 and at most 86400"
		}
		r.RetryAfter = time.Duration(math.Ceil(seconds * float64(time.Second)))
	case "details":
		if r.Details, ok = value.(map[string]any); !ok {
			return "its details are not an object"
		}
	case "disabled":
		r.Disabled = value == true
	case "need":
		need, fault := parseNeed(value)
		if fault != "" {
			return fault
		}
		r.Need = need
	}
	return ""
}

func parseNeed(value any) (*Need, string) {
	const want = "its need is not an object with the texts action and subject"
	object, ok := value.(map[string]any)
	if !ok {
		return nil, want
	}
	n := &Need{}
	var okAction, okSubject bool
	n.Action, okAction = object["action"].(string)
	n.Subject, okSubject = object["subject"].(string)
	if !okAction || !okSubject || n.Action == "" {
		return nil, want
	}
	if p, given := object["parameters"]; given {
		if n.Parameters, ok = p.(map[string]any); !ok {
			return nil, "its need's parameters are not an object"
		}
	}
	return n, ""
}

func number(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, true
	case int:
		return float64(v), true
	case json.Number:
		f, err := v.Float64()
		return f, err == nil
	}
	return 0, false
}
