package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

const (
	// swapLink is the symlink through which the kubelet replaces a mounted volume's content in one step.
	swapLink        = "..data"
	manifestName    = ".manifest"
	manifestKey     = "manifest.json"
	testSuffix      = "_test.rego"
	regoSuffix      = ".rego"
	tarballSuffix   = ".tar.gz"
	maxBundleBytes  = 16 << 20
	revisionHexSize = 12
)

// Folder is one place in a bundle directory where a bundle is, or should be.
type Folder struct {
	// Name is the folder's name, "redis"; problems give files below it.
	Name string
	// Path is where its files are, symlinks resolved.
	Path string
	// Tarball marks a file that is an `opa build` tarball, which this version does not read.
	Tarball bool
}

// Content is one consistent reading of a bundle folder.
type Content struct {
	Name string
	// Files by path relative to the folder, "/" between segments, the manifest as ".manifest".
	Files map[string][]byte
	// Digest is the SHA-256 of names and contents, in hex.
	Digest string
}

// Folders lists the bundles of a directory in order of name. A directory that is itself a bundle gives itself.
// An error means that the directory could not be read, which says nothing about the bundles in it.
func Folders(dir string) ([]Folder, error) {
	base, err := resolve(dir)
	if err != nil {
		return nil, err
	}
	if hasManifest(base) {
		return []Folder{{Name: filepath.Base(filepath.Clean(dir)), Path: base}}, nil
	}
	entries, err := os.ReadDir(base)
	if err != nil {
		return nil, fmt.Errorf("reading the bundle directory %s: %w", dir, err)
	}
	var found []Folder
	for _, e := range entries {
		f, ok, err := folderOf(base, e.Name())
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, f)
		}
	}
	return found, nil
}

func folderOf(base, name string) (Folder, bool, error) {
	if strings.HasPrefix(name, ".") {
		return Folder{}, false, nil
	}
	full := filepath.Join(base, name)
	info, err := os.Stat(full)
	if err != nil {
		return Folder{}, false, fmt.Errorf("reading the bundle directory: %w", err)
	}
	if !info.IsDir() {
		return Folder{Name: name, Path: full, Tarball: true}, strings.HasSuffix(name, tarballSuffix), nil
	}
	resolved, err := resolve(full)
	if err != nil {
		return Folder{}, false, err
	}
	return Folder{Name: name, Path: resolved}, hasManifest(resolved) || hasRego(resolved), nil
}

// resolve follows the kubelet's link once, so that everything read afterwards is of one version.
func resolve(dir string) (string, error) {
	target := filepath.Join(dir, swapLink)
	if _, err := os.Lstat(target); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("resolving the bundle directory %s: %w", dir, err)
		}
		target = dir
	}
	resolved, err := filepath.EvalSymlinks(target)
	if err != nil {
		return "", fmt.Errorf("resolving the bundle directory %s: %w", dir, err)
	}
	return resolved, nil
}

func hasManifest(dir string) bool {
	for _, name := range []string{manifestName, manifestKey} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

func hasRego(dir string) bool {
	matches, err := filepath.Glob(filepath.Join(dir, "*"+regoSuffix))
	return err == nil && len(matches) > 0
}

// Read reads all files of a bundle that matter: the manifest, Rego and data. Others, such as a README, are left out.
// An error that is not a Problems comes from the file system and is worth a retry.
func Read(f Folder) (*Content, error) {
	if f.Tarball {
		return nil, problemsIn(f.Name, "tarballs are not supported in this version; unpack it into a folder")
	}
	c := &Content{Name: f.Name, Files: map[string][]byte{}}
	size := 0
	err := filepath.WalkDir(f.Path, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(f.Path, full)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if rel != "." && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		return c.add(full, filepath.ToSlash(rel), &size)
	})
	if err != nil {
		var ps Problems
		if errors.As(err, &ps) {
			return nil, ps
		}
		return nil, fmt.Errorf("reading bundle %s: %w", f.Name, err)
	}
	c.Digest = digest(c.Files)
	return c, nil
}

func (c *Content) add(full, rel string, size *int) error {
	if rel == manifestKey {
		rel = manifestName
	}
	if !matters(rel) {
		return nil
	}
	if _, twice := c.Files[rel]; twice {
		return problemsIn(c.Name, "both %s and %s are present; keep one", manifestName, manifestKey)
	}
	raw, err := os.ReadFile(full)
	if err != nil {
		return err
	}
	if *size += len(raw); *size > maxBundleBytes {
		return problemsIn(c.Name, "larger than %d MiB", maxBundleBytes>>20)
	}
	c.Files[rel] = raw
	return nil
}

func matters(rel string) bool {
	return rel == manifestName || strings.HasSuffix(rel, regoSuffix) || isData(rel)
}

func isData(rel string) bool {
	switch path.Base(rel) {
	case "data.json", "data.yaml", "data.yml":
		return true
	}
	return false
}

func digest(files map[string][]byte) string {
	names := make([]string, 0, len(files))
	for n := range files {
		names = append(names, n)
	}
	sort.Strings(names)
	sum := sha256.New()
	for _, n := range names {
		// Lengths keep two different splits of the same bytes apart.
		fmt.Fprintf(sum, "%d %s %d ", len(n), n, len(files[n]))
		sum.Write(files[n])
	}
	return hex.EncodeToString(sum.Sum(nil))
}
