package acm

# METADATA
# title: What is wrong with a bundle's thresholds
# description: >
#   A set of texts for people, empty when config is good. Nothing else looks at data.json, and a misspelled limit
#   silently protects nothing. Takes data.apps.<policy>.config.
option_errors(config) := errors_of_base(config) | errors_of_overrides(config) if is_object(config)

option_errors(config) := {sprintf("config: %s, want an object", [type_name(config)])} if not is_object(config)

# METADATA
# title: Errors outside of overrides
# description: Unknown keys, no checks, wrong checks, options that a check cannot do without.
errors_of_base(config) := union({
	{sprintf("%s: no such key; known: checks, overrides", [key]) | some key, _ in config; not key in {"checks", "overrides"}},
	{"checks: missing; nothing would ever be approved" | not config.checks},
	{"checks.operations: missing or off; nothing would ever be approved" | config.checks; not is_on(config.checks, "operations")},
	errors_of_checks("checks", object.get(config, "checks", {})),
	{sprintf("checks.%s.%s: missing; want %s", [check, option, wanted(spec)]) |
		some check, given in config.checks
		is_on(config.checks, check)
		some option, spec in data.acm.checks[check].options
		spec.required
		not option in object.keys(as_object(given))
	},
})

# METADATA
# title: Errors in overrides
# description: Each override stands alone here; they are merged into the checks in order.
errors_of_overrides(config) := {"overrides: want a list of {match, checks}"} if {
	overrides := object.get(config, "overrides", [])
	not is_array(overrides)
}

errors_of_overrides(config) := union({errors_of_override(sprintf("overrides[%d]", [i]), o) | some i, o in overrides}) if {
	overrides := object.get(config, "overrides", [])
	is_array(overrides)
}

# METADATA
# title: Errors in one override
# description: Its keys, what it matches, and its checks.
errors_of_override(at, override) := {sprintf("%s: %s, want {match, checks}", [at, type_name(override)])} if not is_object(override)

errors_of_override(at, override) := union({
	{sprintf("%s.%s: no such key; known: checks, match", [at, key]) | some key, _ in override; not key in {"checks", "match"}},
	{sprintf("%s.%s: missing", [at, key]) | some key in {"checks", "match"}; not key in object.keys(override)},
	errors_of_match(sprintf("%s.match", [at]), object.get(override, "match", {})),
	errors_of_checks(sprintf("%s.checks", [at]), object.get(override, "checks", {})),
}) if {
	is_object(override)
}

# METADATA
# title: What an override may match
# description: All given keys must equal the question's. Types and stages are words that exist.
match_words := {
	"application": null,
	"namespace": null,
	"set": null,
	"pod": null,
	"cause": {"rollout", "canary", "restart", "edit", "maintenance", "eviction", "node-lost", "restore"},
	"type": operation_types,
	"stage": {"add", "update", "remove", "release"},
}

# METADATA
# title: The types of operation
# description: As in input.operation.type.
operation_types := {"scale-out", "scale-in", "deployment", "disruption", "swap"}

# METADATA
# title: Errors in what an override matches
# description: A key or word that does not exist would match nothing, ever.
errors_of_match(at, match) := {sprintf("%s: %s, want an object", [at, type_name(match)])} if not is_object(match)

errors_of_match(at, match) := union({
	{sprintf("%s.%s: no such key; known: %s", [at, key, concat(", ", object.keys(match_words))]) |
		some key, _ in match
		not key in object.keys(match_words)
	},
	{sprintf("%s.%s: %s, want string", [at, key, type_name(word)]) | some key, word in match; not is_string(word)},
	{sprintf("%s.%s: no such word %q; known: %s", [at, key, word, concat(", ", words)]) |
		some key, word in match
		is_string(word)
		words := match_words[key]
		is_set(words)
		not word in words
	},
}) if {
	is_object(match)
}

# METADATA
# title: Errors in a set of checks
# description: Names of checks and, for each that is on, its options.
errors_of_checks(at, checks) := {sprintf("%s: %s, want an object", [at, type_name(checks)])} if not is_object(checks)

errors_of_checks(at, checks) := union({
	{sprintf("%s.%s: no such check; known: %s", [at, check, concat(", ", known)]) | some check, _ in checks; not known[check]},
	{sprintf("%s.%s: %s, want true, false or an object of options", [at, check, type_name(given)]) |
		some check, given in checks
		known[check]
		not is_boolean(given)
		not is_object(given)
	},
	{sprintf("%s.budget: no limit; want {\"<grouping>\": {\"max_unavailable\": 1}}", [at]) |
		some given in [checks.budget]
		count(as_object(given)) == 0
		not given == false
	},
	union({errors_of_options(sprintf("%s.%s", [at, check]), data.acm.checks[check].options, given) |
		some check, given in checks
		known[check]
		is_object(given)
	}),
}) if {
	is_object(checks)
}

# METADATA
# title: Errors in the options of one check
# description: Names that the check does not know, and values of the wrong shape.
errors_of_options(at, specs, given) := union({
	{sprintf("%s.%s: no such option; known: %s", [at, option, concat(", ", object.keys(specs))]) |
		some option, _ in given
		not spec_of(specs, option)
	},
	union({errors_of_value(sprintf("%s.%s", [at, option]), spec_of(specs, option), value) | some option, value in given}),
})

# METADATA
# title: The description of an option
# description: By name, or the one that stands for every name. Undefined when there is none.
spec_of(specs, option) := specs[option] if option != "*"

spec_of(specs, option) := specs["*"] if {
	not option in object.keys(specs)
	regex.match(`^[a-z][a-z0-9_]*$`, option)
}

# METADATA
# title: Errors in one value
# description: Says what was given and what is wanted.
errors_of_value(_, spec, value) := set() if {
	spec.type != "limits"
	fits(spec, value)
}

errors_of_value(at, spec, value) := {sprintf("%s: %s, want %s", [at, shown(spec, value), wanted(spec)])} if {
	spec.type != "limits"
	not fits(spec, value)
}

errors_of_value(at, spec, value) := {sprintf("%s: %s, want an object of limits", [at, type_name(value)])} if {
	spec.type == "limits"
	not is_object(value)
}

errors_of_value(at, spec, value) := union({
	{sprintf("%s: no limit; known: %s", [at, concat(", ", object.keys(spec.limits))]) | count(value) == 0},
	{sprintf("%s.%s: no such limit; known: %s", [at, limit, concat(", ", object.keys(spec.limits))]) |
		some limit, _ in value
		not limit in object.keys(spec.limits)
	},
	{sprintf("%s.%s: %s, want %s", [at, limit, shown({"type": limit}, v), wanted({"type": limit})]) |
		some limit, v in value
		limit in object.keys(spec.limits)
		not fits({"type": limit}, v)
	},
}) if {
	spec.type == "limits"
	is_object(value)
}

# METADATA
# title: A value fits its description
# description: One rule for each type of option.
fits(spec, value) if {
	spec.type == "boolean"
	is_boolean(value)
}

fits(spec, value) if {
	spec.type == "seconds"
	is_number(value)
	value >= 0
}

fits(spec, value) if {
	spec.type in {"count", "min_available", "max_groups", "max_unavailable"}
	whole(value)
	value >= 0
}

fits(spec, value) if {
	spec.type == "positive count"
	whole(value)
	value >= 1
}

fits(spec, value) if {
	spec.type == "fraction"
	is_number(value)
	value > 0
	value <= 1
}

fits(spec, value) if {
	spec.type == "choice"
	value in spec.choices
}

fits(spec, value) if {
	spec.type == "max_unavailable"
	is_string(value)
	regex.match(`^([1-9]|[1-9][0-9]|100)%$`, value)
}

fits(spec, value) if {
	spec.type == "operation types"
	is_array(value)
	count(value) > 0
	every t in value {
		t in operation_types
	}
}

# METADATA
# title: A whole number
# description: Pods and voters do not come in parts.
whole(value) if {
	is_number(value)
	floor(value) == value
}

# METADATA
# title: What an option wants, for people
# description: One text for each type of option.
wanted(spec) := text if text := {
	"boolean": "boolean",
	"seconds": "a number of seconds, 0 or more",
	"count": "a whole number, 0 or more",
	"positive count": "a whole number, 1 or more",
	"fraction": "a number above 0, at most 1",
	"operation types": sprintf("a list of %s", [concat(", ", operation_types)]),
	"max_unavailable": "a number or \"25%\"",
	"min_available": "a whole number, 0 or more",
	"max_groups": "a whole number, 0 or more",
}[spec.type]

wanted(spec) := sprintf("one of %s", [concat(", ", {sprintf("%q", [c]) | some c in spec.choices})]) if spec.type == "choice"

# METADATA
# title: A given value, for people
# description: Where a boolean is wanted the type says what is wrong, else the value does.
shown(spec, value) := type_name(value) if spec.type == "boolean"

shown(spec, value) := json.marshal(value) if spec.type != "boolean"

# METADATA
# title: A check is on
# description: It has an entry that is not false.
is_on(checks, check) if {
	some name, given in checks
	name == check
	given != false
}

# METADATA
# title: Options as an object
# description: true stands for an object without options.
as_object(given) := given if is_object(given)

as_object(given) := {} if not is_object(given)
