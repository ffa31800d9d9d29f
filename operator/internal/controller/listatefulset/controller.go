package listatefulset

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/listatefulset"
)

// +kubebuilder:rbac:groups=assent.dev,resources=listatefulsets,verbs=get;list;watch
// +kubebuilder:rbac:groups=assent.dev,resources=listatefulsets/status,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=listatefulsets/finalizers,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=revisions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=assent.dev,resources=revisions/status,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=podindices,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=assent.dev,resources=operations;statefulpods,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// statusInterval is the least time between two writes of one set's status that are not urgent.
	statusInterval = time.Second
	// conflictRetry is when to look again after somebody else wrote first.
	conflictRetry = 100 * time.Millisecond
	// takenRetry is when to look again at a name that a predecessor's object still has.
	takenRetry = time.Second
	// coalesceFor gathers changes of pods and Operations, which only change the status.
	coalesceFor = 200 * time.Millisecond
)

// Controller reconciles LiStatefulSets.
type Controller struct {
	deps kube.Deps
	pace *kube.Pace
}

// New makes the controller. Every field of deps is needed but Session and Approvals.
func New(deps kube.Deps) *Controller {
	return &Controller{deps: deps, pace: kube.NewPace(deps.Clock, statusInterval)}
}

// Reconcile brings what belongs to one set, named by the request, one step on.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	in, ok, err := c.observe(ctx, c.deps.Cached, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !ok {
		c.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	p := plan.Make(in)
	if destructive(p) {
		if in, ok, err = c.observe(ctx, c.deps.Live, req.NamespacedName); err != nil || !ok {
			return reconcile.Result{}, err
		}
		p = plan.Make(in)
	}
	if p.Stale {
		return reconcile.Result{}, nil // the watch brings the newer set
	}
	if err := c.apply(ctx, in, p); err != nil {
		return c.settle(in.Set, err)
	}
	wait, err := c.writeStatus(ctx, in.Set, p)
	if err != nil {
		return c.settle(in.Set, err)
	}
	return reconcile.Result{RequeueAfter: kube.Sooner(wait, p.LookAgain.Sub(in.Now))}, nil
}

// settle tells apart what an error means: looked at again, nothing to do, or a fault.
func (c *Controller) settle(set *v1alpha1.LiStatefulSet, err error) (reconcile.Result, error) {
	switch {
	case kube.IsNamespaceTerminating(err):
		return reconcile.Result{}, nil
	case apierrors.IsAlreadyExists(err):
		event.NameTaken(c.deps.Events, set, err.Error())
		return reconcile.Result{RequeueAfter: takenRetry}, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	return reconcile.Result{}, err
}

func (c *Controller) forget(key types.NamespacedName) {
	c.pace.Forget(key)
	c.deps.Metrics.ForgetSet(key.Namespace, key.Name)
}

// Requests are the sets that a change of an object concerns.
func Requests(o client.Object) []reconcile.Request {
	var set string
	switch o := o.(type) {
	case *v1alpha1.LiStatefulSet:
		set = o.Name
	case *v1alpha1.Revision:
		set = o.Spec.Set
	case *v1alpha1.PodIndex:
		set = o.Spec.Set
	case *v1alpha1.Operation:
		set = o.Spec.Set
	case *v1alpha1.StatefulPod:
		set = o.Spec.Set
	case *corev1.Pod, *corev1.Service:
		set = o.GetLabels()[v1alpha1.LabelSet]
	}
	if set == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: set}}}
}

// Requests are the sets that a change of an object concerns.
func (c *Controller) Requests(o client.Object) []reconcile.Request { return Requests(o) }

// SetupWithManager starts the watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	gathered := kube.Coalesce(coalesceFor, Requests)
	return builder.ControllerManagedBy(mgr).Named("listatefulset").
		For(&v1alpha1.LiStatefulSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.LiStatefulSet{}, handler.EnqueueRequestsFromMapFunc(c.siblings), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Revision{}, gathered).
		Watches(&v1alpha1.PodIndex{}, gathered).
		Watches(&v1alpha1.Operation{}, gathered).
		Watches(&v1alpha1.StatefulPod{}, gathered).
		Watches(&corev1.Service{}, gathered).
		Watches(&corev1.Pod{}, gathered, builder.WithPredicates(readyChanged)).
		Complete(c)
}

// siblings are the other sets of the application, which have to agree with this one.
func (c *Controller) siblings(ctx context.Context, o client.Object) []reconcile.Request {
	set, ok := o.(*v1alpha1.LiStatefulSet)
	if !ok {
		return nil
	}
	look := looker{reader: c.deps.Cached, set: set}
	var requests []reconcile.Request
	for _, s := range look.siblings(ctx) {
		if s.Name != set.Name {
			requests = append(requests, Requests(&s)...)
		}
	}
	return requests
}
