# METADATA
# title: etcd
# description: >
#   A cluster of voters that agree by majority. Thresholds are in data.json; what the checks do is in
#   policies/README.md.
package apps.etcd

import data.acm

# METADATA
# title: Why not in this form
# description: What the checks deny.
deny contains r if some r in acm.deny

# METADATA
# title: Why not now
# description: What the checks defer.
defer contains r if some r in acm.defer

# METADATA
# title: Claims are deleted after the member is removed
# description: >
#   As long as the cluster lists the member, its data may be wanted back. Somebody removes the member first, while
#   the others have their majority.
# custom:
#   codes: [etcd.still_member]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/runtime-configuration/
defer contains r if {
	input.operation.stage == "release"
	input.target.member
	r := {
		"code": "etcd.still_member",
		"message": sprintf("%s is still a member of the cluster; its claims stay until it is removed", [input.operation.pod]),
		"need": {"action": "member.remove", "subject": input.operation.pod},
	}
}

# METADATA
# title: Claims are kept while nobody can tell who is a member
# description: A member list counts only from a cluster that has its majority.
# custom:
#   codes: [etcd.membership_unknown]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/faq/
defer contains r if {
	input.operation.stage == "release"
	not majority
	r := {
		"code": "etcd.membership_unknown",
		"message": "the cluster has no majority that could say whether the member is removed",
	}
}

# METADATA
# title: Go
# description: Every check has answered and none objects.
approve if acm.clear

# METADATA
# title: What is worth knowing
# description: Notes of the checks.
warn contains r if some r in acm.warn

# METADATA
# title: A member that is scaled in stays registered
# description: >
#   Nothing removes it yet. It counts as a voter that is down until somebody does, which the next scale-in will
#   meet as quorum.scale_in.
# custom:
#   codes: [etcd.stays_registered]
# related_resources:
#   - ref: https://etcd.io/docs/v3.6/op-guide/runtime-configuration/
warn contains r if {
	input.operation.type == "scale-in"
	input.operation.leaves == true
	input.target.member.voter == true
	r := {
		"code": "etcd.stays_registered",
		"message": sprintf("%s stays registered as a voter; remove it with: etcdctl member remove", [input.operation.pod]),
	}
}

# METADATA
# title: The cluster has its majority
# description: Seen, with everything promised taken away.
majority if input.totals.quorum.up >= input.totals.quorum.needed
