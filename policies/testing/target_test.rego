package acm.testing

# METADATA
# title: input.target
# description: The pod asked about and what the step does to those around it.
target_of(spec, c) := object.union_n([
	{
		"pod": name,
		"exists": exists(c, name),
		"down": down,
		"goes_down": {true: c.op.takes_down, false: false}[down == false],
		"is_leader": object.get(c.facts, ["election", "leader"], "") == name,
		"groups": groups_of(c),
		"custom": custom_of(c),
		"peers": named(peers_of(spec, c)),
	},
	seen_of(c, name),
	{"member": member | some member in [c.facts.members[name]]},
	{"quorum": quorum | some quorum in quorums(c)},
	{"leaders": leaders | some leaders in leader_counts(c)},
	{"shards": shards_of(spec, c, shards) | some shards in given_in(c.facts, "shards")},
	{"others": others_of(c, members) | some members in given_in(c.facts, "members")},
]) if {
	name := c.op.pod
	down := object.get(c.facts.pods, [name, "available"], true) == false
}

# METADATA
# title: Kubernetes has the pod
# description: Neither unknown nor missing.
exists(c, name) := object.get(c.facts.pods, [name, "phase"], "Missing") != "Missing"

# METADATA
# title: What is seen of the pod
# description: The fields that target takes over from facts.pods, for a pod that exists.
seen_of(c, name) := object.filter(
	c.facts.pods[name],
	{"set", "index", "incarnation", "revision", "node", "zone", "ready", "available", "terminating", "since"},
) if {
	exists(c, name)
}

seen_of(c, name) := {} if not exists(c, name)

# METADATA
# title: target.groups
# description: Application and set are always known; zone and node when the pod has them, shard when shards are known.
groups_of(c) := object.union_n([
	{"application": [membership(c, "application", "application")], "set": [membership(c, "set", c.op.set)]},
	{grouping: [membership(c, grouping, group)] |
		some grouping in {"zone", "node"}
		group := group_of(c.facts.pods[c.op.pod], grouping)
	},
	{"shard": shard_memberships(c, shards) | some shards in given_in(c.facts, "shards")},
])

# METADATA
# title: target.custom
# description: Groups from the pod's labels.
custom_of(c) := {grouping: [membership(c, grouping, group)] | some grouping, group in c.facts.pods[c.op.pod].groups}

# METADATA
# title: The pod's place in one group
# description: >
#   Others are the pods that should exist. The pod asked about counts in the size as long as it is there, also when it
#   is being scaled in.
membership(c, grouping, group) := {
	"name": group,
	"size": count({name | some name, pod in c.pods; group_of(pod, grouping) == group} | {c.op.pod | c.facts.pods[c.op.pod]}),
	"others_down": count(here),
	"others": first_ten(here),
	"other_groups_down": count(elsewhere),
	"other_groups": first_ten(elsewhere),
} if {
	lost := {name: pod | some name, pod in c.pods; name in c.down; name != c.op.pod}
	here := {name | some name, pod in lost; group_of(pod, grouping) == group}
	elsewhere := {g | some pod in lost; g := group_of(pod, grouping); g != group}
}

# METADATA
# title: The pod's places in its shards
# description: Sorted by shard. Of more than 20, the 10 with the most others down and the 10 with the fewest left.
shard_memberships(c, shards) := [all[id] | some id in sort(chosen)] if {
	hurt := {id: names | some id, shard in shards; names := lost_copies(c, shard); count(names) > 0}
	all := {id: m |
		some id, shard in shards
		c.op.pod in shard.replicas
		elsewhere := object.keys(hurt) - {id}
		m := {
			"name": id,
			"size": count({name | some name in shard.replicas; not name in c.joining}),
			"others_down": count(object.get(hurt, id, set())),
			"others": first_ten(object.get(hurt, id, set())),
			"other_groups_down": count(elsewhere),
			"other_groups": first_ten(elsewhere),
		}
	}
	chosen := extremes(all)
}

# METADATA
# title: The shards that are shown
# description: Equal ones in order of name.
extremes(all) := object.keys(all) if count(all) <= 20

extremes(all) := {m[1] | some m in array.slice(most_down, 0, 10)} | {m[1] | some m in array.slice(fewest_left, 0, 10)} if {
	count(all) > 20
	most_down := sort({[0 - m.others_down, id] | some id, m in all})
	fewest_left := sort({[m.size - m.others_down, id] | some id, m in all})
}

# METADATA
# title: Other copies of a shard that are down
# description: A replica whose pod nobody has seen is down. One whose pod is joining does not count.
lost_copies(c, shard) := {name |
	some name in shard.replicas
	name != c.op.pod
	not name in c.joining
	not holds(c, name)
}

# METADATA
# title: The pod is available and stays so
# description: Seen, available and not promised.
holds(c, name) if {
	c.facts.pods[name].available
	not name in c.promised
}

# METADATA
# title: Quorum with and without the step
# description: A list of one, or of none when no member says whether it votes.
quorums(c) := [quorum |
	some members in given_in(c.facts, "members")
	count({name | some name, m in members; votes_known(m)}) > 0
	voters := {name | some name, m in members; may_vote(m)}
	healthy := {name | some name in voters; members[name].voter == true; members[name].healthy == true}
	up := healthy - c.promised
	leaving := {name | some name in {c.op.pod}; c.op.leaves; name in voters}
	arriving := {name | some name in {c.op.pod}; c.op.joins; not name in voters}
	after := (count(voters) - count(leaving)) + count(arriving)
	quorum := {
		"voters": count(voters),
		"up": count(up),
		"needed": majority(count(voters)),
		"up_seen": count(healthy),
		"voters_after": after,
		"up_after": count(up - {name | some name in {c.op.pod}; c.op.takes_down}),
		"needed_after": majority(after),
	}
]

# METADATA
# title: The member's collector knows of voting
# description: It says so, or says that it could not find out.
votes_known(member) if is_boolean(member.voter)

votes_known(member) if member.unknown.voter

# METADATA
# title: The member has a vote, or may have one
# description: Not to count one that may vote would lower the majority.
may_vote(member) if member.voter == true

may_vote(member) if {
	not is_boolean(object.get(member, "voter", "unknown"))
	member.unknown.voter
}

# METADATA
# title: More than half
# description: floor(n/2)+1.
majority(n) := floor(n / 2) + 1

# METADATA
# title: Shard leaders with and without the step
# description: A list of one, or of none when shards are unknown.
leader_counts(c) := [counts |
	some shards in given_in(c.facts, "shards")
	up := {id | some id, shard in shards; led(c, shard)}
	counts := {
		"expected": count(shards),
		"up": count(up),
		"up_after": count({id | some id in up; not falls(c, shards[id])}),
		"needed": majority(count(shards)),
	}
]

# METADATA
# title: The shard has a leader
# description: One whose pod is available and not promised to go down.
led(c, shard) if holds(c, shard.leader)

# METADATA
# title: The step takes the shard's leader down
# description: It is the pod asked about.
falls(c, shard) if {
	c.op.takes_down
	shard.leader == c.op.pod
}

# METADATA
# title: target.shards
# description: What the pod holds and leads, and what becomes of it.
shards_of(spec, c, shards) := {
	"count": count(held),
	"leading": count(leading),
	"below_min": effect({id: shard | some id, shard in held; below_min(c, shard)}, c),
	"last_copy": effect({id: shard | some id, shard in held; last_copy(c, shard)}, c),
	"others_behind": effect({id: shard | some id, shard in held; others_behind(c, shard)}, c),
	"unsatisfiable": effect({id: shard | some id, shard in held; count(shard.replicas) < shard.min_in_sync}, c),
	"peers": named(peers_of(spec, c) & {name | some shard in leading; some name in shard.replicas}),
} if {
	held := {id: shard | some id, shard in shards; c.op.pod in shard.replicas}
	leading := {id: shard | some id, shard in held; shard.leader == c.op.pod}
}

# METADATA
# title: Copies in sync after the step
# description: Without those that are down or promised, and without this pod unless the step adds it.
after_step(c, shard) := count({name | some name in shard.in_sync; holds(c, name); not gone(c, name)})

# METADATA
# title: The copy goes with the step
# description: It is this pod's, and the step is not one that adds the pod.
gone(c, name) if {
	name == c.op.pod
	not c.op.joins
}

# METADATA
# title: Below the minimum after the step
# description: In sync here, satisfiable, and fewer than the minimum but not zero afterwards.
below_min(c, shard) if {
	c.op.pod in shard.in_sync
	count(shard.replicas) >= shard.min_in_sync
	after_step(c, shard) > 0
	after_step(c, shard) < shard.min_in_sync
}

# METADATA
# title: The last copy
# description: In sync here and nowhere afterwards, of a shard that has more than one replica.
last_copy(c, shard) if {
	c.op.pod in shard.in_sync
	count(shard.replicas) > 1
	after_step(c, shard) == 0
}

# METADATA
# title: Another replica is behind
# description: As the application reports.
others_behind(c, shard) if {
	some name in shard.replicas
	name != c.op.pod
	not name in shard.in_sync
}

# METADATA
# title: Shards concerned
# description: All counted, the first ten by name shown.
effect(shards, c) := {
	"count": count(shards),
	"examples": [example |
		some id in first_ten(object.keys(shards))
		shard := shards[id]
		example := {
			"shard": id,
			"in_sync": count(shard.in_sync),
			"min_in_sync": shard.min_in_sync,
			"after": after_step(c, shard),
			"replicas": count(shard.replicas),
		}
	],
}

# METADATA
# title: target.others
# description: The other members that lag or are unhealthy, and those of whom that is not known.
others_of(c, members) := {"lagging": named(lagging), "unknown": named(unknown)} if {
	lagging := {name | some name, m in members; name != c.op.pod; behind(m)}
	unknown := {name | some name, m in members; name != c.op.pod; not behind(m); not fine(m)}
}

# METADATA
# title: The member is behind
# description: Known to be unhealthy or not caught up.
behind(member) if member.healthy == false

behind(member) if member.caught_up == false

# METADATA
# title: The member is fine
# description: Known to be healthy and caught up.
fine(member) if {
	member.healthy == true
	member.caught_up == true
}

# METADATA
# title: The pods of the same type
# description: Waiting or in flight, not denied. An entry of waiting is a pod, or {pod, type, state}.
peers_of(spec, c) := (waiting | running) - {c.op.pod} if {
	waiting := {entry | some entry in object.get(spec, "waiting", []); is_string(entry)} | {entry.pod |
		some entry in object.get(spec, "waiting", [])
		is_object(entry)
		object.get(entry, "type", c.op.type) == c.op.type
		object.get(entry, "state", "waiting") != "denied"
	}
	running := {name | some name, step in c.flight; step.type == c.op.type}
}
