package acm.operations_test

import data.acm.testing

ask(spec) := testing.library(object.union({"pods": {"db-0": {}}, "operation": {"type": "deployment", "pod": "db-0"}}, spec))

test_a_covered_type_passes if testing.expect(ask({"options": {"operations": {"types": ["deployment"]}}}), "approve", set())

test_another_type_waits if testing.expect(
	ask({"options": {"operations": {"types": ["scale-in", "disruption"]}}}),
	"defer", {"operations.not_covered"},
)

test_no_list_covers_nothing if testing.expect(ask({"options": {"operations": {}}}), "defer", {"operations.not_covered"})

test_the_message_names_the_type if {
	some r in ask({"options": {"operations": {"types": []}}}).reasons
	contains(r.message, "does not cover deployment")
}

test_a_question_without_a_type_is_not_covered if {
	w := testing.world({"operation": {"type": "deployment", "pod": "db-0"}, "options": {"operations": testing.every_type}})
	some r in data.acm.defer with input as object.remove(w.input, {"operation"})
	r.code == "operations.not_covered"
	contains(r.message, "an operation without a type")
}
