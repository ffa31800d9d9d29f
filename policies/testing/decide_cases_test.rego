package acm.testing_decide_test

import data.acm.testing

no := {"code": "a.no", "message": "no"}

later := {"code": "a.later", "message": "later"}

decide(deny, defer, approve) := testing.decide(testing.outputs(deny, defer, approve))

test_approve_when_nothing_objects if testing.expect(decide(set(), set(), {true}), "approve", set())

test_deny_before_defer_before_approve if {
	testing.expect(decide({no}, {later}, {true}), "deny", {"a.no"})
	testing.expect(decide(set(), {later}, {true}), "defer", {"a.later"})
}

test_nothing_said_is_a_defer if {
	testing.expect(decide(set(), set(), set()), "defer", {"policy.no_approval"})
	testing.expect(decide(set(), set(), {false}), "defer", {"policy.no_approval"})
	testing.expect(decide(set(), {later}, set()), "defer", {"a.later"})
}

test_malformed_reasons_never_disappear if {
	malformed := [
		"later", 1, true, null, [], {}, {"code": "a.b"}, {"message": "m"}, {"code": "a", "message": "m"}, {"code": "A.b", "message": "m"},
		{"code": 1, "message": "m"}, {"code": "a.b", "message": ""}, {"code": "a.b", "message": 1},
		{"code": "a.b", "message": "m", "retry_after": 0}, {"code": "a.b", "message": "m", "retry_after": 86401},
		{"code": "a.b", "message": "m", "retry_after": "5"}, {"code": "a.b", "message": "m", "details": []},
		{"code": "a.b", "message": "m", "need": {}}, {"code": "a.b", "message": "m", "need": {"action": "x"}},
		{"code": "a.b", "message": "m", "need": {"subject": "x"}}, {"code": "a.b", "message": "m", "need": {"action": "x", "subject": 1}},
		{"code": "a.b", "message": "m", "need": {"action": "x", "subject": "y", "parameters": []}},
		{"code": "a.b", "message": "m", "need": "x"},
	]
	every r in malformed {
		testing.expect(decide(set(), {r}, {true}), "defer", {"policy.malformed"})
		testing.expect(decide({r}, set(), {true}), "defer", {"policy.malformed"})
		testing.expect(decide({r}, set(), set()), "defer", {"policy.malformed"})
		testing.expect(decide({r}, {later}, set()), "defer", {"policy.malformed", "a.later"})
		testing.expect(decide({no, r}, set(), {true}), "deny", {"a.no"})
	}
}

test_well_formed_reasons if {
	r := {
		"code": "a.b_c.d", "message": "m", "retry_after": 86400, "details": {"x": 1},
		"need": {"action": "leader.transfer", "subject": "db-0", "parameters": {"to": "db-1"}}, "more": true,
	}
	testing.expect(decide(set(), {r}, {true}), "defer", {"a.b_c.d"})
}

test_outputs_of_the_wrong_kind_are_malformed if {
	testing.expect(decide("no", set(), {true}), "defer", {"policy.malformed"})
	testing.expect(decide(set(), [later], {true}), "defer", {"policy.malformed"})
	testing.expect(decide(set(), set(), {"yes"}), "defer", {"policy.malformed"})
	testing.expect(decide(set(), set(), {1}), "defer", {"policy.malformed"})
}

test_a_malformed_reason_is_quoted if {
	some r in decide({"not today"}, set(), {true}).reasons
	contains(r.message, "not today")
	contains(r.message, "deny")
}

test_when_to_ask_again if {
	decide(set(), {later}, set()).retry_after == 5
	decide({no}, set(), set()).retry_after == 600
	decide(set(), set(), {true}).retry_after == 0
	decide(set(), {later, object.union(later, {"retry_after": 7}), object.union(no, {"retry_after": 9})}, set()).retry_after == 9
	decide(set(), {object.union(later, {"retry_after": 2})}, set()).retry_after == 2
	decide({object.union(no, {"retry_after": 30})}, {object.union(later, {"retry_after": 99})}, set()).retry_after == 30
}

test_po_13_disabled_reasons_do_not_count if {
	every name in ["a", "a.later"] {
		d := decide(set(), {later}, {true}) with input.disabled as {name: {"until": 1, "by": "b", "why": "w"}}
		testing.expect(d, "approve", set())
	}
	d := decide({no}, {later}, {true}) with input.disabled as {"a.no": {"until": 1, "by": "b", "why": "w"}}
	testing.expect(d, "defer", {"a.later"})
	silent := decide(set(), {later}, set()) with input.disabled as {"a": {"until": 1, "by": "b", "why": "w"}}
	testing.expect(silent, "defer", {"policy.no_approval"})
}

test_po_13_the_machinery_cannot_be_disabled if {
	every name in ["policy", "policy.malformed", "policy.no_approval"] {
		off := {name: {"until": 1, "by": "b", "why": "w"}}
		first := decide(set(), {"later"}, {true}) with input.disabled as off
		testing.expect(first, "defer", {"policy.malformed"})
		second := decide(set(), set(), set()) with input.disabled as off
		testing.expect(second, "defer", {"policy.no_approval"})
	}
	every family in ["policy", "facts", "bundle", "acm"] {
		r := {"code": sprintf("%s.x", [family]), "message": "m"}
		d := decide(set(), {r}, {true}) with input.disabled as {family: {"until": 1, "by": "b", "why": "w"}}
		testing.expect(d, "defer", {r.code})
	}
}

test_expect_wants_exactly_this if {
	d := decide(set(), {later}, set())
	not testing.expect(d, "deny", {"a.later"})
	not testing.expect(d, "defer", set())
	not testing.expect(d, "defer", {"a.later", "a.more"})
}

config := {
	"checks": {"operations": {"types": ["swap"]}, "quorum": true, "guard": false, "leader": {"settle_seconds": 5, "last": true}},
	"overrides": [
		{"match": {"set": "proxy"}, "checks": {"quorum": false, "leader": {"last": false}}},
		{"match": {"type": "swap", "cause": "node-lost"}, "checks": {"guard": true, "quorum": {"spare": 1}, "operations": {"types": ["scale-in"]}}},
		{"match": {"stage": "remove"}, "checks": {"leader": true}},
		{"match": {"pod": "db-9", "application": "a", "namespace": "n"}, "checks": {"leader": false}},
	],
}

options(subject) := o if {
	o := testing.options_for("sample", subject) with data.apps as {"sample": {"config": config}}
}

test_options_without_a_match if {
	options({"set": "db", "type": "swap"}) == {"operations": {"types": ["swap"]}, "quorum": {}, "leader": {"settle_seconds": 5, "last": true}}
}

test_options_are_merged_deeply_and_false_takes_away if {
	options({"set": "proxy", "type": "swap"}) == {"operations": {"types": ["swap"]}, "leader": {"settle_seconds": 5, "last": false}}
}

test_later_overrides_win_and_lists_are_replaced if {
	options({"set": "proxy", "type": "swap", "cause": "node-lost"}) == {
		"operations": {"types": ["scale-in"]},
		"quorum": {"spare": 1},
		"guard": {},
		"leader": {"settle_seconds": 5, "last": false},
	}
}

test_true_keeps_thresholds if options({"set": "db", "stage": "remove"}).leader == {"settle_seconds": 5, "last": true}

test_all_keys_of_a_match_must_equal if {
	not options({"pod": "db-9", "application": "a", "namespace": "n"}).leader
	options({"pod": "db-9", "application": "a", "namespace": "m"}).leader
}

test_no_config_is_no_options if testing.options_for("nobody", {"set": "db"}) == {}

test_worlds_take_their_options_from_the_bundle if {
	w := testing.world({"application": "my-sample", "operation": {"type": "swap", "pod": "db-0"}}) with data.apps as {"my_sample": {"config": config}}
	w.input.application.policy == "my_sample"
	w.input.options.quorum == {}
	proxy := testing.world({"application": "my-sample", "operation": {"type": "swap", "pod": "proxy-0"}}) with data.apps as {"my_sample": {"config": config}}
	not proxy.input.options.quorum
}

test_blind_worlds_lack_what_they_say if {
	worlds := testing.blind("sample")
	count(worlds) == 48
	count([w | some w in worlds; w.input == {}]) == 8
	count([w | some w in worlds; w.facts == {}]) == 8
	count([w | some w in worlds; w.input.target == {}]) == 8
	count([w | some w in worlds; w.facts.pods == {}]) == 8
	count({[w.input.operation.type, w.input.operation.stage] | some w in worlds}) == 8
	every w in worlds {
		not w.input.application.bootstrapping == true
	}
}

# Whoever takes silence for consent is found out.
naive contains w if {
	some w in testing.blind("sample")
	count([p | some p in w.facts.pods; not p.available]) == 0
}

test_blind_worlds_catch_who_takes_silence_for_consent if count(naive) > 0
