package podindex

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/event"
	"assent.dev/assent/operator/internal/kube"
	plan "assent.dev/assent/operator/internal/plan/podindex"
)

// +kubebuilder:rbac:groups=assent.dev,resources=podindices,verbs=get;list;watch
// +kubebuilder:rbac:groups=assent.dev,resources=podindices/status,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=podindices/finalizers,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=operations,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=assent.dev,resources=listatefulsets;statefulpods,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// statusInterval is the least time between two writes of one ledger that are not urgent.
	statusInterval = time.Second
	// conflictRetry is when to look again after somebody else wrote first.
	conflictRetry = 50 * time.Millisecond
	// takenRetry is when to look again at a name that a predecessor's object still has.
	takenRetry = time.Second
	// turnRetry is when to look again whether another block's scale-in has ended.
	turnRetry = time.Second
	// coalesceFor gathers changes of identities, which rarely need an Operation.
	coalesceFor = 100 * time.Millisecond
)

// Controller reconciles PodIndexes.
type Controller struct {
	deps     kube.Deps
	pace     *kube.Pace
	expected expected
}

// New makes the controller. Every field of deps is needed but Session and Approvals.
func New(deps kube.Deps) *Controller {
	return &Controller{
		deps: deps, pace: kube.NewPace(deps.Clock, statusInterval),
		expected: expected{byIndex: map[types.NamespacedName]*created{}},
	}
}

// Reconcile brings the ledger and the Operations of one block, named by the request, one step on.
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
	missing, patient := c.unexpected(in, p)
	if len(p.Claimed) > 0 || len(p.Expired) > 0 || missing {
		if in, ok, err = c.observe(ctx, c.deps.Live, req.NamespacedName); err != nil || !ok {
			return reconcile.Result{}, err
		}
		p = plan.Make(in)
	} else {
		p.Missing = nil
	}
	wait, err := c.apply(ctx, in, p)
	if err != nil {
		return c.settle(in.Index, err)
	}
	if p.Turn {
		wait = kube.Sooner(wait, turnRetry)
	}
	if patient {
		wait = kube.Sooner(wait, patience)
	}
	return reconcile.Result{RequeueAfter: kube.Sooner(wait, p.LookAgain.Sub(in.Now))}, nil
}

// settle tells apart what an error means: looked at again, nothing to do, or a fault.
func (c *Controller) settle(index *v1alpha1.PodIndex, err error) (reconcile.Result, error) {
	switch {
	case kube.IsNamespaceTerminating(err):
		return reconcile.Result{}, nil
	case apierrors.IsAlreadyExists(err):
		event.NameTaken(c.deps.Events, index, err.Error())
		return reconcile.Result{RequeueAfter: takenRetry}, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	}
	return reconcile.Result{}, err
}

// Requests are the blocks that a change of an object concerns: a block's own change also the one below it, whose
// scale-in may have waited for this one's.
func Requests(o client.Object) []reconcile.Request {
	switch o := o.(type) {
	case *v1alpha1.PodIndex:
		requests := []reconcile.Request{request(o.Namespace, o.Name)}
		if b := o.Spec.Block; b > 0 {
			requests = append(requests, request(o.Namespace, v1alpha1.PodIndexName(o.Spec.Set, b-1)))
		}
		return requests
	case *v1alpha1.Operation:
		return []reconcile.Request{request(o.Namespace, o.Spec.PodIndex)}
	case *v1alpha1.StatefulPod:
		return []reconcile.Request{request(o.Namespace, v1alpha1.PodIndexName(o.Spec.Set, o.Spec.Index/v1alpha1.BlockSize))}
	}
	return nil
}

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Requests are the blocks that a change of an object concerns.
func (c *Controller) Requests(o client.Object) []reconcile.Request { return Requests(o) }

// SetupWithManager starts the watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	return builder.ControllerManagedBy(mgr).Named("podindex").
		Watches(&v1alpha1.PodIndex{}, kube.Coalesce(0, Requests)).
		Watches(&v1alpha1.Operation{}, kube.Coalesce(0, Requests)).
		Watches(&v1alpha1.StatefulPod{}, kube.Coalesce(coalesceFor, Requests)).
		Complete(c)
}
