package acm.leader_test

import data.acm.checks.leader
import data.acm.testing

names := ["db-0", "db-1", "db-2"]

base := {
	"pods": {name: {} | some name in names},
	"members": testing.voters(names, "db-0"),
	"operation": {"type": "deployment", "pod": "db-1"},
	"options": {"operations": testing.every_type, "leader": {}},
}

ask(spec) := testing.library(object.union(base, spec))

message(d) := concat("|", sort({r.message | some r in d.reasons}))

the_leader := {"operation": {"pod": "db-0"}}

test_a_follower_goes_under_a_stable_leader if testing.expect(ask({}), "approve", set())

test_di_11_c_the_leader_waits_for_those_that_wait if {
	d := ask(object.union(the_leader, {"waiting": ["db-2", "db-1"]}))
	testing.expect(d, "defer", {"leader.last"})
	message(d) == "db-0 leads and goes last; still to go: db-1, db-2"
}

test_di_11_c_the_leader_waits_for_those_that_run if testing.expect(
	ask(object.union(the_leader, {"in_flight": {"db-2": {"type": "deployment"}}})),
	"defer", {"leader.last"},
)

test_di_11_c_the_leader_goes_when_all_others_have_gone if testing.expect(ask(the_leader), "approve", set())

test_di_11_c_a_denied_peer_is_not_waited_for if testing.expect(
	ask(object.union(the_leader, {"waiting": [{"pod": "db-2", "state": "denied"}]})),
	"approve", set(),
)

test_di_11_c_another_type_is_not_waited_for if testing.expect(
	ask(object.union(the_leader, {"waiting": [{"pod": "db-2", "type": "disruption"}]})),
	"approve", set(),
)

test_di_11_c_a_follower_does_not_wait_for_others if testing.expect(ask({"waiting": ["db-0", "db-2"]}), "approve", set())

test_di_11_c_a_leader_that_is_down_does_not_wait if testing.expect(
	ask(object.union(the_leader, {"pods": {"db-0": {"ready": false}}, "waiting": ["db-1"]})),
	"approve", set(),
)

test_last_can_be_switched_off if testing.expect(
	ask(object.union(the_leader, {"waiting": ["db-1"], "options": {"leader": {"last": false}}})),
	"approve", set(),
)

transfer := {"options": {"leader": {"transfer_first": true}}}

test_di_08_leadership_must_move_first if {
	d := ask(object.union(the_leader, transfer))
	testing.expect(d, "defer", {"leader.transfer_first"})
	some r in d.reasons
	r.need == {"action": "leader.transfer", "subject": "db-0"}
}

test_di_08_a_follower_needs_no_transfer if testing.expect(ask(transfer), "approve", set())

test_di_08_nothing_is_moved_before_it_is_the_leaders_turn if testing.expect(
	ask(object.union_n([the_leader, transfer, {"waiting": ["db-1"]}])),
	"defer", {"leader.last"},
)

test_di_08_a_leader_that_need_not_be_last_moves_at_once if testing.expect(
	ask(object.union_n([the_leader, {"waiting": ["db-1"], "options": {"leader": {"transfer_first": true, "last": false}}}])),
	"defer", {"leader.transfer_first"},
)

test_di_08_a_leader_that_is_down_has_nothing_to_move if testing.expect(
	ask(object.union_n([the_leader, transfer, {"pods": {"db-0": {"ready": false}}}])),
	"approve", set(),
)

test_di_08_a_leader_without_followers_has_nowhere_to_move if testing.expect(
	testing.library({
		"pods": {"db-0": {}},
		"members": testing.voters(["db-0"], "db-0"),
		"operation": {"type": "deployment", "pod": "db-0"},
		"options": {"operations": testing.every_type, "leader": {"transfer_first": true}},
	}),
	"approve", set(),
)

election := {"election": {"in_progress": true, "since": testing.now - 20}}

test_di_11_a_nothing_goes_during_an_election if {
	d := ask(election)
	testing.expect(d, "defer", {"leader.election"})
	d.retry_after == 5
}

test_di_11_a_however_long_it_takes if testing.expect(
	ask({"election": {"in_progress": true, "since": testing.now - 1000}}),
	"defer", {"leader.election"},
)

test_di_11_a_nothing_goes_without_a_leader if {
	d := ask({"election": {"in_progress": false, "since": testing.now - 1000}})
	testing.expect(d, "defer", {"leader.none"})
	message(d) == "there is no leader; nothing goes until there is one"
}

test_di_11_a_nobody_joins_without_a_leader if {
	join := {"operation": {"type": "scale-out", "pod": "db-3"}}
	testing.expect(ask(object.union(join, election)), "defer", {"leader.election"})
	testing.expect(ask(object.union(join, {"election": {"in_progress": false}})), "defer", {"leader.none"})
	testing.expect(ask(join), "approve", set())
}

test_di_11_a_claims_may_be_released_meanwhile if testing.expect(
	ask(object.union(election, {"operation": {"type": "scale-in", "stage": "release", "pod": "db-3"}})),
	"approve", set(),
)

test_the_first_pods_come_without_a_leader if {
	first := {"bootstrapping": true, "operation": {"type": "scale-out", "pod": "db-3"}}
	testing.expect(ask(object.union(first, election)), "approve", set())
	testing.expect(ask(object.union(first, {"election": {"in_progress": false}})), "approve", set())
	testing.expect(ask(object.union(first, {"election": {}})), "approve", set())
}

dead := {"pods": {"db-1": {"ready": false}}, "members": {"db-1": {"healthy": false, "caught_up": false}}}

without(since, in_progress) := object.union(dead, {"election": {"in_progress": in_progress, "since": testing.now - since}})

test_di_11_b_a_dead_member_waits_for_the_grace if {
	every in_progress, code in {true: "leader.election", false: "leader.none"} {
		d := ask(without(20, in_progress))
		testing.expect(d, "defer", {code})
		d.retry_after == 40
	}
}

test_di_11_b_a_dead_member_goes_after_the_grace if {
	every in_progress in [true, false] {
		testing.expect(ask(without(60, in_progress)), "approve", set())
	}
}

test_di_11_b_the_grace_is_an_option if {
	d := ask(object.union(without(60, true), {"options": {"leader": {"absent_grace_seconds": 90}}}))
	testing.expect(d, "defer", {"leader.election"})
	d.retry_after == 30
}

test_di_11_b_a_long_grace_is_looked_at_once_a_day if {
	d := ask(object.union(without(60, true), {"options": {"leader": {"absent_grace_seconds": 1000000}}}))
	d.retry_after == 86400
}

test_di_11_b_a_member_that_is_up_does_not_go_after_the_grace if testing.expect(
	ask(object.union(without(60, true), {"operation": {"pod": "db-2"}})),
	"defer", {"leader.election"},
)

test_di_11_b_a_healthy_member_in_an_unready_pod_does_not_go if {
	d := ask(object.union(without(20, true), {"members": {"db-1": {"healthy": true}}}))
	testing.expect(d, "defer", {"leader.election"})
	d.retry_after == 5
	testing.expect(ask(object.union(without(60, true), {"members": {"db-1": {"healthy": true}}})), "defer", {"leader.election"})
}

test_di_11_b_a_missing_pod_comes_back_after_the_grace if {
	missing := {"pods": {"db-1": {"phase": "Missing"}}, "operation": {"type": "scale-out", "cause": "restore"}}
	testing.expect(ask(object.union(without(60, true), missing)), "approve", set())
	testing.expect(ask(object.union(without(59, true), missing)), "defer", {"leader.election"})
}

test_a_new_leader_settles_first if {
	d := ask({"election": {"leader": "db-0", "since": testing.now - 4}})
	testing.expect(d, "defer", {"leader.settling"})
	d.retry_after == 6
	message(d) == "db-0 has led for less than 10 seconds"
}

test_a_settled_leader_is_stable if testing.expect(
	ask({"election": {"leader": "db-0", "since": testing.now - 10}}),
	"approve", set(),
)

test_settling_is_an_option if testing.expect(
	ask({"election": {"leader": "db-0", "since": testing.now - 4}, "options": {"leader": {"settle_seconds": 3}}}),
	"approve", set(),
)

test_a_long_settling_is_looked_at_once_a_day if {
	d := ask({"options": {"leader": {"settle_seconds": 1000000}}})
	d.retry_after == 86400
}

test_a_dead_member_need_not_wait_for_a_new_leader_to_settle if testing.expect(
	ask(object.union(dead, {"election": {"leader": "db-0", "since": testing.now - 4}})),
	"approve", set(),
)

test_during_an_election_the_old_leader_settles_nothing if testing.expect(
	ask({"election": {"in_progress": true, "leader": "db-0", "since": testing.now - 4}}),
	"defer", {"leader.election"},
)

test_po_06_an_unknown_leader_waits if {
	testing.expect(ask({"election": {}}), "defer", {"leader.unknown"})
	testing.expect(ask({"election": {}, "operation": {"type": "scale-out", "pod": "db-3"}}), "defer", {"leader.unknown"})
}

test_po_06_an_unknown_leader_does_not_stop_a_repair if testing.expect(
	ask(object.union({"election": {}}, dead)),
	"approve", set(),
)

test_po_06_an_unknown_leader_does_not_stop_a_release if testing.expect(
	ask({"election": {}, "operation": {"type": "scale-in", "stage": "release", "pod": "db-3"}}),
	"approve", set(),
)

test_po_06_all_of_the_election_must_be_known if {
	w := testing.world(base)
	every field in ["in_progress", "since"] {
		half := object.union(object.remove(w.input, {"election"}), {"election": object.remove(w.input.election, {field})})
		some r in leader.defer with input as half
		r.code == "leader.unknown"
	}
}
