package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

// patience bounds waiting for what happens in other goroutines.
const patience = 10 * time.Second

var start = time.Unix(1764547200, 0)

// leases is the API server's part: optimistic locks, and faults to order.
type leases struct {
	mu      sync.Mutex
	version int
	objects map[string]*coordinationv1.Lease
	// fail, when set, is the error of every call; lost does the write and fails nevertheless.
	fail, lost error
	writes     int
}

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func newLeases() *leases { return &leases{objects: map[string]*coordinationv1.Lease{}} }

func (l *leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return nil, l.fail
	}
	if o := l.objects[name]; o != nil {
		return o.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (l *leases) Create(_ context.Context, o *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return nil, l.fail
	}
	if l.objects[o.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource, o.Name)
	}
	return l.write(o), nil
}

func (l *leases) Update(_ context.Context, o *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return nil, l.fail
	}
	old := l.objects[o.Name]
	if old == nil {
		return nil, apierrors.NewNotFound(resource, o.Name)
	}
	if old.ResourceVersion != o.ResourceVersion {
		return nil, apierrors.NewConflict(resource, o.Name, fmt.Errorf("version %s", old.ResourceVersion))
	}
	written := l.write(o)
	return written, l.lost
}

func (l *leases) write(o *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	l.writes++
	kept := o.DeepCopy()
	kept.ResourceVersion = strconv.Itoa(l.version)
	l.objects[o.Name] = kept
	return kept.DeepCopy()
}

func (l *leases) failing(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

func (l *leases) holder(name string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.objects[name]; o != nil && o.Spec.HolderIdentity != nil {
		return *o.Spec.HolderIdentity
	}
	return ""
}

// source is an application's facts without collectors.
type source struct {
	*facts.Store
	refreshed atomic.Int32
	closed    atomic.Bool
}

func (*source) Configure(judge.Manifest) {}
func (s *source) Refresh()               { s.refreshed.Add(1) }

// policy says the same to everybody, once it is let.
type policy struct {
	outcome decision.Outcome
	asked   atomic.Int32
	gate    func(ctx context.Context)
}

func (*policy) Revision() string                                         { return "test-1" }
func (*policy) Manifest() judge.Manifest                                 { return judge.Manifest{} }
func (*policy) Options(decision.OptionsKey) *decision.Options            { return &decision.Options{} }
func (p *policy) Policy(string) (judge.Policy, *decision.MachineryError) { return p, nil }
func (p *policy) Evaluate(ctx context.Context, _ *decision.Question, _ *facts.Snapshot) decision.Outcome {
	p.asked.Add(1)
	if p.gate != nil {
		p.gate(ctx)
	}
	return p.outcome
}
func (*policy) Parameters(context.Context, *decision.Question, *facts.Snapshot) (any, *decision.MachineryError) {
	return map[string]any{"note": "go"}, nil
}

type ignore struct{}

func (ignore) Decided(judge.Entry) {}

// world is one ACM process with what it works on.
type world struct {
	t       *testing.T
	server  *Server
	health  *Health
	clock   *clocktesting.FakeClock
	leases  *leases
	policy  *policy
	sources sync.Map // name of the application -> *source
	ready   atomic.Bool
	conn    *grpc.ClientConn
	acm     acmv1.ClusterManagerServiceClient
	inspect acmv1.InspectServiceClient
	stop    func()
}

func approving() *policy { return &policy{outcome: decision.Outcome{Approve: true}} }

// acm starts a process; several may share the leases.
func acm(t *testing.T, identity string, l *leases, p *policy, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(start), leases: l, policy: p}
	w.ready.Store(true)
	var ids atomic.Int32
	o := Options{
		Policies: p, BundleStatus: func(string) (string, string) { return "test-1", "test/policy.rego:3: oops" },
		Facts: func(a decision.ApplicationRef, published func(*facts.Snapshot)) (judge.Facts, func()) {
			s := &source{Store: facts.NewStore(published)}
			w.sources.Store(a.Name, s)
			return s, func() { s.closed.Store(true) }
		},
		Leases: l, Identity: identity, Clock: w.clock, Log: testr.New(t), Decisions: ignore{},
		NewID: func() string { return fmt.Sprintf("%s-d%d", identity, ids.Add(1)) }, Ready: w.ready.Load,
	}
	for _, c := range change {
		c(&o)
	}
	w.server = New(o)
	g, health := GRPC(w.server)
	w.health = health
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- g.Serve(listener) }()
	w.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	w.acm, w.inspect = acmv1.NewClusterManagerServiceClient(w.conn), acmv1.NewInspectServiceClient(w.conn)
	w.stop = sync.OnceFunc(func() {
		w.server.Stop()
		g.GracefulStop()
		require.NoError(t, <-served)
		require.NoError(t, w.conn.Close())
	})
	t.Cleanup(w.stop)
	return w
}

// source is the facts of an application; it must have been asked about.
func (w *world) source(name string) *source {
	w.t.Helper()
	s, ok := w.sources.Load(name)
	require.True(w.t, ok)
	return s.(*source)
}

func (w *world) evaluate(r *acmv1.EvaluateRequest) *acmv1.EvaluateResponse {
	w.t.Helper()
	out, err := w.acm.Evaluate(w.t.Context(), r)
	require.NoError(w.t, err)
	return out
}

// request is one waiting deployment of etcd-1, of a session that is old enough for any ledger.
func request(number uint64) *acmv1.EvaluateRequest {
	return &acmv1.EvaluateRequest{
		Application:   &acmv1.Application{Namespace: "default", Name: "etcd", Policy: "test"},
		Session:       &acmv1.Session{Id: "s-1", Term: 1, Age: durationpb.New(time.Hour)},
		RequestNumber: number,
		Sets: []*acmv1.PodSet{{Name: "etcd", MaxUnavailable: 1, Revision: "r2",
			Wanted: []*acmv1.IndexRange{{First: 0, Last: 2}}, EverAvailable: []*acmv1.IndexRange{{First: 0, Last: 2}}}},
		ApplicationMaxUnavailable: 1,
		Operations:                []*acmv1.OperationSummary{{Name: "op-1", Type: acmv1.OperationType_OPERATION_TYPE_DEPLOYMENT, Total: 1, Waiting: 1}},
		Instances:                 []*acmv1.Instance{waiting(1)},
	}
}

func waiting(index int32) *acmv1.Instance {
	return &acmv1.Instance{
		Operation: "op-1", Type: acmv1.OperationType_OPERATION_TYPE_DEPLOYMENT, Stage: acmv1.Stage_STAGE_REMOVE,
		State: acmv1.InstanceState_INSTANCE_STATE_WAITING, Set: "etcd", Pod: fmt.Sprintf("etcd-%d", index), Index: index,
		RevisionFrom: "r1", RevisionTo: "r2", WaitingSince: timestamppb.New(start.Add(-time.Minute)), Key: "k",
	}
}

// available publishes three pods that are all well.
func (w *world) available() {
	rows := map[string]*facts.Pod{}
	for i := range 3 {
		rows[fmt.Sprintf("etcd-%d", i)] = &facts.Pod{Set: "etcd", Index: i, Phase: "Running", Ready: true, Available: true}
	}
	w.source("etcd").Apply(facts.Changes{At: decision.Unix(start) - 3600, Pods: rows})
}

var _ clock.WithTicker = (*clocktesting.FakeClock)(nil)
