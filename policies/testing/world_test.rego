package acm.testing

# METADATA
# title: The two documents of a question
# description: >
#   input and data.facts of what the spec says. Every key of the spec is optional except operation, which needs type
#   and pod. Evaluate with: `with input as w.input with data.facts as w.facts`.
world(spec) := {"input": question(spec, facts), "facts": facts} if facts := facts_of(spec)

# METADATA
# title: The input document
# description: Derived from spec and facts by the rules that the application cluster manager follows.
question(spec, facts) := object.union_n([
	{
		"now": clock(spec),
		"operation": op,
		"application": application,
		"options": options,
		"target": target_of(spec, c),
		"totals": totals_of(spec, c),
		"in_flight": flight,
		"history": history_of(spec),
		"disabled": disabled_of(spec),
	},
	{"election": election | some election in given_in(facts, "election")},
]) if {
	op := operation_of(spec)
	flight := flight_of(spec)
	application := application_of(spec, facts, op)
	options := object.get(spec, "options", options_for(application.policy, object.union(op, {
		"application": application.name,
		"namespace": application.namespace,
	})))
	c := context(spec, facts, op, flight)
}

# METADATA
# title: What the derivation works on
# description: >
#   pods: those that should exist, without the ones whose joining is in flight. down: those of all pods that are
#   unavailable or promised to go down. promised: pods in flight that go down. joining: pods in flight that join.
context(spec, facts, op, flight) := {
	"op": op,
	"facts": facts,
	"flight": flight,
	"pods": {name: pod | some name, pod in facts.pods; wanted(spec, name); not name in joining},
	"down": ({name | some name, pod in facts.pods; not pod.available} | promised),
	"promised": promised,
	"joining": joining,
} if {
	promised := {name | some name, step in flight; step.takes_down}
	joining := {name | some name, step in flight; step.joins}
}

# METADATA
# title: The first stage of each type
# description: What is asked when the spec names no stage.
first_stage := {"scale-out": "add", "scale-in": "remove", "deployment": "remove", "disruption": "remove", "swap": "add"}

# METADATA
# title: What a stage of a type does
# description: As in operation and in_flight.
effects(type, stage, deletes) := {
	"takes_down": stage in {"remove", "update"},
	"leaves": leaves,
	"joins": [type, stage] in {["scale-out", "add"], ["swap", "add"]},
	"deletes_data": deletes_data,
} if {
	leaves := [type, stage] in {["scale-in", "remove"], ["swap", "remove"]}
	deletes_data := {true: deletes, false: false}[leaves]
}

# METADATA
# title: input.operation
# description: The spec's operation with what follows from it.
operation_of(spec) := object.union_n([
	name_parts(given.pod),
	{
		"id": sprintf("%s-%s", [given.type, given.pod]),
		"stage": stage,
		"waiting_since": clock(spec) - 60,
		"canary": false,
		"progress": {"total": 1, "done": 0, "running": 0, "waiting": 1, "denied": 0},
	},
	given,
	effects(given.type, stage, object.get(given, "deletes_data", false)),
]) if {
	given := spec.operation
	stage := object.get(given, "stage", first_stage[given.type])
}

# METADATA
# title: input.application
# description: Sets are those of the pods and of the operation, with as many replicas as pods should exist.
application_of(spec, facts, op) := {
	"name": name,
	"namespace": object.get(spec, "namespace", "default"),
	"policy": object.get(spec, "policy", replace(name, "-", "_")),
	"bootstrapping": object.get(spec, "bootstrapping", false),
	"sets": object.get(spec, "sets", sets),
} if {
	name := object.get(spec, "application", "app")
	sets := {set: {"replicas": max([least, count(indices)]), "max_unavailable": 1} |
		some set in ({op.set} | {pod.set | some pod in facts.pods})
		indices := {pod.index | some n, pod in facts.pods; pod.set == set; wanted(spec, n)}
		least := {true: 0, false: 1}[op.type == "scale-in"]
	}
}

# METADATA
# title: input.in_flight
# description: The spec's steps with what follows from them, without the pod asked about and without expired approvals.
flight_of(spec) := {pod: step |
	some pod, given in object.get(spec, "in_flight", {})
	pod != spec.operation.pod
	stage := object.get(given, "stage", first_stage[given.type])
	step := object.union_n([
		{
			"operation": sprintf("%s-%s", [given.type, pod]),
			"set": name_parts(pod).set,
			"stage": stage,
			"state": "running",
			"since": clock(spec) - 20,
		},
		{"expires_at": ends | given.state == "approved"; ends := clock(spec) + 10},
		given,
		effects(given.type, stage, object.get(given, "deletes_data", false)),
	])
	object.get(step, "expires_at", clock(spec) + 1) > clock(spec)
}

# METADATA
# title: input.history
# description: Of the last 24 hours, newest first, at most 1,000; complete from the oldest one kept if some were dropped.
history_of(spec) := {"since": since, "approved": array.slice(recent, 0, 1000)} if {
	given := object.get(spec, "history", {})
	all := sort([time | some time in object.get(given, "approved", []); time > clock(spec) - 86400])
	recent := array.reverse(all)
	since := max({object.get(given, "since", 0)} | {recent[999] | count(recent) > 1000})
}

# METADATA
# title: input.disabled
# description: Without the expired ones.
disabled_of(spec) := {name: entry |
	some name, given in object.get(spec, "disabled", {})
	entry := object.union({"until": clock(spec) + 3600, "by": "tester", "why": "a test"}, given)
	entry.until > clock(spec)
}

# METADATA
# title: Thresholds in force
# description: >
#   The bundle's checks with the overrides that match the subject, merged in order: true is an empty object, false
#   takes the check away. The subject has application, namespace, set, type, stage, pod and, if there is one, cause.
options_for(policy, subject) := {check: given |
	layers := array.concat(
		[object.get(data.apps[policy].config, "checks", {})],
		[override.checks |
			some override in object.get(data.apps[policy].config, "overrides", [])
			every key, word in override.match {
				subject[key] == word
			}
		],
	)
	some check, given in object.union_n([as_objects(layer) | some layer in layers])
	is_object(given)
}

# METADATA
# title: Checks with true as an empty object
# description: So that switching a check on again keeps its thresholds.
as_objects(checks) := {check: given | some check, entry in checks; given := {true: {}, false: entry}[entry == true]}

# METADATA
# title: input.totals
# description: The whole application, promises counted.
totals_of(spec, c) := object.union_n([
	{
		"pods": count(c.pods),
		"down": named({name | some name, _ in c.pods; name in c.down}),
		"unexpected": named({name | some name, _ in c.pods; unexpected(c, name)}),
		"last_change": object.get(spec, "last_change", max({0} | {pod.since | some pod in c.facts.pods})),
	},
	{"quorum": object.remove(quorum, {"up_seen", "voters_after", "up_after", "needed_after"}) | some quorum in quorums(c)},
	{"leaders": object.remove(leaders, {"up_after"}) | some leaders in leader_counts(c)},
	{"leaderless": named({id | some id, shard in shards; not led(c, shard)}) | some shards in given_in(c.facts, "shards")},
])

# METADATA
# title: A pod that fails for reasons nobody ordered
# description: Unavailable and not in flight, or with a member whose health is unknown.
unexpected(c, name) if {
	not c.pods[name].available
	not c.flight[name]
}

unexpected(c, name) if {
	some member in [c.facts.members[name]]
	not is_boolean(object.get(member, "healthy", "unknown"))
}
