package child

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAProgramOutlivesTheThreadThatAskedForIt(t *testing.T) {
	cmd := exec.Command("cat")
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	var out Buffer
	cmd.Stdout = &out
	thread, r := startFromADyingThread(t, cmd)
	require.Eventually(t, func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		return os.IsNotExist(err)
	}, 20*time.Second, time.Millisecond, "the thread does not end, so nothing is tried")
	_, err = fmt.Fprintln(input, "still here")
	require.NoError(t, err)
	require.NoError(t, input.Close())
	select {
	case <-r.Exited:
	case <-time.After(20 * time.Second):
		require.Fail(t, "it does not end with its input")
	}
	require.NoError(t, r.Ended())
	require.Equal(t, "still here\n", out.String())
}

// startFromADyingThread starts the program and returns the number of a thread that ends now. The first thread of a process
// never ends, so it is held while another one is taken.
func startFromADyingThread(t *testing.T, cmd *exec.Cmd) (int, *Running) {
	t.Helper()
	type start struct {
		thread int
		r      *Running
		err    error
	}
	done := make(chan start, 1)
	go func() {
		runtime.LockOSThread()
		if syscall.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			next := make(chan start, 1)
			go func() {
				runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
				r, err := Start(cmd)
				next <- start{syscall.Gettid(), r, err}
			}()
			done <- <-next
			return
		}
		r, err := Start(cmd)
		done <- start{syscall.Gettid(), r, err}
	}()
	s := <-done
	require.NoError(t, s.err)
	require.NotEqual(t, os.Getpid(), s.thread)
	return s.thread, s.r
}

func TestHowAProgramEndedIsTold(t *testing.T) {
	cmd := exec.Command("cat")
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	r, err := Start(cmd)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM), "it leads a process group")
	<-r.Exited
	require.ErrorContains(t, r.Ended(), "terminated")
	_, err = Start(exec.Command("/no/such/program"))
	require.ErrorContains(t, err, "starting /no/such/program")
}
