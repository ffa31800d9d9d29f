package acm.budget_test

import data.acm.testing

base := {
	"pods": {
		"db-0": {"zone": "a", "node": "n1", "groups": {"tier": "gold"}},
		"db-1": {"zone": "b", "node": "n2", "groups": {"tier": "gold"}},
		"db-2": {"zone": "c", "node": "n3", "groups": {"tier": "tin"}},
		"db-3": {"zone": "a", "node": "n4"},
		"proxy-0": {"zone": "b", "node": "n2"},
	},
	"operation": {"type": "deployment", "pod": "db-0"},
}

ask(budget, spec) := testing.library(object.union_n([
	base, {"options": {"operations": testing.every_type, "budget": budget}},
	spec,
]))

message(d) := concat("|", sort({r.message | some r in d.reasons}))

one_down := {"in_flight": {"db-1": {"type": "deployment"}}}

test_nobody_down_is_within_budget if testing.expect(ask({"application": {"max_unavailable": 1}}, {}), "approve", set())

test_di_02_a_promised_pod_counts if {
	d := ask({"application": {"max_unavailable": 1}}, one_down)
	testing.expect(d, "defer", {"budget.application"})
	message(d) == "2 of 5 pods would be down, 1 allowed; down or promised: db-1"
}

test_di_02_an_approval_nobody_reported_counts if testing.expect(
	ask({"application": {"max_unavailable": 1}}, {"in_flight": {"db-1": {"type": "disruption", "state": "approved"}}}),
	"defer", {"budget.application"},
)

test_di_02_an_expired_approval_does_not_count if testing.expect(
	ask({"application": {"max_unavailable": 1}}, {"in_flight": {"db-1": {"type": "disruption", "state": "approved", "expires_at": testing.now}}}),
	"approve", set(),
)

test_an_unavailable_pod_counts if testing.expect(
	ask({"application": {"max_unavailable": 1}}, {"pods": {"db-1": {"ready": false}}}),
	"defer", {"budget.application"},
)

test_a_pod_that_is_down_and_promised_counts_once if testing.expect(
	ask({"application": {"max_unavailable": 2}}, object.union(one_down, {"pods": {"db-1": {"ready": false}}})),
	"approve", set(),
)

test_di_01_a_pod_that_is_down_costs_nothing_more if testing.expect(
	ask({"application": {"max_unavailable": 1}}, {"pods": {"db-0": {"ready": false}, "db-1": {"ready": false}}}),
	"approve", set(),
)

test_a_pod_that_joins_costs_nothing if testing.expect(
	ask({"application": {"max_unavailable": 1}}, object.union(one_down, {"operation": {"type": "scale-out", "pod": "db-4"}})),
	"approve", set(),
)

test_a_scale_out_stuck_pending_stops_nobody if testing.expect(
	ask(
		{"application": {"max_unavailable": 1, "min_available": 4}},
		{"pods": {"db-4": {"ready": false, "node": ""}}, "in_flight": {"db-4": {"type": "scale-out"}}},
	),
	"approve", set(),
)

test_sets_have_budgets_of_their_own if {
	other := {"in_flight": {"proxy-0": {"type": "deployment"}}}
	testing.expect(ask({"set": {"max_unavailable": 1}}, other), "approve", set())
	testing.expect(ask({"set": {"max_unavailable": 1}}, one_down), "defer", {"budget.set"})
}

test_op_29_two_sets_of_one_application_share_its_budget if testing.expect(
	ask({"application": {"max_unavailable": 1}}, {"in_flight": {"proxy-0": {"type": "deployment"}}}),
	"defer", {"budget.application"},
)

test_zones_nodes_and_labels_are_groups if {
	spec := {"in_flight": {"db-3": {"type": "deployment"}}}
	testing.expect(ask({"zone": {"max_unavailable": 1}}, spec), "defer", {"budget.zone"})
	testing.expect(ask({"node": {"max_unavailable": 1}}, spec), "approve", set())
	testing.expect(ask({"tier": {"max_unavailable": 1}}, one_down), "defer", {"budget.tier"})
	message(ask({"zone": {"max_unavailable": 1}}, spec)) == "zone a: 2 of 2 pods would be down, 1 allowed; down or promised: db-3"
}

test_other_zones_do_not_count_in_a_zone if testing.expect(ask({"zone": {"max_unavailable": 1}}, one_down), "approve", set())

test_shards_are_groups if {
	shards := {"shards": {"s1": {"replicas": ["db-0", "db-1"]}, "s2": {"replicas": ["db-0", "db-2"]}, "s3": {"replicas": ["db-0", "db-1", "db-3"]}}}
	testing.expect(ask({"shard": {"max_unavailable": 1}}, shards), "approve", set())
	d := ask({"shard": {"max_unavailable": 1}}, object.union(shards, one_down))
	testing.expect(d, "defer", {"budget.shard"})
	message(d) == "shard s1: 2 of 2 pods would be down, 1 allowed; down or promised: db-1; and 1 more"
}

test_a_pod_without_shards_is_within_the_shard_budget if testing.expect(
	ask({"shard": {"max_unavailable": 1}}, {"shards": {"s1": {"replicas": ["db-1"], "leader": "db-1"}}}),
	"approve", set(),
)

test_a_percentage_is_rounded_up if {
	testing.expect(ask({"application": {"max_unavailable": "21%"}}, one_down), "approve", set())
	testing.expect(ask({"application": {"max_unavailable": "20%"}}, one_down), "defer", {"budget.application"})
}

test_op_04_a_percentage_is_at_least_one_pod if testing.expect(
	ask({"tier": {"max_unavailable": "1%"}}, {}),
	"approve", set(),
)

test_a_number_may_be_zero if testing.expect(ask({"application": {"max_unavailable": 0}}, {}), "defer", {"budget.application"})

test_enough_pods_stay if {
	testing.expect(ask({"application": {"min_available": 4}}, {}), "approve", set())
	testing.expect(ask({"application": {"min_available": 5}}, {}), "defer", {"budget.application"})
	d := ask({"application": {"min_available": 4}}, one_down)
	testing.expect(d, "defer", {"budget.application"})
	message(d) == "3 of 5 pods would be available, 4 needed; down or promised: db-1"
}

test_op_14_scaling_in_leaves_what_must_stay if {
	leave := {"operation": {"type": "scale-in", "pod": "db-3"}}
	testing.expect(ask({"set": {"min_available": 3}}, leave), "approve", set())
	d := ask({"set": {"min_available": 4}}, leave)
	testing.expect(d, "defer", {"budget.set"})
	message(d) == "set db: 3 of 4 pods would be available, 4 needed"
}

test_a_pod_that_is_down_is_not_missed_twice if testing.expect(
	ask({"application": {"min_available": 5}}, {"pods": {"db-0": {"ready": false}}}),
	"approve", set(),
)

test_not_too_many_zones_are_hurt if {
	testing.expect(ask({"zone": {"max_groups": 1}}, {}), "approve", set())
	testing.expect(ask({"zone": {"max_groups": 1}}, {"in_flight": {"db-3": {"type": "deployment"}}}), "approve", set())
	testing.expect(ask({"zone": {"max_groups": 2}}, one_down), "approve", set())
	d := ask({"zone": {"max_groups": 1}}, one_down)
	testing.expect(d, "defer", {"budget.zone"})
	message(d) == "2 zone groups would have pods down, 1 allowed; now: b"
}

test_zones_hurt_by_pods_that_are_down_already if testing.expect(
	ask({"zone": {"max_groups": 1}}, {"pods": {"db-0": {"ready": false}, "db-1": {"ready": false}}}),
	"approve", set(),
)

test_an_unknown_group_waits if {
	testing.expect(ask({"zone": {"max_unavailable": 1}}, {"pods": {"db-0": {"zone": ""}}}), "defer", {"budget.unknown"})
	testing.expect(ask({"rack": {"max_unavailable": 1}}, {}), "defer", {"budget.unknown"})
	testing.expect(ask({"shard": {"max_unavailable": 1}}, {}), "defer", {"budget.unknown"})
}

test_an_unknown_group_of_a_pod_that_is_down_does_not_matter if testing.expect(
	ask({"zone": {"max_unavailable": 1}}, {"pods": {"db-0": {"ready": false, "node": "", "zone": ""}}}),
	"approve", set(),
)

test_an_unknown_group_of_a_pod_that_joins_does_not_matter if testing.expect(
	ask({"zone": {"max_unavailable": 1}}, {"operation": {"type": "scale-out", "pod": "db-4"}}),
	"approve", set(),
)

test_unknown_is_said_when_the_effect_is_not if {
	w := testing.world(object.union(base, {"options": {"budget": {"application": {"max_unavailable": 1}}}}))
	some r in data.acm.checks.budget.defer with input as object.union(object.remove(w.input, {"target"}), {"target": {}})
	r.code == "budget.unknown"
}

test_one_reason_for_each_limit_broken if {
	d := ask({"application": {"max_unavailable": 1, "min_available": 4}, "set": {"max_unavailable": 1}}, one_down)
	testing.expect(d, "defer", {"budget.application", "budget.set"})
	count(d.reasons) == 3
}
