package inprocess

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	clocktesting "k8s.io/utils/clock/testing"

	acmv1 "assent.dev/assent/proto/acm/v1"
)

var begun = time.Unix(1764547200, 0)

// shipped loads the repository's bundles once; on a busy machine an evaluation may take long.
var shipped = sync.OnceValues(func() (*ACM, error) {
	return New(context.Background(), Options{
		Bundles: "../../bundles", Clock: clocktesting.NewFakeClock(begun), EvaluationBudget: 10 * time.Second,
	})
})

// cluster is a whole etcd cluster of n members, told to an ACM as collectors would.
type cluster struct {
	t     *testing.T
	acm   *ACM
	clock *clocktesting.FakeClock
	n     int
	// down are indices that are not available.
	down map[int]bool
	// gone are indices that are scaled in and whose member somebody has removed.
	gone map[int]bool
	// behind are indices whose member is not caught up.
	behind map[int]bool
	number uint64
	nudges []string
	// instances by pod.
	instances map[string]*acmv1.Instance
}

func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := &cluster{t: t, clock: clocktesting.NewFakeClock(begun), n: n, down: map[int]bool{}, gone: map[int]bool{}, behind: map[int]bool{}, instances: map[string]*acmv1.Instance{}}
	loaded, err := shipped()
	require.NoError(t, err)
	require.Empty(t, loaded.Problems())
	c.acm = loaded.Sibling(Options{
		Clock: c.clock, Nudge: func(_, _, cause string) { c.nudges = append(c.nudges, cause) },
	})
	return c
}

func pod(i int) string { return fmt.Sprintf("etcd-%d", i) }

func truth(v bool) *bool { return &v }

// collect pushes what collectors see now.
func (c *cluster) collect() {
	now := float64(c.clock.Now().UnixMicro()) / 1e6
	pods, members := map[string]*Pod{}, map[string]*Member{}
	for i := range c.n {
		if c.gone[i] {
			pods[pod(i)], members[pod(i)] = nil, nil
			continue
		}
		up := !c.down[i]
		pods[pod(i)] = &Pod{Set: "etcd", Index: i, Revision: "r1", Node: "n" + pod(i), Phase: "Running", Ready: up, Available: up, Since: now - 3600}
		lag := 0.0
		members[pod(i)] = &Member{Role: "follower", Voter: truth(true), Healthy: truth(up), CaughtUp: truth(up && !c.behind[i]), Lag: &lag, Unknown: map[string]string{}}
		if i == 0 {
			members[pod(i)].Role = "leader"
		}
	}
	c.acm.Push("default", "etcd", Changes{At: now, Pods: pods, Reports: []Report{
		{Collector: Kubernetes, OK: true, AsOf: now},
		{Collector: "etcd", OK: true, AsOf: now, Facts: &Facts{Members: members, Election: &Election{Leader: pod(0), Since: now - 3600}}},
	}})
}

func (c *cluster) request(wanted int) *acmv1.EvaluateRequest {
	c.number++
	r := &acmv1.EvaluateRequest{
		Application: &acmv1.Application{Namespace: "default", Name: "etcd", Policy: "etcd"},
		Session:     &acmv1.Session{Id: "s1", Term: 1, Age: durationpb.New(time.Hour)}, RequestNumber: c.number,
		ApplicationMaxUnavailable: 1,
		Sets: []*acmv1.PodSet{{Name: "etcd", Wanted: []*acmv1.IndexRange{{Last: int32(wanted - 1)}},
			EverAvailable: []*acmv1.IndexRange{{Last: int32(c.n - 1)}}, MaxUnavailable: 1, Revision: "r2"}},
	}
	for i := range c.n {
		if in := c.instances[pod(i)]; in != nil {
			r.Instances = append(r.Instances, in)
		}
	}
	return r
}

func (c *cluster) wait(i int, t acmv1.OperationType) {
	c.instances[pod(i)] = &acmv1.Instance{
		Operation: "op-" + pod(i), Type: t, Stage: acmv1.Stage_STAGE_REMOVE, State: acmv1.InstanceState_INSTANCE_STATE_WAITING,
		Set: "etcd", Pod: pod(i), Index: int32(i), WaitingSince: timestamppb.New(begun), Key: "k",
	}
}

// ask collects before and after the request that shows the newest flight, as the product's scheduler does.
func (c *cluster) ask(wanted int) map[string]*acmv1.Decision {
	c.acm.Evaluate(context.Background(), c.request(wanted))
	c.clock.Step(time.Millisecond)
	c.collect()
	out := map[string]*acmv1.Decision{}
	for _, d := range c.acm.Evaluate(context.Background(), c.request(wanted)).GetDecisions() {
		out[d.GetPod()] = d
	}
	return out
}

func codes(d *acmv1.Decision) []string {
	var out []string
	for _, r := range d.GetReasons() {
		out = append(out, r.GetCode())
	}
	return out
}

func TestTheShippedEtcdBundleRollsOneMemberAtATimeWithTheLeaderLast(t *testing.T) {
	c := newCluster(t, 3)
	c.collect()
	for i := range 3 {
		c.wait(i, acmv1.OperationType_OPERATION_TYPE_DEPLOYMENT)
	}
	var order []string
	for range 3 {
		got := c.ask(3)
		var approved []string
		for name, d := range got {
			if d.GetVerdict() == acmv1.Verdict_VERDICT_APPROVE {
				approved = append(approved, name)
			}
		}
		require.Len(t, approved, 1, "%v", got)
		order = append(order, approved[0])
		delete(c.instances, approved[0])
		c.clock.Step(time.Minute)
		c.collect()
	}
	require.Equal(t, []string{"etcd-2", "etcd-1", "etcd-0"}, order)
}

func TestOP14_ScaleInOfFiveToOneIsJudgedStepByStepAgainstTheVotersLeft(t *testing.T) {
	c := newCluster(t, 5)
	c.collect()
	var steps []string
	for i := 4; i >= 1; i-- {
		c.wait(i, acmv1.OperationType_OPERATION_TYPE_SCALE_IN)
		d := c.ask(i)[pod(i)]
		require.NotNil(t, d)
		if d.GetVerdict() != acmv1.Verdict_VERDICT_APPROVE {
			require.Equal(t, acmv1.Verdict_VERDICT_DENY, d.GetVerdict(), "%v", d)
			require.Equal(t, []string{"quorum.scale_in"}, codes(d))
			require.Contains(t, d.GetReasons()[0].GetMessage(), "1 of 2")
			break
		}
		steps = append(steps, pod(i))
		c.gone[i] = true
		delete(c.instances, pod(i))
		c.clock.Step(time.Minute)
		c.collect()
	}
	require.Equal(t, []string{"etcd-4", "etcd-3", "etcd-2"}, steps)
}

func TestOP14_AMemberThatWasNotRemovedHoldsUpTheNextScaleIn(t *testing.T) {
	c := newCluster(t, 5)
	c.down[4] = true
	c.collect()
	c.wait(3, acmv1.OperationType_OPERATION_TYPE_SCALE_IN)
	d := c.ask(3)["etcd-3"]
	require.NotEqual(t, acmv1.Verdict_VERDICT_APPROVE, d.GetVerdict())
	require.Contains(t, d.GetReasons()[0].GetMessage(), "etcd-4")
}

func TestARestartedACMApprovesNothingToAYoungSession(t *testing.T) {
	c := newCluster(t, 3)
	c.collect()
	c.wait(2, acmv1.OperationType_OPERATION_TYPE_DEPLOYMENT)
	require.Equal(t, acmv1.Verdict_VERDICT_APPROVE, c.ask(3)["etcd-2"].GetVerdict())
	c.acm.Restart()
	c.collect()
	r := c.request(3)
	r.Session = &acmv1.Session{Id: "s2", Term: 2, Age: durationpb.New(time.Second)}
	answer := c.acm.Evaluate(context.Background(), r)
	require.Equal(t, []string{"acm.starting"}, codes(answer.GetDecisions()[0]))
	require.Equal(t, int64(1), answer.GetEpoch())
}
