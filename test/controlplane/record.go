package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// record tells later runs what this one started, so that what a killed run left behind can be cleaned up. A
// process is known by its number and its start time, since numbers are used again.
type record struct {
	path     string
	Owner    identity            `json:"owner"`
	Dir      string              `json:"dir,omitempty"`
	Children map[string]identity `json:"children,omitempty"`
}

type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

func recordsDir() string { return filepath.Join(os.TempDir(), "assent-controlplane-runs") }

// newRecord registers this process; dir is removed with it, and empty when it is the caller's own.
func newRecord(dir string) (*record, error) {
	if err := os.MkdirAll(recordsDir(), 0o755); err != nil {
		return nil, fmt.Errorf("making the folder of run records: %w", err)
	}
	self, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(recordsDir(), "run-*.json")
	if err != nil {
		return nil, fmt.Errorf("making a run record: %w", err)
	}
	r := &record{path: f.Name(), Owner: self, Dir: dir, Children: map[string]identity{}}
	return r, errors.Join(f.Close(), r.write())
}

func (r *record) add(name string, pid int) error {
	child, err := identify(pid)
	if err != nil {
		return err
	}
	r.Children[name] = child
	return r.write()
}

func (r *record) write() error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("writing a run record: %w", err)
	}
	part := r.path + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return fmt.Errorf("writing a run record: %w", err)
	}
	return os.Rename(part, r.path)
}

func (r *record) remove() error { return os.Remove(r.path) }

// sweep kills the left-over children of runs whose owner is dead and removes their data. It returns how many
// such runs there were.
func sweep() (int, error) {
	paths, err := filepath.Glob(filepath.Join(recordsDir(), "run-*.json"))
	if err != nil {
		return 0, fmt.Errorf("listing run records: %w", err)
	}
	n := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // removed by its owner in the meantime
		}
		r := &record{}
		if json.Unmarshal(text, r) != nil || r.Owner.PID == 0 || r.Owner.alive() {
			continue // being written, or in use
		}
		for _, child := range r.Children {
			if child.alive() {
				_ = syscall.Kill(-child.PID, syscall.SIGKILL) //nolint:errcheck // already gone is fine
			}
		}
		if r.Dir != "" {
			if err := os.RemoveAll(r.Dir); err != nil {
				return n, fmt.Errorf("removing the data of a killed run: %w", err)
			}
		}
		n++
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return n, fmt.Errorf("removing a run record: %w", err)
		}
	}
	return n, nil
}

func (i identity) alive() bool {
	now, err := identify(i.PID)
	return err == nil && now.Start == i.Start
}

// identify reads a process's start time from field 22 of /proc/<pid>/stat; a zombie counts as dead.
func identify(pid int) (identity, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return identity{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" {
		return identity{}, fmt.Errorf("looking at process %d: it has ended", pid)
	}
	return identity{PID: pid, Start: fields[19]}, nil
}
