package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// file is one file of a volume made of data.
type file struct {
	content []byte
	mode    fs.FileMode
}

const dataLink = "..data"

// writeAll makes dir hold exactly files (by slash path), all at once: they live in a folder of their own behind the
// symbolic link ..data, which is renamed into place, and what readers open goes through that link. Nothing is touched
// when nothing changed. This is the layout of the kubelet's configMap and secret volumes, so watchers of ..data work.
func writeAll(dir string, files map[string]file) error {
	if same(dir, files) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	fresh, err := os.MkdirTemp(dir, "..v")
	if err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	if err := os.Chmod(fresh, 0o755); err != nil {
		return fmt.Errorf("making a volume: %w", err)
	}
	for name, f := range files {
		path := filepath.Join(fresh, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("making a volume: %w", err)
		}
		if err := os.WriteFile(path, f.content, f.mode); err != nil {
			return fmt.Errorf("writing a volume: %w", err)
		}
	}
	return swap(dir, filepath.Base(fresh), files)
}

// swap turns ..data to the fresh folder, then makes the visible links match and removes the old folder.
func swap(dir, fresh string, files map[string]file) error {
	link := filepath.Join(dir, dataLink)
	old, err := os.Readlink(link)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading a volume's link: %w", err)
	}
	if err := os.Symlink(fresh, link+"_new"); err != nil {
		return fmt.Errorf("linking a volume: %w", err)
	}
	if err := os.Rename(link+"_new", link); err != nil {
		return fmt.Errorf("swapping a volume: %w", err)
	}
	if err := matchLinks(dir, files); err != nil {
		return err
	}
	if old == "" {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, old)); err != nil {
		return fmt.Errorf("removing a volume's old content: %w", err)
	}
	return nil
}

// matchLinks makes the visible names of dir the first path elements of files.
func matchLinks(dir string, files map[string]file) error {
	want := map[string]bool{}
	for name := range files {
		top, _, _ := strings.Cut(name, "/")
		want[top] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("listing a volume: %w", err)
	}
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, ".."):
		case want[name]:
			delete(want, name)
		default:
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("removing from a volume: %w", err)
			}
		}
	}
	for name := range want {
		if err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("linking into a volume: %w", err)
		}
	}
	return nil
}

// same says whether the volume holds exactly these files.
func same(dir string, files map[string]file) bool {
	root, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
	if err != nil {
		return false
	}
	seen := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if f, ok := files[filepath.ToSlash(name)]; !ok || !bytes.Equal(f.content, content) {
			return fs.ErrInvalid
		}
		seen++
		return nil
	})
	return err == nil && seen == len(files)
}
