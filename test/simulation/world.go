// Package simulation runs the whole chain in memory, one small step after another in an order that a seed decides: the
// operator's four controllers and the ACM's own decision code with the shipped bundles, over an API server, nodes and an
// application that are models. Caches lag, answers are late or lost, writes are refused or their answers lost, processes
// die after any write. After every step the invariants are checked; when the faults end, everything must settle.
package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/acm/inprocess"
	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/test/simulation/apiserver"
)

var (
	podKind       = corev1.SchemeGroupVersion.WithKind("Pod")
	setKind       = v1alpha1.GroupVersion.WithKind("LiStatefulSet")
	revisionKind  = v1alpha1.GroupVersion.WithKind("Revision")
	indexKind     = v1alpha1.GroupVersion.WithKind("PodIndex")
	operationKind = v1alpha1.GroupVersion.WithKind("Operation")
	identityKind  = v1alpha1.GroupVersion.WithKind("StatefulPod")
	namespaceKind = corev1.SchemeGroupVersion.WithKind("Namespace")
	claimKind     = corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim")
)

const (
	namespace = "default"
	// setName is that of the first set, and of the application that all sets belong to.
	setName = "db"
	// namespaceController is the one who may delete everything.
	namespaceController = "namespace-controller"
)

// Faults are the chances, in parts of a thousand, that something goes wrong.
type Faults struct {
	// Refuse and Lose concern each write of the operator: refused by the server, or done and the answer lost.
	Refuse, Lose int
	// Late concerns each delete of the operator: it lands some time later, and the answer is lost.
	Late int
	// Crash of the operator after a write, and restart of the ACM at a step.
	Crash, RestartACM int
	// Drop and Double concern each question: lost on the way, or delivered twice.
	Drop, Double int
	// Kill concerns each step: a process dies, or somebody deletes a Pod.
	Kill int
	// Slow concerns each pod that is deleted: its processes take up to 20 s to end.
	Slow int
	// Zombie is the chance that a lost leader goes on for a while beside its successor.
	Zombie int
}

// World is everything.
type World struct {
	Rand  *rand.Rand
	Clock *clocktesting.FakeClock
	API   *apiserver.Server
	ACM   *inprocess.ACM

	faults   Faults
	user     client.Client
	operator *process
	zombie   *process
	sessions int
	acmUp    bool
	// acmAway and operatorAway keep each from coming back.
	acmAway, operatorAway bool
	// careless takes the ACM's place when it is set.
	careless *careless
	policy   string
	mail     []*letter
	app      *application
	nodes    *nodes
	watch    *invariants
	// pace is how much time a step takes at most. A larger world does more in the same time.
	pace time.Duration
	// crashAfter ends the operator right after that many writes of its own; 0 is never.
	crashAfter int
	// landing: a delete that was on its way is arriving.
	landing bool
	writes  int
	// For tests: refuse is asked about each write of the operator, delay about each of its deletes; onWrite is told each.
	refuse  func(apiserver.Write) error
	delay   func(apiserver.Write) bool
	onWrite func(apiserver.Write) error
	log     []string
	began   time.Time
	steps   int
}

// newWorld makes a world with a set of the given size that runs on the bundle of that name.
func newWorld(seed uint64, policy string, acm *inprocess.ACM, clock *clocktesting.FakeClock, hooks *acmHooks) (*World, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	w := &World{
		Rand: rand.New(rand.NewPCG(seed, 1)), Clock: clock, API: apiserver.New(scheme, clock), ACM: acm, acmUp: true, policy: policy, began: clock.Now(), pace: 20 * time.Millisecond,
	}
	w.user = w.API.Client("user")
	w.app = newApplication(w)
	w.nodes = &nodes{w: w, client: w.API.Client("kubelet"), crashed: map[types.UID]time.Time{}, ends: map[types.UID]time.Time{}}
	w.watch = newInvariants(w)
	w.API.Hooks = apiserver.Hooks{Admit: w.admit, Delay: w.delayed, Stored: w.stored}
	hooks.world = w
	w.startOperator()
	return w, nil
}

// chance draws nothing for what never happens, so that a new kind of fault changes no run without faults.
func (w *World) chance(perThousand int) bool {
	return perThousand > 0 && w.Rand.IntN(1000) < perThousand
}

// note keeps a line of the log: what happened, and when.
func (w *World) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf("%8.3fs %s", w.Clock.Since(w.began).Seconds(), fmt.Sprintf(format, args...)))
}

// Tail is the end of the log.
func (w *World) Tail(lines int) string {
	return strings.Join(w.log[max(0, len(w.log)-lines):], "\n")
}

// crash is how a process ends in the middle of something.
type crash struct{}

func ofOperator(wr apiserver.Write) bool { return strings.HasPrefix(wr.Actor, "operator") }

// admit is asked about every write before it is stored.
func (w *World) admit(wr apiserver.Write) error {
	if ofOperator(wr) && w.refuse != nil {
		if err := w.refuse(wr); err != nil {
			w.note("REFUSED %s: %v", wr, err)
			return err
		}
	}
	if ofOperator(wr) && w.chance(w.faults.Refuse) {
		w.note("REFUSED %s", wr)
		return fmt.Errorf("the API server is overloaded: %w", errRefused)
	}
	w.watch.before(wr)
	return nil
}

// delayed is asked about every delete.
func (w *World) delayed(wr apiserver.Write) bool {
	if !ofOperator(wr) || !(w.delay != nil && w.delay(wr) || w.chance(w.faults.Late)) {
		return false
	}
	w.note("LATE: %s is on its way", wr)
	return true
}

// stored is told every write after it happened.
func (w *World) stored(wr apiserver.Write) error {
	w.note("%s", describe(wr))
	// A write that lands late is stored while its sender does something else, or is dead.
	if !ofOperator(wr) || w.landing {
		return nil
	}
	w.writes++
	if w.onWrite != nil {
		if err := w.onWrite(wr); err != nil {
			return err
		}
	}
	if w.crashAfter == w.writes || w.chance(w.faults.Crash) {
		w.note("CRASH of %s after write %d", wr.Actor, w.writes)
		panic(crash{})
	}
	if w.chance(w.faults.Lose) {
		w.note("LOST the answer to %s", wr)
		return apiserver.ErrLost
	}
	return nil
}

// Step does one small thing that can happen now, chosen at random. Time moves a little with each, and jumps to the next
// timer when nothing else is left to do.
func (w *World) Step(ctx context.Context) {
	w.steps++
	w.Clock.Step(time.Duration(w.Rand.Int64N(int64(w.pace))))
	actions := w.possible(ctx)
	if len(actions) == 0 {
		w.jump()
		return
	}
	actions[w.Rand.IntN(len(actions))]()
	w.watch.check()
}

// possible lists what could happen next; what is listed more often happens sooner.
func (w *World) possible(ctx context.Context) []func() {
	var actions []func()
	for _, p := range []*process{w.operator, w.zombie} {
		if p != nil {
			actions = append(actions, p.possible(ctx)...)
		}
	}
	for _, l := range w.mail {
		actions = append(actions, func() { w.carry(ctx, l) })
	}
	actions = append(actions, w.nodes.possible(ctx)...)
	actions = append(actions, w.app.possible()...)
	if w.operator == nil && !w.operatorAway {
		actions = append(actions, w.startOperator)
	}
	if w.zombie != nil {
		actions = append(actions, func() { w.zombie.stop(); w.zombie = nil })
	}
	if !w.acmUp && !w.acmAway {
		actions = append(actions, func() { w.note("the ACM is back"); w.acmUp = true })
	}
	if w.API.HasGarbage() {
		actions = append(actions, func() { w.API.CollectGarbage() })
	}
	if w.API.Late() > 0 && w.delay == nil && w.chance(100) {
		actions = append(actions, w.land)
	}
	return append(append(actions, w.emptyNamespace(ctx)...), w.misfortunes(ctx)...)
}

// land lets a delete arrive that was on its way.
func (w *World) land() {
	w.landing = true
	defer func() { w.landing = false }()
	if err := w.API.Land(); err != nil {
		w.note("a late delete fails: %v", err)
	}
}

// restartACM ends the ACM and starts another, which remembers nothing.
func (w *World) restartACM() {
	w.note("RESTART of the ACM")
	w.ACM.Restart()
	w.app.forgetPushed()
}

// emptyNamespace is the namespace controller: it deletes, one by one, what a terminating namespace holds.
func (w *World) emptyNamespace(ctx context.Context) []func() {
	for _, ns := range w.API.Objects(namespaceKind) {
		if ns.GetDeletionTimestamp() == nil {
			continue
		}
		var actions []func()
		for _, kind := range []schema.GroupVersionKind{podKind, claimKind, setKind, revisionKind, indexKind, operationKind, identityKind} {
			for _, o := range w.API.Objects(kind) {
				if o.GetDeletionTimestamp() == nil {
					actions = append(actions, func() { w.nodes.must(w.API.Client(namespaceController).Delete(ctx, o)) })
				}
			}
		}
		return actions
	}
	return nil
}

// misfortunes are rolled for once a step.
func (w *World) misfortunes(ctx context.Context) []func() {
	var actions []func()
	if w.chance(w.faults.RestartACM) {
		actions = append(actions, func() {
			w.restartACM()
			w.acmUp = w.chance(500)
		})
	}
	if w.chance(w.faults.Kill) {
		actions = append(actions, func() { w.nodes.misfortune(ctx) })
	}
	if w.zombie == nil && w.operator != nil && w.chance(w.faults.Zombie) {
		actions = append(actions, func() {
			w.note("%s loses its leadership and does not know it yet", w.operator.actor)
			w.zombie, w.operator = w.operator, nil
		})
	}
	return actions
}

// jump moves time to whatever is due next.
func (w *World) jump() {
	var due []time.Time
	for _, p := range []*process{w.operator, w.zombie} {
		if p != nil {
			due = append(due, p.due()...)
		}
	}
	due = append(due, w.app.due(), w.nodes.due())
	sort.Slice(due, func(a, b int) bool { return due[a].Before(due[b]) })
	for _, at := range due {
		if at.After(w.Clock.Now()) {
			w.Clock.SetTime(at)
			return
		}
	}
	w.Clock.Step(time.Second)
}

// set reads the first LiStatefulSet live; nil when it does not exist.
func (w *World) set() *v1alpha1.LiStatefulSet { return w.setNamed(setName) }

func (w *World) setNamed(name string) *v1alpha1.LiStatefulSet {
	for _, s := range objects[*v1alpha1.LiStatefulSet](w, setKind) {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// objects are those of a kind as they are now; copy before changing.
func objects[T client.Object](w *World, kind schema.GroupVersionKind) []T {
	all := w.API.Objects(kind)
	out := make([]T, 0, len(all))
	for _, o := range all {
		out = append(out, o.(T))
	}
	return out
}
