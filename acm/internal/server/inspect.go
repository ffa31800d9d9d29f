package server

import (
	"context"
	"sort"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/judge"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// ListApplications names the applications that this process has been asked about, by namespace and name.
func (s *Server) ListApplications(context.Context, *acmv1.ListApplicationsRequest) (*acmv1.ListApplicationsResponse, error) {
	out := &acmv1.ListApplicationsResponse{}
	for _, a := range s.all() {
		out.Applications = append(out.Applications, s.statusOf(a))
	}
	sort.Slice(out.Applications, func(i, j int) bool {
		a, b := out.Applications[i].Application, out.Applications[j].Application
		if a.Namespace != b.Namespace {
			return a.Namespace < b.Namespace
		}
		return a.Name < b.Name
	})
	return out, nil
}

func (s *Server) statusOf(a *application) *acmv1.ApplicationStatus {
	ref, asked := a.reference()
	_, held := a.lease.Held()
	revision, problem := s.o.BundleStatus(ref.Policy)
	return &acmv1.ApplicationStatus{
		Application: protoOf(ref), Deciding: held, Epoch: a.lease.Seen(), BundleRevision: revision, BundleError: problem, LastEvaluate: stampOf(asked),
	}
}

func protoOf(a decision.ApplicationRef) *acmv1.Application {
	return &acmv1.Application{Cluster: a.Cluster, Namespace: a.Namespace, Name: a.Name, Policy: a.Policy}
}

// GetApplication shows one application; NotFound when nobody has asked about it.
func (s *Server) GetApplication(ctx context.Context, r *acmv1.GetApplicationRequest) (*acmv1.GetApplicationResponse, error) {
	a := s.all()[keyOf(applicationOf(r.GetApplication()))]
	if a == nil {
		return nil, status.Error(codes.NotFound, "nobody has asked this ACM about the application")
	}
	seen, err := a.judge.Inspect(ctx)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	out := &acmv1.GetApplicationResponse{Status: s.statusOf(a)}
	if out.Facts, err = viaJSON(seen.Facts); err != nil {
		return nil, status.Errorf(codes.Internal, "writing the facts: %v", err)
	}
	for name, c := range seen.Facts.Collectors() {
		shown := &acmv1.CollectorStatus{Name: name, Ok: c.OK, Error: c.Error}
		if c.AsOf > 0 {
			shown.AsOf = stampOf(time.UnixMicro(int64(c.AsOf * 1e6)))
		}
		out.Collectors = append(out.Collectors, shown)
	}
	sort.Slice(out.Collectors, func(i, j int) bool { return out.Collectors[i].Name < out.Collectors[j].Name })
	for _, res := range seen.Reservations {
		out.Reservations = append(out.Reservations, &acmv1.Reservation{
			DecisionId: res.DecisionID, Operation: res.Operation, Pod: res.Pod,
			Stage: acmv1.StageOf(string(res.Stage)), ExpiresAt: stampOf(res.ExpiresAt),
		})
	}
	return out, nil
}

// WatchDecisions streams decisions as they are made. A reader that is slow misses some; the decision log does not.
func (s *Server) WatchDecisions(r *acmv1.WatchDecisionsRequest, stream acmv1.InspectService_WatchDecisionsServer) error {
	entries := s.taps.join()
	defer s.taps.leave(entries)
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for {
		select {
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-s.ctx.Done():
			return status.Error(codes.Unavailable, "the ACM is stopping")
		case e := <-entries:
			if !concerns(e, r.GetApplication()) {
				continue
			}
			if err := stream.Send(&acmv1.WatchDecisionsResponse{Time: stampOf(e.Time), Application: protoOf(e.Application), Decision: decisionOf(&e.Decision)}); err != nil {
				return err
			}
		}
	}
}

func concerns(e judge.Entry, a *acmv1.Application) bool {
	return a.GetName() == "" || keyOf(e.Application) == keyOf(applicationOf(a))
}
