package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// record is what a successor needs to find a process again.
type record struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
	ID    string `json:"id"`
}

func recordPath(dir string, pid int) string {
	return filepath.Join(dir, strconv.Itoa(pid)+".json")
}

// writeRecord notes a process that has just been started. A process that has ended already needs none.
func writeRecord(dir, id string, pid int) error {
	e, err := readEntry(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	raw, err := json.Marshal(record{PID: pid, Start: e.start, ID: id})
	if err != nil {
		return fmt.Errorf("encoding the record of process %d: %w", pid, err)
	}
	if err := os.WriteFile(recordPath(dir, pid), raw, 0o600); err != nil {
		return fmt.Errorf("recording process %d: %w", pid, err)
	}
	return nil
}

// readRecords returns the records left in dir. A half-written one is dropped: its process carries the mark.
func readRecords(dir string) ([]record, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing process records: %w", err)
	}
	var out []record
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("reading a process record: %w", err)
		}
		var r record
		if json.Unmarshal(raw, &r) == nil {
			out = append(out, r)
		}
	}
	return out, nil
}
