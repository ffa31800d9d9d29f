# METADATA
# title: budget
# description: >
#   How many pods may be down at once in each group: the application, a set, a zone, a node, a shard or a group
#   made from pod labels. Promised steps count as done. A pod that is down already costs nothing more.
package acm.checks.budget

# METADATA
# title: Options
# description: What data.json may say under checks.budget. The limits are given per grouping.
options := {"*": {
	"type": "limits",
	"description": "limits for one grouping: application, set, zone, node, shard, or one of the manifest's groups",
	"limits": {
		"max_unavailable": "pods of a group that may be down at once: a number, or a percentage, rounded up, at least 1",
		"min_available": "pods of a group that must stay available",
		"max_groups": "groups that may have a pod down at once",
	},
}}

# METADATA
# title: Not more pods down than the group may have
# description: The pods of the group that are down or promised, and this one, are more than max_unavailable.
# custom:
#   codes: [budget.application, budget.set, budget.zone, budget.node, budget.shard, "budget.<group>"]
# related_resources:
#   - ref: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
defer contains r if {
	input.target.goes_down == true
	some grouping, limits in input.options.budget
	limit := limits.max_unavailable
	over := [text |
		some m in memberships[grouping]
		most := allowed(limit, m.size)
		m.others_down + 1 > most
		text := sprintf(
			"%s%d of %d pods would be down, %d allowed%s",
			[prefix(grouping, m), m.others_down + 1, m.size, most, names("; down or promised: ", m.others)],
		)
	]
	r := reason(grouping, over)
}

# METADATA
# title: Enough pods of the group stay up
# description: Fewer than min_available pods of the group would be left.
# custom:
#   codes: [budget.application, budget.set, budget.zone, budget.node, budget.shard, "budget.<group>"]
# related_resources:
#   - ref: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
defer contains r if {
	input.target.goes_down == true
	some grouping, limits in input.options.budget
	limit := limits.min_available
	under := [text |
		some m in memberships[grouping]
		left := (m.size - m.others_down) - 1
		left < limit
		text := sprintf(
			"%s%d of %d pods would be available, %d needed%s",
			[prefix(grouping, m), max([0, left]), m.size, limit, names("; down or promised: ", m.others)],
		)
	]
	r := reason(grouping, under)
}

# METADATA
# title: Not too many groups hurt at once
# description: Other groups of the grouping have pods down, and with this one they are more than max_groups.
# custom:
#   codes: [budget.application, budget.set, budget.zone, budget.node, budget.shard, "budget.<group>"]
# related_resources:
#   - ref: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/
defer contains r if {
	input.target.goes_down == true
	some grouping, limits in input.options.budget
	limit := limits.max_groups
	wide := [text |
		some m in memberships[grouping]
		m.other_groups_down + 1 > limit
		text := sprintf(
			"%d %s groups would have pods down, %d allowed%s",
			[m.other_groups_down + 1, grouping, limit, names("; now: ", m.other_groups)],
		)
	]
	r := reason(grouping, wide)
}

# METADATA
# title: Unknown is not within budget
# description: >
#   The question does not say in which group of a limited grouping the pod is: it has no zone, its label is
#   missing, shards are not known.
# custom:
#   codes: [budget.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	not input.target.goes_down == false
	some grouping, _ in input.options.budget
	not memberships[grouping]
	r := {
		"code": "budget.unknown",
		"message": sprintf("not known in which %s this pod is, so its budget is not known either", [grouping]),
	}
}

# METADATA
# title: The groups of one grouping
# description: >
#   Those every application has, and those made from pod labels. A grouping that is unknown is absent; an empty list
#   means that the pod is in none.
memberships := object.union(input.target.groups, input.target.custom)

# METADATA
# title: A limit in pods
# description: A percentage is taken of the group's size, rounded up, and is at least 1, so that it never stops all.
allowed(limit, _) := limit if is_number(limit)

allowed(limit, size) := max([1, ceil((to_number(trim_suffix(limit, "%")) * size) / 100)]) if is_string(limit)

# METADATA
# title: One reason for a grouping
# description: Undefined when nothing is wrong. Of many shards the first is shown and the others counted.
reason(grouping, texts) := {"code": sprintf("budget.%s", [grouping]), "message": message(texts)} if count(texts) > 0

# METADATA
# title: The first text, and how many more
# description: Memberships come sorted by name, so the same one is shown every time.
message(texts) := texts[0] if count(texts) == 1

message(texts) := sprintf("%s; and %d more", [texts[0], count(texts) - 1]) if count(texts) > 1

# METADATA
# title: Which group
# description: Nothing for the application, since there is only one.
prefix("application", _) := ""

prefix(grouping, membership) := sprintf("%s %s: ", [grouping, membership.name]) if grouping != "application"

# METADATA
# title: Names behind a text
# description: Nothing when there are none.
names(_, []) := ""

names(text, list) := concat("", [text, concat(", ", list)]) if count(list) > 0
