# METADATA
# title: leader
# description: >
#   The leader goes last, so that a rollout costs one election; nothing goes while there is no stable leader, except
#   a member that is down and whose return may be what the election waits for.
package acm.checks.leader

import data.acm.pod

# METADATA
# title: Options
# description: What data.json may say under checks.leader.
options := {
	"last": {
		"type": "boolean",
		"default": true,
		"description": "the leader waits until no other pod waits for the same type of operation",
	},
	"transfer_first": {
		"type": "boolean",
		"default": false,
		"description": "leadership must have moved before the leader's pod goes",
	},
	"settle_seconds": {
		"type": "seconds",
		"default": 10,
		"description": "how long a new leader must have led before a pod that is up may go",
	},
	"absent_grace_seconds": {
		"type": "seconds",
		"default": 60,
		"description": "how long there must have been no leader before a member that is down may be replaced",
	},
}

# METADATA
# title: The leader goes last
# description: Others wait for, or run, the same type of operation. Denied ones do not count, or it would wait for ever.
# custom:
#   codes: [leader.last]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/failures/
#     description: a leader's failure stops writes until a new one is elected
defer contains r if {
	input.target.goes_down == true
	waits_for_peers
	r := {
		"code": "leader.last",
		"message": sprintf("%s leads and goes last; still to go: %s", [input.target.pod, concat(", ", input.target.peers.examples)]),
	}
}

# METADATA
# title: Leadership moves first
# description: The leader's pod may go once somebody else leads. Asked for as a need, when nobody else has to go before.
# custom:
#   codes: [leader.transfer_first]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/maintenance/
defer contains r if {
	input.target.goes_down == true
	input.target.is_leader == true
	input.options.leader.transfer_first == true
	not input.totals.pods == 1
	not waits_for_peers
	r := {
		"code": "leader.transfer_first",
		"message": sprintf("%s leads; leadership must move first", [input.target.pod]),
		"need": {"action": "leader.transfer", "subject": input.target.pod},
	}
}

# METADATA
# title: The leader still has others to wait for
# description: Off when checks.leader.last is false.
waits_for_peers if {
	input.target.is_leader == true
	not input.options.leader.last == false
	input.target.peers.count > 0
}

# METADATA
# title: No step during an election
# description: Whoever goes now may take the vote that is missing.
# custom:
#   codes: [leader.election]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/failures/
defer contains r if {
	input.election.in_progress == true
	concerned
	not repairable
	r := object.union({"code": "leader.election", "message": "an election runs; nothing goes until there is a leader"}, patience)
}

# METADATA
# title: No step without a leader
# description: Without one nothing is written, and nobody can say whether the others are caught up.
# custom:
#   codes: [leader.none]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/failures/
defer contains r if {
	input.election.in_progress == false
	not input.election.leader
	concerned
	not repairable
	r := object.union({"code": "leader.none", "message": "there is no leader; nothing goes until there is one"}, patience)
}

# METADATA
# title: A new leader settles first
# description: Followers have just found it; the next step so soon would be the next election.
# custom:
#   codes: [leader.settling]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/failures/
defer contains r if {
	input.target.goes_down == true
	input.election.in_progress == false
	settled := input.election.since + object.get(input.options.leader, "settle_seconds", 10)
	input.now < settled
	r := {
		"code": "leader.settling",
		"message": sprintf("%s has led for less than %v seconds", [input.election.leader, settled - input.election.since]),
		"retry_after": min([86400, settled - input.now]),
	}
}

# METADATA
# title: An unknown leader is no leader
# description: >
#   No collector tells whether there is a leader. A pod that is down, and the first pods of an application, are let
#   through: nobody could ever tell before they run.
# custom:
#   codes: [leader.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	concerned
	not input.target.down == true
	not election_known
	r := {"code": "leader.unknown", "message": "not known whether there is a leader"}
}

# METADATA
# title: Whom a missing leader concerns
# description: Every step that takes a pod down or adds one, apart from the first pods of an application.
concerned if input.operation.takes_down == true

concerned if {
	input.operation.joins == true
	not input.application.bootstrapping == true
}

# METADATA
# title: A member whose return may end the election
# description: Down by all accounts, and there has been no leader for absent_grace_seconds.
repairable if {
	pod.dead
	input.now >= input.election.since + object.get(input.options.leader, "absent_grace_seconds", 60)
}

# METADATA
# title: When to look again
# description: >
#   For a member that is down the end of the grace is known; for the others only facts tell. Used while the grace lasts.
default patience := {}

patience := {"retry_after": min([86400, wait])} if {
	pod.dead
	wait := (input.election.since + object.get(input.options.leader, "absent_grace_seconds", 60)) - input.now
}

# METADATA
# title: The state of leadership is known
# description: Whether an election runs, and since when it is as it is.
election_known if {
	is_boolean(input.election.in_progress)
	is_number(input.election.since)
}
