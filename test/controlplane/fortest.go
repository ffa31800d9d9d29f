package controlplane

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// shared are this process's control planes by their options, and why one could not start: a second test need not
// wait for the same failure.
var shared struct {
	sync.Mutex
	planes map[string]*ControlPlane
	errs   map[string]error
}

// ForTest returns a control plane that all tests of this process with equal options share; default: all components.
// When it cannot start, the test fails; it is never skipped. Use Main so that it is stopped at the end.
func ForTest(t testing.TB, options ...Options) *ControlPlane {
	t.Helper()
	o := Options{ControllerManager: true, Scheduler: true, Kwok: true}
	if len(options) > 0 {
		o = options[0]
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.planes == nil {
		shared.planes, shared.errs = map[string]*ControlPlane{}, map[string]error{}
	}
	key := fmt.Sprintf("%+v", o)
	if shared.planes[key] == nil && shared.errs[key] == nil {
		shared.planes[key], shared.errs[key] = startForTest(o)
	}
	if err := shared.errs[key]; err != nil {
		t.Fatalf("starting a control plane: %v", err)
	}
	return shared.planes[key]
}

// startForTest keeps quiet unless it fails.
func startForTest(o Options) (*ControlPlane, error) {
	var progress bytes.Buffer
	if o.Out == nil {
		o.Out = &progress
	}
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Minute)
	defer cancel()
	cp, err := Start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, progress.String())
	}
	return cp, nil
}

// Main runs a package's tests and stops the shared control planes. Use: func TestMain(m *testing.M) { controlplane.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, cp := range shared.planes {
		if cp == nil {
			continue
		}
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping a control plane:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
