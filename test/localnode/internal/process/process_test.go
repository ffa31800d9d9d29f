package process

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func runner(t *testing.T, dir string) *Runner {
	t.Helper()
	r, err := New(dir, clock.RealClock{})
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func shell(id, script string) Spec {
	return Spec{ID: id, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=" + os.Getenv("PATH")}, Dir: os.TempDir()}
}

// pids reads what a script wrote: one pid a line, n of them.
func pids(t *testing.T, path string, n int) []int {
	t.Helper()
	var out []int
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(path)
		lines := strings.Fields(string(raw))
		if err != nil || len(lines) < n {
			return false
		}
		out = nil
		for _, l := range lines {
			pid, err := strconv.Atoi(l)
			require.NoError(t, err)
			out = append(out, pid)
		}
		return true
	}, 10*time.Second, 5*time.Millisecond)
	return out
}

func alive(pid int) bool {
	e, err := readEntry(pid)
	return err == nil && !e.gone()
}

func TestExitCodesAndSignalsAreToldAsContainerRuntimesDo(t *testing.T) {
	r := runner(t, t.TempDir())
	for script, want := range map[string]Exit{
		"exit 0": {}, "exit 42": {Code: 42}, "kill -TERM $$": {Code: 143, Signal: syscall.SIGTERM}, "kill -KILL $$": {Code: 137, Signal: syscall.SIGKILL},
	} {
		p, err := r.Start(shell("x", script))
		require.NoError(t, err)
		<-p.Done()
		got := p.Exit()
		require.WithinDuration(t, time.Now(), got.At, 10*time.Second)
		got.At = time.Time{}
		require.Equal(t, want, got, script)
		require.NoError(t, p.Signal(syscall.SIGTERM), "a signal to what is gone is no error")
	}
}

func TestWhatTheFirstProcessLeavesIsKilledEvenOutsideItsGroup(t *testing.T) {
	dir := t.TempDir()
	r := runner(t, dir)
	file := filepath.Join(dir, "pids")
	p, err := r.Start(shell("pod/c/0", "sleep 600 & echo $! >> "+file+"; setsid sh -c 'echo $$ >> "+file+"; exec sleep 600' & while [ $(wc -l < "+file+") -lt 2 ]; do sleep 0.01; done; exit 3"))
	require.NoError(t, err)
	<-p.Done()
	require.EqualValues(t, 3, p.Exit().Code)
	for _, pid := range pids(t, file, 2) {
		require.False(t, alive(pid))
	}
	left, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestOneContainersEndLeavesItsNeighborsAlone(t *testing.T) {
	r := runner(t, t.TempDir())
	neighbor, err := r.Start(shell("pod/c/10", "exec sleep 600"))
	require.NoError(t, err)
	p, err := r.Start(shell("pod/c/1", "exit 0"))
	require.NoError(t, err)
	<-p.Done()
	require.True(t, alive(neighbor.PID()))
}

func TestCloseKillsEverythingAndNothingStartsAfterwards(t *testing.T) {
	r, err := New(t.TempDir(), clock.RealClock{})
	require.NoError(t, err)
	p, err := r.Start(shell("x", "trap '' TERM; while :; do sleep 600; done"))
	require.NoError(t, err)
	r.Close()
	<-p.Done()
	require.False(t, alive(p.PID()))
	_, err = r.Start(shell("y", "exit 0"))
	require.ErrorIs(t, err, ErrClosed)
	r.Close()
}

func TestASuccessorKillsWhatIsRecordedOrMarkedAndNobodyElse(t *testing.T) {
	dir := t.TempDir()
	first := runner(t, dir)
	// Three processes that no runner waits for: by mark only, by record only, and a stranger whose pid a record names.
	begin := func(env ...string) *exec.Cmd {
		cmd := exec.Command("sleep", "600")
		cmd.Env, cmd.SysProcAttr = env, &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			if err := cmd.Process.Kill(); err != nil {
				require.ErrorIs(t, err, os.ErrProcessDone)
			}
			require.ErrorContains(t, cmd.Wait(), "killed")
		})
		return cmd
	}
	marked := begin(MarkVariable + "=" + first.mark + "/pod/c/0")
	recorded, stranger := begin(), begin()
	otherAgent := begin(MarkVariable + "=" + first.mark + "0/pod/c/0")
	e, err := readEntry(recorded.Process.Pid)
	require.NoError(t, err)
	for pid, startTime := range map[int]uint64{recorded.Process.Pid: e.start, stranger.Process.Pid: e.start - 1} {
		raw, err := json.Marshal(record{PID: pid, Start: startTime, ID: "x"})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(recordPath(dir, pid), raw, 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "1.json"), []byte("{half"), 0o600))
	runner(t, dir)
	require.False(t, alive(marked.Process.Pid))
	require.False(t, alive(recorded.Process.Pid))
	require.True(t, alive(stranger.Process.Pid))
	require.True(t, alive(otherAgent.Process.Pid))
}

func TestRunGivesOutputAndCodeAndCutsShortWhatTakesTooLong(t *testing.T) {
	r := runner(t, t.TempDir())
	exit, out, err := r.Run(t.Context(), shell("x/exec", "echo one; echo two >&2; exit 4"))
	require.NoError(t, err)
	require.EqualValues(t, 4, exit.Code)
	require.Equal(t, "one\ntwo", out)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, out, err = r.Run(ctx, shell("x/exec", "echo begun; exec sleep 600"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, "begun", out)

	_, out, err = r.Run(t.Context(), shell("x/exec", "head -c 100000 /dev/zero | tr '\\0' x"))
	require.NoError(t, err)
	require.Len(t, out, maxOutput)
}

func TestAProgramThatCannotBeStartedIsAnError(t *testing.T) {
	r := runner(t, t.TempDir())
	_, err := r.Start(Spec{ID: "x", Dir: os.TempDir()})
	require.ErrorContains(t, err, "no command")
	_, err = r.Start(Spec{ID: "x", Argv: []string{"sh"}, Dir: os.TempDir()})
	require.ErrorIs(t, err, exec.ErrNotFound, "the agent's own PATH does not count")
	_, err = r.Start(Spec{ID: "x", Argv: []string{"/etc/passwd"}, Dir: os.TempDir()})
	require.ErrorContains(t, err, "not executable")
	_, err = r.Start(Spec{ID: "x", Argv: []string{"./none"}, Dir: os.TempDir()})
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestTheStateLineIsReadWhateverTheCommandIsCalled(t *testing.T) {
	tail := strings.Repeat(" 0", 16) + " 777 0"
	e, err := parseStat(5, []byte("5 (a) b) (c) S 1 44"+tail))
	require.NoError(t, err)
	require.Equal(t, entry{pid: 5, group: 44, state: 'S', start: 777}, e)
	for _, bad := range []string{"", "5 (a", "5 (a) S 1", "5 (a) S 1 x" + tail} {
		_, err := parseStat(5, []byte(bad))
		require.Error(t, err)
	}
}
