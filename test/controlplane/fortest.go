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

var shared struct {
	sync.Mutex
	planes map[string]*ControlPlane
}

// ForTest returns a control plane that all tests of this process with equal options share. When it cannot start,
// the test fails; it is never skipped. Use Main so that it is stopped at the end.
func ForTest(t testing.TB, options ...Options) *ControlPlane {
	t.Helper()
	o := Options{ControllerManager: true, Scheduler: true, Kwok: true}
	if len(options) > 0 {
		o = options[0]
	}
	shared.Lock()
	defer shared.Unlock()
	key := fmt.Sprintf("%+v", o)
	if cp := shared.planes[key]; cp != nil {
		return cp
	}
	var log bytes.Buffer
	if o.Out == nil {
		o.Out = &log
	}
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Minute)
	defer cancel()
	cp, err := Start(ctx, o)
	if err != nil {
		t.Fatalf("starting a control plane: %v\n%s", err, log.String())
	}
	if shared.planes == nil {
		shared.planes = map[string]*ControlPlane{}
	}
	shared.planes[key] = cp
	return cp
}

// Main runs a package's tests and stops the shared control planes. Use: func TestMain(m *testing.M) { controlplane.Main(m) }
func Main(m *testing.M) {
	code := m.Run()
	shared.Lock()
	defer shared.Unlock()
	for _, cp := range shared.planes {
		if err := cp.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping a control plane:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}
