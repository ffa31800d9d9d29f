package etcd

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

func registered(names ...string) *pb.MemberListResponse {
	list := &pb.MemberListResponse{}
	for i, n := range names {
		list.Members = append(list.Members, &pb.Member{ID: uint64(i + 1), Name: n, PeerURLs: []string{fmt.Sprintf("http://pod-%d.etcd.default.svc:2380", i)}})
	}
	return list
}

// says is the answer of the member with the id (its index + 1).
func says(i int, leader, term, committed, applied uint64, list *pb.MemberListResponse, errs ...string) *answer {
	return &answer{
		pod: fmt.Sprintf("pod-%d", i), members: list,
		status: &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: uint64(i + 1)}, Leader: leader, RaftTerm: term, RaftIndex: committed, RaftAppliedIndex: applied, Errors: errs},
	}
}

func silent(i int) *answer {
	return &answer{pod: fmt.Sprintf("pod-%d", i), err: errors.New("no route to host")}
}

func gone(i int) *answer {
	return &answer{pod: fmt.Sprintf("pod-%d", i), refused: "Kubernetes does not run the pod"}
}

func factsOf(c *Collector, now int64, answers ...*answer) *facts.Facts {
	byPod := map[string]*answer{}
	for _, a := range answers {
		byPod[a.pod] = a
	}
	return c.facts(byPod, time.Unix(now, 0))
}

func collector() *Collector { return New(decision.ApplicationRef{}, nil).(*Collector) }

func TestLagIsWhatTheLeaderHasCommittedAndAMemberHasNotApplied(t *testing.T) {
	list := registered("a", "b", "c")
	f := factsOf(collector(), 1, says(0, 1, 5, 1000, 1000, list), says(1, 1, 5, 900, 500, list), says(2, 1, 5, 900, 499, list))
	require.InDelta(t, 500, *f.Members["pod-1"].Lag, 0)
	require.True(t, *f.Members["pod-1"].CaughtUp)
	require.InDelta(t, 501, *f.Members["pod-2"].Lag, 0)
	require.False(t, *f.Members["pod-2"].CaughtUp)
	require.True(t, *f.Members["pod-0"].CaughtUp)
}

func TestAThawedOldLeaderIsNotBelieved(t *testing.T) {
	list := registered("a", "b", "c")
	f := factsOf(collector(), 1, says(0, 1, 5, 10, 10, list), says(1, 2, 6, 20, 20, list), says(2, 2, 6, 20, 20, list))
	require.Equal(t, "pod-1", f.Election.Leader)
	require.Equal(t, facts.RoleFollower, f.Members["pod-0"].Role)
	f = factsOf(collector(), 1, says(0, 1, 5, 10, 10, list), says(2, 2, 6, 20, 20, list), silent(1))
	require.Empty(t, f.Election.Leader, "the one at term 6 does not answer, and the one at term 5 is out of date")
	require.True(t, f.Election.InProgress)
}

func TestAnAlarmMakesItsMemberUnhealthyWhoeverReportsIt(t *testing.T) {
	list := registered("a", "b", "c")
	alarm := (&pb.AlarmMember{MemberID: 2, Alarm: pb.AlarmType_NOSPACE}).String()
	f := factsOf(collector(), 1, says(0, 1, 5, 10, 10, list, alarm), says(1, 1, 5, 10, 10, list), says(2, 1, 5, 10, 10, list))
	require.True(t, *f.Members["pod-0"].Healthy)
	require.False(t, *f.Members["pod-1"].Healthy, alarm)
	require.True(t, *f.Members["pod-2"].Healthy)
}

func TestSinceMovesWithTheLeaderItsTermAndItsAbsence(t *testing.T) {
	list, c := registered("a", "b", "c"), collector()
	at := func(now int64, answers ...*answer) float64 { return factsOf(c, now, answers...).Election.Since }
	all := func(leader, term uint64) []*answer {
		return []*answer{says(0, leader, term, 1, 1, list), says(1, leader, term, 1, 1, list), says(2, leader, term, 1, 1, list)}
	}
	require.InDelta(t, 10, at(10, all(1, 5)...), 0)
	require.InDelta(t, 10, at(11, all(1, 5)...), 0)
	require.InDelta(t, 12, at(12, all(1, 6)...), 0, "elected anew")
	require.InDelta(t, 13, at(13, all(2, 7)...), 0)
	require.InDelta(t, 14, at(14, says(0, 2, 7, 1, 1, list), gone(1), says(2, 2, 7, 1, 1, list)), 0, "the leader is gone")
	require.InDelta(t, 14, at(15, says(0, 0, 8, 1, 1, list), gone(1), says(2, 0, 8, 1, 1, list)), 0, "still no leader")
	require.InDelta(t, 14, at(16, says(0, 0, 8, 1, 1, list), gone(1), gone(2)), 0, "nor without a majority")
	require.InDelta(t, 17, at(17, all(3, 9)...), 0)
}

func TestAMemberIsFoundByWhatItSaysThenByMemoryThenByNameAndURL(t *testing.T) {
	c := collector()
	list := registered("a", "b", "pod-2")
	f := factsOf(c, 1, says(0, 1, 5, 1, 1, list), gone(1), gone(2))
	require.Len(t, f.Members, 3, "pod-1 by its peer URL, pod-2 by its name")
	require.True(t, *f.Members["pod-1"].Voter)
	require.True(t, *f.Members["pod-2"].Voter)

	factsOf(c, 2, says(0, 1, 5, 1, 1, list), says(1, 1, 5, 1, 1, list), gone(2))
	strange := registered("a", "renamed", "pod-2")
	strange.Members[1].PeerURLs = []string{"http://10.0.0.9:2380"}
	f = factsOf(c, 3, says(0, 1, 5, 1, 1, strange), gone(1), gone(2))
	require.Len(t, f.Members, 3, "pod-1 was member 2 before")
	require.True(t, *f.Members["pod-1"].Voter)
}

func TestARegisteredMemberWithoutAPodIsAVoterThatIsDown(t *testing.T) {
	list := registered("pod-0", "pod-1", "pod-2")
	f := factsOf(collector(), 1, says(0, 1, 5, 1, 1, list), says(1, 1, 5, 1, 1, list))
	require.True(t, *f.Members["pod-2"].Voter)
	require.False(t, *f.Members["pod-2"].Healthy)
	require.False(t, *f.Members["pod-2"].CaughtUp)
}

func TestAPodWhoseMemberWasRemovedDoesNotVote(t *testing.T) {
	two := registered("pod-0", "pod-1")
	f := factsOf(collector(), 1, says(0, 1, 5, 1, 1, two), says(1, 1, 5, 1, 1, two), says(2, 1, 4, 1, 1, registered("pod-0", "pod-1", "pod-2")))
	require.False(t, *f.Members["pod-2"].Voter, "the leader's list counts")
	require.Len(t, f.Members, 3)
}

func TestAReplacedMemberOfTheSameNameDoesNotHideTheOldOne(t *testing.T) {
	list := registered("pod-0", "pod-1", "pod-2")
	list.Members = append(list.Members, &pb.Member{ID: 9, Name: "pod-2"})
	fresh := says(2, 1, 5, 1, 1, list)
	fresh.status.Header.MemberId = 9
	f := factsOf(collector(), 1, says(0, 1, 5, 1, 1, list), says(1, 1, 5, 1, 1, list), fresh)
	require.True(t, *f.Members["pod-2"].Healthy)
	require.False(t, *f.Members["pod-2@3"].Healthy, "the old registration is a voter that is down: %v", f.Members)
}

func TestWithoutAMemberListAVoteIsUnknownWithAReason(t *testing.T) {
	f := factsOf(collector(), 1, gone(0), silent(1))
	for _, m := range f.Members {
		require.Nil(t, m.Voter)
		require.NotEmpty(t, m.Unknown["voter"])
	}
	require.Equal(t, "no route to host", f.Members["pod-1"].Unknown["healthy"])
	require.Nil(t, f.Election)
}
