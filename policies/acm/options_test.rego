package acm.options_test

import data.acm
import data.acm.testing

good := {"operations": testing.every_type, "budget": {"zone": {"max_unavailable": "25%", "min_available": 2, "max_groups": 1}}}

errors(checks) := acm.option_errors({"checks": object.union(good, checks)})

overridden(override) := acm.option_errors({"checks": good, "overrides": [override]})

test_good_thresholds if {
	errors({}) == set()
	errors({"operations": {"types": ["deployment"]}}) == set()
	errors({
		"quorum": true,
		"leader": {"last": false, "transfer_first": true, "settle_seconds": 0.5, "absent_grace_seconds": 0},
		"caught_up": false,
		"guard": {"fraction": 1, "min_pods": 1},
	}) == set()
	errors({"quorum": {"spare": 0, "single_member": "allow", "lost_grace_seconds": 30}}) == set()
	errors({"budget": {"set": {"max_unavailable": 0}, "tier": {"max_unavailable": "100%"}, "node": {"max_unavailable": "5%"}}}) == set()
	overridden({"match": {"set": "proxy", "type": "disruption", "stage": "remove"}, "checks": {"quorum": false, "budget": false}}) == set()
	overridden({"match": {"application": "a", "namespace": "n", "pod": "p", "cause": "node-lost"}, "checks": {}}) == set()
}

test_a_check_that_does_not_exist if {
	errors({"quorom": true}) == {"checks.quorom: no such check; known: budget, caught_up, guard, leader, operations, quorum"}
}

test_an_option_that_does_not_exist if {
	errors({"leader": {"settle_second": 5}}) == {"checks.leader.settle_second: no such option; known: absent_grace_seconds, last, settle_seconds, transfer_first"}
}

test_a_limit_that_does_not_exist if {
	errors({"budget": {"set": {"maxUnavailable": 1}}}) == {"checks.budget.set.maxUnavailable: no such limit; known: max_groups, max_unavailable, min_available"}
}

test_values_of_the_wrong_shape if {
	wrong := {
		"checks.leader.last: string, want boolean": {"leader": {"last": "true"}},
		"checks.leader.settle_seconds: \"10\", want a number of seconds, 0 or more": {"leader": {"settle_seconds": "10"}},
		"checks.leader.settle_seconds: -1, want a number of seconds, 0 or more": {"leader": {"settle_seconds": -1}},
		"checks.budget.zone.max_unavailable: \"one\", want a number or \"25%\"": {"budget": {"zone": {"max_unavailable": "one"}}},
		"checks.budget.zone.max_unavailable: \"0%\", want a number or \"25%\"": {"budget": {"zone": {"max_unavailable": "0%"}}},
		"checks.budget.zone.max_unavailable: \"101%\", want a number or \"25%\"": {"budget": {"zone": {"max_unavailable": "101%"}}},
		"checks.budget.zone.max_unavailable: -1, want a number or \"25%\"": {"budget": {"zone": {"max_unavailable": -1}}},
		"checks.budget.zone.max_unavailable: 1.5, want a number or \"25%\"": {"budget": {"zone": {"max_unavailable": 1.5}}},
		"checks.budget.zone.min_available: \"25%\", want a whole number, 0 or more": {"budget": {"zone": {"min_available": "25%"}}},
		"checks.budget.zone.max_groups: true, want a whole number, 0 or more": {"budget": {"zone": {"max_groups": true}}},
		"checks.budget.set: number, want an object of limits": {"budget": {"set": 1}},
		"checks.budget.set: no limit; known: max_groups, max_unavailable, min_available": {"budget": {"set": {}}},
		"checks.budget.my-label: no such option; known: *": {"budget": {"my-label": {"max_unavailable": 1}}},
		"checks.quorum.spare: 0.5, want a whole number, 0 or more": {"quorum": {"spare": 0.5}},
		"checks.quorum.single_member: \"yes\", want one of \"allow\", \"deny\"": {"quorum": {"single_member": "yes"}},
		"checks.guard.fraction: 0, want a number above 0, at most 1": {"guard": {"fraction": 0}},
		"checks.guard.fraction: 1.5, want a number above 0, at most 1": {"guard": {"fraction": 1.5}},
		"checks.guard.fraction: 20, want a number above 0, at most 1": {"guard": {"fraction": 20}},
		"checks.guard.fraction: \"0.2\", want a number above 0, at most 1": {"guard": {"fraction": "0.2"}},
		"checks.guard.min_pods: 0, want a whole number, 1 or more": {"guard": {"min_pods": 0}},
		"checks.guard.min_pods: 1.5, want a whole number, 1 or more": {"guard": {"min_pods": 1.5}},
		"checks.operations.types: [\"deploy\"], want a list of deployment, disruption, scale-in, scale-out, swap": {"operations": {"types": ["deploy"]}},
		"checks.operations.types: [], want a list of deployment, disruption, scale-in, scale-out, swap": {"operations": {"types": []}},
		"checks.operations.types: \"swap\", want a list of deployment, disruption, scale-in, scale-out, swap": {"operations": {"types": "swap"}},
		"checks.quorum: array, want true, false or an object of options": {"quorum": ["spare"]},
	}
	every text, checks in wrong {
		print(errors(checks))
		errors(checks) == {text}
	}
}

test_a_check_without_which_nothing_is_approved if {
	acm.option_errors({"checks": {"quorum": true}}) == {"checks.operations: missing or off; nothing would ever be approved"}
	acm.option_errors({"checks": {"operations": false}}) == {"checks.operations: missing or off; nothing would ever be approved"}
	acm.option_errors({}) == {"checks: missing; nothing would ever be approved"}
}

test_an_option_without_which_a_check_is_nothing if {
	want := "checks.operations.types: missing; want a list of deployment, disruption, scale-in, scale-out, swap"
	acm.option_errors({"checks": {"operations": {}}}) == {want}
	acm.option_errors({"checks": {"operations": true}}) == {want}
}

test_a_budget_without_a_limit_protects_nothing if {
	want := "checks.budget: no limit; want {\"<grouping>\": {\"max_unavailable\": 1}}"
	acm.option_errors({"checks": {"operations": testing.every_type, "budget": true}}) == {want}
	acm.option_errors({"checks": {"operations": testing.every_type, "budget": {}}}) == {want}
	acm.option_errors({"checks": {"operations": testing.every_type, "budget": false}}) == set()
}

test_keys_that_do_not_exist if {
	acm.option_errors({"checks": good, "override": []}) == {"override: no such key; known: checks, overrides"}
	overridden({"match": {}, "check": {}, "checks": {}}) == {"overrides[0].check: no such key; known: checks, match"}
}

test_documents_of_the_wrong_shape if {
	acm.option_errors([]) == {"config: array, want an object"}
	acm.option_errors({"checks": []}) == {"checks: array, want an object", "checks.operations: missing or off; nothing would ever be approved"}
	acm.option_errors({"checks": good, "overrides": {}}) == {"overrides: want a list of {match, checks}"}
	overridden("proxy") == {"overrides[0]: string, want {match, checks}"}
	overridden({"match": "proxy", "checks": {}}) == {"overrides[0].match: string, want an object"}
	overridden({"match": {}, "checks": "off"}) == {"overrides[0].checks: string, want an object"}
	overridden({"match": {}}) == {"overrides[0].checks: missing"}
	overridden({"checks": {}}) == {"overrides[0].match: missing"}
}

test_errors_in_overrides if {
	overridden({"match": {"set": "a"}, "checks": {"quorom": false}}) == {"overrides[0].checks.quorom: no such check; known: budget, caught_up, guard, leader, operations, quorum"}
	overridden({"match": {"set": "a"}, "checks": {"leader": {"last": 1}}}) == {"overrides[0].checks.leader.last: number, want boolean"}
	overridden({"match": {"sets": "a"}, "checks": {}}) == {"overrides[0].match.sets: no such key; known: application, cause, namespace, pod, set, stage, type"}
	overridden({"match": {"set": 1}, "checks": {}}) == {"overrides[0].match.set: number, want string"}
	overridden({"match": {"type": "deploy"}, "checks": {}}) == {"overrides[0].match.type: no such word \"deploy\"; known: deployment, disruption, scale-in, scale-out, swap"}
	overridden({"match": {"stage": "Remove"}, "checks": {}}) == {"overrides[0].match.stage: no such word \"Remove\"; known: add, release, remove, update"}
	overridden({"match": {"cause": "fun"}, "checks": {}}) == {"overrides[0].match.cause: no such word \"fun\"; known: canary, edit, eviction, maintenance, node-lost, restart, restore, rollout"}
}

test_the_second_override_is_looked_at_too if {
	ok := {"match": {}, "checks": {}}
	acm.option_errors({"checks": good, "overrides": [ok, {"match": {}, "checks": {"x": true}}]}) == {"overrides[1].checks.x: no such check; known: budget, caught_up, guard, leader, operations, quorum"}
}

test_all_errors_are_told_at_once if {
	count(errors({"quorom": true, "leader": {"last": 1, "first": true}})) == 3
}
