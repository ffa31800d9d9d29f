package acm.testing

# METADATA
# title: A policy's answers
# description: Approve is given as a set, `{x | x := policy.approve}`, so that an undefined one is an empty set.
outputs(deny, defer, approve) := {"deny": deny, "defer": defer, "approve": approve}

# METADATA
# title: The verdict
# description: >
#   Combines as the application cluster manager does: malformed reasons become defers, disabled ones are dropped,
#   deny goes before defer before approve, and nothing said is a defer. Codes and reasons are those of the verdict.
decide(said) := {
	"verdict": verdict,
	"codes": {r.code | some r in reasons},
	"reasons": reasons,
	"retry_after": retry_after(verdict, reasons),
} if {
	deny := {r | some r in members(said.deny); well_formed(r); not disabled(r)}
	defer := ({r | some r in members(said.defer); well_formed(r); not disabled(r)} | malformed(said)) | unapproved(said)
	verdict := verdict_of(deny, defer)
	reasons := {"deny": deny, "defer": defer, "approve": set()}[verdict]
}

# METADATA
# title: Deny, defer, approve
# description: In this order.
verdict_of(deny, _) := "deny" if count(deny) > 0

verdict_of(deny, defer) := "defer" if {
	count(deny) == 0
	count(defer) > 0
}

verdict_of(deny, defer) := "approve" if {
	count(deny) == 0
	count(defer) == 0
}

# METADATA
# title: Nothing said is a defer
# description: Only when nothing else objects, so that it does not stand beside real reasons.
unapproved(said) := {r |
	not true in said.approve
	count({x | some x in members(said.defer); well_formed(x); not disabled(x)}) == 0
	count(malformed(said)) == 0
	r := {
		"code": "policy.no_approval",
		"message": "nothing objects and nothing approves; the usual line is `approve if acm.clear`",
	}
}

# METADATA
# title: Reasons of the wrong shape
# description: They never disappear. Each becomes a defer that quotes it.
malformed(said) := {{"code": "policy.malformed", "message": sprintf("malformed %s: %v", [output, value])} |
	some output in {"deny", "defer"}
	some value in members(said[output])
	not well_formed(value)
} | {{"code": "policy.malformed", "message": sprintf("malformed approve: %v", [value])} |
	some value in said.approve
	not is_boolean(value)
}

# METADATA
# title: The members of an output
# description: Something that is no set is one malformed reason.
members(output) := output if is_set(output)

members(output) := {output} if not is_set(output)

# METADATA
# title: A reason of the right shape
# description: A dotted code and a message; retry_after, details and need only as the contract allows.
well_formed(r) if {
	is_object(r)
	is_string(r.code)
	regex.match(`^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$`, r.code)
	is_string(r.message)
	r.message != ""
	count({key | some key in ["retry_after", "details", "need"]; key in object.keys(r); not part_well_formed(key, r[key])}) == 0
}

# METADATA
# title: An optional part of the right shape
# description: Seconds up to a day; an object; an action with its subject.
part_well_formed("retry_after", seconds) if {
	is_number(seconds)
	seconds > 0
	seconds <= 86400
}

part_well_formed("details", details) if is_object(details)

part_well_formed("need", need) if {
	is_string(need.action)
	is_string(need.subject)
	is_object(object.get(need, "parameters", {}))
}

# METADATA
# title: The reason is disabled
# description: By its code or by the check it begins with. The machinery's own cannot be.
disabled(r) if {
	some name in {r.code, split(r.code, ".")[0]}
	input.disabled[name]
	not split(name, ".")[0] in {"policy", "facts", "bundle", "acm"}
}

# METADATA
# title: When to ask again
# description: The longest that a reason of the verdict gives; 5 seconds for a defer and 600 for a deny without one.
retry_after(verdict, reasons) := max({r.retry_after | some r in reasons}) if {
	verdict != "approve"
	count({r.retry_after | some r in reasons}) > 0
}

retry_after(verdict, reasons) := {"defer": 5, "deny": 600}[verdict] if count({r.retry_after | some r in reasons}) == 0

retry_after("approve", _) := 0

# METADATA
# title: The verdict is as wanted
# description: Codes are the set of codes that the verdict must have. Says what was got when it is not.
expect(d, verdict, codes) if {
	d.verdict == verdict
	d.codes == codes
} else := false if {
	print("wanted", verdict, codes)
	print("got   ", d.verdict, d.codes)
	some r in d.reasons
	print("       ", r.code, "-", r.message)
	false
} else := false
