package simulation

import (
	"sort"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/acm/inprocess"
	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/simulation/apiserver"
)

const (
	// collectEvery is how often facts are collected when nothing asks for them sooner.
	collectEvery = time.Second
	// electionTakes is how long a majority needs to find a new leader.
	electionTakes = 1500 * time.Millisecond
	// catchUpTakes is how long a member needs after a start.
	catchUpTakes = 800 * time.Millisecond
)

// application models a cluster of voters with a leader, and the collectors that tell an ACM of it and of its pods.
type application struct {
	w *World
	// members by pod name. A member exists from its first start until its identity is gone.
	members map[string]*member
	leader  string
	since   time.Time
	// lostAt is when the leader was lost; zero while there is one.
	lostAt time.Time

	pods       *apiserver.Cache
	seen       uint64
	told       map[string]bool
	changed    map[string]podState
	collected  time.Time
	collectNow bool
	// underway is a collection that has begun and is not published; begun and published are the pods by UID that it,
	// and the last one that an ACM got, found to be members.
	underway         *inprocess.Changes
	begun, published map[string]types.UID
}

type member struct {
	up       bool
	uid      types.UID
	caughtUp time.Time
}

type podState struct {
	available bool
	since     time.Time
}

func newApplication(w *World) *application {
	return &application{w: w, members: map[string]*member{}, pods: w.API.NewCache(), told: map[string]bool{}, changed: map[string]podState{}}
}

// forgetPushed makes the next collection tell everything: an ACM that restarted knows nothing.
func (a *application) forgetPushed() {
	a.pods.Stop()
	a.pods, a.seen, a.told, a.underway = a.w.API.NewCache(), uint64(a.w.API.Version()), map[string]bool{}, nil
	a.published, a.collectNow = nil, true
}

// possible lists what collectors can do now. The application itself follows the pods at once.
func (a *application) possible() []func() {
	a.follow()
	var actions []func()
	for _, kind := range a.pods.Pending() {
		if kind != podKind {
			a.pods.Deliver(kind)
			continue
		}
		actions = append(actions, func() { a.deliver() })
	}
	switch {
	case a.underway != nil:
		actions = append(actions, a.publish)
	case a.collectNow || !a.w.Clock.Now().Before(a.collected.Add(collectEvery)):
		actions = append(actions, a.begin)
	}
	return actions
}

func (a *application) due() time.Time {
	next := a.collected.Add(collectEvery)
	if !a.lostAt.IsZero() && a.lostAt.Add(electionTakes).After(a.w.Clock.Now()) && a.lostAt.Add(electionTakes).Before(next) {
		next = a.lostAt.Add(electionTakes)
	}
	return next
}

// deliver lets the Kubernetes collector see one change of a Pod, and tells the ACM of it.
func (a *application) deliver() {
	o, ok := a.pods.Deliver(podKind)
	if !ok {
		return
	}
	if v, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64); err == nil {
		a.seen = max(a.seen, v)
	}
	c := a.kubernetes()
	c.At = unix(a.w.Clock.Now())
	a.w.ACM.Push(namespace, setName, c)
}

// follow lets the members follow their pods, and elects.
func (a *application) follow() {
	now := a.w.Clock.Now()
	pods := map[string]*corev1.Pod{}
	for _, p := range objects[*corev1.Pod](a.w, podKind) {
		pods[p.Name] = p
	}
	identities := map[string]bool{}
	for _, s := range objects[*v1alpha1.StatefulPod](a.w, identityKind) {
		identities[s.Name] = true
	}
	for name, m := range a.members {
		pod := pods[name]
		up := pod != nil && pod.UID == m.uid && readyPod(pod) && pod.DeletionTimestamp == nil
		m.up = m.up && up
		if !identities[name] && pod == nil {
			delete(a.members, name) // somebody removes the member
		}
	}
	for name, pod := range pods {
		if !readyPod(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		m := a.members[name]
		if m == nil {
			m = &member{}
			a.members[name] = m
		}
		if !m.up {
			m.up, m.uid, m.caughtUp = true, pod.UID, now.Add(catchUpTakes)
		}
	}
	a.elect(now)
}

func (a *application) elect(now time.Time) {
	if m := a.members[a.leader]; m != nil && m.up && a.up() >= a.majority() {
		return
	}
	if a.lostAt.IsZero() {
		a.lostAt, a.since, a.leader = now, now, ""
	}
	if a.up() < a.majority() || len(a.members) == 0 || now.Sub(a.lostAt) < electionTakes {
		return
	}
	for _, name := range a.names() {
		if a.members[name].up {
			a.leader, a.since, a.lostAt = name, now, time.Time{}
			return
		}
	}
}

func (a *application) names() []string {
	names := make([]string, 0, len(a.members))
	for name := range a.members {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func (a *application) up() int {
	n := 0
	for _, m := range a.members {
		if m.up {
			n++
		}
	}
	return n
}

func (a *application) majority() int { return len(a.members)/2 + 1 }

// begin starts a collection: what it sees is what is now, whenever it is published.
func (a *application) begin() {
	now := a.w.Clock.Now()
	a.collectNow, a.collected = false, now
	members := map[string]*inprocess.Member{}
	a.begun = map[string]types.UID{}
	for name, m := range a.members {
		caughtUp := m.up && !now.Before(m.caughtUp)
		voter, healthy := true, m.up
		fact := &inprocess.Member{Role: "follower", Voter: &voter, Healthy: &healthy, CaughtUp: &caughtUp, Unknown: map[string]string{}}
		if name == a.leader {
			fact.Role = "leader"
		}
		members[name] = fact
		if m.up {
			a.begun[name] = m.uid
		}
	}
	a.underway = &inprocess.Changes{Reports: []inprocess.Report{{
		Collector: "etcd", OK: true, AsOf: unix(now),
		Facts: &inprocess.Facts{Replace: true, Members: members, Election: &inprocess.Election{InProgress: !a.lostAt.IsZero(), Leader: a.leader, Since: unix(a.since)}},
	}}}
}

func (a *application) publish() {
	c := a.kubernetes()
	c.At = unix(a.w.Clock.Now())
	c.Reports = append(c.Reports, a.underway.Reports...)
	a.underway, a.published = nil, a.begun
	a.w.ACM.Push(namespace, setName, c)
}

// kubernetes is what the Kubernetes collector has seen.
func (a *application) kubernetes() inprocess.Changes {
	now := a.w.Clock.Now()
	rows, have := map[string]*inprocess.Pod{}, map[string]bool{}
	for _, o := range a.pods.All() {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			continue
		}
		have[pod.Name] = true
		rows[pod.Name] = a.row(pod, now)
	}
	for name := range a.told {
		if !have[name] {
			rows[name] = nil
		}
	}
	a.told = have
	return inprocess.Changes{
		Pods: rows, Seen: a.seen,
		Reports: []inprocess.Report{{Collector: inprocess.Kubernetes, OK: true, AsOf: unix(now), Facts: nil}},
	}
}

func (a *application) row(pod *corev1.Pod, now time.Time) *inprocess.Pod {
	available := readyPod(pod) && pod.DeletionTimestamp == nil
	if s, known := a.changed[pod.Name]; !known || s.available != available {
		a.changed[pod.Name] = podState{available, now}
	}
	index, err := strconv.Atoi(pod.Labels[v1alpha1.LabelIndex])
	if err != nil {
		panic(err)
	}
	return &inprocess.Pod{
		Set: pod.Labels[v1alpha1.LabelSet], Index: index, Revision: pod.Labels[v1alpha1.LabelRevision], Node: pod.Spec.NodeName, Phase: string(pod.Status.Phase),
		Ready: readyPod(pod), Available: available, Terminating: pod.DeletionTimestamp != nil, Since: unix(a.changed[pod.Name].since),
		UID: string(pod.UID), ResourceVersion: pod.ResourceVersion,
	}
}

func unix(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
