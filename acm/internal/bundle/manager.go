package bundle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/judge"
)

// Status is one bundle as it stands.
type Status struct {
	// Policy is the bundle's name. While its manifest has never been readable it is the folder's name.
	Policy string
	Folder string
	// Revision is in force; empty when none is.
	Revision string
	// Since is when Revision came into force.
	Since time.Time
	// Good is when the folder's content was last found to be what is in force.
	Good time.Time
	// Problems of the folder's newest content; nil when that is in force.
	Problems Problems
	// FailingSince is when the newest content was first found bad; zero when all is well.
	FailingSince time.Time
	Warnings     []Problem
	Tests        Report
}

// Manager keeps the bundles of a directory active: it loads what changes, one whole bundle at a time, and keeps the
// last good one of a name while a newer one is bad. Safe for concurrent use; lookups never wait for a load.
type Manager struct {
	dir     string
	gate    Gate
	clock   clock.WithTicker
	log     logr.Logger
	changed func(policy string)
	watch   func() (*watcher, error)

	scanning sync.Mutex
	memory   map[string]attempt
	active   atomic.Pointer[map[string]entry]
	loaded   chan struct{}
	once     sync.Once
}

// attempt is what became of one folder's content.
type attempt struct {
	digest   string
	folder   string
	policy   string
	loaded   *Loaded
	tests    Report
	problems Problems
}

type entry struct {
	status Status
	policy judge.Policy
}

// Options of a Manager. Changed, which may be nil, is called after a bundle's revision or standing changed.
type Options struct {
	Dir     string
	Gate    Gate
	Clock   clock.WithTicker
	Log     logr.Logger
	Changed func(policy string)
}

// NewManager makes a manager that knows no bundle until it scans.
func NewManager(o Options) *Manager {
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	m := &Manager{dir: o.Dir, gate: o.Gate, clock: o.Clock, log: o.Log, changed: o.Changed, watch: newWatcher,
		memory: map[string]attempt{}, loaded: make(chan struct{})}
	m.active.Store(&map[string]entry{})
	return m
}

// Loaded is closed once every bundle of the directory has been tried, good or bad.
func (m *Manager) Loaded() <-chan struct{} { return m.loaded }

// Policy gives the bundle in force. Without one the error says why: bundle.invalid with the problems of the
// newest content, or bundle.missing.
func (m *Manager) Policy(name string) (judge.Policy, *decision.MachineryError) {
	all := *m.active.Load()
	e, known := all[name]
	switch {
	case known && e.policy != nil:
		return e.policy, nil
	case known:
		return nil, &decision.MachineryError{Code: decision.CodeBundleInvalid, Message: e.status.Problems.Error()}
	}
	have := "none"
	if len(all) > 0 {
		have = strings.Join(sortedKeys(all), ", ")
	}
	return nil, &decision.MachineryError{Code: decision.CodeBundleMissing, Message: fmt.Sprintf("no bundle is called %q; known: %s", name, have)}
}

// Statuses lists the bundles by name.
func (m *Manager) Statuses() []Status {
	all := *m.active.Load()
	list := make([]Status, 0, len(all))
	for _, name := range sortedKeys(all) {
		list = append(list, all[name].status)
	}
	return list
}

// Scan reads the directory and activates what changed. Content that failed before is tried again only when retry is
// set. An error means that the directory could not be read or ctx ended; everything stays in force then.
func (m *Manager) Scan(ctx context.Context, retry bool) error {
	m.scanning.Lock()
	defer m.scanning.Unlock()
	folders, err := Folders(m.dir)
	if err != nil {
		return err
	}
	tried := map[string]attempt{}
	for _, f := range folders {
		a, err := m.try(ctx, f, retry)
		if err != nil {
			return err
		}
		tried[f.Name] = a
	}
	m.memory = tried
	m.activate(overlaps(tried))
	m.once.Do(func() { close(m.loaded) })
	return nil
}

func (m *Manager) try(ctx context.Context, f Folder, retry bool) (attempt, error) {
	was, known := m.memory[f.Name]
	a := attempt{folder: f.Name, policy: f.Name}
	if known {
		a.policy = was.policy
	}
	content, err := Read(f)
	var bad Problems
	switch {
	case errors.As(err, &bad):
		a.problems = bad
		return a, nil
	case err != nil:
		return a, err
	case known && was.digest == content.Digest && (was.problems == nil || !retry):
		return was, nil
	}
	a.digest = content.Digest
	if manifest, err := ParseManifest(manifestName, content.Files[manifestName]); err == nil {
		a.policy = manifest.Policy
	}
	a.loaded, a.tests, err = m.gate.Load(ctx, content)
	if ctx.Err() != nil {
		return a, ctx.Err()
	}
	a.problems = ProblemsOf(err)
	return a, nil
}

// overlaps gives the attempts by policy; those that claim the same documents are all refused, with all names.
func overlaps(tried map[string]attempt) map[string]attempt {
	claims := map[string][]string{}
	for _, folder := range sortedKeys(tried) {
		claims[tried[folder].policy] = append(claims[tried[folder].policy], folder)
	}
	byPolicy := map[string]attempt{}
	for policy, folders := range claims {
		a := tried[folders[0]]
		if len(folders) > 1 {
			a.loaded = nil
			a.problems = problemsIn("", "policy %s is given by the folders %s; keep one", policy, strings.Join(folders, " and "))
		}
		byPolicy[policy] = a
	}
	return byPolicy
}

func (m *Manager) activate(tried map[string]attempt) {
	now, before := m.clock.Now(), *m.active.Load()
	after := make(map[string]entry, len(tried))
	var changed []string
	for _, policy := range sortedKeys(tried) {
		was := before[policy]
		is := was.after(tried[policy], now)
		after[policy] = is
		if was.status.Revision != is.status.Revision || was.status.Problems.text() != is.status.Problems.text() {
			changed = append(changed, policy)
			m.tell(is.status)
		}
	}
	for _, policy := range sortedKeys(before) {
		if _, still := tried[policy]; !still {
			changed = append(changed, policy)
			m.log.Info("bundle removed", "policy", policy)
		}
	}
	m.active.Store(&after)
	for _, policy := range changed {
		m.changed(policy)
	}
}

// after is the entry once an attempt ended: a good one is in force, a bad one leaves what was.
func (e entry) after(a attempt, now time.Time) entry {
	e.status.Policy, e.status.Folder, e.status.Tests = a.policy, a.folder, a.tests
	if a.loaded == nil {
		if e.status.FailingSince.IsZero() {
			e.status.FailingSince = now
		}
		e.status.Problems = a.problems
		return e
	}
	e.status.Problems, e.status.FailingSince, e.status.Good = nil, time.Time{}, now
	e.status.Warnings = a.loaded.Bundle.Warnings
	if revision := a.loaded.Policy.Revision(); revision != e.status.Revision {
		e.status.Revision, e.status.Since = revision, now
	}
	e.policy = a.loaded.Policy
	return e
}

func (ps Problems) text() string {
	if len(ps) == 0 {
		return ""
	}
	return ps.Error()
}

func (m *Manager) tell(s Status) {
	if len(s.Problems) > 0 {
		m.log.Error(s.Problems, "bundle refused", "policy", s.Policy, "folder", s.Folder, "revisionInForce", s.Revision)
		return
	}
	warnings := make([]string, 0, len(s.Warnings))
	for _, w := range s.Warnings {
		warnings = append(warnings, w.String())
	}
	m.log.Info("bundle in force", "policy", s.Policy, "folder", s.Folder, "revision", s.Revision, "tests", s.Tests.Passed, "warnings", warnings)
}
