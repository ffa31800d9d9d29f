package operation

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/operation"
)

// +kubebuilder:rbac:groups=assent.dev,resources=statefulpods,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=assent.dev,resources=operations,verbs=get;list;watch
// +kubebuilder:rbac:groups=assent.dev,resources=operations/status,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=listatefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=assent.dev,resources=listatefulsets/finalizers,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=podindices,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// statusInterval is the least time between two writes of one Operation's status that are not urgent.
	statusInterval = time.Second
	// conflictRetry is when to look again after somebody else wrote first.
	conflictRetry = 20 * time.Millisecond
	// putOffRetry is when to look again at what a live read did not agree to.
	putOffRetry = 100 * time.Millisecond
	// coalesceFor gathers the changes of pods, of which one step causes several.
	coalesceFor = 5 * time.Millisecond
	// An application of more identities than smallApplication is looked at live at intervals only, of liveCost for each.
	smallApplication = 100
	liveCost         = 500 * time.Microsecond
	// workers serve different applications.
	workers = 4
)

// Controller reconciles applications.
type Controller struct {
	deps    kube.Deps
	asker   Asker
	timeout time.Duration

	identities        *kube.Identities
	identitiesWritten *kube.Written[*v1alpha1.StatefulPod]
	operationsWritten *kube.Written[*v1alpha1.Operation]
	pace              *kube.Pace

	mu           sync.Mutex
	applications map[types.NamespacedName]*application
}

// application is what a session remembers of one. Nothing is lost with it but time.
type application struct {
	// live: it was read live once in this session; lookedLive is when it was before the last grants.
	live       bool
	lookedLive time.Time
	dialog     plan.Dialog
	words      map[plan.Ref]plan.Word
	// gone are Operations that live reads proved gone.
	gone map[string]bool
}

// New makes the controller. Answers that take longer than timeout are dropped.
func New(deps kube.Deps, asker Asker, timeout time.Duration) *Controller {
	return &Controller{
		deps: deps, asker: asker, timeout: timeout, identities: kube.NewIdentities(deps.Writer),
		identitiesWritten: kube.NewWritten[*v1alpha1.StatefulPod](), operationsWritten: kube.NewWritten[*v1alpha1.Operation](),
		pace: kube.NewPace(deps.Clock, statusInterval), applications: map[types.NamespacedName]*application{},
	}
}

// Reconcile brings one application, named by the request, one step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	app := c.application(req.NamespacedName)
	c.listen(req.NamespacedName, app)
	in, p, held, err := c.decide(ctx, req.NamespacedName, app)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(in.Sets) == 0 && len(in.Operations) == 0 && len(in.Identities) == 0 {
		c.forget(req.NamespacedName, p)
		return reconcile.Result{}, nil
	}
	again, wait, err := c.apply(ctx, in, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	wait = kube.Sooner(wait, held)
	if again {
		if in, p, err = c.look(ctx, req.NamespacedName, app, false); err != nil {
			return reconcile.Result{}, err
		}
		if pending(p) {
			wait = kube.Sooner(wait, conflictRetry)
		}
	}
	retry, err := c.writeStatuses(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.count(req.NamespacedName, p)
	wait = kube.Sooner(kube.Sooner(wait, retry), c.ask(req.NamespacedName, app, p))
	if !p.Wake.IsZero() {
		wait = kube.Sooner(wait, p.Wake.Sub(in.Now))
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// decide looks, and looks live before anything is granted: a pod that a lagging cache still shows as available would be
// a hole in the hard cap. In large applications, where that costs, it is done at intervals; then the time left to the next
// one is returned, and the approvals are held until it comes.
func (c *Controller) decide(ctx context.Context, name types.NamespacedName, app *application) (plan.Input, plan.Plan, time.Duration, error) {
	in, p, err := c.look(ctx, name, app, false)
	if err != nil || len(p.Grants) == 0 {
		return in, p, 0, err
	}
	interval := time.Duration(0)
	if n := len(in.Identities); n > smallApplication {
		interval = time.Duration(n) * liveCost
	}
	if left := app.lookedLive.Add(interval).Sub(in.Now); left > 0 {
		p.Grants = nil
		return in, p, left, nil
	}
	in, p, err = c.look(ctx, name, app, true)
	app.lookedLive = in.Now
	return in, p, 0, err
}

// look observes and plans.
func (c *Controller) look(ctx context.Context, name types.NamespacedName, app *application, live bool) (plan.Input, plan.Plan, error) {
	in, err := c.observe(ctx, name, app, live)
	if err != nil {
		return in, plan.Plan{}, err
	}
	in.Words = app.words
	p := plan.Make(in)
	app.words = p.Words
	return in, p, nil
}

// pending says whether a second look found more to write.
func pending(p plan.Plan) bool { return len(p.Returns)+len(p.Removals)+len(p.Grants) > 0 }

func (c *Controller) application(name types.NamespacedName) *application {
	c.mu.Lock()
	defer c.mu.Unlock()
	app := c.applications[name]
	if app == nil {
		app = &application{words: map[plan.Ref]plan.Word{}, gone: map[string]bool{}}
		c.applications[name] = app
	}
	return app
}

// forget drops an application of which nothing is left. Its dialog's number is kept, since numbers grow in a session.
func (c *Controller) forget(name types.NamespacedName, p plan.Plan) {
	c.asker.Unfollow(name)
	c.count(name, p)
	for _, h := range c.deps.Approvals.Of(name) {
		c.deps.Approvals.Forget(h.Decision)
	}
	app := c.application(name)
	app.words, app.gone = map[plan.Ref]plan.Word{}, map[string]bool{}
	app.dialog = plan.Dialog{Number: app.dialog.Number, Epoch: app.dialog.Epoch}
}

// Requests is the application that a change of an object concerns.
func Requests(o client.Object) []reconcile.Request {
	var name string
	switch o := o.(type) {
	case *v1alpha1.LiStatefulSet:
		name = o.ApplicationName()
	case *v1alpha1.PodIndex:
		name = o.Spec.Application
	case *v1alpha1.Operation:
		name = o.Spec.Application
	case *v1alpha1.StatefulPod:
		name = o.Spec.Application
	case *corev1.Pod:
		if o.Labels[v1alpha1.LabelSet] != "" {
			name = o.Labels[v1alpha1.LabelApplication]
		}
	}
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// Requests is the application that a change of an object concerns.
func (c *Controller) Requests(o client.Object) []reconcile.Request { return Requests(o) }

// SetupWithManager starts the watches and takes what the asker announces.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	announced := handler.TypedFuncs[types.NamespacedName, reconcile.Request]{
		GenericFunc: func(_ context.Context, e event.TypedGenericEvent[types.NamespacedName], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			q.Add(reconcile.Request{NamespacedName: e.Object})
		},
	}
	return builder.ControllerManagedBy(mgr).Named("operation").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Watches(&v1alpha1.LiStatefulSet{}, kube.Coalesce(0, Requests)).
		Watches(&v1alpha1.PodIndex{}, kube.Coalesce(0, Requests)).
		Watches(&v1alpha1.Operation{}, kube.Coalesce(0, Requests)).
		Watches(&v1alpha1.StatefulPod{}, kube.Coalesce(coalesceFor, Requests)).
		Watches(&corev1.Pod{}, kube.Coalesce(coalesceFor, Requests)).
		WatchesRawSource(source.Channel(c.asker.Changed(), announced)).
		Complete(c)
}
