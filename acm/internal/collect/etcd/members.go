package etcd

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// cluster is what all answers together say.
type cluster struct {
	answers map[string]*answer
	// leader is the answer of the member that leads; nil when nobody says that it does.
	leader *answer
	// registered are the members by id; nil when nobody gave a list.
	registered map[uint64]*pb.Member
	// podOf finds the pod of a registered member.
	podOf  map[uint64]string
	alarms map[uint64]string
}

// facts makes the normal form of the answers.
func (c *Collector) facts(answers map[string]*answer, now time.Time) *facts.Facts {
	k := &cluster{answers: answers, leader: leaderOf(answers), alarms: alarmsOf(answers)}
	k.register(c.known)
	f := &facts.Facts{Replace: true, Members: map[string]*facts.Member{}, Raw: rawOf(answers)}
	for pod, a := range answers {
		f.Members[pod] = k.member(a, c.maxLag)
	}
	for id, m := range k.registered {
		if k.podOf[id] == "" {
			f.Members[k.rowName(id, m)] = absent(m)
		}
	}
	c.remember(k)
	f.Election = c.election.observe(k, decision.Unix(now))
	return f
}

// leaderOf is the member that says of itself that it leads, at the highest term that anybody knows.
func leaderOf(answers map[string]*answer) *answer {
	var leader *answer
	var term uint64
	for _, a := range answers {
		if a.status == nil {
			continue
		}
		term = max(term, a.status.RaftTerm)
		if a.leads() && (leader == nil || a.status.RaftTerm > leader.status.RaftTerm) {
			leader = a
		}
	}
	if leader == nil || leader.status.RaftTerm < term {
		return nil
	}
	return leader
}

func (a *answer) id() uint64 {
	if a.status == nil {
		return 0
	}
	return a.status.GetHeader().GetMemberId()
}

func (a *answer) leads() bool { return a.id() != 0 && a.status.GetLeader() == a.id() }

// register takes the member list of the leader, else of whoever has applied most, and finds the pods.
func (k *cluster) register(known map[string]uint64) {
	k.podOf = map[uint64]string{}
	source := k.leader
	if source == nil || source.members == nil {
		source = nil
		for _, a := range k.answers {
			if a.status != nil && a.members != nil && (source == nil || a.status.RaftAppliedIndex > source.status.RaftAppliedIndex) {
				source = a
			}
		}
	}
	if source == nil {
		return
	}
	k.registered = map[uint64]*pb.Member{}
	for _, m := range source.members.Members {
		k.registered[m.GetID()] = m
	}
	k.match(known)
}

// match gives every pod its member: by what it says, then by what it said before, then by name or peer URL.
func (k *cluster) match(known map[string]uint64) {
	taken := map[string]bool{}
	take := func(pod string, id uint64) {
		if k.registered[id] != nil && k.podOf[id] == "" && !taken[pod] {
			k.podOf[id], taken[pod] = pod, true
		}
	}
	for pod, a := range k.answers {
		take(pod, a.id())
		if a.status != nil {
			taken[pod] = true // it has told who it is, registered or not
		}
	}
	for pod := range k.answers {
		if id := known[pod]; id != 0 {
			take(pod, id)
		}
	}
	for id, m := range k.registered {
		if _, isPod := k.answers[m.GetName()]; isPod {
			take(m.GetName(), id)
		}
	}
	for id, m := range k.registered {
		for _, peer := range m.GetPeerURLs() {
			if pod := hostPod(peer); pod != "" && k.answers[pod] != nil {
				take(pod, id)
			}
		}
	}
}

// hostPod is the first label of a peer URL's host: a pod's stable DNS name begins with the pod's name.
func hostPod(peer string) string {
	u, err := url.Parse(peer)
	if err != nil {
		return ""
	}
	host := u.Hostname()
	for i := range len(host) {
		if host[i] == '.' {
			return host[:i]
		}
	}
	return host
}

func (k *cluster) idOf(pod string) uint64 {
	for id, p := range k.podOf {
		if p == pod {
			return id
		}
	}
	return 0
}

// rowName names a registered member that has no pod.
func (k *cluster) rowName(id uint64, m *pb.Member) string {
	name := m.GetName()
	if name == "" {
		return fmt.Sprintf("member-%x", id)
	}
	if k.answers[name] != nil {
		return fmt.Sprintf("%s@%x", name, id)
	}
	return name
}

func (c *Collector) remember(k *cluster) {
	for pod := range c.known {
		if k.answers[pod] == nil {
			delete(c.known, pod)
		}
	}
	for pod, a := range k.answers {
		if id := a.id(); id != 0 {
			c.known[pod] = id
		}
	}
}

func no() *bool { return new(bool) }

func truth(v bool) *bool { return &v }

// absent is a registered member that no pod runs.
func absent(m *pb.Member) *facts.Member {
	role := facts.Role("")
	if m.GetIsLearner() {
		role = facts.RoleLearner
	}
	return &facts.Member{
		Role: role, Voter: truth(!m.GetIsLearner()), Healthy: no(), CaughtUp: no(),
		Unknown: map[string]string{"lag": "no pod runs this member"},
	}
}

// member is the row of one pod.
func (k *cluster) member(a *answer, maxLag float64) *facts.Member {
	m := &facts.Member{Unknown: map[string]string{}}
	k.vote(m, a)
	switch {
	case a.status != nil:
		k.describe(m, a, maxLag)
	case a.refused != "":
		m.Healthy, m.CaughtUp = no(), no()
		m.Unknown["lag"], m.Unknown["role"] = a.refused, a.refused
	default:
		for _, field := range []string{"role", "healthy", "caught_up", "lag"} {
			m.Unknown[field] = a.silence()
		}
	}
	return m
}

// vote settles whether the pod's member votes, by the member list.
func (k *cluster) vote(m *facts.Member, a *answer) {
	switch registered := k.registered[k.idOf(a.pod)]; {
	case registered != nil:
		m.Voter = truth(!registered.GetIsLearner())
	case k.registered != nil:
		m.Voter = no()
	case a.status != nil:
		m.Voter = truth(!a.status.GetIsLearner())
	default:
		m.Unknown["voter"] = "nobody gave a member list"
	}
}

func (k *cluster) describe(m *facts.Member, a *answer, maxLag float64) {
	m.Healthy = truth(k.alarms[a.id()] == "")
	switch {
	case a.status.GetIsLearner():
		m.Role = facts.RoleLearner
	case a == k.leader:
		m.Role = facts.RoleLeader
	default:
		m.Role = facts.RoleFollower
	}
	if k.leader == nil {
		m.Unknown["lag"], m.Unknown["caught_up"] = "there is no leader to compare with", "there is no leader to compare with"
		return
	}
	lag := max(0, float64(k.leader.status.GetRaftIndex())-float64(a.status.GetRaftAppliedIndex()))
	m.Lag, m.CaughtUp = &lag, truth(lag <= maxLag)
}

var alarmPattern = regexp.MustCompile(`memberID:(\d+)\s+alarm:([A-Z]+)`)

// alarmsOf reads the alarms that any member reports; they are the cluster's, by member.
func alarmsOf(answers map[string]*answer) map[uint64]string {
	alarms := map[uint64]string{}
	for _, a := range answers {
		for _, text := range a.status.GetErrors() {
			for _, found := range alarmPattern.FindAllStringSubmatch(text, -1) {
				id, err := strconv.ParseUint(found[1], 10, 64)
				if err == nil {
					alarms[id] = found[2]
				}
			}
		}
	}
	return alarms
}

// rawOf is what the members said, for rules of a bundle's own.
func rawOf(answers map[string]*answer) map[string]any {
	raw := map[string]any{}
	for pod, a := range answers {
		if a.status == nil {
			continue
		}
		errs := []any{}
		for _, e := range a.status.GetErrors() {
			errs = append(errs, e)
		}
		raw[pod] = map[string]any{
			"version": a.status.GetVersion(), "db_size": float64(a.status.GetDbSize()), "raft_term": float64(a.status.GetRaftTerm()),
			"errors": errs,
		}
	}
	return map[string]any{"members": raw}
}
