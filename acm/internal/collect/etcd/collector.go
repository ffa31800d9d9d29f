package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"assent.dev/assent/acm/internal/collect"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

const (
	defaultPort   = 2379
	defaultMaxLag = 500
	// targetTimeout bounds everything that is asked of one member.
	targetTimeout  = time.Second
	portAnnotation = "assent.dev/etcd-port"
)

// Collector asks the members of one cluster.
type Collector struct {
	port   int
	maxLag float64
	conns  map[string]*grpc.ClientConn
	// known remembers which member id a pod had last.
	known    map[string]uint64
	election election
}

// New makes a collector; it is a collect.Kind.
func New(_ decision.ApplicationRef, settings map[string]any) collect.Collector {
	c := &Collector{port: defaultPort, maxLag: defaultMaxLag, conns: map[string]*grpc.ClientConn{}, known: map[string]uint64{}}
	if port, ok := settings["port"].(int); ok {
		c.port = port
	}
	if lag, ok := settings["max_lag"].(int); ok {
		c.maxLag = float64(lag)
	}
	return c
}

// answer is what one pod's address said.
type answer struct {
	pod string
	// address is empty when nobody was asked.
	address string
	status  *pb.StatusResponse
	// members is nil when the member list could not be had.
	members *pb.MemberListResponse
	// refused is evidence that no member runs here; err is any other reason for silence.
	refused string
	err     error
}

// Collect asks every pod that Kubernetes runs, in parallel, and makes facts of the answers. It never
// fails as a whole: who does not answer is unknown.
func (c *Collector) Collect(ctx context.Context, s *facts.Snapshot, now time.Time) (*facts.Facts, error) {
	answers := map[string]*answer{}
	var asked sync.WaitGroup
	for pod, p := range s.Pods().All() {
		a := &answer{pod: pod}
		answers[pod] = a
		if p.Missing() || p.Phase != "Running" || p.IP == "" {
			a.refused = "Kubernetes does not run the pod"
			continue
		}
		a.address = net.JoinHostPort(p.IP, strconv.Itoa(c.portOf(p)))
		conn, err := c.conn(a.address)
		if err != nil {
			a.err = err
			continue
		}
		asked.Go(func() { a.ask(ctx, conn) })
	}
	asked.Wait()
	c.keepOnly(answers)
	return c.facts(answers, now), nil
}

func (c *Collector) portOf(p *facts.Pod) int {
	if port, err := strconv.Atoi(p.Annotations[portAnnotation]); err == nil {
		return port
	}
	return c.port
}

// conn keeps one connection for each address. Calls on it fail at once while nothing listens there.
func (c *Collector) conn(address string) (*grpc.ClientConn, error) {
	if conn := c.conns[address]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	c.conns[address] = conn
	return conn, nil
}

// keepOnly keeps the connections that brought an answer. The next attempt of the others must not
// wait for a back-off.
func (c *Collector) keepOnly(answers map[string]*answer) {
	good := map[string]bool{}
	for _, a := range answers {
		if a.status != nil {
			good[a.address] = true
		}
	}
	for address, conn := range c.conns {
		if !good[address] {
			_ = conn.Close() // nothing to be done about a connection that will not be closed
			delete(c.conns, address)
		}
	}
}

// Close frees the connections.
func (c *Collector) Close() { c.keepOnly(nil) }

func (a *answer) ask(ctx context.Context, conn *grpc.ClientConn) {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	list := make(chan *pb.MemberListResponse, 1)
	go func() {
		members, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: false})
		if err != nil {
			members = nil // the status tells why
		}
		list <- members
	}()
	a.status, a.err = pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	a.members = <-list
	if a.err == nil {
		return
	}
	a.status = nil
	if refused(ctx, a.err, a.address) {
		a.refused = "nothing listens at the pod's address"
	}
}

// refused tells a closed port from silence. gRPC gives the dial error as text only, so the answer
// of the operating system is asked for once more.
func refused(ctx context.Context, err error, address string) bool {
	if status.Code(err) != codes.Unavailable {
		return false
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err == nil {
		_ = conn.Close() // it was only to see whether somebody listens
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// silence says why the member is unknown.
func (a *answer) silence() string {
	if status.Code(a.err) == codes.DeadlineExceeded || errors.Is(a.err, context.DeadlineExceeded) {
		return "no answer within " + targetTimeout.String()
	}
	return a.err.Error()
}
