package acm.caught_up_test

import data.acm.checks.caught_up
import data.acm.testing

names := ["db-0", "db-1", "db-2"]

base := {
	"pods": {name: {} | some name in names},
	"members": testing.voters(names, "db-0"),
	"operation": {"type": "deployment", "pod": "db-1"},
	"options": {"operations": testing.every_type, "caught_up": {}},
}

ask(spec) := testing.library(object.union(base, spec))

message(d) := concat("|", sort({r.message | some r in d.reasons}))

behind := {"caught_up": false, "lag": 9000}

broken := {"healthy": false, "caught_up": false}

test_all_caught_up_is_well if testing.expect(ask({}), "approve", set())

test_di_12_a_ready_member_that_lags_stops_the_others if {
	d := ask({"members": {"db-2": behind}})
	testing.expect(d, "defer", {"caught_up.lagging"})
	message(d) == "not caught up: db-2"
}

test_di_12_an_unhealthy_member_stops_the_others if testing.expect(
	ask({"members": {"db-2": {"healthy": false}}}),
	"defer", {"caught_up.lagging"},
)

test_di_10_the_broken_member_goes_first if {
	both := {"members": {"db-1": broken, "db-2": behind}}
	testing.expect(ask(both), "approve", set())
	testing.expect(ask(object.union(both, {"operation": {"pod": "db-0"}})), "defer", {"caught_up.lagging"})
}

test_di_10_a_member_that_only_lags_waits_for_the_others if testing.expect(
	ask({"members": {"db-1": behind, "db-2": behind}}),
	"defer", {"caught_up.lagging"},
)

test_the_only_one_that_lags_goes_first if testing.expect(ask({"members": {"db-1": behind}}), "approve", set())

test_di_01_a_dead_pod_goes_whoever_lags if testing.expect(
	ask({"pods": {"db-1": {"ready": false}}, "members": {"db-1": broken, "db-2": behind}}),
	"approve", set(),
)

test_a_pod_that_is_no_member_waits_for_the_members if testing.expect(
	ask({"pods": {"db-3": {}}, "members": {"db-2": behind}, "operation": {"pod": "db-3"}}),
	"defer", {"caught_up.lagging"},
)

test_a_pod_that_joins_waits_for_nobody if testing.expect(
	ask({"members": {"db-2": behind}, "operation": {"type": "scale-out", "pod": "db-3"}}),
	"approve", set(),
)

test_po_06_an_unknown_member_is_not_caught_up if {
	d := ask({"members": {"db-2": {"unknown": {"caught_up": "time-out"}, "healthy": true}}})
	testing.expect(d, "defer", {"caught_up.unknown"})
	message(d) == "not known whether caught up: db-2"
}

test_po_06_no_member_facts_are_not_caught_up if testing.expect(
	testing.library(object.remove(base, {"members"})),
	"defer", {"caught_up.unknown"},
)

test_po_06_no_member_facts_do_not_stop_a_repair if testing.expect(
	testing.library(object.union(object.remove(base, {"members"}), {"pods": {"db-1": {"ready": false}}})),
	"approve", set(),
)

test_po_06_no_member_facts_do_not_stop_a_pod_that_joins if testing.expect(
	testing.library(object.union(object.remove(base, {"members"}), {"operation": {"type": "scale-out", "pod": "db-3"}})),
	"approve", set(),
)

test_po_06_unknown_others_do_not_stop_a_repair if testing.expect(
	ask({"pods": {"db-1": {"ready": false}}, "members": {"db-1": broken, "db-2": {"unknown": {"caught_up": "time-out"}}}}),
	"approve", set(),
)

test_po_06_both_numbers_must_be_known if {
	w := testing.world(base)
	every field in ["lagging", "unknown"] {
		others := object.remove(w.input.target.others, {field})
		target := object.union(object.remove(w.input.target, {"others"}), {"others": others})
		some r in caught_up.defer with input as object.union(object.remove(w.input, {"target"}), {"target": target})
		r.code == "caught_up.unknown"
	}
}

test_po_06_an_effect_that_is_not_said_is_unknown if {
	w := testing.world(base)
	some r in caught_up.defer with input as object.remove(w.input, {"target"})
	r.code == "caught_up.unknown"
}

# Two ends of DI-01: a pod that serves nothing may go, unless it is on its way back.
catching_up := {"pods": {"db-1": {"ready": false, "since": testing.now - 600}}, "members": {"db-1": behind}}

test_di_01_a_member_that_catches_up_is_left_alone if {
	d := ask(catching_up)
	testing.expect(d, "defer", {"caught_up.catching_up"})
	message(d) == "db-1 is catching up and is left alone for 3600 seconds after it was last started or lost"
}

test_di_01_also_when_its_health_is_unknown if testing.expect(
	ask(object.union(catching_up, {"members": {"db-1": {"unknown": {"healthy": "time-out"}}}})),
	"defer", {"caught_up.catching_up"},
)

test_di_01_also_when_its_pod_is_ready if testing.expect(
	ask(object.union(catching_up, {"pods": {"db-1": {"ready": true}}})),
	"defer", {"caught_up.catching_up"},
)

test_di_01_a_member_that_crashes_is_not_catching_up if testing.expect(
	ask(object.union(catching_up, {"members": {"db-1": broken}})),
	"approve", set(),
)

test_di_01_a_member_that_has_caught_up_may_go if testing.expect(
	ask(object.union(catching_up, {"members": {"db-1": {"caught_up": true}}})),
	"approve", set(),
)

test_di_01_catching_up_does_not_last_for_ever if testing.expect(
	ask(object.union(catching_up, {"pods": {"db-1": {"since": testing.now - 3600}}})),
	"approve", set(),
)

test_di_01_the_grace_is_an_option if testing.expect(
	ask(object.union(catching_up, {"options": {"caught_up": {"catching_up_grace_seconds": 600}}})),
	"approve", set(),
)

test_di_01_claims_of_a_lagging_member_are_no_concern_of_this_check if testing.expect(
	ask(object.union(catching_up, {"operation": {"type": "scale-in", "stage": "release"}})),
	"approve", set(),
)
