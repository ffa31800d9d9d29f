// Package logs keeps what containers print: a file for every start of a container, kept after its pod is gone.
package logs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// ErrNone says that the container has not been started, or not often enough for a previous log.
var ErrNone = errors.New("no such log")

// Store is a folder of logs: namespace/pod/container/<number>-<uid>.log, numbered in the order of starts.
type Store struct {
	dir string
	mu  sync.Mutex
}

// New makes a store in dir.
func New(dir string) *Store { return &Store{dir: dir} }

// Create makes the file for one more start of the container. The caller closes it.
func (s *Store) Create(namespace, pod, container string, uid types.UID) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir := filepath.Join(s.dir, namespace, pod, container)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the log folder: %w", err)
	}
	files, err := list(dir)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%06d-%s.log", len(files), uid)
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("making a log: %w", err)
	}
	return f, nil
}

// Path finds the log of the container's last start, or with back 1 of the one before, and so on. The error is ErrNone
// when there is none.
func (s *Store) Path(namespace, pod, container string, back int) (string, error) {
	dir := filepath.Join(s.dir, namespace, pod, container)
	files, err := list(dir)
	if err != nil {
		return "", err
	}
	if back >= len(files) {
		return "", fmt.Errorf("container %s of pod %s/%s: %w", container, namespace, pod, ErrNone)
	}
	return filepath.Join(dir, files[len(files)-1-back]), nil
}

// list returns the file names in order of starts.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing logs: %w", err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
