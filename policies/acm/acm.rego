# METADATA
# title: The policy library
# description: >
#   What a bundle imports. It runs every check that has an entry in input.options and gathers what they say.
#   An operation waits until its bundle approves it, and a bundle approves with `approve if acm.clear`.
# scope: subpackages
# schemas:
#   - input: schema.input.v1
#   - data.facts: schema.facts.v1
package acm

# METADATA
# title: Why not in this form
# description: Reasons of all checks in force that park the operation. Disabled ones are left out; see warn.
# custom:
#   codes: []
# related_resources:
#   - ref: policies/README.md
deny contains r if {
	some check, _ in input.options
	not input.disabled[check]
	some r in data.acm.checks[check].deny
	not input.disabled[r.code]
}

# METADATA
# title: Why not now
# description: Reasons of all checks in force that make the operation wait. Disabled ones are left out; see warn.
# custom:
#   codes: []
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	some check, _ in input.options
	not input.disabled[check]
	some r in data.acm.checks[check].defer
	not input.disabled[r.code]
}

# METADATA
# title: A check that does not exist
# description: >
#   A misspelled check protects nothing. Loading a bundle refuses it (option_errors); this rule is for whoever
#   evaluates the library without that.
# custom:
#   codes: [options.unknown_check]
# related_resources:
#   - ref: policies/README.md
defer contains r if {
	some check, _ in input.options
	not data.acm.checks[check].options
	r := {
		"code": "options.unknown_check",
		"message": sprintf("checks.%s: no such check; known: %s", [check, concat(", ", known)]),
	}
}

# METADATA
# title: What is worth knowing
# description: Notes of the checks in force. They block nothing.
# custom:
#   codes: []
# related_resources:
#   - ref: policies/README.md
warn contains r if {
	some check, _ in input.options
	some r in data.acm.checks[check].warn
}

# METADATA
# title: What was switched off
# description: A reason that would have stopped the operation, had it not been disabled. Marked with disabled.
# custom:
#   codes: []
# related_resources:
#   - ref: policies/README.md
warn contains object.union(r, {"disabled": true}) if {
	input.disabled != {}
	some check, _ in input.options
	some r in data.acm.checks[check].deny
	switched_off(check, r)
}

# METADATA
# title: What was switched off
# description: A reason that would have stopped the operation, had it not been disabled. Marked with disabled.
# custom:
#   codes: []
# related_resources:
#   - ref: policies/README.md
warn contains object.union(r, {"disabled": true}) if {
	input.disabled != {}
	some check, _ in input.options
	some r in data.acm.checks[check].defer
	switched_off(check, r)
}

# METADATA
# title: Nothing speaks against it
# description: >
#   True when the question is complete, the operation's type is covered, and no check in force denies or defers.
#   It looks for itself, so a bundle that forgets a line still never approves by mistake.
# related_resources:
#   - ref: policies/README.md
clear if {
	is_object(input.options.operations)
	complete
	count(deny) == 0
	count(defer) == 0
}

# METADATA
# title: The question is complete
# description: >
#   Most rules begin with one of these. Were it absent, the rule would be silent, which must not look like consent.
complete if {
	is_boolean(input.operation.takes_down)
	is_boolean(input.operation.leaves)
	is_boolean(input.operation.joins)
	is_boolean(input.target.down)
	is_boolean(input.target.goes_down)
	is_boolean(input.application.bootstrapping)
	is_string(input.operation.stage)
}

# METADATA
# title: A reason is disabled
# description: Either its whole check or its code is in input.disabled.
switched_off(check, _) if input.disabled[check]

switched_off(_, reason) if input.disabled[reason.code]

# METADATA
# title: The checks there are
# description: Every package under acm.checks that declares its options. Adding a check is adding a package.
known contains check if {
	some check
	data.acm.checks[check].options
}
