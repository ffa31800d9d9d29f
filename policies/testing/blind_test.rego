package acm.testing

# METADATA
# title: Worlds in which nothing can be known
# description: >
#   48 of them: eight pairs of type and stage, each with missing, empty and half-empty input and facts. In none may a
#   policy's verdict be approve. (A swap's release asks what a scale-in's release asks.)
blind(policy) := [w |
	some pair in [
		["scale-out", "add"], ["scale-in", "remove"], ["scale-in", "release"], ["deployment", "remove"],
		["deployment", "update"], ["disruption", "remove"], ["swap", "add"], ["swap", "remove"],
	]
	some w in blinded(policy, {"type": pair[0], "stage": pair[1], "pod": asked[pair[1]]})
]

# METADATA
# title: The pod asked about
# description: One that is not there for the stages at which none is.
asked := {"add": "app-6", "remove": "app-3", "update": "app-3", "release": "app-6"}

# METADATA
# title: The six blind worlds of one operation
# description: Three lack what input should say, three what collectors should have seen.
blinded(policy, operation) := [
	{"input": {}, "facts": good.facts},
	{"input": empty_input(good.input), "facts": good.facts},
	{"input": half_input(good.input), "facts": good.facts},
	{"input": world(object.union(base, {"pods": {}})).input, "facts": {}},
	world(object.union(base, {"pods": {}, "members": {}, "shards": {}})),
	world(object.union(base, {"pods": half_pods, "members": half_members, "shards": half_shards})),
] if {
	base := {"application": "app", "policy": policy, "operation": operation, "sets": {"app": {"replicas": 6, "max_unavailable": 1}}}
	pods := {sprintf("app-%d", [i]): {"zone": "z", "node": "n"} | some i in numbers.range(0, 5)}
	good := world(object.union(base, {"pods": pods, "members": voters(object.keys(pods), "app-0"), "shards": {}}))
}

# METADATA
# title: Only what was asked
# description: The keys of input are there, and nothing is in them but the question and the thresholds.
empty_input(input_document) := {
	"now": input_document.now,
	"operation": object.filter(input_document.operation, {"id", "type", "stage", "pod", "set"}),
	"application": {},
	"options": input_document.options,
	"target": {},
	"totals": {},
	"in_flight": {},
	"history": {},
	"disabled": {},
}

# METADATA
# title: Half of what should be there
# description: What the operation does is known; of the pod only that it is up; of the others nothing.
half_input(input_document) := {
	"now": input_document.now,
	"operation": input_document.operation,
	"application": object.remove(input_document.application, {"sets"}),
	"options": input_document.options,
	"target": object.union(
		object.filter(input_document.target, {"pod", "exists", "set", "down", "goes_down"}),
		{"groups": {}, "custom": {}, "quorum": {}, "others": {}},
	),
	"totals": {"pods": input_document.totals.pods, "quorum": {}},
	"election": {},
	"in_flight": {},
	"history": {"approved": []},
	"disabled": {},
}

# METADATA
# title: Pods known by name
# description: Of the pod asked about it is known that it is up, of the others nothing.
half_pods := {sprintf("app-%d", [i]): {"phase": "Unknown", "ready": i == 3, "node": ""} | some i in numbers.range(0, 5)}

# METADATA
# title: Members known by name
# description: That there are members is known, and that they might vote.
half_members := {name: {"unknown": {"role": "time-out", "voter": "time-out", "healthy": "time-out", "caught_up": "time-out"}} |
	some name, _ in half_pods
}

# METADATA
# title: A shard known by name
# description: Who should hold a copy is known, and of nobody that it is in sync.
half_shards := {"s": {"replicas": ["app-1", "app-3"], "in_sync": [], "min_in_sync": 2}}
