package operation

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	"assent.dev/assent/operator/internal/metrics"
	"assent.dev/assent/operator/internal/plan/approval"
	plan "assent.dev/assent/operator/internal/plan/operation"
	"assent.dev/assent/operator/internal/session"
	"assent.dev/assent/test/simulation/apiserver"
)

var (
	noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	app  = types.NamespacedName{Namespace: "ns", Name: "app"}
)

// bench is a controller over an API server in memory, with one identity.
type bench struct {
	*testing.T
	client.Client
	server *apiserver.Server
	c      *Controller
	s      *v1alpha1.StatefulPod
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	clk := clocktesting.NewFakePassiveClock(noon)
	server := apiserver.New(scheme, clk)
	m, err := metrics.New(nil)
	require.NoError(t, err)
	api := server.Client("operator")
	b := &bench{T: t, Client: api, server: server}
	b.c = New(kube.Deps{
		Cached: api, Live: api, Writer: api, Clock: clk, Session: session.New("s1", 1, clk), Approvals: session.NewApprovals(clk),
		Events: event.Discard{}, Metrics: m,
	}, nil, 2*time.Second)
	b.s = &v1alpha1.StatefulPod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0"},
		Spec: v1alpha1.StatefulPodSpec{
			Set: "db", Application: "app", Revision: "r2", State: v1alpha1.Running,
			Grant: &v1alpha1.Grant{Operation: "op", Type: v1alpha1.Deployment, Stage: v1alpha1.StageRemove, Decision: "d1", Session: "s1"},
		},
	}
	require.NoError(t, api.Create(t.Context(), b.s))
	b.c.deps.Approvals.Receive(approval.Approval{Decision: "d1", Application: app, Deadline: noon.Add(time.Minute)})
	return b
}

func (b *bench) stored() *v1alpha1.StatefulPod {
	s := &v1alpha1.StatefulPod{}
	require.NoError(b, b.Get(b.Context(), client.ObjectKeyFromObject(b.s), s))
	return s
}

// back is the return of the grant as planned.
func (b *bench) back() *plan.Return {
	next := b.stored()
	next.Spec.Grant, next.Spec.Revision = nil, "r1"
	return &plan.Return{Identity: next, Decision: "d1"}
}

func (b *bench) makePod() {
	require.NoError(b, b.Create(b.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "db-0",
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(b.stored(), v1alpha1.GroupVersion.WithKind("StatefulPod"))},
	}}))
}

func TestAGrantWhoseActBeganSinceThePlanWasMadeIsNotTakenBack(t *testing.T) {
	b := newBench(t)
	r := b.back()
	_, ok := b.c.deps.Approvals.Begin("d1")
	require.True(t, ok)
	did, err := b.c.takeBack(t.Context(), r)
	require.NoError(t, err)
	require.False(t, did)
	require.NotNil(t, b.stored().Spec.Grant)
}

func TestAGrantThatIsTakenBackCanNotBeActedOn(t *testing.T) {
	b := newBench(t)
	did, err := b.c.takeBack(t.Context(), b.back())
	require.NoError(t, err)
	require.True(t, did)
	require.Nil(t, b.stored().Spec.Grant)
	_, ok := b.c.deps.Approvals.Begin("d1")
	require.False(t, ok)
}

func TestTheFirstPodsGrantIsNotTakenBackWhileALiveReadShowsThePod(t *testing.T) {
	b := newBench(t)
	b.makePod()
	r := b.back()
	r.WithoutPod = true
	did, err := b.c.takeBack(t.Context(), r)
	require.NoError(t, err)
	require.False(t, did)
	require.NotNil(t, b.stored().Spec.Grant)
}

func TestAnIdentityWhosePodALiveReadShowsIsNotDeleted(t *testing.T) {
	b := newBench(t)
	b.makePod()
	did, err := b.c.remove(t.Context(), &plan.Removal{Identity: b.stored()})
	require.NoError(t, err)
	require.False(t, did)
	require.NotNil(t, b.stored())
}

func TestAnIdentityThatChangedSinceThePlanWasMadeIsNotDeleted(t *testing.T) {
	b := newBench(t)
	r := &plan.Removal{Identity: b.stored()}
	b.s.Spec.Revision = "r3"
	require.NoError(t, b.Update(t.Context(), b.s))
	_, err := b.c.remove(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "r3", b.stored().Spec.Revision)
}

// regrant is a plan to grant d2 on the identity as stored.
func (b *bench) regrant() *plan.Grant {
	s := b.stored()
	s.Spec.Grant = &v1alpha1.Grant{Operation: "op", Type: v1alpha1.Deployment, Stage: v1alpha1.StageRemove, Decision: "d2", Session: "s1"}
	return &plan.Grant{
		Identity: s, Operation: &v1alpha1.Operation{}, Stage: v1alpha1.StageRemove, Decision: "d2", Deadline: noon.Add(time.Minute),
	}
}

func TestAGrantWhoseAnswerWasLostIsSeenAndNotWrittenAgain(t *testing.T) {
	b := newBench(t)
	b.c.deps.Approvals.Receive(approval.Approval{Decision: "d2", Application: app, Deadline: noon.Add(time.Minute)})
	b.server.Hooks.Stored = func(apiserver.Write) error { return apiserver.ErrLost }
	_, err := b.c.grant(t.Context(), plan.Input{}, b.regrant())
	require.ErrorIs(t, err, apiserver.ErrLost)
	held, _ := b.c.deps.Approvals.Get("d2")
	require.Equal(t, approval.Received, held.Phase, "it is held until it is seen")
	stale := &v1alpha1.StatefulPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: b.s.UID, ResourceVersion: "1"}}
	seen, _ := b.c.identitiesWritten.Latest(stale)
	require.Equal(t, "d2", seen.Spec.Grant.Decision, "the next plan starts from what a live read found")
}

func TestAGrantThatConflictsIsHeldAndPlannedAgainFromWhatIs(t *testing.T) {
	b := newBench(t)
	b.c.deps.Approvals.Receive(approval.Approval{Decision: "d2", Application: app, Deadline: noon.Add(time.Minute)})
	g := b.regrant()
	b.s.Spec.Revision = "r3"
	require.NoError(t, b.Update(t.Context(), b.s))
	did, err := b.c.grant(t.Context(), plan.Input{}, g)
	require.NoError(t, err, "a conflict is no error")
	require.True(t, did)
	held, _ := b.c.deps.Approvals.Get("d2")
	require.Equal(t, approval.Received, held.Phase)
	seen, _ := b.c.identitiesWritten.Latest(&v1alpha1.StatefulPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", ResourceVersion: "1"}})
	require.Equal(t, "r3", seen.Spec.Revision)
}

func TestAnErrorThatIsNoConflictIsReported(t *testing.T) {
	b := newBench(t)
	refused := errors.New("the API server is away")
	b.server.Hooks.Admit = func(apiserver.Write) error { return refused }
	_, err := b.c.grant(t.Context(), plan.Input{}, b.regrant())
	require.ErrorIs(t, err, refused)
}

func TestEachObjectConcernsItsApplication(t *testing.T) {
	want := app
	for _, o := range []client.Object{
		&v1alpha1.LiStatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app"}},
		&v1alpha1.LiStatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db"}, Spec: v1alpha1.LiStatefulSetSpec{Application: "app"}},
		&v1alpha1.PodIndex{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1alpha1.PodIndexSpec{Application: "app"}},
		&v1alpha1.Operation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1alpha1.OperationSpec{Application: "app"}},
		&v1alpha1.StatefulPod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: v1alpha1.StatefulPodSpec{Application: "app"}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{v1alpha1.LabelSet: "db", v1alpha1.LabelApplication: "app"}}},
	} {
		requests := Requests(o)
		require.Len(t, requests, 1, "%T", o)
		require.Equal(t, want, requests[0].NamespacedName, "%T", o)
	}
	require.Empty(t, Requests(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "stranger"}}))
	require.Empty(t, Requests(&corev1.ConfigMap{}))
}
