package acm.guard_test

import data.acm.checks.guard
import data.acm.testing

pods(n) := {sprintf("db-%d", [i]): {} | some i in numbers.range(0, n - 1)}

base := {
	"pods": pods(10),
	"operation": {"type": "deployment", "pod": "db-5"},
	"options": {"operations": testing.every_type, "guard": {}},
}

ask(spec) := testing.library(object.union(base, spec))

message(d) := concat("|", sort({r.message | some r in d.reasons}))

down(indices) := {"pods": {sprintf("db-%d", [i]): {"ready": false} | some i in indices}}

test_one_of_ten_is_no_wide_fault if testing.expect(ask(down([1])), "approve", set())

test_two_of_ten_are_a_wide_fault if {
	d := ask(down([1, 2]))
	testing.expect(d, "defer", {"guard.wide_fault"})
	message(d) == "2 of 10 pods are unexpectedly down or unknown, which is a wide fault from 2 on: db-1, db-2"
}

test_a_fraction_is_rounded_up if {
	fraction := {"options": {"guard": {"fraction": 0.25}}}
	testing.expect(ask(object.union(down([1, 2]), fraction)), "approve", set())
	testing.expect(ask(object.union(down([1, 2, 3]), fraction)), "defer", {"guard.wide_fault"})
}

test_small_applications_have_a_least_number if {
	small := {"options": {"guard": {"min_pods": 4}}}
	testing.expect(ask(object.union(down([1, 2, 3]), small)), "approve", set())
	testing.expect(ask(object.union(down([1, 2, 3, 4]), small)), "defer", {"guard.wide_fault"})
}

test_what_is_in_flight_is_expected if testing.expect(
	ask(object.union(down([1, 2]), {"in_flight": {"db-1": {"type": "deployment"}}})),
	"approve", set(),
)

test_a_member_in_an_unknown_state_counts if testing.expect(
	ask(object.union(down([1]), {"members": {"db-2": {"unknown": {"healthy": "time-out"}}}})),
	"defer", {"guard.wide_fault"},
)

test_a_pod_that_is_down_itself_may_be_repaired if testing.expect(ask(down([1, 2, 5])), "approve", set())

test_nobody_joins_during_a_wide_fault if testing.expect(
	ask(object.union(down([1, 2]), {"operation": {"type": "swap", "stage": "add", "pod": "db-1-i1"}})),
	"defer", {"guard.wide_fault"},
)

test_op_23_no_claims_are_deleted_during_a_wide_fault if testing.expect(
	ask(object.union(down([1, 2]), {"operation": {"type": "scale-in", "stage": "release", "pod": "db-10"}})),
	"defer", {"guard.wide_fault"},
)

none := object.remove(base, {"pods"})

test_di_04_no_pods_is_no_consent if {
	testing.expect(testing.library(none), "defer", {"guard.no_pods"})
	message(testing.library(none)) == "no pod of the application is known"
}

test_di_04_looked_at_again_when_pods_appear if testing.expect(
	testing.library(object.union(none, {"pods": pods(1), "operation": {"pod": "db-0"}})),
	"approve", set(),
)

test_di_04_nor_may_pods_be_added_to_an_application_that_has_run if testing.expect(
	testing.library(object.union(none, {"operation": {"type": "scale-out", "pod": "db-0"}})),
	"defer", {"guard.no_pods"},
)

test_the_first_pods_may_be_added if testing.expect(
	testing.library(object.union(none, {"bootstrapping": true, "operation": {"type": "scale-out", "pod": "db-0"}})),
	"approve", set(),
)

test_before_the_first_pod_nothing_may_be_removed if testing.expect(
	testing.library(object.union(none, {"bootstrapping": true})),
	"defer", {"guard.no_pods"},
)

test_scaled_to_zero_there_are_none_by_right if {
	zero := {"operation": {"type": "scale-in", "stage": "release", "pod": "db-0"}, "sets": {"db": {"replicas": 0}, "proxy": {"replicas": 0}}}
	testing.expect(testing.library(object.union(none, zero)), "approve", set())
	testing.expect(testing.library(object.union(none, object.union(zero, {"sets": {"proxy": {"replicas": 1}}}))), "defer", {"guard.no_pods"})
	testing.expect(testing.library(object.union(none, {"sets": {}})), "defer", {"guard.no_pods"})
}

test_the_last_pod_may_be_scaled_in if testing.expect(
	testing.library(object.union(none, {
		"pods": pods(1),
		"operation": {"type": "scale-in", "pod": "db-0"},
		"sets": {"db": {"replicas": 0}},
	})),
	"approve", set(),
)

test_po_06_unknown_totals_wait if {
	w := testing.world(base)
	every totals in [{"pods": 10}, {"unexpected": {"count": 0, "examples": []}}, {}] {
		blind := object.union(object.remove(w.input, {"totals"}), {"totals": totals})
		some r in guard.defer with input as blind
		r.code == "guard.unknown"
	}
}

test_po_06_unknown_totals_do_not_stop_a_repair if {
	w := testing.world(object.union(base, down([5])))
	guard.defer == set() with input as object.remove(w.input, {"totals"})
}
