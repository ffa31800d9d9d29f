package acm.testing_test

import data.acm.testing

# Three pods: etcd-2 is being updated, etcd-3 was just allowed to join. May etcd-1's node be drained? The contract's example.
example := {
	"application": "etcd",
	"pods": {
		"etcd-0": {"node": "n-a1", "zone": "a"},
		"etcd-1": {"node": "n-b1", "zone": "b"},
		"etcd-2": {"node": "n-c1", "zone": "c", "revision": "etcd-7f9c", "phase": "Pending", "ready": false, "since": testing.now - 15},
	},
	"members": {"etcd-0": {"role": "leader"}, "etcd-1": {"lag": 3}, "etcd-2": {"healthy": false, "caught_up": false}},
	"collectors": {"etcd": {"ok": true, "as_of": testing.now - 1}},
	"operation": {"type": "disruption", "pod": "etcd-1", "cause": "maintenance", "node": "n-b1", "deadline": testing.now + 7200},
	"in_flight": {"etcd-2": {"type": "deployment"}, "etcd-3": {"type": "scale-out", "state": "approved", "expires_at": testing.now + 12}},
	"options": {
		"operations": testing.every_type,
		"budget": {"application": {"max_unavailable": 1}},
		"quorum": {},
		"leader": {"last": true, "settle_seconds": 10},
		"caught_up": {},
		"guard": {"fraction": 0.5},
	},
}

test_the_contracts_example if {
	w := testing.world(example)
	w.input == example_input
	w.facts == example_facts
}

test_the_contracts_example_is_judged_as_told if {
	d := testing.library(example)
	testing.expect(d, "defer", {"budget.application", "caught_up.lagging", "quorum.majority"})
	{r.message | some r in d.reasons} == {
		"2 of 3 pods would be down, 1 allowed; down or promised: etcd-2",
		"not caught up: etcd-2",
		"1 of 3 voters would be up, 2 needed",
	}
}

example_input := {
	"now": 1764547200,
	"operation": {
		"canary": false,
		"cause": "maintenance",
		"deadline": 1764554400,
		"deletes_data": false,
		"id": "disruption-etcd-1",
		"incarnation": 0,
		"index": 1,
		"joins": false,
		"leaves": false,
		"node": "n-b1",
		"pod": "etcd-1",
		"progress": {
			"denied": 0,
			"done": 0,
			"running": 0,
			"total": 1,
			"waiting": 1,
		},
		"set": "etcd",
		"stage": "remove",
		"takes_down": true,
		"type": "disruption",
		"waiting_since": 1764547140,
	},
	"application": {
		"name": "etcd",
		"namespace": "default",
		"policy": "etcd",
		"sets": {
			"etcd": {
				"max_unavailable": 1,
				"replicas": 3,
			},
		},
		"bootstrapping": false,
	},
	"options": {
		"budget": {
			"application": {
				"max_unavailable": 1,
			},
		},
		"caught_up": {},
		"guard": {
			"fraction": 0.5,
		},
		"leader": {
			"last": true,
			"settle_seconds": 10,
		},
		"operations": {
			"types": [
				"scale-out",
				"scale-in",
				"deployment",
				"disruption",
				"swap",
			],
		},
		"quorum": {},
	},
	"target": {
		"available": true,
		"custom": {},
		"down": false,
		"exists": true,
		"goes_down": true,
		"groups": {
			"application": [
				{
					"name": "application",
					"other_groups": [],
					"other_groups_down": 0,
					"others": [
						"etcd-2",
					],
					"others_down": 1,
					"size": 3,
				},
			],
			"node": [
				{
					"name": "n-b1",
					"other_groups": [
						"n-c1",
					],
					"other_groups_down": 1,
					"others": [],
					"others_down": 0,
					"size": 1,
				},
			],
			"set": [
				{
					"name": "etcd",
					"other_groups": [],
					"other_groups_down": 0,
					"others": [
						"etcd-2",
					],
					"others_down": 1,
					"size": 3,
				},
			],
			"zone": [
				{
					"name": "b",
					"other_groups": [
						"c",
					],
					"other_groups_down": 1,
					"others": [],
					"others_down": 0,
					"size": 1,
				},
			],
		},
		"incarnation": 0,
		"index": 1,
		"is_leader": false,
		"member": {
			"caught_up": true,
			"healthy": true,
			"lag": 3,
			"role": "follower",
			"unknown": {},
			"voter": true,
		},
		"node": "n-b1",
		"others": {
			"lagging": {
				"count": 1,
				"examples": [
					"etcd-2",
				],
			},
			"unknown": {
				"count": 0,
				"examples": [],
			},
		},
		"peers": {
			"count": 0,
			"examples": [],
		},
		"pod": "etcd-1",
		"quorum": {
			"needed": 2,
			"needed_after": 2,
			"up": 2,
			"up_after": 1,
			"up_seen": 2,
			"voters": 3,
			"voters_after": 3,
		},
		"ready": true,
		"revision": "r1",
		"set": "etcd",
		"since": 1764543600,
		"terminating": false,
		"zone": "b",
	},
	"totals": {
		"down": {
			"count": 1,
			"examples": [
				"etcd-2",
			],
		},
		"last_change": 1764547185,
		"pods": 3,
		"quorum": {
			"needed": 2,
			"up": 2,
			"voters": 3,
		},
		"unexpected": {
			"count": 0,
			"examples": [],
		},
	},
	"election": {
		"in_progress": false,
		"leader": "etcd-0",
		"since": 1764543600,
	},
	"in_flight": {
		"etcd-2": {
			"deletes_data": false,
			"joins": false,
			"leaves": false,
			"operation": "deployment-etcd-2",
			"set": "etcd",
			"since": 1764547180,
			"stage": "remove",
			"state": "running",
			"takes_down": true,
			"type": "deployment",
		},
		"etcd-3": {
			"deletes_data": false,
			"expires_at": 1764547212,
			"joins": true,
			"leaves": false,
			"operation": "scale-out-etcd-3",
			"set": "etcd",
			"since": 1764547180,
			"stage": "add",
			"state": "approved",
			"takes_down": false,
			"type": "scale-out",
		},
	},
	"history": {
		"approved": [],
		"since": 0,
	},
	"disabled": {},
}

example_facts := {
	"version": "test",
	"pods": {
		"etcd-0": {
			"set": "etcd",
			"index": 0,
			"incarnation": 0,
			"revision": "r1",
			"node": "n-a1",
			"zone": "a",
			"groups": {},
			"phase": "Running",
			"ready": true,
			"available": true,
			"terminating": false,
			"restarts": 0,
			"since": 1764543600,
		},
		"etcd-1": {
			"set": "etcd",
			"index": 1,
			"incarnation": 0,
			"revision": "r1",
			"node": "n-b1",
			"zone": "b",
			"groups": {},
			"phase": "Running",
			"ready": true,
			"available": true,
			"terminating": false,
			"restarts": 0,
			"since": 1764543600,
		},
		"etcd-2": {
			"set": "etcd",
			"index": 2,
			"incarnation": 0,
			"revision": "etcd-7f9c",
			"node": "n-c1",
			"zone": "c",
			"groups": {},
			"phase": "Pending",
			"ready": false,
			"available": false,
			"terminating": false,
			"restarts": 0,
			"since": 1764547185,
		},
	},
	"members": {
		"etcd-0": {
			"role": "leader",
			"voter": true,
			"healthy": true,
			"caught_up": true,
			"lag": 0,
			"unknown": {},
		},
		"etcd-1": {
			"role": "follower",
			"voter": true,
			"healthy": true,
			"caught_up": true,
			"lag": 3,
			"unknown": {},
		},
		"etcd-2": {
			"role": "follower",
			"voter": true,
			"healthy": false,
			"caught_up": false,
			"lag": 0,
			"unknown": {},
		},
	},
	"election": {
		"in_progress": false,
		"leader": "etcd-0",
		"since": 1764543600,
	},
	"nodes": {},
	"collectors": {
		"etcd": {
			"ok": true,
			"as_of": 1764547199,
		},
	},
	"raw": {},
	"index": {
		"pods": 3,
		"unavailable": {
			"etcd-2": {
				"set": "etcd",
				"since": 1764547185,
			},
		},
		"groups": {
			"application": {
				"application": {
					"size": 3,
					"unavailable": 1,
					"examples": [
						"etcd-2",
					],
				},
			},
			"set": {
				"etcd": {
					"size": 3,
					"unavailable": 1,
					"examples": [
						"etcd-2",
					],
				},
			},
			"zone": {
				"a": {
					"size": 1,
					"unavailable": 0,
					"examples": [],
				},
				"b": {
					"size": 1,
					"unavailable": 0,
					"examples": [],
				},
				"c": {
					"size": 1,
					"unavailable": 1,
					"examples": [
						"etcd-2",
					],
				},
			},
			"node": {
				"n-a1": {
					"size": 1,
					"unavailable": 0,
					"examples": [],
				},
				"n-b1": {
					"size": 1,
					"unavailable": 0,
					"examples": [],
				},
				"n-c1": {
					"size": 1,
					"unavailable": 1,
					"examples": [
						"etcd-2",
					],
				},
			},
		},
	},
}
