package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
)

// maxOutput bounds what is kept of a command's output, as the kubelet does for probes.
const maxOutput = 10 << 10

// Run runs a command beside another process (an exec probe, a hook) until it ends or ctx does; then the whole group is
// killed. Output is what it printed, cut at 10 KiB. The error says that it could not be run or was cut short; a
// command that ran and failed is a non-zero Exit.Code.
func (r *Runner) Run(ctx context.Context, s Spec) (Exit, string, error) {
	file, err := os.CreateTemp("", "localnode-exec-")
	if err != nil {
		return Exit{}, "", fmt.Errorf("making a file for the output: %w", err)
	}
	defer func() { _ = file.Close() }()
	// The file has no name from here on, so nothing is left behind whatever happens.
	if err := os.Remove(file.Name()); err != nil {
		return Exit{}, "", fmt.Errorf("unlinking the file for the output: %w", err)
	}
	s.Output = file
	p, err := r.Start(s)
	if err != nil {
		return Exit{}, "", err
	}
	select {
	case <-p.Done():
	case <-ctx.Done():
		p.Kill()
		<-p.Done()
		if p.Exit().Signal == syscall.SIGKILL {
			return p.Exit(), head(file), fmt.Errorf("running %s: %w", s.Argv[0], ctx.Err())
		}
	}
	return p.Exit(), head(file), nil
}

func head(f *os.File) string {
	buf := make([]byte, maxOutput)
	n, err := f.ReadAt(buf, 0)
	if err != nil && n == 0 {
		return ""
	}
	return string(bytes.TrimSpace(buf[:n]))
}
