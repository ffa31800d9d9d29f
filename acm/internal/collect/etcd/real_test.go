package etcd

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/test/child"
	"assent.dev/assent/test/controlplane"
)

// patience bounds every wait for the real cluster.
const patience = 40 * time.Second

// members is a real etcd cluster on loopback addresses 127.0.66.<n>.
type members struct {
	t         *testing.T
	binary    string
	dir       string
	collector *Collector
	processes map[int]*exec.Cmd
	running   map[int]*child.Running
	logs      map[int]*bytes.Buffer
	store     *facts.Store
}

func address(i int) string { return fmt.Sprintf("127.0.66.%d", i+1) }

func name(i int) string { return fmt.Sprintf("etcd-%d", i) }

func startMembers(t *testing.T) *members {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	dir, err := controlplane.Ensure(ctx, os.Stderr, "etcd")
	require.NoError(t, err)
	m := &members{
		t: t, binary: filepath.Join(dir, "etcd"), dir: t.TempDir(), processes: map[int]*exec.Cmd{}, running: map[int]*child.Running{}, logs: map[int]*bytes.Buffer{},
		store: facts.NewStore(nil),
	}
	m.collector = New(decision.ApplicationRef{}, nil).(*Collector)
	t.Cleanup(m.collector.Close)
	for i := range 3 {
		m.start(i, "new", []int{0, 1, 2})
	}
	m.until("three members with a leader", func(f *facts.Facts) bool {
		return f.Election != nil && f.Election.Leader != "" && healthy(f) == 3
	})
	return m
}

func (m *members) start(i int, state string, cluster []int) {
	var initial []string
	for _, c := range cluster {
		initial = append(initial, fmt.Sprintf("%s=http://%s:2380", name(c), address(c)))
	}
	client, peer := "http://"+address(i)+":2379", "http://"+address(i)+":2380"
	cmd := exec.Command(m.binary, "--name", name(i), "--data-dir", filepath.Join(m.dir, name(i)),
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-state", state, "--initial-cluster-token", "collector",
		"--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync")
	m.logs[i] = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = m.logs[i], m.logs[i]
	running, err := child.Start(cmd)
	require.NoError(m.t, err)
	m.processes[i], m.running[i] = cmd, running
	m.t.Cleanup(func() { m.kill(i) })
}

func (m *members) kill(i int) {
	if cmd := m.processes[i]; cmd != nil {
		if err := cmd.Process.Kill(); err != nil {
			m.t.Logf("%s has ended by itself: %v", name(i), err)
		}
		<-m.running[i].Exited
		if m.running[i].Ended() == nil {
			m.t.Logf("%s ended well before it was killed", name(i))
		}
		delete(m.processes, i)
	}
}

// pods tells the collector that Kubernetes runs these pods.
func (m *members) pods(indices ...int) *facts.Snapshot {
	pods := map[string]*facts.Pod{}
	for _, i := range indices {
		pods[name(i)] = &facts.Pod{Set: "etcd", Index: i, Phase: "Running", IP: address(i), Since: 1}
	}
	return facts.NewStore(nil).Apply(facts.Changes{Pods: pods})
}

func (m *members) collect(s *facts.Snapshot) *facts.Facts {
	f, err := m.collector.Collect(context.Background(), s, time.Now())
	require.NoError(m.t, err)
	return f
}

// until collects until the facts are as wanted.
func (m *members) until(what string, ok func(*facts.Facts) bool) *facts.Facts {
	m.t.Helper()
	return m.untilWith(what, m.pods(0, 1, 2), ok)
}

func (m *members) untilWith(what string, s *facts.Snapshot, ok func(*facts.Facts) bool) *facts.Facts {
	m.t.Helper()
	var last *facts.Facts
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		began := time.Now()
		last = m.collect(s)
		require.Less(m.t, time.Since(began), targetTimeout+time.Second, "a collection takes one time-out at most")
		if ok(last) {
			return last
		}
	}
	for i, log := range m.logs {
		m.t.Logf("%s: %s", name(i), log.String()[max(0, log.Len()-2000):])
	}
	require.FailNow(m.t, what+": did not come", "%+v %+v", last.Election, last.Members)
	return nil
}

func healthy(f *facts.Facts) int {
	n := 0
	for _, m := range f.Members {
		if m.Healthy != nil && *m.Healthy {
			n++
		}
	}
	return n
}

func index(pod string) int {
	var i int
	if _, err := fmt.Sscanf(pod, "etcd-%d", &i); err != nil {
		panic(err)
	}
	return i
}

func (m *members) client(i int) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address(i) + ":2379"}, DialTimeout: 5 * time.Second})
	require.NoError(m.t, err)
	m.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestThreeRealMembersLiveThroughEverythingThatIsCollected(t *testing.T) {
	m := startMembers(t)
	f := m.until("all is well", func(f *facts.Facts) bool {
		return healthy(f) == 3 && f.Election != nil && !f.Election.InProgress && f.Election.Leader != ""
	})
	for pod, member := range f.Members {
		require.True(t, *member.Voter, pod)
		require.True(t, *member.CaughtUp, "%s lag %v", pod, member.Lag)
		require.Equal(t, pod == f.Election.Leader, member.Role == facts.RoleLeader, pod)
		require.Empty(t, member.Unknown)
	}
	again := m.collect(m.pods(0, 1, 2))
	require.Equal(t, f.Election, again.Election, "the same leader leads since the same time")

	t.Run("a killed leader is an election until somebody else leads", func(t *testing.T) { killedLeader(t, m, f.Election) })
	t.Run("a learner does not vote", func(t *testing.T) { learner(t, m) })
	t.Run("a frozen member is unknown and delays nobody", func(t *testing.T) { frozen(t, m) })
	t.Run("without a majority there is no leader and no election", func(t *testing.T) { lostQuorum(t, m) })
}

func killedLeader(t *testing.T, m *members, before *facts.Election) {
	dead := before.Leader
	m.kill(index(dead))
	f := m.collect(m.pods(0, 1, 2))
	require.True(t, f.Election.InProgress, "followers still name the dead leader: %+v", f.Election)
	require.Empty(t, f.Election.Leader)
	require.Greater(t, f.Election.Since, before.Since)
	require.False(t, *f.Members[dead].Healthy, "nothing listens there")
	require.True(t, *f.Members[dead].Voter, "it is registered all the same")
	f = m.until("a new leader", func(f *facts.Facts) bool { return f.Election != nil && f.Election.Leader != "" })
	require.NotEqual(t, dead, f.Election.Leader)
	require.False(t, f.Election.InProgress)
	require.Equal(t, 2, healthy(f))
	m.start(index(dead), "new", []int{0, 1, 2})
	m.until("it comes back and catches up", func(f *facts.Facts) bool {
		d := f.Members[dead]
		return healthy(f) == 3 && d.CaughtUp != nil && *d.CaughtUp && d.Role == facts.RoleFollower
	})
}

func learner(t *testing.T, m *members) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var added *clientv3.MemberAddResponse
	var err error
	for ctx.Err() == nil { // refused in the first seconds after a start
		if added, err = m.client(0).MemberAddAsLearner(ctx, []string{"http://" + address(3) + ":2380"}); err == nil {
			break
		}
	}
	require.NoError(t, err)
	f := m.until("a registered member without a pod", func(f *facts.Facts) bool { return len(f.Members) == 4 })
	row := f.Members[fmt.Sprintf("member-%x", added.Member.ID)]
	require.NotNil(t, row, "%v", f.Members)
	require.False(t, *row.Voter)
	require.False(t, *row.Healthy)
	m.start(3, "existing", []int{0, 1, 2, 3})
	f = m.untilWith("a learner that answers", m.pods(0, 1, 2, 3), func(f *facts.Facts) bool {
		l := f.Members[name(3)]
		return l != nil && l.Healthy != nil && *l.Healthy
	})
	require.Equal(t, facts.RoleLearner, f.Members[name(3)].Role)
	require.False(t, *f.Members[name(3)].Voter)
	require.Len(t, f.Members, 4)
	_, err = m.client(0).MemberRemove(ctx, added.Member.ID)
	require.NoError(t, err)
	m.kill(3)
	m.until("it is gone from the list", func(f *facts.Facts) bool { return len(f.Members) == 3 })
}

func frozen(t *testing.T, m *members) {
	f := m.until("a leader", func(f *facts.Facts) bool { return f.Election != nil && f.Election.Leader != "" && healthy(f) == 3 })
	follower := (index(f.Election.Leader) + 1) % 3
	require.NoError(t, m.processes[follower].Process.Signal(syscall.SIGSTOP))
	began := time.Now()
	f = m.collect(m.pods(0, 1, 2))
	require.Less(t, time.Since(began), targetTimeout+500*time.Millisecond)
	silent := f.Members[name(follower)]
	require.Nil(t, silent.Healthy, "a time-out is unknown, never false")
	require.Nil(t, silent.CaughtUp)
	require.Contains(t, silent.Unknown["healthy"], "no answer within")
	require.True(t, *silent.Voter, "the others know that it votes")
	require.Equal(t, 2, healthy(f))
	require.NotEmpty(t, f.Election.Leader)
	require.NoError(t, m.processes[follower].Process.Signal(syscall.SIGCONT))
	m.until("it answers again", func(f *facts.Facts) bool { return healthy(f) == 3 })
}

func lostQuorum(t *testing.T, m *members) {
	m.kill(1)
	m.kill(2)
	f := m.until("no leader", func(f *facts.Facts) bool {
		return f.Election != nil && f.Election.Leader == "" && !f.Election.InProgress
	})
	require.Equal(t, 1, healthy(f))
	since := f.Election.Since
	f = m.collect(m.pods(0, 1, 2))
	require.InDelta(t, since, f.Election.Since, 0, "the absence began when it was first seen")
	require.Contains(t, f.Members[name(0)].Unknown["caught_up"], "no leader")
	m.kill(0)
	f = m.collect(m.pods(0, 1, 2))
	require.Nil(t, f.Election, "nobody answers, so nothing is known")
}

func TestATargetThatNeverAnswersDelaysNobodyBeyondItsTimeout(t *testing.T) {
	var keep []net.Conn
	var mu sync.Mutex
	listener, err := net.Listen("tcp", "127.0.66.9:2379")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			keep = append(keep, conn)
			mu.Unlock()
		}
	}()
	c := New(decision.ApplicationRef{}, nil)
	defer c.Close()
	s := facts.NewStore(nil).Apply(facts.Changes{Pods: map[string]*facts.Pod{
		"etcd-0": {Set: "etcd", Index: 0, Phase: "Running", IP: "127.0.66.9", Since: 1},
		"etcd-1": {Set: "etcd", Index: 1, Phase: "Pending", Since: 1},
		"etcd-2": {Set: "etcd", Index: 2, Phase: "Running", IP: "127.0.66.10", Since: 1},
	}})
	began := time.Now()
	f, err := c.Collect(context.Background(), s, began)
	require.NoError(t, err)
	require.Less(t, time.Since(began), targetTimeout+500*time.Millisecond)
	require.Nil(t, f.Members["etcd-0"].Healthy)
	require.False(t, *f.Members["etcd-1"].Healthy, "Kubernetes says that it does not run")
	require.False(t, *f.Members["etcd-2"].Healthy, "the address refuses")
	require.NotEmpty(t, f.Members["etcd-2"].Unknown["voter"])
	require.Nil(t, f.Election)
	mu.Lock()
	defer mu.Unlock()
	require.NotEmpty(t, keep, "it was really asked")
}
