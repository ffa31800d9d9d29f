package decision

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func said(code string, more ...any) map[string]any {
	r := map[string]any{"code": code, "message": "because"}
	for i := 0; i < len(more); i += 2 {
		r[more[i].(string)] = more[i+1]
	}
	return r
}

func codesOf(rs []Reason) []string {
	out := []string{}
	for _, r := range rs {
		out = append(out, r.Code)
	}
	return out
}

func TestDenyGoesBeforeDeferBeforeApproveAndNothingIsADefer(t *testing.T) {
	none := []any(nil)
	for name, c := range map[string]struct {
		outcome  Outcome
		verdict  Verdict
		codes    []string
		retry    time.Duration
		warnings []string
	}{
		"approve":                              {Outcome{Approve: true}, Approve, []string{}, 0, []string{}},
		"deny beats all":                       {Outcome{Deny: []any{said("a.x")}, Defer: []any{said("b.y")}, Approve: true}, Deny, []string{"a.x"}, 0, []string{}},
		"defer beats approve":                  {Outcome{Defer: []any{said("b.y"), said("a.z")}, Approve: true}, Defer, []string{"a.z", "b.y"}, DefaultRetry, []string{}},
		"nothing said":                         {Outcome{Deny: none, Defer: none}, Defer, []string{CodePolicyNoApproval}, DefaultRetry, []string{}},
		"approve is false":                     {Outcome{Approve: false}, Defer, []string{CodePolicyNoApproval}, DefaultRetry, []string{}},
		"approve is a text":                    {Outcome{Approve: "yes"}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"approve is an object":                 {Outcome{Approve: map[string]any{"x": 1}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"a text as reason":                     {Outcome{Defer: []any{"no"}, Approve: true}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"a malformed deny is a visible defer":  {Outcome{Deny: []any{"never"}, Approve: true}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"a malformed one beside a deny":        {Outcome{Deny: []any{"never", said("a.x")}}, Deny, []string{"a.x"}, 0, []string{CodePolicyMalformed}},
		"a code without a dot":                 {Outcome{Defer: []any{said("quorum")}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"no message":                           {Outcome{Defer: []any{map[string]any{"code": "a.b"}}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"retry_after too long":                 {Outcome{Defer: []any{said("a.b", "retry_after", 86401.0)}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"retry_after of nothing":               {Outcome{Defer: []any{said("a.b", "retry_after", 0.0)}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"the largest retry_after counts":       {Outcome{Defer: []any{said("a.b", "retry_after", 7.0), said("a.c", "retry_after", json.Number("90"))}}, Defer, []string{"a.b", "a.c"}, 90 * time.Second, []string{}},
		"a deny's retry_after":                 {Outcome{Deny: []any{said("a.b", "retry_after", 30.0)}, Defer: []any{said("a.c", "retry_after", 90.0)}}, Deny, []string{"a.b"}, 30 * time.Second, []string{}},
		"details that are a list":              {Outcome{Defer: []any{said("a.b", "details", []any{})}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"a need without a subject":             {Outcome{Defer: []any{said("a.b", "need", map[string]any{"action": "x"})}}, Defer, []string{CodePolicyMalformed}, DefaultRetry, []string{}},
		"a warning blocks nothing":             {Outcome{Warn: []any{said("a.w")}, Approve: true}, Approve, []string{}, 0, []string{"a.w"}},
		"a malformed warning blocks nothing":   {Outcome{Warn: []any{3.0}, Approve: true}, Approve, []string{}, 0, []string{CodePolicyMalformed}},
		"a machinery error hides what is said": {Outcome{Approve: true, Err: &MachineryError{Code: CodePolicyTimeout, Message: "late"}}, Defer, []string{CodePolicyTimeout}, DefaultRetry, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			j := Combine(c.outcome, nil)
			require.Equal(t, c.verdict, j.Verdict)
			require.Equal(t, c.codes, codesOf(j.Reasons))
			require.Equal(t, c.retry, j.RetryAfter)
			require.Equal(t, c.warnings, codesOf(j.Warnings))
			for _, r := range j.Reasons {
				require.NotEmpty(t, r.Message)
			}
		})
	}
}

func TestADisabledReasonWarnsAndDoesNotCount(t *testing.T) {
	off := map[string]*Disabled{"quorum": {Until: 1764547200, By: "eve", Why: "night"}, "leader.last": {}, "policy": {}, "policy.own": {}}
	j := Combine(Outcome{Defer: []any{said("quorum.majority"), said("leader.last")}, Approve: true}, off)
	require.Equal(t, Approve, j.Verdict)
	require.Equal(t, []string{"leader.last", "quorum.majority"}, codesOf(j.Warnings))
	require.True(t, j.Warnings[1].Disabled)
	require.Contains(t, j.Warnings[1].Message, "eve: night")
	j = Combine(Outcome{Deny: []any{said("leader.none")}, Approve: true}, off)
	require.Equal(t, Deny, j.Verdict, "only leader.last is off, not the check")
	j = Combine(Outcome{Defer: []any{said("policy.own")}, Approve: true}, off)
	require.Equal(t, Defer, j.Verdict, "the machinery's families cannot be disabled")
}

func TestAMalformedReasonQuotesWhatWasGiven(t *testing.T) {
	j := Combine(Outcome{Defer: []any{map[string]any{"code": "x", "message": "m"}}}, nil)
	require.Contains(t, j.Reasons[0].Message, `{"code":"x","message":"m"}`)
	long := make([]byte, 4000)
	for i := range long {
		long[i] = 'x'
	}
	j = Combine(Outcome{Defer: []any{string(long)}}, nil)
	require.Less(t, len(j.Reasons[0].Message), 400)
}

func TestNeedsAreCollectedOnce(t *testing.T) {
	need := map[string]any{"action": "leader.transfer", "subject": "etcd-0", "parameters": map[string]any{"to": "etcd-1"}}
	j := Combine(Outcome{Defer: []any{said("a.b", "need", need), said("a.c", "need", need)}}, nil)
	require.Equal(t, []Need{{Action: "leader.transfer", Subject: "etcd-0", Parameters: map[string]any{"to": "etcd-1"}}}, j.Needs)
}

func TestBeyondTheCapAnApprovalBecomesADeferAndReasonsStay(t *testing.T) {
	full := &MachineryError{Code: CodeCapFull, Message: "1 of 1"}
	require.Equal(t, Defer, Combine(Outcome{Approve: true}, nil).Blocked(full).Verdict)
	j := Combine(Outcome{Defer: []any{said("a.b")}}, nil).Blocked(full)
	require.Equal(t, []string{"a.b", CodeCapFull}, codesOf(j.Reasons))
	require.Equal(t, Deny, Combine(Outcome{Deny: []any{said("a.b")}}, nil).Blocked(full).Verdict)
}

func TestParametersAreTextsUnderAnnotationNames(t *testing.T) {
	got, fault := Parameters(map[string]any{"mode": "fast", "a.b-c": "1"})
	require.Nil(t, fault)
	require.Equal(t, map[string]string{"mode": "fast", "a.b-c": "1"}, got)
	for name, bad := range map[string]any{
		"not an object": []any{"x"}, "a number": map[string]any{"x": 1.0}, "a bad key": map[string]any{"No": "x"}, "null": map[string]any{"x": nil},
	} {
		_, fault := Parameters(bad)
		require.NotNil(t, fault, name)
		require.Equal(t, CodePolicyMalformed, fault.Code)
	}
	got, fault = Parameters(nil)
	require.Nil(t, fault)
	require.Empty(t, got)
}

// drawValue is any decoded JSON value.
func drawValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Float64Range(-1e6, 1e6).Draw(t, "number")
	case 3:
		return rapid.SampledFrom([]string{"", "x", "a.b", "quorum.majority"}).Draw(t, "text")
	case 4:
		return []any{drawValue(t, depth-1)}
	default:
		o := map[string]any{}
		for _, key := range []string{"code", "message", "retry_after", "details", "need", "x"} {
			if rapid.Bool().Draw(t, key) {
				o[key] = drawValue(t, depth-1)
			}
		}
		return o
	}
}

func TestOnlyTrueWithoutAnyObjectionApproves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) []any {
			out := []any{}
			for range rapid.IntRange(0, 2).Draw(t, label) {
				out = append(out, drawValue(t, 2))
			}
			return out
		}
		o := Outcome{Deny: draw("deny"), Defer: draw("defer"), Warn: draw("warn"), Approve: drawValue(t, 1)}
		if rapid.IntRange(0, 3).Draw(t, "err") == 0 {
			o.Err = &MachineryError{Code: CodePolicyError, Message: "m"}
		}
		j := Combine(o, nil)
		clean := o.Err == nil && len(o.Deny) == 0 && len(o.Defer) == 0 && o.Approve == true
		require.Equal(t, clean, j.Verdict == Approve)
		if j.Verdict != Approve {
			require.NotEmpty(t, j.Reasons)
		}
	})
}
