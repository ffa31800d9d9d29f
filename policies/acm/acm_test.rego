package acm_test

import data.acm
import data.acm.testing

names := ["db-0", "db-1", "db-2"]

base := {
	"pods": {name: {} | some name in names},
	"members": testing.voters(names, "db-0"),
	"operation": {"type": "deployment", "pod": "db-1"},
	"options": {
		"operations": testing.every_type,
		"budget": {"application": {"max_unavailable": 1}},
		"quorum": {},
	},
}

ask(spec) := testing.library(object.union(base, spec))

busy := {"in_flight": {"db-2": {"type": "deployment"}}}

input_of(spec) := testing.world(object.union(base, spec)).input

codes(reasons) := {r.code | some r in reasons}

test_all_checks_that_are_on_speak if testing.expect(ask(busy), "defer", {"budget.application", "quorum.majority"})

test_a_check_that_is_off_is_silent if testing.expect(
	testing.library(object.union(object.remove(base, {"options"}), object.union(busy, {"options": {"operations": testing.every_type, "quorum": {}}}))),
	"defer", {"quorum.majority"},
)

test_pod_dead_is_down_by_all_accounts if {
	dead := {"pods": {"db-1": {"ready": false}}, "members": {"db-1": {"healthy": false}}}
	acm.pod.dead with input as input_of(dead)
	not acm.pod.dead with input as input_of({"pods": {"db-1": {"ready": false}}})
	not acm.pod.dead with input as input_of({"members": {"db-1": {"healthy": false}}})
}

test_pod_dead_also_when_nobody_answers if {
	acm.pod.dead with input as input_of({"pods": {"db-1": {"ready": false}}, "members": {"db-1": {"unknown": {"healthy": "time-out"}}}})
}

test_po_13_a_disabled_code_does_not_count if {
	off := object.union(busy, {"disabled": {"quorum.majority": {}}})
	testing.expect(ask(off), "defer", {"budget.application"})
	testing.notes(object.union(base, off)) == {"quorum.majority (disabled)"}
	codes(acm.defer) == {"budget.application"} with input as input_of(off)
}

test_po_13_a_disabled_check_does_not_count if {
	off := object.union(busy, {"disabled": {"quorum": {}, "budget": {}}})
	testing.expect(ask(off), "approve", set())
	testing.notes(object.union(base, off)) == {"quorum.majority (disabled)", "budget.application (disabled)"}
	acm.defer == set() with input as input_of(off)
}

test_po_13_another_disabled_code_changes_nothing if testing.expect(
	ask(object.union(busy, {"disabled": {"quorum.lost": {}, "leader": {}}})),
	"defer", {"budget.application", "quorum.majority"},
)

test_po_13_an_expired_one_changes_nothing if testing.expect(
	ask(object.union(busy, {"disabled": {"quorum": {"until": testing.now}}})),
	"defer", {"budget.application", "quorum.majority"},
)

alone := {
	"pods": {"db-0": {}},
	"members": testing.voters(["db-0"], "db-0"),
	"operation": {"type": "deployment", "pod": "db-0"},
	"options": {"operations": testing.every_type, "quorum": {}},
}

test_po_13_a_disabled_denial_does_not_count if {
	testing.expect(testing.library(alone), "deny", {"quorum.single"})
	every name in ["quorum", "quorum.single"] {
		off := object.union(alone, {"disabled": {name: {}}})
		testing.expect(testing.library(off), "approve", set())
		testing.notes(off) == {"quorum.single (disabled)"}
		acm.deny == set() with input as testing.world(off).input
	}
}

test_po_13_only_what_is_disabled_is_called_so if {
	testing.notes(object.union(alone, {"disabled": {"leader": {}}})) == set()
	testing.notes(object.union(base, object.union(busy, {"disabled": {"leader": {}}}))) == set()
}

test_po_13_disabling_a_check_gets_past_a_dead_collector if testing.expect(
	testing.library(object.union(object.remove(base, {"members"}), {"disabled": {"quorum": {}}})),
	"approve", set(),
)

test_po_13_disabling_operations_gets_past_an_uncovered_type if testing.expect(
	testing.library({
		"pods": {"db-0": {}},
		"operation": {"type": "swap", "stage": "remove", "pod": "db-0"},
		"options": {"operations": {"types": ["deployment"]}},
		"disabled": {"operations": {}},
	}),
	"approve", set(),
)

test_notes_of_a_check_are_passed_on if {
	testing.notes(object.union(alone, {"options": {"quorum": {"single_member": "allow"}}})) == {"quorum.single"}
}

test_a_check_that_does_not_exist_stops_everything if testing.expect(
	ask({"options": {"quorom": {}}}),
	"defer", {"options.unknown_check"},
)

test_clear_needs_the_operations_check if {
	bare := object.remove(base, {"options"})
	not acm.clear with input as testing.world(object.union(bare, {"options": {"quorum": {}}})).input
	not acm.clear with input as testing.world(object.union(bare, {"options": {}})).input
	not acm.clear with input as object.remove(input_of({}), {"options"})
	acm.clear with input as input_of({})
}

test_clear_looks_at_denials_itself if not acm.clear with input as testing.world(alone).input

test_clear_looks_at_defers_itself if not acm.clear with input as input_of(busy)

incomplete contains concat(".", path) if {
	some path in [
		["operation", "takes_down"], ["operation", "leaves"], ["operation", "joins"], ["operation", "stage"],
		["target", "down"], ["target", "goes_down"], ["application", "bootstrapping"],
	]
	holed := json.remove(input_of({"options": {"budget": {}}}), [concat("/", path)])
	spoken := object.union(object.remove(holed, {"options"}), {"options": {"operations": testing.every_type}})
	acm.defer == set() with input as spoken
	not acm.clear with input as spoken
}

test_po_06_clear_needs_a_complete_question if {
	incomplete == {
		"operation.takes_down", "operation.leaves", "operation.joins", "operation.stage",
		"target.down", "target.goes_down", "application.bootstrapping",
	}
}

test_the_checks_there_are if {
	acm.known == {"operations", "budget", "quorum", "leader", "caught_up", "guard"}
}

test_every_check_tells_its_options if {
	every check in acm.known {
		every option, spec in data.acm.checks[check].options {
			is_string(spec.description)
			is_string(spec.type)
			option != ""
		}
	}
}

test_every_default_fits_its_option if {
	every check in acm.known {
		defaults := {option: spec.default | some option, spec in data.acm.checks[check].options}
		config := {"checks": object.union({"operations": testing.every_type, "budget": {"set": {"max_unavailable": 1}}}, {check: object.union(sample(check), defaults)})}
		acm.option_errors(config) == set()
	}
}

sample(check) := object.get({"operations": testing.every_type, "budget": {"set": {"max_unavailable": 1}}}, check, {})
