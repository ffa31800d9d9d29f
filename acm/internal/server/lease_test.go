package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	"assent.dev/assent/acm/internal/decision"
)

const leaseName = "acm-default.etcd"

// asks gives the first reason of one request, empty for an approval, and the epoch of the answer.
func asks(t *testing.T, w *world, number uint64) (string, int64) {
	t.Helper()
	r := w.evaluate(request(number))
	_, code := verdictOf(t, r)
	return code, r.GetEpoch()
}

func TestTheFirstRequestTakesTheLeaseAndTheFirstTermApprovesAtOnce(t *testing.T) {
	l := newLeases()
	w := acm(t, "a", l, approving())
	opened(t, w)
	young := request(2)
	young.Session.Age = nil
	v, _ := verdictOf(t, w.evaluate(young))
	require.Equal(t, "approve", v)
	require.Equal(t, "a", l.holder(leaseName))
}

func TestASecondReplicaDefersEverythingAndSaysWhichTermItKnows(t *testing.T) {
	l := newLeases()
	one, two := acm(t, "a", l, approving()), acm(t, "b", l, approving())
	opened(t, one)
	code, epoch := asks(t, two, 1)
	require.Equal(t, decision.CodeACMNotDeciding, code)
	require.Zero(t, epoch)
	require.Zero(t, two.policy.asked.Load())
	code, _ = asks(t, one, 2)
	require.Empty(t, code)
}

func TestGR01_AReplacedACMBeginsANewTermAndApprovesNothingToAYoungSession(t *testing.T) {
	l := newLeases()
	one := acm(t, "a", l, approving())
	opened(t, one)
	code, epoch := asks(t, one, 2)
	require.Empty(t, code)
	require.Zero(t, epoch)
	one.stop()

	two := acm(t, "b", l, approving())
	young := request(1)
	young.Session.Id, young.Session.Term, young.Session.Age = "s-2", 2, nil
	r := two.evaluate(young)
	_, code = verdictOf(t, r)
	require.Equal(t, decision.CodeACMStarting, code)
	require.Equal(t, int64(1), r.GetEpoch(), "a term is a transition, though the Lease was given up")
}

func TestASilentHolderIsReplacedOnceItsWholeDurationPassedOnOurClock(t *testing.T) {
	l := newLeases()
	one := acm(t, "a", l, approving())
	opened(t, one)
	// The process hangs: its clock stands, so it renews nothing.
	two := acm(t, "b", l, approving())
	code, _ := asks(t, two, 1)
	require.Equal(t, decision.CodeACMNotDeciding, code)
	for range 3 { // renewals find the same record at 3, 6 and 9 seconds
		two.stepTo(t, 3*time.Second)
		code, _ = asks(t, two, 1)
		require.Equal(t, decision.CodeACMNotDeciding, code)
	}
	two.stepTo(t, 3*time.Second)
	require.Eventually(t, func() bool {
		code, epoch := asks(t, two, 1)
		return code != decision.CodeACMNotDeciding && epoch == 1
	}, patience, time.Millisecond)
	require.Equal(t, "b", l.holder(leaseName))

	// The old holder wakes up. Its own term ran out, and it finds the new holder.
	one.clock.Step(time.Minute)
	code, epoch := asks(t, one, 3)
	require.Equal(t, decision.CodeACMNotDeciding, code)
	require.Equal(t, int64(1), epoch)
}

// stepTo moves the clock once the renewal loop waits for it.
func (w *world) stepTo(t *testing.T, by time.Duration) {
	t.Helper()
	require.Eventually(t, w.clock.HasWaiters, patience, time.Millisecond)
	w.clock.Step(by)
}

func TestATermGoesOnWhileItIsRenewedAndEndsWhenItCannotBe(t *testing.T) {
	l := newLeases()
	w := acm(t, "a", l, approving())
	opened(t, w)
	for i := range 10 {
		before := l.count()
		w.stepTo(t, 3*time.Second)
		require.Eventually(t, func() bool { return l.count() > before }, patience, time.Millisecond, "renewal %d", i)
	}
	code, epoch := asks(t, w, 2)
	require.Empty(t, code)
	require.Zero(t, epoch, "renewed for 30 seconds, still the first term")

	l.failing(errors.New("api server away"))
	w.clock.Step(9 * time.Second)
	_, held := w.server.all()[key{"", "default", "etcd"}].lease.Held()
	require.True(t, held, "valid until the duration is over")
	w.clock.Step(2 * time.Second)
	code, _ = asks(t, w, 3)
	require.Equal(t, decision.CodeACMNotDeciding, code)

	l.failing(nil)
	w.clock.Step(3 * time.Second)
	require.Eventually(t, func() bool {
		code, epoch := asks(t, w, 4)
		return code != decision.CodeACMNotDeciding && epoch == 1
	}, patience, time.Millisecond, "the next term is a new one, since what was approved is forgotten")
}

func (l *leases) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

func TestARenewalWhoseAnswerIsLostDoesNotEndTheTerm(t *testing.T) {
	l := newLeases()
	w := acm(t, "a", l, approving())
	opened(t, w)
	l.mu.Lock()
	l.lost = errors.New("connection reset")
	l.mu.Unlock()
	before := l.count()
	w.stepTo(t, 3*time.Second)
	require.Eventually(t, func() bool { return l.count() > before }, patience, time.Millisecond)
	l.mu.Lock()
	l.lost = nil
	l.mu.Unlock()
	before = l.count()
	w.stepTo(t, 3*time.Second)
	require.Eventually(t, func() bool { return l.count() > before }, patience, time.Millisecond)
	code, epoch := asks(t, w, 2)
	require.Empty(t, code)
	require.Zero(t, epoch)
}

func TestATermThatEndsDuringARequestTakesTheApprovalBack(t *testing.T) {
	p := approving()
	w := acm(t, "a", newLeases(), p)
	opened(t, w)
	w.leases.failing(errors.New("api server away"))
	p.gate = func(context.Context) { w.clock.Step(20 * time.Second) }
	code, _ := asks(t, w, 2)
	require.Equal(t, decision.CodeACMNotDeciding, code)
}

func TestAnApplicationThatNobodyAsksAboutIsForgotten(t *testing.T) {
	l := newLeases()
	w := acm(t, "a", l, approving(), func(o *Options) { o.Idle = 6 * time.Second })
	opened(t, w)
	before := l.count()
	w.stepTo(t, 3*time.Second)
	require.Eventually(t, func() bool { return l.count() > before }, patience, time.Millisecond)
	w.stepTo(t, 3*time.Second)
	require.Eventually(t, func() bool { return w.source("etcd").closed.Load() && l.holder(leaseName) == "" }, patience, time.Millisecond)
	require.Empty(t, w.server.all())
	opened(t, w)
	code, epoch := asks(t, w, 2)
	require.Empty(t, code)
	require.Equal(t, int64(1), epoch)
}

func TestLeaseNamesAreObjectNamesAndNeverMeet(t *testing.T) {
	name := func(cluster, namespace, application string) string {
		n := LeaseName(decision.ApplicationRef{Cluster: cluster, Namespace: namespace, Name: application})
		require.Empty(t, validation.IsDNS1123Subdomain(n), n)
		return n
	}
	require.Equal(t, leaseName, name("", "default", "etcd"))
	require.NotEqual(t, name("", "a-b", "c"), name("", "a", "b-c"))
	require.NotEqual(t, name("x", "default", "etcd"), name("y", "default", "etcd"))
	require.Len(t, name("", "default", strings.Repeat("long", 80)), len("acm-")+32)
	require.NotEqual(t, name("", "default", "Upper"), name("", "default", "upper"))
}
