# METADATA
# title: Every bundle
# description: >
#   Bundles live under apps. This one annotation has all of them checked against the contract's schemas, without
#   a line of their own.
# scope: subpackages
# schemas:
#   - input: schema.input.v1
#   - data.facts: schema.facts.v1
package apps
