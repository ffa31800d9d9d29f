// Package policies is the shared policy library as files: Rego, schemas and capabilities, built into whoever
// judges by them. README.md is for those who write policies.
package policies

import (
	"embed"
	"io/fs"
)

// ContractVersion is the version of the policy contract that the library implements: the value of
// metadata.assent.contract in a bundle's manifest, and the name of the schema and capabilities files.
const ContractVersion = "v1"

// Paths in Files. They are what `opa check` takes as --schema (its folder) and --capabilities.
const (
	InputSchema  = "schema/input/" + ContractVersion + ".json"
	FactsSchema  = "schema/facts/" + ContractVersion + ".json"
	Capabilities = "capabilities/" + ContractVersion + ".json"
)

//go:embed apps.rego acm/*.rego checks/*.rego testing/*.rego schema/*/*.json capabilities/*.json
var files embed.FS

// Files are the library's files, read-only, laid out as this folder. Rego named *_test.rego is for tests and never
// decides: testing/ has the helpers that bundles' tests import, the others are the library's own tests.
func Files() fs.FS { return files }
