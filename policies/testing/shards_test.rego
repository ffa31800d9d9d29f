package acm.testing_shards_test

import data.acm.testing

pods := {sprintf("db-%d", [i]): {} | some i in numbers.range(0, 4)}

ask(spec) := testing.world(object.union({"pods": pods, "operation": {"type": "deployment", "pod": "db-1"}}, spec)).input

shards := {
	"led": {"leader": "db-1", "replicas": ["db-0", "db-1", "db-2"], "min_in_sync": 2},
	"last": {"leader": "db-0", "replicas": ["db-0", "db-1"], "in_sync": ["db-1"]},
	"low": {"leader": "db-2", "replicas": ["db-1", "db-2", "db-3"], "in_sync": ["db-1", "db-2"], "min_in_sync": 2},
	"never": {"replicas": ["db-1"], "min_in_sync": 2},
	"elsewhere": {"leader": "db-3", "replicas": ["db-3", "db-4"], "in_sync": ["db-3"]},
}

names(effect) := [e.shard | some e in effect.examples]

test_what_the_pod_holds if {
	s := ask({"shards": shards}).target.shards
	s.count == 4
	s.leading == 1
	names(s.below_min) == ["low"]
	names(s.last_copy) == ["last"]
	names(s.others_behind) == ["last", "low"]
	names(s.unsatisfiable) == ["never"]
	s.below_min.examples == [{"shard": "low", "in_sync": 2, "min_in_sync": 2, "after": 1, "replicas": 3}]
}

test_promised_and_unavailable_copies_are_gone_after_the_step if {
	names(ask({"shards": shards, "in_flight": {"db-0": {"type": "deployment"}}}).target.shards.below_min) == ["led", "low"]
	names(ask({"shards": shards, "pods": {"db-0": {"ready": false}}}).target.shards.below_min) == ["led", "low"]
	names(ask({"shards": shards, "in_flight": {"db-2": {"type": "deployment"}}}).target.shards.last_copy) == ["last", "low"]
}

test_a_pod_that_is_down_can_hold_the_last_copy if {
	names(ask({"shards": shards, "pods": {"db-1": {"ready": false}}}).target.shards.last_copy) == ["last"]
}

test_a_pod_that_returns_takes_no_copy_away if {
	s := ask({"shards": shards, "operation": {"type": "scale-out"}}).target.shards
	names(s.last_copy) == []
	names(s.below_min) == []
}

test_leaders_of_shards if {
	i := ask({"shards": shards})
	i.target.leaders == {"expected": 5, "up": 4, "up_after": 3, "needed": 3}
	i.totals.leaders == {"expected": 5, "up": 4, "needed": 3}
	i.totals.leaderless == {"count": 1, "examples": ["never"]}
	hurt := ask({"shards": shards, "pods": {"db-0": {"ready": false}}, "in_flight": {"db-2": {"type": "deployment"}}})
	hurt.totals.leaderless.examples == ["last", "low", "never"]
	hurt.target.leaders.up_after == 1
	ask({"shards": shards, "operation": {"type": "scale-out"}}).target.leaders.up_after == 4
}

test_shards_are_a_grouping if {
	groups := {m.name: m | some m in ask({"shards": shards, "pods": {"db-1": {"ready": false}, "db-3": {"ready": false}}}).target.groups.shard}
	object.keys(groups) == {"led", "last", "low", "never"}
	groups.low == {"name": "low", "size": 3, "others_down": 1, "others": ["db-3"], "other_groups_down": 1, "other_groups": ["elsewhere"]}
	groups.led == {"name": "led", "size": 3, "others_down": 0, "others": [], "other_groups_down": 2, "other_groups": ["elsewhere", "low"]}
}

test_a_replica_nobody_has_seen_is_down_and_a_joining_one_does_not_count if {
	spec := {"shards": {"s": {"replicas": ["db-1", "db-8", "db-9"]}}, "in_flight": {"db-9": {"type": "scale-out"}}}
	[m] := ask(spec).target.groups.shard
	[m.size, m.others] == [2, ["db-8"]]
}

test_peers_among_the_replicas_of_shards_it_leads if {
	s := ask({"shards": shards, "waiting": ["db-0", "db-3"], "in_flight": {"db-2": {"type": "deployment"}}}).target.shards
	s.peers.examples == ["db-0", "db-2"]
}

test_of_many_shards_both_extremes_are_shown if {
	many := {sprintf("s%02d", [i]): {"replicas": array.concat(["db-1"], [sprintf("x-%d", [j]) | some j in numbers.range(1, 1 + (i % 4))])} |
		some i in numbers.range(1, 30)
	}
	groups := [m.name | some m in ask({"shards": many, "pods": {"x-1": {}, "x-2": {}}}).target.groups.shard]
	groups == ["s01", "s02", "s03", "s04", "s06", "s07", "s08", "s10", "s11", "s12", "s15", "s16", "s19", "s20", "s23", "s24", "s27", "s28"]
}
