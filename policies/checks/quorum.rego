# METADATA
# title: quorum
# description: >
#   A majority of the voters stays up, promised steps counted as done. Works on voters as the application reports
#   them, not on pods: a Ready pod may be no healthy voter.
package acm.checks.quorum

import data.acm.pod

# METADATA
# title: Options
# description: What data.json may say under checks.quorum.
options := {
	"spare": {
		"type": "count",
		"default": 0,
		"description": "voters that must stay up beyond the majority",
	},
	"single_member": {
		"type": "choice",
		"choices": ["deny", "allow"],
		"default": "deny",
		"description": "whether the only voter may be taken down at all",
	},
	"lost_grace_seconds": {
		"type": "seconds",
		"default": 60,
		"description": "how long a member must have been down before it may be replaced while the majority is lost",
	},
}

# METADATA
# title: The majority stays up
# description: >
#   The step takes a healthy voter away, and fewer than the majority, of the voters there are and of those there
#   will be, and spare would be left.
# custom:
#   codes: [quorum.majority]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/faq/
#     description: what a majority is and how many failures a cluster of n survives
defer contains r if {
	input.operation.takes_down == true
	q := input.target.quorum
	q.up_after < q.up
	q.voters > 1
	needed := max([q.needed, q.needed_after]) + object.get(input.options.quorum, "spare", 0)
	q.up_after < needed
	not shrinks_below_majority
	r := {
		"code": "quorum.majority",
		"message": sprintf("%d of %d voters would be up, %d needed", [q.up_after, q.voters, needed]),
	}
}

# METADATA
# title: Scaling in keeps the majority of the present voters
# description: >
#   Until the application itself has removed the member, the pod that goes is still one of the voters and a
#   majority of all of them must be up. Denied, so that the person who asked sees it; looked at again soon.
# custom:
#   codes: [quorum.scale_in]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/runtime-configuration/
#     description: remove a member before its process goes, not after
deny contains r if {
	shrinks_below_majority
	q := input.target.quorum
	r := {
		"code": "quorum.scale_in",
		"message": sprintf(
			"scaling in would leave %d of %d registered voters up, %d needed; repair or remove members that are down first",
			[q.up_after, q.voters, q.needed],
		),
		"retry_after": 30,
		"details": {"voters": q.voters, "up_after": q.up_after, "needed": q.needed},
	}
}

# METADATA
# title: Scaling in below the majority
# description: A healthy voter leaves for good and the voters registered now would lose their majority.
shrinks_below_majority if {
	input.operation.type == "scale-in"
	q := input.target.quorum
	q.up_after < q.up
	q.voters > 1
	q.up_after < q.needed
}

# METADATA
# title: A new voter must not cost the majority
# description: >
#   One voter more can raise the majority above the voters that are up. More than all present ones cannot be asked
#   for, or one could never become three. The first pods of an application are let through.
# custom:
#   codes: [quorum.join]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/faq/
#     description: why a member is not added to a cluster that has one down
defer contains r if {
	input.operation.joins == true
	not input.application.bootstrapping == true
	q := input.target.quorum
	q.voters_after > q.voters
	needed := min([q.needed_after, q.voters])
	q.up_after < needed
	r := {
		"code": "quorum.join",
		"message": sprintf(
			"of %d voters with the new one %d would be up, %d needed; repair the ones that are down first",
			[q.voters_after, q.up_after, needed],
		),
	}
}

# METADATA
# title: Without a majority only a dead member is replaced
# description: >
#   As seen, promises ignored, the majority is lost. Only the restart of a member that is down can help, and only
#   after it had time to return by itself.
# custom:
#   codes: [quorum.lost]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/recovery/
defer contains r if {
	input.operation.takes_down == true
	q := input.target.quorum
	q.up_seen < q.needed
	not pod.dead
	r := {
		"code": "quorum.lost",
		"message": sprintf("%d of %d voters are up, %d needed; only a member that is down may go", [q.up_seen, q.voters, q.needed]),
	}
}

# METADATA
# title: A dead member gets time to return
# description: The majority is lost and this member is down, but not yet for lost_grace_seconds.
# custom:
#   codes: [quorum.lost]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/recovery/
defer contains r if {
	input.operation.takes_down == true
	q := input.target.quorum
	q.up_seen < q.needed
	pod.dead
	wait := input.target.since + object.get(input.options.quorum, "lost_grace_seconds", 60)
	input.now < wait
	r := {
		"code": "quorum.lost",
		"message": sprintf(
			"%d of %d voters are up, %d needed; this member may be replaced once it has been down for %v seconds",
			[q.up_seen, q.voters, q.needed, wait - input.target.since],
		),
		"retry_after": min([86400, wait - input.now]),
	}
}

# METADATA
# title: The only voter
# description: Taking it down is an outage whatever anybody waits for, so a person must say that it is meant.
# custom:
#   codes: [quorum.single]
# related_resources:
#   - ref: policies/README.md
deny contains r if {
	only_voter
	not input.options.quorum.single_member == "allow"
	r := {
		"code": "quorum.single",
		"message": "this is the only voter, so the application will be down meanwhile; add members, or set checks.quorum.single_member to \"allow\"",
	}
}

# METADATA
# title: The only voter, with leave
# description: single_member allows it; the outage is still worth a note.
# custom:
#   codes: [quorum.single]
# related_resources:
#   - ref: policies/README.md
warn contains r if {
	only_voter
	input.options.quorum.single_member == "allow"
	r := {"code": "quorum.single", "message": "this is the only voter: the application will be down meanwhile"}
}

# METADATA
# title: The pod is the only voter and up
# description: Nothing is lost by a single voter that is down already.
only_voter if {
	input.operation.takes_down == true
	input.target.quorum.voters == 1
	input.target.quorum.up_after < input.target.quorum.up
}

# METADATA
# title: Unknown voters are no majority
# description: No collector tells of voters, and the pod is up or is to join a running application.
# custom:
#   codes: [quorum.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	not input.target.goes_down == false
	not counted
	r := {"code": "quorum.unknown", "message": "not known which voters there are and which are up"}
}

# METADATA
# title: Joining voters that nobody knows
# description: >
#   A new member may cost the majority. The first pods of an application, and one that only returns, are let through,
#   or nothing would ever begin.
# custom:
#   codes: [quorum.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	input.operation.joins == true
	not input.application.bootstrapping == true
	not input.target.down == true
	not counted
	r := {"code": "quorum.unknown", "message": "not known which voters there are and which are up"}
}

# METADATA
# title: A voter of unknown health
# description: >
#   It is not counted as up, so taking it down would seem to cost nothing. Kubernetes calls its pod available, so it
#   may well be one of the majority.
# custom:
#   codes: [quorum.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	input.target.goes_down == true
	input.target.member
	not input.target.member.voter == false
	not health_known
	r := {"code": "quorum.unknown", "message": sprintf("not known whether voter %s is healthy", [input.target.pod])}
}

# METADATA
# title: The voters are known
# description: All the numbers that this check compares are there.
counted if {
	q := input.target.quorum
	is_number(q.voters)
	is_number(q.up)
	is_number(q.up_seen)
	is_number(q.needed)
	is_number(q.voters_after)
	is_number(q.up_after)
	is_number(q.needed_after)
}

# METADATA
# title: The member's health is known
# description: The application, or Kubernetes on good evidence, says healthy or not.
health_known if is_boolean(input.target.member.healthy)
