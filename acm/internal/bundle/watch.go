package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settle lets the other files of one change arrive before the first look.
	settle = 100 * time.Millisecond
	// again is how soon a directory that could not be read is tried once more.
	again = time.Second
	// rescan is the safety net for file systems that tell nothing.
	rescan = 30 * time.Second
)

// watcher is the part of fsnotify that is used.
type watcher struct {
	events <-chan fsnotify.Event
	errors <-chan error
	add    func(dir string) error
	close  func() error
}

func newWatcher() (*watcher, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("starting the directory watch: %w", err)
	}
	return &watcher{events: w.Events, errors: w.Errors, add: w.Add, close: w.Close}, nil
}

// Run loads the bundles and then follows the directory until ctx ends, which gives nil. It reacts to any kind of event
// in any directory involved: a mounted volume tells of its swap only there, and systems differ in what they call it.
func (m *Manager) Run(ctx context.Context) error {
	w, err := m.watch()
	if err != nil {
		return err
	}
	ticker := m.clock.NewTicker(rescan)
	defer ticker.Stop()
	timer := m.clock.NewTimer(0)
	defer timer.Stop()
	armed, retry := true, false
	arm := func(after time.Duration) {
		if !armed {
			timer.Reset(after)
			armed = true
		}
	}
	for {
		select {
		case <-ctx.Done():
			return w.close()
		case <-w.events:
			arm(settle)
		case err := <-w.errors:
			m.log.Error(err, "directory watch")
			arm(settle)
		case <-ticker.C():
			retry = true
			arm(0)
		case <-timer.C():
			armed = false
			// Watches first: what changes during the scan is then told again.
			m.follow(w)
			if err := m.Scan(ctx, retry); err != nil && ctx.Err() == nil {
				m.log.Error(err, "bundle directory not read", "dir", m.dir)
				arm(again)
			}
			retry = false
		}
	}
}

// follow watches every directory that a change can show in. Adding one twice is harmless, and one that vanished is
// dropped by the watcher itself.
func (m *Manager) follow(w *watcher) {
	for _, dir := range m.directories() {
		if err := w.add(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			m.log.Error(err, "directory not watched", "dir", dir)
		}
	}
}

func (m *Manager) directories() []string {
	dirs := []string{m.dir}
	base, err := resolve(m.dir)
	if err != nil {
		return dirs
	}
	dirs = append(dirs, base)
	entries, err := os.ReadDir(base)
	if err != nil {
		return dirs
	}
	for _, e := range entries {
		full := filepath.Join(base, e.Name())
		info, err := os.Stat(full)
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		dirs = append(dirs, full)
		if inside, err := resolve(full); err == nil {
			dirs = append(dirs, nested(inside)...)
		}
	}
	return dirs
}

// nested is dir and all folders below it. What cannot be read is left out; the rescan finds it later.
func nested(dir string) []string {
	dirs := []string{dir}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dirs
	}
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			dirs = append(dirs, nested(filepath.Join(dir, e.Name()))...)
		}
	}
	return dirs
}
