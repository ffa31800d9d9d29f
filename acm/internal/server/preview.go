package server

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/judge"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// Preview answers for steps that nobody has asked for yet, and reserves nothing. It builds on what the operator last
// reported of the application.
func (s *Server) Preview(ctx context.Context, r *acmv1.PreviewRequest) (*acmv1.PreviewResponse, error) {
	if err := s.admit(r.GetApplication()); err != nil {
		return nil, err
	}
	switch {
	case r.GetType().Code() == "":
		return nil, status.Error(codes.InvalidArgument, "type is needed")
	case len(r.GetPods()) == 0 && r.GetNode() == "" && r.GetZone() == "":
		return nil, status.Error(codes.InvalidArgument, "pods, node or zone is needed")
	}
	ref := applicationOf(r.GetApplication())
	a := s.open(ref)
	if ref.Policy == "" {
		known, _ := a.reference()
		ref.Policy = known.Policy
	}
	a.touch(ctx, ref, s.o.Clock.Now())
	answer := a.judge.Preview(ctx, judge.Query{
		Application: ref, Type: decision.Type(r.GetType().Code()), Pods: r.GetPods(), Node: r.GetNode(), Zone: r.GetZone(),
	})
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &acmv1.PreviewResponse{Decisions: decisionsOf(answer.Decisions), Epoch: answer.Epoch}, nil
}
