package acm.testing

import data.acm

# METADATA
# title: The library's own verdict
# description: On the spec's question, with the spec's options, as a bundle of nine lines would give it.
library(spec) := d if {
	w := world(spec)
	d := decide(outputs(acm.deny, acm.defer, {x | x := acm.clear})) with input as w.input with data.facts as w.facts
}

# METADATA
# title: The library's notes
# description: Codes of acm.warn on the spec's question; with the suffix " (disabled)" where one was switched off.
notes(spec) := codes if {
	w := world(spec)
	said := acm.warn with input as w.input with data.facts as w.facts
	codes := {code |
		some r in said
		code := concat("", [r.code, {true: " (disabled)", false: ""}[object.get(r, "disabled", false)]])
	}
}

# METADATA
# title: All types
# description: For options that must not stand in the way of another check.
every_type := {"types": ["scale-out", "scale-in", "deployment", "disruption", "swap"]}
