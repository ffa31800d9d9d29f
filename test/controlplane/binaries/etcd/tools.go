//go:build tools

// Package binaries pins the etcd server that test/controlplane builds.
package binaries

import _ "go.etcd.io/etcd/server/v3"
