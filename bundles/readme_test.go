package bundles_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// block is one command block of README.md and the lines that must appear in what it prints, in this order.
type block struct {
	line     int
	commands string
	expected []string
}

const (
	fence    = "```"
	toRun    = "```sh run"
	toExpect = "```text"
)

func blocks(t *testing.T) []block {
	t.Helper()
	raw, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var found []block
	opened := ""
	for i, line := range strings.Split(string(raw), "\n") {
		switch {
		case opened == "" && strings.HasPrefix(line, fence):
			opened = line
			if opened == toRun {
				found = append(found, block{line: i + 1})
			}
		case line == fence:
			opened = ""
		case opened == toRun:
			found[len(found)-1].commands += line + "\n"
		case opened == toExpect:
			require.NotEmpty(t, found, "line %d: output before any command", i+1)
			found[len(found)-1].expected = append(found[len(found)-1].expected, line)
		}
	}
	require.Empty(t, opened, "a fence is not closed")
	return found
}

// programs builds what the tutorial uses into a folder of its own.
func programs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	run := func(args ...string) string {
		cmd := exec.Command("go", args...)
		cmd.Dir = ".."
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), stderr.String())
		return strings.TrimSpace(string(out))
	}
	run("build", "-o", filepath.Join(bin, "acm"), "./acm")
	require.NoError(t, os.Symlink(run("tool", "-modfile=test/tools/go.mod", "-n", "opa"), filepath.Join(bin, "opa")))
	return bin
}

func TestEveryCommandOfTheReadmeWorksInOrder(t *testing.T) {
	all := blocks(t)
	require.Greater(t, len(all), 5)
	path := programs(t) + string(os.PathListSeparator) + os.Getenv("PATH")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "policies"), os.DirFS("../policies")))
	for _, b := range all {
		cmd := exec.Command("bash", "-euo", "pipefail", "-c", b.commands)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+path)
		cmd.WaitDelay = time.Minute
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "README.md:%d\n%s\n%s", b.line, b.commands, out)
		requireInOrder(t, b, string(out))
	}
}

func requireInOrder(t *testing.T, b block, out string) {
	t.Helper()
	rest := out
	for _, want := range b.expected {
		at := strings.Index(rest, want)
		require.GreaterOrEqual(t, at, 0, "README.md:%d prints\n%s\nwithout, or not in this order:\n%s", b.line, out, want)
		rest = rest[at+len(want):]
	}
}
