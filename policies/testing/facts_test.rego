# METADATA
# title: What tests of policies need
# description: >
#   world builds the two documents of a question from a few words, decide combines a policy's answers as the
#   application cluster manager does. README.md tells every default and every rule.
package acm.testing

# METADATA
# title: The clock of tests
# description: A Monday, 00:00 UTC, in Unix seconds.
now := 1764547200

# METADATA
# title: Members that vote
# description: One healthy, caught-up voter for each pod; leader is the name of the one that leads, or "" for none.
voters(pods, leader) := {pod: {"role": {true: "leader", false: "follower"}[pod == leader]} | some pod in pods}

# METADATA
# title: What collectors saw
# description: data.facts of the spec, defaults filled in. Members and shards that the spec leaves out are unknown.
facts_of(spec) := object.union_n([
	{
		"version": "test",
		"pods": pods,
		"nodes": object.get(spec, "nodes", {}),
		"collectors": object.get(spec, "collectors", {}),
		"raw": object.get(spec, "raw", {}),
		"index": index_of({name: pod | some name, pod in pods; wanted(spec, name)}),
	},
	{"members": {name: member_of(given) | some name, given in members} | some members in given_in(spec, "members")},
	{"shards": {id: shard_of(given) | some id, given in shards} | some shards in given_in(spec, "shards")},
	{"election": election | some election in elections(spec)},
]) if {
	pods := {name: pod_of(spec, name, given) | some name, given in object.get(spec, "pods", {})}
}

# METADATA
# title: One pod of the facts
# description: Ready, running on a node of its own, unchanged for an hour, unless the spec says otherwise.
pod_of(spec, name, given) := with_availability(object.union_n([
	name_parts(name),
	{
		"revision": "r1",
		"groups": {},
		"phase": "Running",
		"node": sprintf("node-%s", [name]),
		"ready": true,
		"terminating": false,
		"restarts": 0,
		"since": clock(spec) - 3600,
	},
	object.remove(given, {"wanted"}),
])) if {
	not given.phase == "Missing"
}

pod_of(spec, name, given) := object.union_n([
	name_parts(name),
	{"revision": "", "restarts": 0, "since": clock(spec) - 3600},
	object.remove(given, {"wanted", "node", "zone", "groups"}),
	{"groups": {}, "ready": false, "available": false, "terminating": false},
]) if {
	given.phase == "Missing"
}

# METADATA
# title: A pod with its availability
# description: Ready and not terminating, unless given. An empty node or zone means that there is none.
with_availability(pod) := object.union(
	{"available": pod.ready == true},
	object.remove(pod, {key | some key in {"node", "zone"}; pod[key] == ""}),
) if {
	not pod.terminating
}

with_availability(pod) := object.union(
	{"available": false},
	object.remove(pod, {key | some key in {"node", "zone"}; pod[key] == ""}),
) if {
	pod.terminating
}

# METADATA
# title: What a pod's name says
# description: <set>-<index> or <set>-<index>-i<incarnation>; any other name is index 0 of a set of that name.
name_parts(name) := {"set": parts[0][1], "index": to_number(parts[0][2]), "incarnation": to_number(concat("", ["0", parts[0][4]]))} if {
	parts := regex.find_all_string_submatch_n(`^(.+)-([0-9]+)(-i([0-9]+))?$`, name, 1)
	count(parts) == 1
}

name_parts(name) := {"set": name, "index": 0, "incarnation": 0} if not regex.match(`^(.+)-([0-9]+)(-i([0-9]+))?$`, name)

# METADATA
# title: A pod that should exist
# description: As the spec says; else all should, except pods that are being scaled in.
wanted(spec, name) := spec.pods[name].wanted if is_boolean(spec.pods[name].wanted)

wanted(spec, name) if {
	not is_boolean(object.get(spec, ["pods", name, "wanted"], null))
	not scaled_in(spec, name)
}

wanted(spec, name) := false if {
	not is_boolean(object.get(spec, ["pods", name, "wanted"], null))
	scaled_in(spec, name)
}

# METADATA
# title: A pod that is being scaled in
# description: The one asked about, or one in flight.
scaled_in(spec, name) if {
	spec.operation.type == "scale-in"
	spec.operation.pod == name
}

scaled_in(spec, name) if spec.in_flight[name].type == "scale-in"

# METADATA
# title: One member of the facts
# description: A healthy, caught-up voter; with unknown only what the spec says.
member_of(given) := object.union({"role": "follower", "voter": true, "healthy": true, "caught_up": true, "lag": 0, "unknown": {}}, given) if {
	not given.unknown
}

member_of(given) := given if given.unknown

# METADATA
# title: One shard of the facts
# description: All replicas are in sync, and one must be.
shard_of(given) := object.union({"in_sync": given.replicas, "min_in_sync": 1}, given)

# METADATA
# title: The election, if it is known
# description: >
#   A list of one or none. As the spec says; left out, the only member whose role is leader has led for an hour. An
#   empty object means unknown.
elections(spec) := [e |
	some given in given_in(spec, "election")
	count(given) > 0
	e := object.union({"in_progress": false, "since": clock(spec) - 3600}, given)
] if {
	"election" in object.keys(spec)
}

elections(spec) := [{"in_progress": false, "leader": leaders[0], "since": clock(spec) - 3600} | count(leaders) == 1] if {
	not "election" in object.keys(spec)
	leaders := [name | some name, member in object.get(spec, "members", {}); member.role == "leader"]
}

# METADATA
# title: The index of the facts
# description: Over the pods that should exist, as seen.
index_of(pods) := {
	"pods": count(pods),
	"unavailable": {name: {"set": pod.set, "since": pod.since} | some name, pod in pods; not pod.available},
	"groups": {grouping: groups |
		some grouping in ({"application", "set", "zone", "node"} | {g | some pod in pods; some g, _ in pod.groups})
		located := {name: group_of(pod, grouping) | some name, pod in pods}
		groups := {group: {"size": count(all), "unavailable": count(down), "examples": first_ten(down)} |
			some group in {g | some g in located}
			all := {name | some name, its in located; its == group}
			down := {name | some name in all; not pods[name].available}
		}
	},
}

# METADATA
# title: The group of a pod
# description: Undefined when the pod is in none.
group_of(_, "application") := "application"

group_of(pod, grouping) := pod[grouping] if grouping in {"set", "zone", "node"}

group_of(pod, grouping) := pod.groups[grouping] if not grouping in {"application", "set", "zone", "node"}

# METADATA
# title: The spec's clock
# description: now, unless the spec has one.
clock(spec) := object.get(spec, "now", now)

# METADATA
# title: A key of the spec, if it is there
# description: A list of one or none, to go through.
given_in(spec, key) := [value | some value in [spec[key]]]

# METADATA
# title: The first ten of a set
# description: Sorted.
first_ten(names) := array.slice(sort(names), 0, 10)

# METADATA
# title: A set of names as the contract writes it
# description: All counted, ten shown.
named(names) := {"count": count(names), "examples": first_ten(names)}
