package cli

import (
	"context"
	"fmt"
	"time"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/engine"
	"assent.dev/assent/acm/internal/judge"
	"assent.dev/assent/policies"
)

// newGate is the load gate with the library that is built in: one for serve, eval and test, so that they agree.
func newGate(budget time.Duration) (bundle.Gate, error) {
	library, err := bundle.LoadLibrary(policies.Files())
	if err != nil {
		return bundle.Gate{}, err
	}
	build := func(ctx context.Context, b *bundle.Bundle) (judge.Policy, error) {
		p, err := engine.New(ctx, b, budget)
		if err != nil {
			return nil, err
		}
		return p, nil
	}
	return bundle.Gate{Library: library, Build: build}, nil
}

// onlyFolder finds the one bundle at a path.
func onlyFolder(dir string) (bundle.Folder, error) {
	found, err := bundle.Folders(dir)
	if err != nil {
		return bundle.Folder{}, err
	}
	if len(found) != 1 {
		return bundle.Folder{}, fmt.Errorf("%s: found %d bundles, want one", dir, len(found))
	}
	return found[0], nil
}
