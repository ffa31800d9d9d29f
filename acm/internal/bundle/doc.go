// Package bundle turns a folder of Rego and data into a policy that may decide, or into the reason why it may not.
//
// A bundle directory holds one sub-folder a bundle; each is a plain OPA bundle: .manifest, *.rego, data.json
// anywhere below. A ConfigMap or projected volume may be mounted as the directory itself or as one of its
// sub-folders: "..data" is resolved once per reading, so one reading never mixes two versions. A ConfigMap's keys
// are the bundle's file names (.manifest or manifest.json, policy.rego, policy_test.rego, data.json); keys
// cannot hold a slash, so a bundle with nested folders is mounted through a projected volume with items[].path.
//
// Nothing is active before it passed the whole gate: manifest, roots, parsing, strict compilation with restricted
// capabilities and schemas, the rules a bundle must declare, its thresholds, its own tests, and one probe decision.
// A bundle that fails leaves the last good one of that name in force.
package bundle
