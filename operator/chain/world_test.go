package chain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/install"
	"assent.dev/assent/test/simulation/apiserver"
	"assent.dev/assent/test/wrap"
)

func TestMain(m *testing.M) { controlplane.Main(m) }

// world is one namespace of a real API server, the whole chain stepped by hand, an ACM whose answers the test writes, and
// a kubelet.
type world struct {
	*testing.T
	client.Client
	ns      string
	clock   *clocktesting.FakePassiveClock
	faults  *wrap.Faults
	acm     *scripted
	links   []Link
	session string
	term    int64
	// restarts after the process was killed at a write.
	restarts int
	// bad is the image that never becomes ready; held are pods whose termination is not finished.
	bad  string
	held map[string]bool
	// most is the highest number of unavailable pods seen after all were up.
	most int
	// slow keeps the deletes of Pods back, as a network does, and tells the operator nothing; late has them.
	slow bool
	late []func() error
	// deleted are the Pods that the operator deleted, by name and revision.
	deleted []string
}

// scripted is an ACM.
type scripted struct {
	// judge answers one waiting instance; nil approves.
	judge func(question.Question, question.Instance) question.Decision
	// away: nobody answers, a call fails at once. silent: the call never ends.
	away, silent bool
	// questions so far.
	questions []question.Question
	pending   *question.Question
	answer    *question.Answer
	decisions int
	epoch     int64
	nudged    bool
}

func (s *scripted) Ask(q question.Question) {
	s.questions = append(s.questions, q)
	s.pending, s.answer = &q, nil
}

func (s *scripted) Answer(types.NamespacedName) (question.Answer, bool) {
	if s.answer == nil {
		return question.Answer{}, false
	}
	a := *s.answer
	s.answer = nil
	return a, true
}

func (s *scripted) Follow(types.NamespacedName, string, string) {}

func (s *scripted) Unfollow(types.NamespacedName) {}

func (s *scripted) Nudged(types.NamespacedName) bool {
	n := s.nudged
	s.nudged = false
	return n
}

func (s *scripted) Changed() <-chan event.TypedGenericEvent[types.NamespacedName] { return nil }

// deliver ends the question under way.
func (s *scripted) deliver() {
	if s.pending == nil || s.silent {
		return
	}
	q := *s.pending
	s.pending = nil
	s.answer = s.answerTo(q)
}

func (s *scripted) answerTo(q question.Question) *question.Answer {
	a := &question.Answer{Session: q.Session, Number: q.Number, Epoch: s.epoch}
	if s.away {
		a.Failure, a.Message = question.CodeUnavailable, "no ACM can be reached"
		return a
	}
	for _, i := range q.Instances {
		if i.State == v1alpha1.Waiting {
			a.Decisions = append(a.Decisions, s.decide(q, i))
		}
	}
	return a
}

func (s *scripted) decide(q question.Question, i question.Instance) question.Decision {
	d := question.Decision{Verdict: question.Approve}
	if s.judge != nil {
		d = s.judge(q, i)
	}
	s.decisions++
	d.ID, d.Operation, d.Pod, d.Stage = fmt.Sprintf("e%d-d%d", s.epoch, s.decisions), i.Operation, i.Pod, i.Stage
	if d.Verdict == question.Approve && d.ExpiresAfter == 0 {
		d.ExpiresAfter = 30 * time.Second
	}
	return d
}

func deferred(code, message string) question.Decision {
	return question.Decision{Verdict: question.Defer, Reasons: []v1alpha1.Reason{{Code: code, Message: message}}}
}

func newWorld(t *testing.T, o controlplane.Options) *world {
	t.Helper()
	cp := controlplane.ForTest(t, o)
	require.NoError(t, install.Apply(t.Context(), cp.Config(), "../../config/crd"))
	c, err := client.New(cp.Config(), client.Options{Scheme: schemeOf(t)})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chain-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	return begin(t, c, ns.Name, clocktesting.NewFakePassiveClock(time.Now()))
}

// newSmallWorld has an API server in memory, for tests that run the same thing a hundred times.
func newSmallWorld(t *testing.T) *world {
	t.Helper()
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
	return begin(t, apiserver.New(schemeOf(t), c).Client("operator"), "ns", c)
}

func schemeOf(t *testing.T) *runtime.Scheme {
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	return scheme
}

func begin(t *testing.T, c client.Client, ns string, clock *clocktesting.FakePassiveClock) *world {
	w := &world{T: t, Client: c, ns: ns, clock: clock, acm: &scripted{epoch: 1}, bad: "bad", held: map[string]bool{}}
	w.restart()
	return w
}

// restart begins a new session with an empty memory.
func (w *world) restart() {
	w.term++
	w.session = fmt.Sprintf("session-%d", w.term)
	w.acm.pending, w.acm.answer = nil, nil
	w.faults = &wrap.Faults{Client: &watchful{Client: w.Client, w: w}}
	var err error
	w.links, err = New(Options{
		Cached: w.Client, Live: w.Client, Writer: w.faults, Clock: w.clock, Session: w.session, Term: w.term, Asker: w.acm,
		Timeout: 2 * time.Second,
	})
	require.NoError(w, err)
}

// watchful is the API server's own witness: nobody may delete a Pod without a recorded grant of his own session.
type watchful struct {
	client.Client
	w *world
}

func (c *watchful) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if pod, ok := o.(*corev1.Pod); ok {
		s := c.w.identity(pod.Name)
		require.NotNil(c.w, s.Spec.Grant, "deleting %s without a grant", pod.Name)
		require.Equal(c.w, c.w.session, s.Spec.Grant.Session)
		require.Equal(c.w, string(pod.UID), s.Spec.Grant.PodUID)
		require.Equal(c.w, v1alpha1.StageRemove, s.Spec.Grant.Stage)
		if c.w.slow {
			c.w.late = append(c.w.late, func() error { return c.Client.Delete(c.w.Context(), o, opts...) })
			return context.DeadlineExceeded
		}
	}
	err := c.Client.Delete(ctx, o, opts...)
	if pod, ok := o.(*corev1.Pod); ok && err == nil {
		c.w.deleted = append(c.w.deleted, pod.Name)
	}
	return err
}

// round lets everybody do what there is to do, once.
func (w *world) round() {
	for _, link := range w.links {
		if !w.drive(link) {
			w.restarts++
			w.restart()
			return
		}
	}
	w.acm.deliver()
	w.kubelet()
	w.clock.SetTime(w.clock.Now().Add(600 * time.Millisecond))
}

// drive reconciles everything that a link is asked for; false when the process was killed.
func (w *world) drive(link Link) bool {
	seen := map[reconcile.Request]bool{}
	for _, o := range w.objects() {
		for _, r := range link.Requests(o) {
			if seen[r] {
				continue
			}
			seen[r] = true
			_, err := link.Reconcile(w.Context(), r)
			if errors.Is(err, wrap.ErrCrash) || w.faults.FailAt > 0 && len(w.faults.Writes) >= w.faults.FailAt {
				return false
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				require.NoError(w, err, "%s %s", link.Name, r.Name)
			}
		}
	}
	return true
}

func (w *world) objects() []client.Object {
	var all []client.Object
	for _, list := range []client.ObjectList{
		&v1alpha1.LiStatefulSetList{}, &v1alpha1.PodIndexList{}, &v1alpha1.OperationList{}, &v1alpha1.StatefulPodList{}, &corev1.PodList{},
	} {
		require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
		all = append(all, items(list)...)
	}
	return all
}

func items(list client.ObjectList) []client.Object {
	var out []client.Object
	switch l := list.(type) {
	case *v1alpha1.LiStatefulSetList:
		out = pointers(l.Items)
	case *v1alpha1.PodIndexList:
		out = pointers(l.Items)
	case *v1alpha1.OperationList:
		out = pointers(l.Items)
	case *v1alpha1.StatefulPodList:
		out = pointers(l.Items)
	case *corev1.PodList:
		out = pointers(l.Items)
	}
	return out
}

func pointers[T any, P interface {
	*T
	client.Object
}](list []T) []client.Object {
	var out []client.Object
	for i := range list {
		out = append(out, P(&list[i]))
	}
	return out
}

// until runs rounds until the condition holds.
func (w *world) until(what string, condition func() bool) {
	w.Helper()
	for range 120 {
		if condition() {
			return
		}
		w.round()
	}
	require.Fail(w, "it never came to: "+what, w.describe())
}

// eventually runs rounds until the condition holds, for what other processes do in real time.
func (w *world) eventually(what string, condition func() bool) {
	w.Helper()
	ends := time.Now().Add(2 * time.Minute)
	for !condition() {
		require.True(w, time.Now().Before(ends), "it never came to %s\n%s", what, w.describe())
		w.round()
	}
}

// accounts waits for the namespace's service account, without which no Pod is admitted.
func (w *world) accounts() {
	w.Helper()
	w.eventually("a service account", func() bool { return w.get("default", &corev1.ServiceAccount{}) })
}

// rest runs until nothing is open and two rounds write nothing.
func (w *world) rest() {
	w.Helper()
	quiet := 0
	w.until("rest", func() bool {
		before := len(w.faults.Writes)
		w.round()
		if len(w.faults.Writes) == before && w.openOperations() == 0 {
			quiet++
		} else {
			quiet = 0
		}
		return quiet >= 3
	})
}

func (w *world) openOperations() int {
	n := 0
	for _, o := range w.operations() {
		if !o.Ended() {
			n++
		}
	}
	return n
}

// kubelet binds pods, makes them ready unless their image is bad, and finishes terminations that are not held.
func (w *world) kubelet() {
	pods := &corev1.PodList{}
	require.NoError(w, w.List(w.Context(), pods, client.InNamespace(w.ns)))
	for i := range pods.Items {
		p := &pods.Items[i]
		switch {
		case p.DeletionTimestamp != nil:
			if !w.held[p.Name] {
				require.NoError(w, client.IgnoreNotFound(w.Delete(w.Context(), p, client.GracePeriodSeconds(0))))
			}
		case p.Spec.NodeName == "":
			w.bind(p)
		case p.Status.Phase != corev1.PodRunning:
			ready := corev1.ConditionTrue
			if strings.Contains(p.Spec.Containers[0].Image, w.bad) {
				ready = corev1.ConditionFalse
			}
			w.report(p, ready)
		}
	}
	w.count(pods.Items)
}

// bind puts a pod on a node as the scheduler does; the API server in memory takes an update for it.
func (w *world) bind(p *corev1.Pod) {
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	err := w.SubResource("binding").Create(w.Context(), p, binding)
	if apierrors.IsMethodNotSupported(err) {
		p.Spec.NodeName = "n1"
		err = w.Update(w.Context(), p)
	}
	require.NoError(w, err)
}

func (w *world) report(p *corev1.Pod, ready corev1.ConditionStatus) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.NewTime(w.clock.Now()), Reason: "Probe",
	}}
	require.NoError(w, w.Status().Update(w.Context(), p))
}

// count keeps the highest number of identities that were available once and have no ready pod.
func (w *world) count(pods []corev1.Pod) {
	up := map[string]bool{}
	for i := range pods {
		c := pods[i].Status.Conditions
		up[pods[i].Name] = pods[i].DeletionTimestamp == nil && len(c) > 0 && c[len(c)-1].Status == corev1.ConditionTrue
	}
	missing := 0
	for _, s := range w.identities() {
		if s.Status.EverAvailable && !up[s.Name] {
			missing++
		}
	}
	w.most = max(w.most, missing)
}

func (w *world) crash(name string) {
	p := w.pod(name)
	w.report(p, corev1.ConditionFalse)
}

func (w *world) kill(name string) {
	require.NoError(w, w.Delete(w.Context(), w.pod(name), client.GracePeriodSeconds(0)))
}

func (w *world) create(set *wrap.Set) {
	require.NoError(w, w.Create(w.Context(), set.Obj()))
}

func (w *world) edit(name string, change func(*v1alpha1.LiStatefulSetSpec)) {
	s := &v1alpha1.LiStatefulSet{}
	w.get(name, s)
	change(&s.Spec)
	require.NoError(w, w.Update(w.Context(), s))
}

func image(text string) func(*v1alpha1.LiStatefulSetSpec) {
	return func(s *v1alpha1.LiStatefulSetSpec) { s.Template = wrap.Template(text) }
}

func replicas(n int32) func(*v1alpha1.LiStatefulSetSpec) {
	return func(s *v1alpha1.LiStatefulSetSpec) { s.Replicas = &n }
}

func (w *world) get(name string, o client.Object) bool {
	err := w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, o)
	require.NoError(w, client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

func (w *world) pod(name string) *corev1.Pod {
	p := &corev1.Pod{}
	if !w.get(name, p) {
		return nil
	}
	return p
}

func (w *world) identity(name string) *v1alpha1.StatefulPod {
	s := &v1alpha1.StatefulPod{}
	if !w.get(name, s) {
		return nil
	}
	return s
}

func (w *world) identities() []v1alpha1.StatefulPod {
	list := &v1alpha1.StatefulPodList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	return list.Items
}

func (w *world) operations() []v1alpha1.Operation {
	list := &v1alpha1.OperationList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	return list.Items
}

// instances lists where every instance stands: "db-0-dep-2 db-1 Waiting acm.unavailable".
func (w *world) instances() []string {
	list := []string{}
	for _, o := range w.operations() {
		for _, i := range o.Status.Instances {
			line := fmt.Sprintf("%s %s %s", o.Name, i.Pod, i.State)
			if len(i.Reasons) > 0 {
				line += " " + i.Reasons[0].Code
			}
			list = append(list, line)
		}
	}
	slices.Sort(list)
	return list
}

func (w *world) has(instance string) func() bool {
	return func() bool { return slices.Contains(w.instances(), instance) }
}

// images are what the pods run: "db-0=app:1".
func (w *world) images() []string {
	pods := &corev1.PodList{}
	require.NoError(w, w.List(w.Context(), pods, client.InNamespace(w.ns)))
	list := []string{}
	for _, p := range pods.Items {
		list = append(list, p.Name+"="+p.Spec.Containers[0].Image)
	}
	slices.Sort(list)
	return list
}

func (w *world) uids() map[string]types.UID {
	pods := &corev1.PodList{}
	require.NoError(w, w.List(w.Context(), pods, client.InNamespace(w.ns)))
	uids := map[string]types.UID{}
	for _, p := range pods.Items {
		uids[p.Name] = p.UID
	}
	return uids
}

func (w *world) describe() string {
	lines := append(w.instances(), w.images()...)
	for _, s := range w.identities() {
		lines = append(lines, fmt.Sprintf("%s: %+v grant %+v status %+v", s.Name, s.Spec.State, s.Spec.Grant, s.Status.Message))
	}
	return strings.Join(append(lines, w.faults.Writes...), "\n")
}
