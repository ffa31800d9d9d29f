// Package probe asks a container how it is: one try by exec, HTTP, TCP or gRPC, and the loop that turns tries into
// an answer by delays, periods and thresholds.
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Result is the outcome of one try. Message explains a failure.
type Result struct {
	OK      bool
	Message string
}

// Target is the container that is asked.
type Target struct {
	// Address is the pod's address, without a port.
	Address string
	// Ports are the container's named ports.
	Ports []corev1.ContainerPort
	// Exec runs a command with the container's environment; the code counts if the error is nil.
	Exec func(ctx context.Context, argv []string) (code int32, output string, err error)
}

// Try asks once. ctx carries the time-out. A handler that asks nothing is a failure.
func Try(ctx context.Context, h corev1.ProbeHandler, t Target) Result {
	switch {
	case h.Exec != nil:
		return tryExec(ctx, h.Exec.Command, t)
	case h.HTTPGet != nil:
		return tryHTTP(ctx, h.HTTPGet, t)
	case h.TCPSocket != nil:
		return tryTCP(ctx, h.TCPSocket, t)
	case h.GRPC != nil:
		return tryGRPC(ctx, h.GRPC, t)
	}
	return Result{Message: "the probe has no handler"}
}

func tryExec(ctx context.Context, argv []string, t Target) Result {
	code, output, err := t.Exec(ctx, argv)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return Result{Message: "command timed out"}
	case err != nil:
		return Result{Message: err.Error()}
	case code != 0:
		return Result{Message: fmt.Sprintf("command exited with %d: %s", code, output)}
	}
	return Result{OK: true}
}

// Get sends the request of an httpGet handler and returns the status code. Certificates are not checked, as by the kubelet.
func Get(ctx context.Context, a *corev1.HTTPGetAction, t Target) (int, error) {
	port, err := portNumber(a.Port, t.Ports)
	if err != nil {
		return 0, err
	}
	host := a.Host
	if host == "" {
		host = t.Address
	}
	path, query, _ := strings.Cut(a.Path, "?")
	u := url.URL{
		Scheme: strings.ToLower(string(a.Scheme)), Host: net.JoinHostPort(host, strconv.Itoa(port)),
		Path: "/" + strings.TrimPrefix(path, "/"), RawQuery: query,
	}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("User-Agent", "localnode-probe")
	for _, h := range a.HTTPHeaders {
		if strings.EqualFold(h.Name, "host") {
			req.Host = h.Value
			continue
		}
		req.Header.Add(h.Name, h.Value)
	}
	// One transport a try: a kept connection would hide that nothing listens any more.
	transport := &http.Transport{
		DisableKeepAlives: true, Proxy: nil,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a probe asks whether, not who
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: sameHost}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The answer is in the status line; reading on only lets the server finish without a reset.
	_, _ = io.CopyN(io.Discard, resp.Body, 10<<10) //nolint:errcheck // a short body is as good as a long one
	return resp.StatusCode, nil
}

// sameHost follows redirects within one host; elsewhere the redirect itself is the answer.
func sameHost(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() || len(via) >= 10 {
		return http.ErrUseLastResponse
	}
	return nil
}

func tryHTTP(ctx context.Context, a *corev1.HTTPGetAction, t Target) Result {
	code, err := Get(ctx, a, t)
	if err != nil {
		return Result{Message: err.Error()}
	}
	if code < http.StatusOK || code >= http.StatusBadRequest {
		return Result{Message: fmt.Sprintf("HTTP status %d", code)}
	}
	return Result{OK: true}
}

func tryTCP(ctx context.Context, a *corev1.TCPSocketAction, t Target) Result {
	port, err := portNumber(a.Port, t.Ports)
	if err != nil {
		return Result{Message: err.Error()}
	}
	host := a.Host
	if host == "" {
		host = t.Address
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return Result{Message: err.Error()}
	}
	// Opening it was the question.
	_ = conn.Close()
	return Result{OK: true}
}

func tryGRPC(ctx context.Context, a *corev1.GRPCAction, t Target) Result {
	target := net.JoinHostPort(t.Address, strconv.Itoa(int(a.Port)))
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return Result{Message: err.Error()}
	}
	defer func() { _ = conn.Close() }()
	req := &healthpb.HealthCheckRequest{}
	if a.Service != nil {
		req.Service = *a.Service
	}
	resp, err := healthpb.NewHealthClient(conn).Check(ctx, req)
	if err != nil {
		return Result{Message: err.Error()}
	}
	if resp.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		return Result{Message: "gRPC health is " + resp.GetStatus().String()}
	}
	return Result{OK: true}
}

// portNumber resolves a number, a port name, or a number written as text.
func portNumber(p intstr.IntOrString, ports []corev1.ContainerPort) (int, error) {
	if p.Type == intstr.Int {
		return p.IntValue(), nil
	}
	for _, cp := range ports {
		if cp.Name == p.StrVal {
			return int(cp.ContainerPort), nil
		}
	}
	n, err := strconv.Atoi(p.StrVal)
	if err != nil {
		return 0, fmt.Errorf("no port is named %q", p.StrVal)
	}
	return n, nil
}
