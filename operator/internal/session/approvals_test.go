package session

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/operator/internal/plan/approval"
)

var (
	noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	app  = types.NamespacedName{Namespace: "ns", Name: "app"}
)

func register(t *testing.T) (*Approvals, *clocktesting.FakePassiveClock) {
	t.Helper()
	c := clocktesting.NewFakePassiveClock(noon)
	a := NewApprovals(c)
	a.Receive(approval.Approval{Decision: "d1", Application: app, Deadline: noon.Add(30 * time.Second)})
	return a, c
}

func phase(a *Approvals) approval.Phase {
	h, _ := a.Get("d1")
	return h.Phase
}

func TestARevokedApprovalNeverBegins(t *testing.T) {
	a, _ := register(t)
	a.Record("d1")
	require.True(t, a.Revoke("d1"))
	_, ok := a.Begin("d1")
	require.False(t, ok)
	a.Settle("d1", Done)
	_, known := a.Get("d1")
	require.False(t, known)
	require.True(t, a.Revoke("d1"), "revoking what is not there is done")
}

func TestABegunApprovalIsNotRevokedUntilItsActIsClearlyRefused(t *testing.T) {
	a, _ := register(t)
	deadline, ok := a.Begin("d1")
	require.True(t, ok)
	require.Equal(t, noon.Add(30*time.Second), deadline)
	require.False(t, a.Revoke("d1"))
	a.Settle("d1", Refused)
	require.Equal(t, approval.Recorded, phase(a))
	require.True(t, a.Revoke("d1"))
}

func TestAnActOfUnknownOutcomeStaysSoWhateverALaterTryGets(t *testing.T) {
	a, _ := register(t)
	a.Begin("d1")
	a.Settle("d1", Lost)
	require.False(t, a.Revoke("d1"))
	_, ok := a.Begin("d1")
	require.True(t, ok, "the same act may be sent again")
	a.Settle("d1", Refused)
	require.Equal(t, approval.Unknown, phase(a), "the refusal of the second says nothing about the first")
	require.False(t, a.Revoke("d1"))
	a.Settle("d1", Done)
	require.Equal(t, approval.Acted, phase(a))
	_, ok = a.Begin("d1")
	require.False(t, ok, "it was acted on")
}

func TestAnExpiredApprovalDoesNotBegin(t *testing.T) {
	a, c := register(t)
	c.SetTime(noon.Add(30 * time.Second))
	_, ok := a.Begin("d1")
	require.False(t, ok)
	_, ok = a.Begin("d2")
	require.False(t, ok, "an approval that nobody received")
}

func TestReceivingTwiceChangesNothing(t *testing.T) {
	a, _ := register(t)
	a.Record("d1")
	a.Receive(approval.Approval{Decision: "d1", Application: app, Deadline: noon.Add(time.Hour)})
	h, _ := a.Get("d1")
	require.Equal(t, noon.Add(30*time.Second), h.Deadline)
	require.Equal(t, approval.Recorded, h.Phase)
	a.Begin("d1")
	a.Record("d1")
	require.Equal(t, approval.Begun, phase(a), "recording takes nothing back")
}

func TestAnApplicationsApprovalsAreListedInOrder(t *testing.T) {
	a, _ := register(t)
	a.Receive(approval.Approval{Decision: "d0", Application: app})
	a.Receive(approval.Approval{Decision: "d9", Application: types.NamespacedName{Namespace: "ns", Name: "other"}})
	held := a.Of(app)
	require.Len(t, held, 2)
	require.Equal(t, "d0", held[0].Decision)
	a.Forget("d0")
	require.Len(t, a.Of(app), 1)
}

func TestOfRevokingAndBeginningAtOnceExactlyOneSucceeds(t *testing.T) {
	for range 500 {
		a, _ := register(t)
		a.Record("d1")
		var revoked, begun bool
		var wg sync.WaitGroup
		wg.Go(func() { revoked = a.Revoke("d1") })
		wg.Go(func() { _, begun = a.Begin("d1") })
		wg.Wait()
		require.NotEqual(t, revoked, begun)
	}
}

func TestASessionAgesOnItsClock(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(noon)
	s := New("id", 4, c)
	c.SetTime(noon.Add(time.Minute))
	require.Equal(t, time.Minute, s.Age())
}
