package controlplane

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports lie below those that the kernel gives to outgoing connections (32768 and up), so that no connection takes
// one between our choice and the component's start.
const (
	firstPort = 20000
	portCount = 10000
)

// ofdSetLock is F_OFD_SETLK of fcntl(2): a lock of an open file, not of a process, so that two control planes of
// one process exclude each other too.
const ofdSetLock = 37

// ports are claimed for as long as the file is open: one locked byte each in a file that all control planes of
// this user share. Without it two that start at once could choose the same, and one would talk to the other's etcd.
type ports struct {
	file *os.File
	free []string
}

// claimPorts finds n ports that nobody listens on and no other control plane has claimed.
func claimPorts(n int) (*ports, error) {
	if err := os.MkdirAll(stateDir(), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of port claims: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(stateDir(), "ports"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the port claims: %w", err)
	}
	p := &ports{file: file}
	// Beginning elsewhere in each process keeps clients of one that just ended away from the next.
	begin := os.Getpid() * 16 % portCount
	for i := 0; i < portCount && len(p.free) < n; i++ {
		port := firstPort + (begin+i)%portCount
		claim := syscall.Flock_t{Type: syscall.F_WRLCK, Start: int64(port), Len: 1}
		if syscall.FcntlFlock(file.Fd(), ofdSetLock, &claim) == nil && unused(port) {
			p.free = append(p.free, strconv.Itoa(port))
		}
	}
	if len(p.free) < n {
		return nil, errors.Join(fmt.Errorf("no %d free ports from %d to %d", n, firstPort, firstPort+portCount-1), p.release())
	}
	return p, nil
}

func unused(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

func (p *ports) release() error { return p.file.Close() }
