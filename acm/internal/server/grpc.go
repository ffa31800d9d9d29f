package server

import (
	"context"
	"fmt"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	acmv1 "assent.dev/assent/proto/acm/v1"
)

const (
	// maxRequest fits an application of 100,000 pods.
	maxRequest = 64 << 20
	// pingsAtLeast lets operators notice a vanished ACM within seconds.
	pingsAtLeast = 5 * time.Second
)

// GRPC makes the gRPC server of s, and its health, which is NOT_SERVING for every service until SetServing.
func GRPC(s *Server, extra ...grpc.ServerOption) (*grpc.Server, *Health) {
	options := append([]grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxRequest),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingsAtLeast, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.measure, s.recover),
	}, extra...)
	g := grpc.NewServer(options...)
	acmv1.RegisterClusterManagerServiceServer(g, s)
	acmv1.RegisterInspectServiceServer(g, s)
	h := &Health{server: health.NewServer()}
	h.SetServing(false)
	healthpb.RegisterHealthServer(g, h.server)
	return g, h
}

// Health is the standard gRPC health of both services and of the whole.
type Health struct{ server *health.Server }

// SetServing says whether calls are answered.
func (h *Health) SetServing(yes bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if yes {
		state = healthpb.HealthCheckResponse_SERVING
	}
	for _, service := range []string{"", acmv1.ClusterManagerService_ServiceDesc.ServiceName, acmv1.InspectService_ServiceDesc.ServiceName} {
		h.server.SetServingStatus(service, state)
	}
}

// Shutdown reports NOT_SERVING for good.
func (h *Health) Shutdown() { h.server.Shutdown() }

func (s *Server) measure(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	began := s.o.Clock.Now()
	answer, err := next(ctx, req)
	s.metrics.requests.WithLabelValues(path.Base(info.FullMethod), status.Code(err).String()).Observe(s.o.Clock.Since(began).Seconds())
	return answer, err
}

// recover turns a fault of ours into an error, which the operator takes as no answer: one application's question
// must not end the judging of all others.
func (s *Server) recover(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			s.o.Log.Error(fmt.Errorf("panic: %v", fault), "request failed", "method", info.FullMethod, "stack", string(debug.Stack()))
			answer, err = nil, status.Error(codes.Internal, "the ACM failed on this request; its log says where")
		}
	}()
	return next(ctx, req)
}
