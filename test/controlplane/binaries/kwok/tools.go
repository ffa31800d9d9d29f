//go:build tools

// Package binaries pins the kwok controller that test/controlplane builds.
package binaries

import _ "sigs.k8s.io/kwok/cmd/kwok"
