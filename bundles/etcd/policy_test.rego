package apps.etcd_test

import data.acm
import data.acm.testing
import data.apps.etcd as policy

names := ["etcd-0", "etcd-1", "etcd-2"]

base := {"application": "etcd", "pods": {name: {} | some name in names}, "members": testing.voters(names, "etcd-0")}

judge(w) := d if {
	d := testing.decide(testing.outputs(policy.deny, policy.defer, {x | x := policy.approve})) with input as w.input with data.facts as w.facts
}

ask(spec) := judge(testing.world(object.union(base, spec)))

# What the policy says on recorded facts: see apps/etcd_test/README.md.
on(recorded, spec) := judge(testing.world(object.union(
	{
		"application": "etcd",
		"now": recorded.now,
		"pods": recorded.facts.pods,
		"members": recorded.facts.members,
		"election": recorded.facts.election,
	},
	spec,
)))

notes(spec) := codes if {
	w := testing.world(object.union(base, spec))
	said := policy.warn with input as w.input with data.facts as w.facts
	codes := {r.code | some r in said}
}

messages(d) := {r.message | some r in d.reasons}

deploy(pod) := {"operation": {"type": "deployment", "pod": pod}}

scale_in(pod) := {"operation": {"type": "scale-in", "pod": pod}}

test_options if acm.option_errors(data.apps.etcd.config) == set()

test_never_approves_blind if {
	worlds := testing.blind("etcd")
	count(worlds) == 48
	every w in worlds { judge(w).verdict != "approve" }
}

# One step at a time

test_a_steady_cluster_may_be_changed if {
	every type in testing.every_type.types {
		testing.expect(on(data.apps.etcd_test.three_steady, {"operation": {"type": type, "pod": concat("", ["etcd-", pod_for[type]])}}), "approve", set())
	}
}

pod_for := {"scale-out": "3", "scale-in": "2", "deployment": "2", "disruption": "2", "swap": "2-i1"}

test_di_02_the_second_step_waits if {
	testing.expect(
		ask({"operation": {"type": "disruption", "pod": "etcd-1"}, "in_flight": {"etcd-2": {"type": "deployment"}}}),
		"defer", {"budget.application", "quorum.majority"},
	)
	testing.expect(
		ask({"operation": {"type": "disruption", "pod": "etcd-1"}, "in_flight": {"etcd-2": {"type": "deployment", "state": "approved"}}}),
		"defer", {"budget.application", "quorum.majority"},
	)
}

test_five_members_still_go_one_by_one if testing.expect(
	on(data.apps.etcd_test.five_steady, object.union(deploy("etcd-2"), {"in_flight": {"etcd-4": {"type": "deployment"}}})),
	"defer", {"budget.application"},
)

test_op_01_a_pod_with_a_bad_image_may_be_replaced if testing.expect(
	ask(object.union(deploy("etcd-2"), {
		"pods": {"etcd-2": {"ready": false, "phase": "Pending", "since": testing.now - 5}},
		"members": {"etcd-2": {"healthy": false, "caught_up": false}},
	})),
	"approve", set(),
)

test_op_01_the_others_wait_for_it if testing.expect(
	ask(object.union(deploy("etcd-1"), {
		"pods": {"etcd-2": {"ready": false, "phase": "Pending", "since": testing.now - 5}},
		"members": {"etcd-2": {"healthy": false, "caught_up": false}},
	})),
	"defer", {"budget.application", "quorum.majority", "caught_up.lagging"},
)

# DI-12: Ready is not enough

test_di_12_a_member_that_lags_stops_the_others if testing.expect(
	ask(object.union(deploy("etcd-1"), {"members": {"etcd-2": {"caught_up": false, "lag": 9000}}})),
	"defer", {"caught_up.lagging"},
)

test_di_12_a_frozen_member_stops_the_others if {
	d := on(data.apps.etcd_test.follower_hung, deploy("etcd-0"))
	testing.expect(d, "defer", {"quorum.majority", "caught_up.unknown"})
	"not known whether caught up: etcd-2" in messages(d)
}

test_di_12_a_frozen_member_that_kubernetes_calls_ready_is_not_touched if testing.expect(
	on(data.apps.etcd_test.follower_hung, deploy("etcd-2")),
	"defer", {"quorum.unknown"},
)

test_a_killed_member_stops_the_others if {
	d := on(data.apps.etcd_test.follower_down, deploy("etcd-0"))
	testing.expect(d, "defer", {"budget.application", "quorum.majority", "caught_up.lagging"})
	messages(d) == {
		"2 of 3 pods would be down, 1 allowed; down or promised: etcd-2",
		"1 of 3 voters would be up, 2 needed",
		"not caught up: etcd-2",
	}
}

# DI-01: a pod that serves nothing may go, unless it is on its way back

test_di_01_a_killed_member_may_be_replaced if testing.expect(
	on(data.apps.etcd_test.follower_down, {"operation": {"type": "disruption", "pod": "etcd-2"}}),
	"approve", set(),
)

test_di_01_a_member_that_catches_up_is_left_alone if testing.expect(
	on(data.apps.etcd_test.follower_down, {
		"operation": {"type": "disruption", "pod": "etcd-2"},
		"members": {"etcd-2": {"healthy": true, "caught_up": false, "lag": 9000}},
	}),
	"defer", {"caught_up.catching_up"},
)

# DI-11: no step without a stable leader

test_di_11_a_nothing_goes_while_a_leader_is_elected if testing.expect(
	on(data.apps.etcd_test.leader_gone, deploy("etcd-0")),
	"defer", {"budget.application", "quorum.majority", "caught_up.lagging", "caught_up.unknown", "leader.election"},
)

test_di_11_a_the_dead_leader_waits_for_the_election if testing.expect(
	on(data.apps.etcd_test.leader_gone, deploy("etcd-2")),
	"defer", {"leader.election"},
)

test_di_11_a_a_new_leader_settles if {
	testing.expect(
		on(data.apps.etcd_test.leader_new, object.union(deploy("etcd-1"), {
			"pods": {"etcd-2": {"ready": true, "available": true}},
			"members": {"etcd-2": {"healthy": true, "caught_up": true}},
		})),
		"defer", {"leader.settling"},
	)
}

test_di_11_a_the_dead_leader_may_be_repaired_under_the_new_one if testing.expect(
	on(data.apps.etcd_test.leader_new, deploy("etcd-2")),
	"approve", set(),
)

test_di_11_b_without_a_majority_only_the_dead_may_go if {
	testing.expect(on(data.apps.etcd_test.majority_lost, deploy("etcd-1")), "approve", set())
	testing.expect(on(data.apps.etcd_test.majority_lost, deploy("etcd-2")), "approve", set())
	d := on(data.apps.etcd_test.majority_lost, deploy("etcd-0"))
	{"quorum.lost", "leader.none"} - d.codes == set()
	d.verdict == "defer"
}

test_di_11_b_not_before_the_grace if {
	d := on(data.apps.etcd_test.majority_lost, object.union(deploy("etcd-1"), {"now": data.apps.etcd_test.majority_lost.now - 50}))
	testing.expect(d, "defer", {"quorum.lost", "leader.none"})
}

test_di_11_c_the_leader_goes_last if {
	steady := data.apps.etcd_test.three_steady
	leader := steady.facts.election.leader
	followers := [name | some name in names; name != leader]
	testing.expect(on(steady, object.union(deploy(leader), {"waiting": followers})), "defer", {"leader.last"})
	every follower in followers {
		testing.expect(on(steady, object.union(deploy(follower), {"waiting": names})), "approve", set())
	}
	testing.expect(on(steady, deploy(leader)), "approve", set())
}

# The first pods, and pods that return

test_first_creation_passes_though_nobody_can_report if {
	every i in numbers.range(0, 2) {
		first := {"application": "etcd", "bootstrapping": true, "operation": {"type": "scale-out", "pod": sprintf("etcd-%d", [i])}}
		testing.expect(judge(testing.world(first)), "approve", set())
		earlier := {sprintf("etcd-%d", [j]): {"type": "scale-out"} | some j in numbers.range(0, 2); j < i}
		testing.expect(judge(testing.world(object.union(first, {"in_flight": earlier}))), "approve", set())
	}
}

test_first_creation_passes_while_the_others_start if testing.expect(
	judge(testing.world({
		"application": "etcd", "bootstrapping": true,
		"operation": {"type": "scale-out", "pod": "etcd-2"},
		"pods": {"etcd-0": {"ready": false}, "etcd-1": {"ready": false}},
		"in_flight": {"etcd-0": {"type": "scale-out"}, "etcd-1": {"type": "scale-out"}},
		"members": {"etcd-0": {"unknown": {"role": "x"}, "voter": true, "healthy": true}, "etcd-1": {"voter": true, "healthy": false}},
		"election": {"in_progress": true},
	})),
	"approve", set(),
)

test_a_lost_pod_comes_back if testing.expect(
	on(data.apps.etcd_test.follower_down, {
		"operation": {"type": "scale-out", "cause": "restore", "pod": "etcd-2"},
		"pods": {"etcd-2": {"phase": "Missing"}},
	}),
	"approve", set(),
)

test_no_new_member_while_one_is_down if testing.expect(
	on(data.apps.etcd_test.follower_down, {"operation": {"type": "scale-out", "pod": "etcd-3"}}),
	"defer", {"quorum.join"},
)

# OP-14: scaling in, judged by the voters that are registered

test_op_14_three_to_two if testing.expect(on(data.apps.etcd_test.three_steady, scale_in("etcd-2")), "approve", set())

test_op_14_three_to_two_is_denied_while_a_member_is_down if {
	d := on(data.apps.etcd_test.follower_down, scale_in("etcd-1"))
	testing.expect(d, "deny", {"quorum.scale_in"})
	messages(d) == {"scaling in would leave 1 of 3 registered voters up, 2 needed; repair or remove members that are down first"}
	d.retry_after == 30
}

test_op_14_the_member_that_is_down_may_be_scaled_in if testing.expect(
	on(data.apps.etcd_test.follower_down, scale_in("etcd-2")),
	"approve", set(),
)

test_op_14_five_to_one_stops_at_the_majority_of_five if {
	testing.expect(on(data.apps.etcd_test.five_steady, scale_in("etcd-4")), "approve", set())
	d := on(data.apps.etcd_test.five_two_gone, scale_in("etcd-2"))
	testing.expect(d, "deny", {"quorum.scale_in"})
	messages(d) == {"scaling in would leave 2 of 5 registered voters up, 3 needed; repair or remove members that are down first"}
}

test_op_14_five_to_one_goes_on_once_the_members_are_removed if {
	removed := object.remove(data.apps.etcd_test.five_two_gone.facts.members, ["etcd-3", "etcd-4"])
	spec := object.union(scale_in("etcd-2"), {
		"application": "etcd",
		"pods": data.apps.etcd_test.five_two_gone.facts.pods,
		"members": removed,
	})
	testing.expect(judge(testing.world(spec)), "approve", set())
}

test_op_14_scaling_in_tells_that_the_member_stays_registered if {
	notes(scale_in("etcd-2")) == {"etcd.stays_registered"}
	notes(object.union(scale_in("etcd-2"), {"members": {"etcd-2": {"voter": false}}})) == set()
	notes(object.union(scale_in("etcd-2"), {"operation": {"stage": "release"}})) == set()
	notes({"operation": {"type": "swap", "stage": "remove", "pod": "etcd-2"}}) == set()
}

test_notes_of_the_library_are_passed_on if {
	notes(object.union(deploy("etcd-1"), {
		"in_flight": {"etcd-2": {"type": "deployment"}},
		"disabled": {"quorum": {}},
	})) == {"quorum.majority"}
}

# OP-23: claims go only on evidence

release := {"operation": {"type": "scale-in", "stage": "release", "pod": "etcd-3", "deletes_data": true}}

test_op_23_claims_of_a_removed_member_may_go if testing.expect(ask(release), "approve", set())

test_op_23_claims_of_a_registered_member_stay if {
	d := ask(object.union(release, {"members": {"etcd-3": {"healthy": false, "caught_up": false}}}))
	testing.expect(d, "defer", {"etcd.still_member"})
	some r in d.reasons
	r.need == {"action": "member.remove", "subject": "etcd-3"}
}

test_op_23_claims_stay_while_nobody_can_tell if {
	testing.expect(
		judge(testing.world({"application": "etcd", "pods": base.pods, "operation": release.operation})),
		"defer", {"etcd.membership_unknown"},
	)
	testing.expect(ask(object.union(release, {"members": {"etcd-1": {"healthy": false}, "etcd-2": {"healthy": false}}})), "defer", {"etcd.membership_unknown"})
	testing.expect(ask(object.union(release, {"members": {name: {"voter": false} | some name in names}})), "defer", {"etcd.membership_unknown"})
}

test_only_a_release_asks_for_evidence if testing.expect(
	judge(testing.world({
		"application": "etcd", "bootstrapping": true,
		"operation": {"type": "scale-out", "pod": "etcd-0"},
		"members": {"etcd-0": {"unknown": {"healthy": "x"}}},
	})),
	"approve", set(),
)

# PO-06

test_po_06_a_dead_collector_stops_everything_but_repair if {
	blind := {"application": "etcd", "pods": object.union(base.pods, {"etcd-2": {"ready": false}})}
	testing.expect(
		judge(testing.world(object.union(blind, deploy("etcd-1")))),
		"defer", {"budget.application", "quorum.unknown", "leader.unknown", "caught_up.unknown"},
	)
	testing.expect(judge(testing.world(object.union(blind, deploy("etcd-2")))), "approve", set())
}

test_guard_two_of_three_down_is_a_wide_fault if {
	d := on(data.apps.etcd_test.majority_lost, {"operation": {"type": "scale-out", "pod": "etcd-3"}})
	"guard.wide_fault" in d.codes
}
