package acm

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// maxMessage is the largest question or answer, in bytes: a whole application of 10,000 waiting pods fits several times.
const maxMessage = 64 << 20

// Dial opens connections to the ACMs, by name. Nothing is sent before the first question. Each address is resolved
// again when a connection ends, and all addresses behind a name are used in turn, so that replicas can come and go.
func Dial(addresses map[string]string) (map[string]grpc.ClientConnInterface, func() error, error) {
	connections := map[string]grpc.ClientConnInterface{}
	var open []*grpc.ClientConn
	closeAll := func() error {
		var errs []error
		for _, c := range open {
			errs = append(errs, c.Close())
		}
		return errors.Join(errs...)
	}
	for name, address := range addresses {
		conn, err := grpc.NewClient(address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
			// A node that loses power sends no reset: ask whether the other side is alive.
			grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 15 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}, MinConnectTimeout: 2 * time.Second,
			}),
		)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("opening a connection to ACM %q at %s: %w", name, address, err), closeAll())
		}
		open = append(open, conn)
		connections[name] = conn
	}
	return connections, closeAll, nil
}
