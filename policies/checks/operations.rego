# METADATA
# title: operations
# description: Which types of operation this policy has an opinion on. A type nobody thought of waits.
package acm.checks.operations

# METADATA
# title: Options
# description: What data.json may say under checks.operations.
options := {"types": {
	"type": "operation types",
	"required": true,
	"description": "the types of operation that the policy covers",
}}

# METADATA
# title: Types without a policy wait
# description: The operation's type is not in the list, so nobody has thought about what it may break.
# custom:
#   codes: [operations.not_covered]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	not covered
	r := {
		"code": "operations.not_covered",
		"message": sprintf("this policy does not cover %s; checks.operations.types lists what it covers", [named]),
	}
}

# METADATA
# title: The type is in the list
# description: Does not hold when the list or the type is absent.
covered if input.operation.type in input.options.operations.types

# METADATA
# title: The type for people
# description: The type's name, or words that stand in when the question has none.
default named := "an operation without a type"

named := input.operation.type
