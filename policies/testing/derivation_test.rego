package acm.testing_test

import data.acm.testing

pods := {"db-0": {"zone": "a"}, "db-1": {"zone": "b"}, "db-2": {"zone": "a"}, "db-3": {"zone": "c"}}

ask(spec) := testing.world(object.union({"pods": pods, "operation": {"type": "deployment", "pod": "db-1"}}, spec)).input

seen(spec) := testing.world(object.union({"pods": pods, "operation": {"type": "deployment", "pod": "db-1"}}, spec)).facts

test_effects_of_every_stage if {
	effects := {
		["scale-out", "add", {"joins"}],
		["scale-in", "remove", {"takes_down", "leaves", "deletes_data"}],
		["scale-in", "release", set()],
		["deployment", "remove", {"takes_down"}],
		["deployment", "update", {"takes_down"}],
		["disruption", "remove", {"takes_down"}],
		["swap", "add", {"joins"}],
		["swap", "remove", {"takes_down", "leaves", "deletes_data"}],
		["swap", "release", set()],
	}
	every e in effects {
		op := ask({"operation": {"type": e[0], "stage": e[1], "deletes_data": true}}).operation
		{flag | some flag in ["takes_down", "leaves", "joins", "deletes_data"]; op[flag]} == e[2]
	}
	not ask({"operation": {"type": "scale-in"}}).operation.deletes_data
}

test_the_first_stage_is_asked if {
	stages := {type: stage |
		some type in testing.every_type.types
		stage := ask({"operation": {"type": type}}).operation.stage
	}
	stages == {"scale-out": "add", "scale-in": "remove", "deployment": "remove", "disruption": "remove", "swap": "add"}
}

test_names_tell_set_index_and_incarnation if {
	parts := {name: [pod.set, pod.index, pod.incarnation] | some name, pod in seen({"pods": {"a-b-12": {}, "db-7-i3": {}, "solo": {}}}).pods}
	parts["a-b-12"] == ["a-b", 12, 0]
	parts["db-7-i3"] == ["db", 7, 3]
	parts.solo == ["solo", 0, 0]
}

test_a_pod_that_exists if {
	t := ask({}).target
	t.exists == true
	object.filter(t, ["set", "index", "incarnation", "revision", "node", "zone", "ready", "available", "terminating", "since"]) == {
		"set": "db", "index": 1, "incarnation": 0, "revision": "r1", "node": "node-db-1", "zone": "b",
		"ready": true, "available": true, "terminating": false, "since": testing.now - 3600,
	}
	t.down == false
	t.goes_down == true
}

test_a_pod_that_is_missing if {
	w := testing.world({"pods": object.union(pods, {"db-1": {"phase": "Missing", "zone": "b", "groups": {"tier": "x"}}}), "operation": {"type": "scale-out", "pod": "db-1"}})
	t := w.input.target
	t.exists == false
	t.down == true
	t.goes_down == false
	object.filter(t, ["set", "index", "incarnation", "revision", "node", "zone", "ready", "available", "terminating", "since"]) == {}
	object.keys(t.groups) == {"application", "set"}
	t.custom == {}
	w.input.totals.down.examples == ["db-1"]
	w.input.totals.unexpected.examples == ["db-1"]
	w.facts.pods["db-1"] == {
		"set": "db", "index": 1, "incarnation": 0, "revision": "", "groups": {}, "phase": "Missing", "ready": false,
		"available": false, "terminating": false, "restarts": 0, "since": testing.now - 3600,
	}
}

test_a_pod_that_is_not_there_is_not_down if {
	t := ask({"operation": {"pod": "db-9"}}).target
	t.exists == false
	t.down == false
	t.goes_down == true
	t.groups.application[0].size == 4
}

test_a_terminating_pod_is_not_available if {
	ask({"pods": {"db-1": {"terminating": true}}}).target.down == true
	ask({"pods": {"db-1": {"available": false}}}).target.down == true
	ask({"pods": {"db-1": {"ready": false}}}).target.down == true
}

test_an_unscheduled_pod_is_in_no_zone if {
	t := ask({"pods": {"db-1": {"node": "", "zone": ""}}}).target
	object.keys(t.groups) == {"application", "set"}
	not t.node
	not t.zone
}

test_memberships_leave_this_pod_out if {
	t := ask({"pods": {"db-1": {"ready": false}, "db-0": {"ready": false}}, "in_flight": {"db-2": {"type": "deployment"}}}).target
	t.groups.application == [{"name": "application", "size": 4, "others_down": 2, "others": ["db-0", "db-2"], "other_groups_down": 0, "other_groups": []}]
	t.groups.zone == [{"name": "b", "size": 1, "others_down": 0, "others": [], "other_groups_down": 1, "other_groups": ["a"]}]
}

test_groups_from_labels if {
	t := ask({"pods": {"db-1": {"groups": {"tier": "gold"}}, "db-2": {"groups": {"tier": "gold"}, "ready": false}, "db-3": {"groups": {"tier": "tin"}, "ready": false}}}).target
	t.custom == {"tier": [{"name": "gold", "size": 2, "others_down": 1, "others": ["db-2"], "other_groups_down": 1, "other_groups": ["tin"]}]}
}

test_a_joining_pod_counts_nowhere if {
	i := ask({"pods": {"db-3": {"ready": false}}, "in_flight": {"db-3": {"type": "scale-out"}}})
	i.totals.pods == 3
	i.totals.down.count == 0
	i.totals.unexpected.count == 0
	i.target.groups.application[0].size == 3
	i.target.groups.application[0].others_down == 0
	i.target.groups.zone[0].other_groups_down == 0
}

test_a_pod_that_is_not_wanted_counts_nowhere if {
	w := testing.world({"pods": object.union(pods, {"db-3": {"ready": false, "wanted": false}}), "operation": {"type": "deployment", "pod": "db-1"}})
	w.input.totals.pods == 3
	w.input.totals.down.count == 0
	w.facts.index.pods == 3
	w.facts.index.unavailable == {}
	w.facts.pods["db-3"].available == false
	w.input.application.sets == {"db": {"replicas": 3, "max_unavailable": 1}}
}

test_a_pod_that_is_scaled_in_is_not_wanted if {
	i := ask({"operation": {"type": "scale-in", "pod": "db-3"}, "in_flight": {"db-2": {"type": "scale-in"}}})
	i.totals.pods == 2
	i.target.groups.application[0].size == 3
	i.target.groups.zone == [{"name": "c", "size": 1, "others_down": 0, "others": [], "other_groups_down": 0, "other_groups": []}]
	ask({"operation": {"type": "scale-in", "pod": "db-3"}, "pods": {"db-3": {"wanted": true}}}).totals.pods == 4
	ask({"in_flight": {"db-2": {"type": "scale-in"}}, "pods": {"db-2": {"wanted": true}}}).totals.pods == 4
}

test_ten_examples_are_shown if {
	many := {sprintf("x-%02d", [i]): {"ready": false} | some i in numbers.range(1, 12)}
	names := ask({"pods": many}).totals.down
	names.count == 12
	names.examples == ["x-01", "x-02", "x-03", "x-04", "x-05", "x-06", "x-07", "x-08", "x-09", "x-10"]
}

test_the_index_is_as_seen if {
	f := seen({"pods": {"db-1": {"ready": false}, "db-2": {"groups": {"tier": "gold"}}}, "in_flight": {"db-0": {"type": "deployment"}, "db-3": {"type": "scale-out"}}})
	f.index.pods == 4
	f.index.unavailable == {"db-1": {"set": "db", "since": testing.now - 3600}}
	f.index.groups.zone == {
		"a": {"size": 2, "unavailable": 0, "examples": []},
		"b": {"size": 1, "unavailable": 1, "examples": ["db-1"]},
		"c": {"size": 1, "unavailable": 0, "examples": []},
	}
	f.index.groups.tier == {"gold": {"size": 1, "unavailable": 0, "examples": []}}
	object.keys(f.index.groups) == {"application", "set", "zone", "node", "tier"}
}

test_unknown_stays_unknown if {
	w := testing.world({"pods": pods, "operation": {"type": "deployment", "pod": "db-1"}})
	every key in ["members", "shards", "election"] {
		not key in object.keys(w.facts)
	}
	every key in ["member", "quorum", "leaders", "shards", "others"] {
		not key in object.keys(w.input.target)
	}
	every key in ["quorum", "leaders", "leaderless"] {
		not key in object.keys(w.input.totals)
	}
	not "election" in object.keys(w.input)
	not "shard" in object.keys(w.input.target.groups)
	w.input.target.is_leader == false
}

test_none_is_not_unknown if {
	i := ask({"members": {}, "shards": {}})
	i.target.shards.count == 0
	i.target.groups.shard == []
	i.target.others == {"lagging": {"count": 0, "examples": []}, "unknown": {"count": 0, "examples": []}}
	not i.target.quorum
	i.target.leaders == {"expected": 0, "up": 0, "up_after": 0, "needed": 1}
	i.totals.leaderless.count == 0
}

four := testing.voters(["db-0", "db-1", "db-2", "db-3"], "db-0")

test_voters_and_their_majority if {
	q := ask({"members": four}).target.quorum
	q == {"voters": 4, "up": 4, "needed": 3, "up_seen": 4, "voters_after": 4, "up_after": 3, "needed_after": 3}
	ask({"members": four}).totals.quorum == {"voters": 4, "up": 4, "needed": 3}
}

test_promised_voters_are_not_up_but_seen if {
	q := ask({"members": four, "in_flight": {"db-2": {"type": "scale-in"}, "db-9": {"type": "scale-out"}}}).target.quorum
	q == {"voters": 4, "up": 3, "needed": 3, "up_seen": 4, "voters_after": 4, "up_after": 2, "needed_after": 3}
}

test_a_voter_that_leaves_or_joins_changes_the_count if {
	leaving := ask({"members": four, "operation": {"type": "scale-in"}}).target.quorum
	[leaving.voters_after, leaving.needed_after, leaving.up_after] == [3, 2, 3]
	joining := ask({"members": four, "operation": {"type": "scale-out", "pod": "db-4"}}).target.quorum
	[joining.voters_after, joining.needed_after, joining.up_after] == [5, 3, 4]
	present := ask({"members": four, "operation": {"type": "scale-out", "pod": "db-3"}}).target.quorum
	[present.voters_after, present.up_after] == [4, 4]
	stranger := ask({"members": object.remove(four, ["db-1"]), "operation": {"type": "scale-in"}}).target.quorum
	[stranger.voters, stranger.voters_after, stranger.up_after] == [3, 3, 3]
}

test_sick_and_unknown_voters_are_not_up if {
	q := ask({"members": object.union(four, {
		"db-0": {"healthy": false},
		"db-2": {"unknown": {"healthy": "time-out"}, "voter": true},
		"db-3": {"unknown": {"voter": "time-out"}, "healthy": true},
		"db-9": {"voter": false},
	})}).target.quorum
	[q.voters, q.up, q.up_seen, q.up_after] == [4, 1, 1, 0]
}

test_members_that_do_not_vote_make_no_quorum if {
	not ask({"members": {"db-0": {"unknown": {"healthy": "time-out"}}}}).target.quorum
	ask({"members": {"db-0": {"voter": false}}}).target.quorum.voters == 0
}

test_others_lag_or_are_unknown if {
	i := ask({"members": {
		"db-0": {"healthy": false}, "db-1": {"healthy": false}, "db-2": {"caught_up": false},
		"db-3": {"unknown": {"caught_up": "time-out"}, "healthy": true},
		"x": {"unknown": {"healthy": "time-out"}, "caught_up": true},
		"y": {"unknown": {"healthy": "time-out"}, "caught_up": false},
		"z": {},
	}})
	i.target.others.lagging.examples == ["db-0", "db-2", "y"]
	i.target.others.unknown.examples == ["db-3", "x"]
	i.totals.unexpected.count == 0
}

test_a_member_of_unknown_health_is_unexpected_even_in_flight if {
	i := ask({"members": {"db-2": {"unknown": {"healthy": "time-out"}}, "gone-0": {"unknown": {"healthy": "time-out"}}}, "in_flight": {"db-2": {"type": "deployment"}}})
	i.totals.unexpected.examples == ["db-2"]
}

test_the_leader if {
	ask({"members": testing.voters(["db-0", "db-1"], "db-1")}).target.is_leader == true
	i := ask({"members": testing.voters(["db-0", "db-1"], "db-0")})
	i.target.is_leader == false
	i.election == {"in_progress": false, "leader": "db-0", "since": testing.now - 3600}
	not ask({"members": {"db-0": {"role": "leader"}, "db-1": {"role": "leader"}}}).election
	not ask({"members": testing.voters(["db-0"], "db-0"), "election": {}}).election
	ask({"election": {"in_progress": true}}).election == {"in_progress": true, "since": testing.now - 3600}
}

test_peers_wait_or_run_and_are_not_denied if {
	i := ask({
		"waiting": ["db-0", "db-1", {"pod": "db-2", "state": "denied"}, {"pod": "x", "type": "swap"}, {"pod": "y", "type": "deployment", "state": "waiting"}],
		"in_flight": {"db-3": {"type": "deployment"}, "z": {"type": "swap"}},
	})
	i.target.peers.examples == ["db-0", "db-3", "y"]
}

test_in_flight_never_has_the_pod_asked_about if {
	i := ask({"in_flight": {
		"db-1": {"type": "deployment"},
		"db-0": {"type": "disruption", "state": "approved", "expires_at": testing.now},
		"db-2": {"type": "disruption", "state": "approved"},
	}})
	i.in_flight == {"db-2": {
		"operation": "disruption-db-2", "type": "disruption", "stage": "remove", "set": "db", "state": "approved", "since": testing.now - 20,
		"expires_at": testing.now + 10, "takes_down": true, "leaves": false, "joins": false, "deletes_data": false,
	}}
}

test_history_is_of_a_day_and_newest_first if {
	i := ask({"history": {"since": 5, "approved": [testing.now - 10, testing.now - 86400, testing.now - 5]}})
	i.history == {"since": 5, "approved": [testing.now - 5, testing.now - 10]}
	ask({}).history == {"since": 0, "approved": []}
	long := ask({"history": {"approved": [time | some i in numbers.range(1, 1001); time := testing.now - i]}}).history
	count(long.approved) == 1000
	long.since == testing.now - 1000
}

test_last_change if {
	ask({"pods": {"db-2": {"since": testing.now - 7}}}).totals.last_change == testing.now - 7
	ask({"last_change": 12}).totals.last_change == 12
	testing.world({"operation": {"type": "deployment", "pod": "db-1"}}).input.totals.last_change == 0
}

test_sets_have_at_least_one_replica_unless_the_last_is_scaled_in if {
	testing.world({"operation": {"type": "deployment", "pod": "db-1"}}).input.application.sets.db.replicas == 1
	testing.world({"operation": {"type": "scale-in", "pod": "db-1"}}).input.application.sets.db.replicas == 0
	ask({"pods": {"proxy-0": {}}}).application.sets == {"db": {"replicas": 4, "max_unavailable": 1}, "proxy": {"replicas": 1, "max_unavailable": 1}}
}
