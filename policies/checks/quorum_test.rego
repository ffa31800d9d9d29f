package acm.quorum_test

import data.acm.checks.quorum
import data.acm.testing

three := ["db-0", "db-1", "db-2"]

five := ["db-0", "db-1", "db-2", "db-3", "db-4"]

of(names, spec) := object.union_n([
	{
		"pods": {name: {} | some name in names},
		"members": testing.voters(names, "db-0"),
		"operation": {"type": "deployment", "pod": "db-1"},
		"options": {"operations": testing.every_type, "quorum": {}},
	},
	spec,
])

ask(names, spec) := testing.library(of(names, spec))

message(d) := concat("|", sort({r.message | some r in d.reasons}))

sick := {"healthy": false, "caught_up": false}

dead := {"ready": false}

test_one_of_three_may_go if testing.expect(ask(three, {}), "approve", set())

test_the_second_of_three_waits_for_a_promised_one if {
	d := ask(three, {"in_flight": {"db-2": {"type": "disruption"}}})
	testing.expect(d, "defer", {"quorum.majority"})
	message(d) == "1 of 3 voters would be up, 2 needed"
}

test_one_of_two_never_goes if testing.expect(ask(["db-0", "db-1"], {}), "defer", {"quorum.majority"})

test_the_second_of_three_waits_for_a_sick_one if testing.expect(
	ask(three, {"members": {"db-2": sick}}),
	"defer", {"quorum.majority"},
)

test_a_sick_voter_that_is_promised_counts_once if testing.expect(
	ask(five, {"members": {"db-2": sick}, "in_flight": {"db-2": {"type": "disruption"}}}),
	"approve", set(),
)

test_the_third_of_five_waits if testing.expect(
	ask(five, {"members": {"db-2": sick}, "in_flight": {"db-3": {"type": "disruption"}}}),
	"defer", {"quorum.majority"},
)

test_a_voter_of_unknown_health_is_not_up if testing.expect(
	ask(three, {"members": {"db-2": {"unknown": {"healthy": "time-out"}, "voter": true}}}),
	"defer", {"quorum.majority"},
)

test_a_voter_of_unknown_vote_counts_among_the_voters if testing.expect(
	ask(five, {"members": {
		"db-2": {"unknown": {"voter": "time-out", "healthy": "time-out"}},
		"db-3": {"unknown": {"voter": "time-out", "healthy": "time-out"}},
	}}),
	"defer", {"quorum.majority"},
)

test_spare_voters_stay_up if {
	spare := {"options": {"quorum": {"spare": 1}}}
	testing.expect(ask(five, spare), "approve", set())
	d := ask(five, object.union(spare, {"members": {"db-2": sick}}))
	testing.expect(d, "defer", {"quorum.majority"})
	message(d) == "3 of 5 voters would be up, 4 needed"
}

test_a_member_without_a_vote_may_go if testing.expect(
	ask(three, {
		"pods": {"db-3": {}},
		"members": {"db-2": sick, "db-3": {"role": "learner", "voter": false}},
		"operation": {"pod": "db-3"},
	}),
	"approve", set(),
)

test_an_update_in_place_takes_a_voter_down_too if testing.expect(
	ask(three, {"operation": {"stage": "update"}, "members": {"db-2": sick}}),
	"defer", {"quorum.majority"},
)

test_a_release_takes_nobody_down if testing.expect(
	ask(three, {"operation": {"type": "scale-in", "stage": "release", "pod": "db-3"}, "members": {"db-2": sick}}),
	"approve", set(),
)

# The pod of a voter can be unready while the voter answers its peers: it is one of the majority all the same.
test_a_healthy_voter_in_an_unready_pod_still_counts if testing.expect(
	ask(three, {"pods": {"db-1": dead}, "members": {"db-2": sick}}),
	"defer", {"quorum.majority"},
)

test_di_01_a_dead_voter_may_be_replaced if testing.expect(
	ask(three, {"pods": {"db-1": dead}, "members": {"db-1": sick}}),
	"approve", set(),
)

test_swap_removes_the_old_member_only_with_a_majority_left if {
	swap := {"operation": {"type": "swap", "stage": "remove"}}
	testing.expect(ask(three, swap), "approve", set())
	testing.expect(ask(three, object.union(swap, {"members": {"db-2": sick}})), "defer", {"quorum.majority"})
}

# Four voters are registered until somebody removes one, so three must be up until then; two of the three that remain
# afterwards are not enough.
test_leaving_is_judged_by_the_voters_that_are_registered if testing.expect(
	ask(five, {
		"operation": {"type": "swap", "stage": "remove", "pod": "db-3"},
		"members": {"db-2": sick, "db-4": {"voter": false}},
	}),
	"defer", {"quorum.majority"},
)

scale_in := {"operation": {"type": "scale-in", "pod": "db-2"}}

test_op_14_three_to_two_passes_while_all_are_up if testing.expect(ask(three, scale_in), "approve", set())

test_op_14_three_to_two_is_denied_while_one_is_down if {
	d := ask(three, object.union(scale_in, {"members": {"db-0": sick}}))
	testing.expect(d, "deny", {"quorum.scale_in"})
	message(d) == "scaling in would leave 1 of 3 registered voters up, 2 needed; repair or remove members that are down first"
	d.retry_after == 30
	some r in d.reasons
	r.details == {"voters": 3, "up_after": 1, "needed": 2}
}

test_op_14_one_reason_is_enough if {
	w := testing.world(of(three, object.union(scale_in, {"members": {"db-0": sick}})))
	quorum.defer == set() with input as w.input
}

test_op_14_a_dead_voter_may_be_scaled_in_though_the_majority_is_lost if testing.expect(
	ask(three, object.union(scale_in, lost)),
	"approve", set(),
)

test_op_14_a_voter_that_is_down_may_be_scaled_in if testing.expect(
	ask(three, object.union(scale_in, {"members": {"db-2": sick}})),
	"approve", set(),
)

test_op_14_two_to_one_is_denied_while_both_are_registered if testing.expect(
	ask(["db-0", "db-1"], {"operation": {"type": "scale-in", "pod": "db-1"}}),
	"deny", {"quorum.scale_in"},
)

test_op_14_two_to_one_passes_once_the_member_is_removed if testing.expect(
	ask(["db-0"], {"pods": {"db-1": {}}, "operation": {"type": "scale-in", "pod": "db-1"}}),
	"approve", set(),
)

test_op_14_spare_voters_make_scaling_in_wait if testing.expect(
	ask(three, object.union(scale_in, {"options": {"quorum": {"spare": 1}}})),
	"defer", {"quorum.majority"},
)

test_a_new_voter_may_join_a_whole_cluster if testing.expect(
	ask(three, {"operation": {"type": "scale-out", "pod": "db-3"}}),
	"approve", set(),
)

test_a_new_voter_waits_while_one_is_down if {
	d := ask(three, {"operation": {"type": "scale-out", "pod": "db-3"}, "members": {"db-2": sick}})
	testing.expect(d, "defer", {"quorum.join"})
	message(d) == "of 4 voters with the new one 2 would be up, 3 needed; repair the ones that are down first"
}

test_a_voter_that_is_registered_already_may_start if testing.expect(
	ask(three, {
		"pods": {"db-2": {"phase": "Missing"}},
		"members": {"db-2": sick},
		"operation": {"type": "scale-out", "cause": "restore", "pod": "db-2"},
	}),
	"approve", set(),
)

test_the_first_voters_join_whatever_the_count if testing.expect(
	ask(["db-0"], {
		"bootstrapping": true,
		"members": {"db-0": sick},
		"operation": {"type": "scale-out", "pod": "db-1"},
	}),
	"approve", set(),
)

lost := {"pods": {"db-1": dead, "db-2": dead}, "members": {"db-1": sick, "db-2": sick}}

test_di_11_b_without_a_majority_no_member_that_is_up_goes if {
	d := ask(three, object.union(lost, {"operation": {"pod": "db-0"}}))
	testing.expect(d, "defer", {"quorum.lost", "quorum.majority"})
	contains(message(d), "1 of 3 voters are up, 2 needed; only a member that is down may go")
}

test_di_11_b_without_a_majority_a_sick_member_that_kubernetes_calls_available_stays if testing.expect(
	ask(three, {"members": {"db-1": sick, "db-2": sick}}),
	"defer", {"quorum.lost"},
)

test_di_11_b_without_a_majority_a_healthy_member_in_an_unready_pod_stays if testing.expect(
	ask(three, object.union(lost, {"pods": {"db-0": dead}, "operation": {"pod": "db-0"}})),
	"defer", {"quorum.lost", "quorum.majority"},
)

test_di_11_b_without_a_majority_a_dead_member_may_be_replaced if testing.expect(ask(three, lost), "approve", set())

test_di_11_b_a_dead_member_gets_time_to_return if {
	d := ask(three, object.union(lost, {"pods": {"db-1": {"since": testing.now - 45}}}))
	testing.expect(d, "defer", {"quorum.lost"})
	d.retry_after == 15
	message(d) == "1 of 3 voters are up, 2 needed; this member may be replaced once it has been down for 60 seconds"
}

test_di_11_b_a_member_that_is_up_has_no_grace_to_wait_for if {
	d := ask(three, object.union(lost, {"pods": {"db-0": {"since": testing.now - 45}}, "operation": {"pod": "db-0"}}))
	testing.expect(d, "defer", {"quorum.lost", "quorum.majority"})
	count(d.reasons) == 2
	d.retry_after == 5
}

test_di_11_b_the_grace_ends if testing.expect(
	ask(three, object.union(lost, {"pods": {"db-1": {"since": testing.now - 60}}})),
	"approve", set(),
)

test_the_grace_is_an_option if testing.expect(
	ask(three, object.union(lost, {"pods": {"db-1": {"since": testing.now - 60}}, "options": {"quorum": {"lost_grace_seconds": 61}}})),
	"defer", {"quorum.lost"},
)

test_a_long_grace_is_looked_at_once_a_day if {
	d := ask(three, object.union(lost, {"options": {"quorum": {"lost_grace_seconds": 1000000}}}))
	d.retry_after == 86400
}

# Two voters are healthy; one of them is promised. The majority is not lost, it is spoken for.
test_a_promised_majority_is_not_a_lost_one if testing.expect(
	ask(three, {"members": {"db-2": sick}, "pods": {"db-2": dead}, "in_flight": {"db-1": {"type": "deployment"}}, "operation": {"pod": "db-2"}}),
	"approve", set(),
)

test_a_missing_pod_of_a_lost_majority_may_come_back if testing.expect(
	ask(three, {
		"pods": {"db-1": {"phase": "Missing"}, "db-2": {"phase": "Missing"}},
		"members": {"db-1": sick, "db-2": sick},
		"operation": {"type": "scale-out", "cause": "restore"},
	}),
	"approve", set(),
)

alone := {"operation": {"pod": "db-0"}}

test_di_15_the_only_voter_is_denied_with_a_reason if {
	d := ask(["db-0"], alone)
	testing.expect(d, "deny", {"quorum.single"})
	contains(message(d), "set checks.quorum.single_member to \"allow\"")
	testing.notes(of(["db-0"], alone)) == set()
}

test_di_15_the_only_voter_may_go_where_a_person_allows_it if {
	allowed := object.union(alone, {"options": {"quorum": {"single_member": "allow"}}})
	testing.expect(ask(["db-0"], allowed), "approve", set())
	testing.notes(of(["db-0"], allowed)) == {"quorum.single"}
}

test_di_15_one_of_three_is_worth_no_note if {
	testing.notes(of(three, {"options": {"quorum": {"single_member": "allow"}}})) == set()
}

test_di_15_the_only_voter_may_be_scaled_in_where_a_person_allows_it if testing.expect(
	ask(["db-0"], {"operation": {"type": "scale-in", "pod": "db-0"}, "sets": {"db": {"replicas": 0}}, "options": {"quorum": {"single_member": "allow"}}}),
	"approve", set(),
)

test_di_15_the_only_voter_is_denied_when_scaled_in if testing.expect(
	ask(["db-0"], {"operation": {"type": "scale-in", "pod": "db-0"}}),
	"deny", {"quorum.single"},
)

test_di_15_the_only_voter_may_be_repaired if testing.expect(
	ask(["db-0"], object.union(alone, {"pods": {"db-0": dead}, "members": {"db-0": sick}})),
	"approve", set(),
)

test_di_15_the_only_voter_of_several_pods_leaves_the_others_free if testing.expect(
	ask(["db-0"], {"pods": {"db-1": {}}, "members": {"db-1": {"role": "learner", "voter": false}}}),
	"approve", set(),
)

test_one_voter_becomes_two if {
	grow := {"operation": {"type": "scale-out", "pod": "db-1"}}
	testing.expect(ask(["db-0"], grow), "approve", set())
	testing.expect(ask(["db-0"], object.union(grow, {"members": {"db-0": sick}})), "defer", {"quorum.join"})
}

test_a_voter_joins_where_no_voter_is_yet if testing.expect(
	ask(three, {
		"members": {name: {"voter": false} | some name in three},
		"operation": {"type": "scale-out", "pod": "db-3"},
	}),
	"approve", set(),
)

unknown_members := object.remove(of(three, {}), {"members"})

test_po_06_unknown_voters_wait if testing.expect(testing.library(unknown_members), "defer", {"quorum.unknown"})

test_po_06_members_that_tell_nothing_of_votes_wait if testing.expect(
	testing.library(object.union(unknown_members, {"members": {name: {"unknown": {"healthy": "time-out"}} | some name in three}})),
	"defer", {"quorum.unknown"},
)

test_po_06_unknown_voters_do_not_stop_a_repair if testing.expect(
	testing.library(object.union(unknown_members, {"pods": {"db-1": dead}})),
	"approve", set(),
)

test_po_06_unknown_voters_do_not_stop_a_release if testing.expect(
	testing.library(object.union(unknown_members, {"operation": {"type": "scale-in", "stage": "release", "pod": "db-3"}})),
	"approve", set(),
)

test_po_06_nobody_joins_unknown_voters if testing.expect(
	testing.library(object.union(unknown_members, {"operation": {"type": "scale-out", "pod": "db-3"}})),
	"defer", {"quorum.unknown"},
)

test_po_06_the_first_pods_join_unknown_voters if testing.expect(
	testing.library(object.union(unknown_members, {"bootstrapping": true, "operation": {"type": "scale-out", "pod": "db-3"}})),
	"approve", set(),
)

test_po_06_a_missing_pod_returns_to_unknown_voters if testing.expect(
	testing.library(object.union(unknown_members, {"pods": {"db-1": {"phase": "Missing"}}, "operation": {"type": "scale-out", "cause": "restore"}})),
	"approve", set(),
)

# Not counted as up, so the numbers alone would let it go.
test_po_06_a_voter_of_unknown_health_does_not_go if {
	unsure := {"members": {"db-1": {"unknown": {"healthy": "time-out"}, "voter": true}}}
	d := ask(three, unsure)
	testing.expect(d, "defer", {"quorum.unknown"})
	message(d) == "not known whether voter db-1 is healthy"
	testing.expect(ask(three, object.union(unsure, {"pods": {"db-1": dead}})), "approve", set())
}

test_po_06_a_member_of_unknown_vote_does_not_go if testing.expect(
	ask(three, {"members": {"db-1": {"unknown": {"voter": "time-out", "healthy": "time-out"}}}}),
	"defer", {"quorum.unknown"},
)

test_a_pod_that_is_no_member_goes if testing.expect(ask(three, {"pods": {"db-3": {}}, "operation": {"pod": "db-3"}}), "approve", set())

test_an_observer_of_unknown_health_goes if testing.expect(
	ask(three, {"pods": {"db-3": {}}, "members": {"db-3": {"unknown": {"healthy": "time-out"}, "voter": false}}, "operation": {"pod": "db-3"}}),
	"approve", set(),
)

half_counted contains field if {
	w := testing.world(of(three, {}))
	some field, _ in w.input.target.quorum
	hole := object.remove(w.input.target.quorum, {field})
	target := object.union(object.remove(w.input.target, {"quorum"}), {"quorum": hole})
	some r in quorum.defer with input as object.union(object.remove(w.input, {"target"}), {"target": target})
	r.code == "quorum.unknown"
}

test_po_06_every_number_must_be_known if {
	half_counted == {"voters", "up", "up_seen", "needed", "voters_after", "up_after", "needed_after"}
}

test_po_06_an_effect_that_is_not_said_is_unknown if {
	w := testing.world(of(three, {}))
	some r in quorum.defer with input as object.remove(w.input, {"target"})
	r.code == "quorum.unknown"
}
