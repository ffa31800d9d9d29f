package statefulpod

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/kube"
	"assent.dev/assent/operator/internal/plan/approval"
	plan "assent.dev/assent/operator/internal/plan/statefulpod"
	"assent.dev/assent/operator/internal/session"
)

// +kubebuilder:rbac:groups=assent.dev,resources=statefulpods,verbs=get;list;watch
// +kubebuilder:rbac:groups=assent.dev,resources=statefulpods/status,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=statefulpods/finalizers,verbs=update
// +kubebuilder:rbac:groups=assent.dev,resources=revisions;listatefulsets;podindices,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	// workers act on different identities at once: each call waits for the API server.
	workers = 8
	// conflictRetry is when to look again after somebody else wrote first.
	conflictRetry = 20 * time.Millisecond
	// waitRetry is when to look again at what a Pod's creation waits for, if nothing announces it.
	waitRetry = 2 * time.Second
	// firstRetry and longestRetry bound the pause after the API server refused to make something.
	firstRetry   = time.Second
	longestRetry = time.Minute
)

// Controller reconciles StatefulPods.
type Controller struct {
	deps    kube.Deps
	pods    *kube.Pods
	trouble *trouble
}

// New makes the controller. Every field of deps is needed.
func New(deps kube.Deps) *Controller {
	return &Controller{deps: deps, pods: kube.NewPods(deps.Writer), trouble: &trouble{byKey: map[types.NamespacedName]refusal{}}}
}

// Reconcile brings one identity one step on. Anything it does, it does on live reads; what it did shows in the next look,
// for which the watches ask.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	in, ok, err := c.observe(ctx, c.deps.Cached, req.NamespacedName)
	if err != nil || !ok {
		c.trouble.forget(req.NamespacedName)
		return reconcile.Result{}, err
	}
	p := plan.Make(in)
	if acts(p) {
		if in, ok, err = c.observe(ctx, c.deps.Live, req.NamespacedName); err != nil || !ok {
			return reconcile.Result{}, err
		}
		c.settleSeen(in)
		p = plan.Make(in)
		if err := c.apply(ctx, in, p); err != nil {
			return c.settle(ctx, in, err)
		}
		c.trouble.forget(req.NamespacedName)
	}
	wait, err := c.writeStatus(ctx, in, p)
	switch {
	case err != nil || wait > 0:
		return reconcile.Result{RequeueAfter: wait}, err
	case p.Wait != "" && (p.Wake == 0 || p.Wake > waitRetry):
		return reconcile.Result{RequeueAfter: waitRetry}, nil
	}
	return reconcile.Result{RequeueAfter: p.Wake}, nil
}

func acts(p plan.Plan) bool { return p.Verb != plan.Nothing || len(p.CreateClaims) > 0 }

// settleSeen tells the register when a live look shows that an act of unknown outcome has happened.
func (c *Controller) settleSeen(in plan.Input) {
	if in.Approval == nil || in.Approval.Phase != approval.Unknown {
		return
	}
	pod := in.Pod
	if !plan.Owned(in.Identity, pod) {
		pod = nil
	}
	if plan.EvidenceOf(in.Identity, pod) == plan.Acted {
		c.deps.Approvals.Settle(in.Approval.Decision, session.Done)
		in.Approval.Phase = approval.Acted
	}
}

// settle tells apart what an error means: looked at again, shown to people, nothing to do, or a fault.
func (c *Controller) settle(ctx context.Context, in plan.Input, err error) (reconcile.Result, error) {
	switch {
	case kube.IsNamespaceTerminating(err):
		return reconcile.Result{}, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: conflictRetry}, nil
	case refused(err):
		in.Trouble = fmt.Sprintf("the API server refuses: %v", err)
		wait := c.trouble.note(client.ObjectKeyFromObject(in.Identity), in.Trouble)
		_, err := c.writeStatus(ctx, in, plan.Make(in))
		return reconcile.Result{RequeueAfter: wait}, err
	}
	return reconcile.Result{}, err
}

// Requests are the identities that a change of an object concerns. A Pod has its identity's name; a claim ends with it.
func Requests(o client.Object) []reconcile.Request {
	name := ""
	switch o := o.(type) {
	case *v1alpha1.StatefulPod:
		name = o.Name
	case *corev1.Pod:
		if o.Labels[v1alpha1.LabelSet] != "" {
			name = o.Name
		}
	case *corev1.PersistentVolumeClaim:
		name = podOf(o)
	}
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// podOf is the name of the pod that a claim of ours is for: what follows the template's name.
func podOf(claim *corev1.PersistentVolumeClaim) string {
	set, index := claim.Labels[v1alpha1.LabelSet], claim.Labels[v1alpha1.LabelIndex]
	if set == "" || index == "" {
		return ""
	}
	if i := strings.LastIndex(claim.Name, "-"+set+"-"+index); i >= 0 {
		return claim.Name[i+1:]
	}
	return ""
}

// Requests are the identities that a change of an object concerns.
func (c *Controller) Requests(o client.Object) []reconcile.Request { return Requests(o) }

// SetupWithManager starts the watches.
func (c *Controller) SetupWithManager(mgr ctrl.Manager) error {
	at := kube.Coalesce(0, Requests)
	return builder.ControllerManagedBy(mgr).Named("statefulpod").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Watches(&v1alpha1.StatefulPod{}, at).
		Watches(&corev1.Pod{}, at).
		Watches(&corev1.PersistentVolumeClaim{}, at).
		Complete(c)
}
