package simulation

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/chain"
	acmv1 "assent.dev/assent/proto/acm/v1"
	"assent.dev/assent/test/simulation/apiserver"
)

// errRefused is how the simulated server refuses for no good reason.
var errRefused = apierrors.NewTooManyRequests("try again", 1)

// questionTimeout is the operator's patience with an ACM.
const questionTimeout = 2 * time.Second

// process is one life of the operator: its caches, queues and session begin and end with it.
type process struct {
	w      *World
	actor  string
	cache  *apiserver.Cache
	links  []chain.Link
	asker  *asker
	queue  map[item]bool
	timers map[item]time.Time
	errors map[item]int
	// frozenUntil is until when no watch of it delivers.
	frozenUntil time.Time
	// held are kinds whose watch does not deliver.
	held map[schema.GroupVersionKind]bool
}

type item struct {
	link    int
	request reconcile.Request
}

func (w *World) startOperator() {
	w.sessions++
	p := &process{
		w: w, actor: fmt.Sprintf("operator-%d", w.sessions), cache: w.API.NewCache(),
		queue: map[item]bool{}, timers: map[item]time.Time{}, errors: map[item]int{},
	}
	p.asker = &asker{p: p, inbox: map[types.NamespacedName]chain.Answer{}, pending: map[types.NamespacedName]uint64{}, followed: map[types.NamespacedName]bool{}, nudged: map[types.NamespacedName]bool{}}
	api := w.API.Client(p.actor)
	links, err := chain.New(chain.Options{
		Cached: p.cache, Live: api, Writer: api, Clock: w.Clock, Session: p.actor, Term: int64(w.sessions), Asker: p.asker, Timeout: questionTimeout,
	})
	if err != nil {
		panic(err)
	}
	p.links = links
	for _, o := range p.cache.All() {
		p.enqueue(o)
	}
	w.operator = p
	w.note("%s starts", p.actor)
}

func (p *process) stop() {
	p.cache.Stop()
	p.w.note("%s has ended", p.actor)
}

func (p *process) enqueue(o client.Object) {
	for i := range p.links {
		for _, r := range p.links[i].Requests(o) {
			p.queue[item{i, r}] = true
		}
	}
}

// possible lists what this process could do next: see a change, reconcile something, look again as it said it would.
func (p *process) possible(ctx context.Context) []func() {
	var actions []func()
	if p.frozenUntil.Before(p.w.Clock.Now()) {
		for _, kind := range p.cache.Pending() {
			if p.held[kind] {
				continue
			}
			actions = append(actions, func() {
				if o, ok := p.cache.Deliver(kind); ok {
					p.enqueue(o)
				}
			})
		}
	}
	for _, it := range sorted(p.queue) {
		actions = append(actions, func() { p.reconcile(ctx, it) })
	}
	for it, at := range p.timers {
		if !at.After(p.w.Clock.Now()) {
			p.queue[it] = true
			delete(p.timers, it)
		}
	}
	return actions
}

func sorted(queue map[item]bool) []item {
	items := make([]item, 0, len(queue))
	for it := range queue {
		items = append(items, it)
	}
	sort.Slice(items, func(a, b int) bool {
		if items[a].link != items[b].link {
			return items[a].link < items[b].link
		}
		return items[a].request.String() < items[b].request.String()
	})
	return items
}

// due lists when something is to be looked at again.
func (p *process) due() []time.Time {
	var out []time.Time
	for _, at := range p.timers {
		out = append(out, at)
	}
	return append(out, p.frozenUntil)
}

// reconcile runs one request of one controller; a crash in it ends the process.
func (p *process) reconcile(ctx context.Context, it item) {
	delete(p.queue, it)
	defer func() {
		if r := recover(); r != nil {
			if _, ours := r.(crash); !ours {
				panic(r)
			}
			p.stop()
			if p.w.operator == p {
				p.w.operator = nil
			} else {
				p.w.zombie = nil
			}
		}
	}()
	result, err := p.links[it.link].Reconcile(ctx, it.request)
	switch {
	case err != nil:
		p.errors[it]++
		if !tolerable(err) {
			p.w.watch.fail("%s: reconciling %s %s: %v", p.actor, p.links[it.link].Name, it.request, err)
		}
		p.again(it, time.Duration(5<<min(p.errors[it], 10))*time.Millisecond)
	case result.RequeueAfter > 0:
		p.errors[it] = 0
		p.again(it, result.RequeueAfter)
	default:
		p.errors[it] = 0
	}
}

func (p *process) again(it item, wait time.Duration) {
	at := p.w.Clock.Now().Add(wait)
	if old, there := p.timers[it]; !there || at.Before(old) {
		p.timers[it] = at
	}
}

// tolerable errors are those that the world itself made.
func tolerable(err error) bool {
	return errors.Is(err, apiserver.ErrLost) || errors.Is(err, errRefused) || apierrors.IsConflict(err)
}

// asker carries questions by the world's mail.
type asker struct {
	p        *process
	inbox    map[types.NamespacedName]chain.Answer
	pending  map[types.NamespacedName]uint64
	followed map[types.NamespacedName]bool
	nudged   map[types.NamespacedName]bool
}

func (a *asker) Ask(q chain.Question) {
	a.pending[q.Application] = q.Number
	delete(a.inbox, q.Application)
	a.p.w.mail = append(a.p.w.mail, &letter{from: a.p, question: q, sent: a.p.w.Clock.Now()})
}

func (a *asker) Answer(application types.NamespacedName) (chain.Answer, bool) {
	answer, ok := a.inbox[application]
	delete(a.inbox, application)
	return answer, ok
}

func (a *asker) Follow(application types.NamespacedName, _, _ string) { a.followed[application] = true }

func (a *asker) Unfollow(application types.NamespacedName) {
	delete(a.followed, application)
	delete(a.pending, application)
	delete(a.inbox, application)
}

func (a *asker) Nudged(application types.NamespacedName) bool {
	nudged := a.nudged[application]
	delete(a.nudged, application)
	return nudged
}

func (a *asker) Changed() <-chan event.TypedGenericEvent[types.NamespacedName] { return nil }

// wake asks the operation controller to look.
func (a *asker) wake(application types.NamespacedName) {
	for i := range a.p.links {
		if a.p.links[i].Name == "operation" {
			a.p.queue[item{i, reconcile.Request{NamespacedName: application}}] = true
		}
	}
}

// deliver brings an answer; one to a question that was replaced is dropped, as the client does.
func (a *asker) deliver(q chain.Question, answer chain.Answer) {
	if a.pending[q.Application] != q.Number {
		return
	}
	delete(a.pending, q.Application)
	a.inbox[q.Application] = answer
	a.wake(q.Application)
}

// letter is a question on its way to the ACM, or its answer on the way back.
type letter struct {
	from     *process
	question chain.Question
	sent     time.Time
	response *acmv1.EvaluateResponse
	failure  string
}

// carry moves a letter one leg.
func (w *World) carry(ctx context.Context, l *letter) {
	if l.response == nil && l.failure == "" {
		w.toACM(ctx, l)
		return
	}
	if !w.chance(w.faults.Double) {
		w.drop(l)
	}
	answer := chain.Answer{Session: l.question.Session, Number: l.question.Number, Failure: l.failure, Message: "there is no ACM"}
	if l.response != nil {
		answer = chain.Decode(l.response, l.question)
	}
	l.from.asker.deliver(l.question, answer)
}

func (w *World) toACM(ctx context.Context, l *letter) {
	if w.chance(w.faults.Drop) {
		w.note("a question of %s is lost", l.from.actor)
		w.drop(l)
		return
	}
	if !w.acmUp {
		l.failure = "acm.unavailable"
		return
	}
	request := chain.Encode("sim", l.question)
	if w.careless != nil {
		l.response = w.careless.evaluate(request)
	} else {
		l.response = w.ACM.Evaluate(ctx, request)
	}
	w.watch.answered(l)
	if w.chance(w.faults.Drop) {
		w.note("an answer to %s is lost", l.from.actor)
		w.drop(l)
	}
}

func (w *World) drop(l *letter) {
	for i := range w.mail {
		if w.mail[i] == l {
			w.mail = append(w.mail[:i:i], w.mail[i+1:]...)
			return
		}
	}
}

// acmHooks pass on what the ACM wants; the world is set once it exists.
type acmHooks struct{ world *World }

func (h *acmHooks) nudge(ns, application, _ string) {
	if h.world == nil {
		return
	}
	name := types.NamespacedName{Namespace: ns, Name: application}
	for _, p := range []*process{h.world.operator, h.world.zombie} {
		if p != nil && p.asker.followed[name] {
			p.asker.nudged[name] = true
			p.asker.wake(name)
		}
	}
}

func (h *acmHooks) refresh(string, string) {
	if h.world != nil {
		h.world.app.collectNow = true
	}
}
