# METADATA
# title: guard
# description: >
#   When much of the application fails for reasons nobody ordered, something is wrong that no rollout mends: only
#   what is down already may be touched.
package acm.checks.guard

# METADATA
# title: Options
# description: What data.json may say under checks.guard.
options := {
	"fraction": {
		"type": "fraction",
		"default": 0.2,
		"description": "share of the application's pods that may fail unexpectedly, rounded up",
	},
	"min_pods": {
		"type": "positive count",
		"default": 2,
		"description": "so many pods must have failed in any case, however small the application is",
	},
}

# METADATA
# title: A wide fault stops everything
# description: Too many pods are unavailable without being in flight, or in a state nobody knows.
# custom:
#   codes: [guard.wide_fault]
# related_resources:
#   - ref: https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction
#     description: the same thought for nodes, where evictions stop when most of a zone is unhealthy
defer contains r if {
	input.totals.unexpected.count > 0
	not input.target.down == true
	most := max([
		object.get(input.options.guard, "min_pods", 2),
		ceil(object.get(input.options.guard, "fraction", 0.2) * input.totals.pods),
	])
	input.totals.unexpected.count >= most
	r := {
		"code": "guard.wide_fault",
		"message": sprintf(
			"%d of %d pods are unexpectedly down or unknown, which is a wide fault from %d on: %s",
			[input.totals.unexpected.count, input.totals.pods, most, concat(", ", input.totals.unexpected.examples)],
		),
	}
}

# METADATA
# title: No pods is no consent
# description: >
#   The sets should have pods and none is known, so there is nothing to judge by. The first pods of an application
#   are let through, and an application that is scaled to zero has none by right.
# custom:
#   codes: [guard.no_pods]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	input.totals.pods == 0
	not first_pods
	not scaled_to_zero
	r := {"code": "guard.no_pods", "message": "no pod of the application is known"}
}

# METADATA
# title: Unknown totals
# description: How many pods there are, or how many have failed, is not known.
# custom:
#   codes: [guard.unknown]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	not input.target.down == true
	not totals_known
	r := {"code": "guard.unknown", "message": "not known how many pods there are and how many have failed"}
}

# METADATA
# title: The first pods of an application
# description: No pod has ever been available and this step adds one.
first_pods if {
	input.operation.joins == true
	input.application.bootstrapping == true
}

# METADATA
# title: Scaled to zero
# description: There are sets and none of them should have a pod.
scaled_to_zero if {
	count(input.application.sets) > 0
	every s in input.application.sets {
		s.replicas == 0
	}
}

# METADATA
# title: The totals are known
# description: Both numbers that this check compares.
totals_known if {
	is_number(input.totals.pods)
	is_number(input.totals.unexpected.count)
}
