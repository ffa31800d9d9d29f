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
	"time"
)

// record tells later runs what this one started, so that what a killed run left behind can be cleaned up.
type record struct {
	path     string
	Owner    identity            `json:"owner"`
	Dir      string              `json:"dir,omitempty"`
	Children map[string]identity `json:"children,omitempty"`
}

// identity of a process: its number and when it started (clock ticks since boot, and which boot), since numbers
// are used again.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
	Boot  string `json:"boot"`
}

var errEnded = errors.New("it has ended")

// stateDir holds run records and port claims: one folder for each user of this machine.
func stateDir() string {
	return filepath.Join(os.TempDir(), "assent-controlplane-"+strconv.Itoa(os.Getuid()))
}

// newRecord registers this process. dir is removed when it dies; empty when the folder is the caller's own.
func newRecord(dir string) (*record, error) {
	if err := os.MkdirAll(stateDir(), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of run records: %w", err)
	}
	self, err := identify(os.Getpid())
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(stateDir(), "run-*.json")
	if err != nil {
		return nil, fmt.Errorf("making a run record: %w", err)
	}
	r := &record{path: f.Name(), Owner: self, Dir: dir, Children: map[string]identity{}}
	return r, errors.Join(f.Close(), r.write())
}

// add notes a child. One that has ended already is not noted, and not an error: who waits for it shows its log.
func (r *record) add(name string, pid int) error {
	child, err := identify(pid)
	if errors.Is(err, errEnded) {
		return nil
	}
	if err != nil {
		return err
	}
	r.Children[name] = child
	return r.write()
}

func (r *record) write() error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a run record: %w", err)
	}
	part := r.path + ".part"
	if err := os.WriteFile(part, text, 0o600); err != nil {
		return fmt.Errorf("writing a run record: %w", err)
	}
	if err := os.Rename(part, r.path); err != nil {
		return fmt.Errorf("writing a run record: %w", err)
	}
	return nil
}

func (r *record) remove() error {
	if err := os.Remove(r.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing a run record: %w", err)
	}
	return nil
}

// sweep kills the left-over children of runs whose owner is dead and removes their data. It returns how many
// such runs there were.
func sweep() (int, error) {
	paths, err := filepath.Glob(filepath.Join(stateDir(), "run-*.json"))
	if err != nil {
		return 0, fmt.Errorf("listing run records: %w", err)
	}
	n := 0
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // removed by its owner in the meantime
		}
		r := &record{path: path}
		if json.Unmarshal(text, r) != nil || r.Owner.PID == 0 || r.Owner.alive() {
			continue // being written, or in use
		}
		if err := r.cleanUp(); err != nil {
			return n, fmt.Errorf("cleaning up after a killed run: %w", err)
		}
		n++
	}
	return n, nil
}

func (r *record) cleanUp() error {
	for name, child := range r.Children {
		if err := child.kill(); err != nil {
			return fmt.Errorf("ending its %s: %w", name, err)
		}
	}
	if r.Dir != "" {
		if err := os.RemoveAll(r.Dir); err != nil {
			return fmt.Errorf("removing its data: %w", err)
		}
	}
	return r.remove()
}

// kill ends the process group of a component and returns when the process is gone: until then it may write.
func (i identity) kill() error {
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i.alive() {
		if err := syscall.Kill(-i.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("killing process %d: %w", i.PID, err)
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return fmt.Errorf("killing process %d: still there", i.PID)
		}
	}
	return nil
}

func (i identity) alive() bool {
	now, err := identify(i.PID)
	return err == nil && now == i
}

// identify reads a process's start time from field 22 of /proc/<pid>/stat (proc(5)). A zombie has ended.
func identify(pid int) (identity, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		err = errEnded
	}
	if err != nil {
		return identity{}, fmt.Errorf("looking at process %d: %w", pid, err)
	}
	// The name before the last ")" may hold spaces and parentheses itself.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return identity{}, fmt.Errorf("looking at process %d: %w", pid, errEnded)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return identity{}, fmt.Errorf("finding out which boot this is: %w", err)
	}
	return identity{PID: pid, Start: fields[19], Boot: strings.TrimSpace(string(boot))}, nil
}
