package localnode

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"k8s.io/utils/clock"

	"assent.dev/assent/test/localnode/internal/logs"
)

// followPause is how often a followed log is looked at.
const followPause = 200 * time.Millisecond

// server is the part of the kubelet's HTTP interface that makes kubectl logs work. It listens on loopback only and asks
// nobody who they are, as the files it shows can be read on this machine anyway.
type server struct {
	http  *http.Server
	logs  *logs.Store
	clock clock.Clock
	port  int32
	done  chan struct{}
}

func serve(store *logs.Store, c clock.Clock) (*server, error) {
	cert, err := selfSigned(c.Now())
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(hostIP, "0"))
	if err != nil {
		return nil, fmt.Errorf("listening for log requests: %w", err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listening for log requests: address %v", l.Addr()), l.Close())
	}
	s := &server{logs: store, clock: c, port: int32(addr.Port), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.serveLog)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	tlsListener := tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	go func() {
		defer close(s.done)
		_ = s.http.Serve(tlsListener) //nolint:errcheck // it always ends with an error, the one of close
	}()
	return s, nil
}

func (s *server) close() error {
	err := s.http.Close()
	<-s.done
	if err != nil {
		return fmt.Errorf("closing the log server: %w", err)
	}
	return nil
}

func (s *server) serveLog(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back := 0
	if q.Get("previous") == "true" {
		back = 1
	}
	path, err := s.logs.Path(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), back)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	f, err := os.Open(path)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer func() { _ = f.Close() }()
	if n, err := strconv.Atoi(q.Get("tailLines")); err == nil {
		if err := seekLines(f, n); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	_ = s.copyLog(r.Context(), w, f, q.Get("follow") == "true") //nolint:errcheck // the reader has gone: nobody to tell
}

// copyLog sends what is there, and with follow what comes, until the reader leaves.
func (s *server) copyLog(ctx context.Context, w http.ResponseWriter, f io.Reader, follow bool) error {
	for {
		if _, err := io.Copy(w, f); err != nil || !follow {
			return err
		}
		if fl, ok := w.(http.Flusher); ok {
			fl.Flush()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.clock.After(followPause):
		}
	}
}

// seekLines moves to the start of the last n lines.
func seekLines(f *os.File, n int) error {
	raw, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	at := len(bytes.TrimSuffix(raw, []byte("\n")))
	for ; n > 0 && at > 0; n-- {
		at = bytes.LastIndexByte(raw[:at], '\n')
	}
	if n > 0 || at < 0 {
		at = -1
	}
	if _, err := f.Seek(int64(at+1), io.SeekStart); err != nil {
		return fmt.Errorf("reading a log: %w", err)
	}
	return nil
}

func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
		IPAddresses: []net.IP{net.ParseIP(hostIP)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
