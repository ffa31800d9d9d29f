package apps.default_test

import data.acm
import data.acm.testing
import data.apps.default as policy

base := {"application": "web", "policy": "default", "pods": {name: {} | some name in names}}

names := {sprintf("web-%d", [i]) | some i in numbers.range(0, 7)}

judge(w) := d if {
	d := testing.decide(testing.outputs(policy.deny, policy.defer, {x | x := policy.approve})) with input as w.input with data.facts as w.facts
}

ask(spec) := judge(testing.world(object.union(base, spec)))

test_options if acm.option_errors(data.apps.default.config) == set()

test_never_approves_blind if {
	worlds := testing.blind("default")
	count(worlds) == 48
	every w in worlds { judge(w).verdict != "approve" }
}

test_a_healthy_application_may_do_everything if {
	every type in ["scale-in", "deployment", "disruption", "swap"] {
		testing.expect(ask({"operation": {"type": type, "pod": "web-3"}}), "approve", set())
	}
}

test_a_pod_may_be_added if testing.expect(ask({"operation": {"type": "scale-out", "pod": "web-8"}}), "approve", set())

test_the_first_pod_may_be_added if testing.expect(
	judge(testing.world({"policy": "default", "bootstrapping": true, "operation": {"type": "scale-out", "pod": "app-0"}})),
	"approve", set(),
)

test_a_quarter_may_be_down if testing.expect(
	ask({"operation": {"type": "deployment", "pod": "web-3"}, "in_flight": {"web-7": {"type": "deployment"}}}),
	"approve", set(),
)

test_more_than_a_quarter_waits if testing.expect(
	ask({
		"operation": {"type": "deployment", "pod": "web-3"},
		"in_flight": {"web-7": {"type": "deployment"}, "web-6": {"type": "disruption"}},
	}),
	"defer", {"budget.set"},
)

test_op_01_a_pod_that_is_down_may_be_replaced if testing.expect(
	ask({"operation": {"type": "deployment", "pod": "web-3"}, "pods": {"web-3": {"ready": false}, "web-4": {"ready": false}}}),
	"approve", set(),
)

test_a_wide_fault_stops_everything_else if testing.expect(
	ask({"operation": {"type": "scale-out", "pod": "web-8"}, "pods": {"web-3": {"ready": false}, "web-4": {"ready": false}}}),
	"defer", {"guard.wide_fault"},
)

test_denials_of_the_library_are_passed_on if {
	r := {"code": "quorum.single", "message": "the only voter"}
	policy.deny == {r} with acm.deny as {r}
}
