package process

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// MarkVariable names the environment variable that tells whose a process is. Its value is a path-like identity; a
// process belongs to every prefix of its identity that ends at a slash.
const MarkVariable = "ASSENT_LOCALNODE_PROCESS"

// entry is what the kernel says about one process.
type entry struct {
	pid, group int
	state      byte
	// start is the start time in clock ticks since boot; with pid it identifies a process for good.
	start uint64
}

// gone says that the process holds nothing any more: a zombie only waits for its parent.
func (e entry) gone() bool { return e.state == 'Z' || e.state == 'X' }

// readEntry reads /proc/<pid>/stat. An error means the process does not exist (or vanished while being read).
func readEntry(pid int) (entry, error) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return entry{}, fmt.Errorf("reading the state of process %d: %w", pid, err)
	}
	return parseStat(pid, raw)
}

// parseStat takes the fields after the command name, which may itself hold spaces and parentheses (proc(5)).
func parseStat(pid int, raw []byte) (entry, error) {
	end := bytes.LastIndexByte(raw, ')')
	if end < 0 {
		return entry{}, fmt.Errorf("reading the state of process %d: no command name in %q", pid, raw)
	}
	fields := bytes.Fields(raw[end+1:])
	const state, group, start = 0, 2, 19
	if len(fields) <= start {
		return entry{}, fmt.Errorf("reading the state of process %d: %d fields", pid, len(fields))
	}
	g, err := strconv.Atoi(string(fields[group]))
	if err != nil {
		return entry{}, fmt.Errorf("reading the group of process %d: %w", pid, err)
	}
	s, err := strconv.ParseUint(string(fields[start]), 10, 64)
	if err != nil {
		return entry{}, fmt.Errorf("reading the start time of process %d: %w", pid, err)
	}
	return entry{pid: pid, group: g, state: fields[state][0], start: s}, nil
}

// marked says whether the process carries identity id or one beneath it. Processes of other users are not ours.
func marked(pid int, id string) bool {
	env, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return false
	}
	needle := []byte(MarkVariable + "=" + id)
	at := bytes.Index(env, needle)
	if at < 0 || (at > 0 && env[at-1] != 0) {
		return false
	}
	rest := env[at+len(needle):]
	return len(rest) == 0 || rest[0] == 0 || rest[0] == '/'
}

// survivors lists the living processes that are in group (0: none) or carry identity id or one beneath it.
func survivors(group int, id string) ([]entry, error) {
	names, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var found []entry
	self := os.Getpid()
	for _, n := range names {
		pid, err := strconv.Atoi(n.Name())
		if err != nil || pid == self {
			continue
		}
		e, err := readEntry(pid)
		if err != nil || e.gone() {
			continue
		}
		if (group > 0 && e.group == group) || marked(pid, id) {
			found = append(found, e)
		}
	}
	return found, nil
}

// killEntry kills exactly that process: the start time is compared again first.
func killEntry(e entry) {
	now, err := readEntry(e.pid)
	if err != nil || now.start != e.start {
		return
	}
	_ = syscall.Kill(e.pid, syscall.SIGKILL) //nolint:errcheck // it can only have ended meanwhile, which is the aim
}
