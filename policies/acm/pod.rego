# METADATA
# title: What checks say about the pod asked about
# description: Helpers that more than one check needs.
package acm.pod

# METADATA
# title: The member is down
# description: Kubernetes calls the pod unavailable, and the application does not call the member healthy.
dead if {
	input.target.down == true
	not input.target.member.healthy == true
}
