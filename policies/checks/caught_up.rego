# METADATA
# title: caught_up
# description: >
#   Ready is not safe: before a pod goes, all other members have what the leader has. A member that is broken goes
#   before the healthy ones, and one that is catching up is left alone.
package acm.checks.caught_up

# METADATA
# title: Options
# description: What data.json may say under checks.caught_up.
options := {"catching_up_grace_seconds": {
	"type": "seconds",
	"default": 3600,
	"description": "how long a member that is catching up is left alone, from the last change of its availability",
}}

# METADATA
# title: The others are caught up
# description: Another member is known to lag or to be unhealthy. A member that is itself unhealthy need not wait for it.
# custom:
#   codes: [caught_up.lagging]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/monitoring/
defer contains r if {
	input.target.goes_down == true
	input.target.others.lagging.count > 0
	not input.target.member.healthy == false
	r := {
		"code": "caught_up.lagging",
		"message": sprintf("not caught up: %s", [concat(", ", input.target.others.lagging.examples)]),
	}
}

# METADATA
# title: Unknown is not caught up
# description: Of some other member it is not known whether it is healthy and caught up.
# custom:
#   codes: [caught_up.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	input.target.goes_down == true
	input.target.others.unknown.count > 0
	r := {
		"code": "caught_up.unknown",
		"message": sprintf("not known whether caught up: %s", [concat(", ", input.target.others.unknown.examples)]),
	}
}

# METADATA
# title: No member facts
# description: No collector tells of members, or the question does not say what the step does.
# custom:
#   codes: [caught_up.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	not input.target.goes_down == false
	not others_known
	r := {"code": "caught_up.unknown", "message": "not known whether the other members are caught up"}
}

# METADATA
# title: A member that catches up is left alone
# description: >
#   Also when its pod is not available: whatever it has received so far would be lost. One that is known to be
#   unhealthy is not catching up.
# custom:
#   codes: [caught_up.catching_up]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/learning/design-learner/
#     description: what catching up by a snapshot costs
defer contains r if {
	input.operation.takes_down == true
	input.target.member.caught_up == false
	not input.target.member.healthy == false
	enough := input.target.since + object.get(input.options.caught_up, "catching_up_grace_seconds", 3600)
	input.now < enough
	r := {
		"code": "caught_up.catching_up",
		"message": sprintf(
			"%s is catching up and is left alone for %v seconds after it was last started or lost",
			[input.target.pod, enough - input.target.since],
		),
	}
}

# METADATA
# title: The other members are known
# description: Some collector reports members; who of them lags, and of whom that is not known.
others_known if {
	is_number(input.target.others.lagging.count)
	is_number(input.target.others.unknown.count)
}
