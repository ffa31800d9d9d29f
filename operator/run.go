package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/chain"
	"assent.dev/assent/operator/internal/acm"
	"assent.dev/assent/operator/internal/metrics"
)

// leaseName is the Lease that the leader holds.
const leaseName = "assent-operator"

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;update,namespace=assent-system
// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch,namespace=assent-system

// watched is everything that a cache is kept of.
var watched = []client.Object{
	&v1alpha1.LiStatefulSet{}, &v1alpha1.Revision{}, &v1alpha1.PodIndex{}, &v1alpha1.Operation{}, &v1alpha1.StatefulPod{},
	&corev1.Pod{}, &corev1.PersistentVolumeClaim{}, &corev1.Service{},
}

// run leads when it may and works until ctx ends or leadership is lost: the process ends with either, so that nothing
// of a lost term goes on.
func run(ctx context.Context, log logr.Logger, o *options) error {
	addresses, err := o.addresses()
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	connections, closeAll, err := acm.Dial(addresses)
	if err != nil {
		return err
	}
	mgr, err := newManager(config, o)
	if err != nil {
		return errors.Join(err, closeAll())
	}
	m, err := metrics.New(ctrlmetrics.Registry)
	if err != nil {
		return errors.Join(fmt.Errorf("making the metrics: %w", err), closeAll())
	}
	m.Leading(false)
	lead := func(ctx context.Context) error {
		return startChain(ctx, mgr, o, acm.Options{
			Cluster: o.cluster, Connections: connections, Timeout: o.evaluateTimeout, Clock: clock.RealClock{}, Metrics: m,
		})
	}
	if err := mgr.Add(manager.RunnableFunc(lead)); err != nil {
		return errors.Join(fmt.Errorf("adding the chain: %w", err), closeAll())
	}
	log.Info("starting", "acms", addresses, "namespace", o.namespace, "leaderElection", o.leaderElect)
	return errors.Join(mgr.Start(ctx), closeAll())
}

func restConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	} else {
		config, err = ctrl.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("finding the API server (--kubeconfig, $KUBECONFIG or a service account): %w", err)
	}
	// The API server's own fairness limits us, by flow; a limit here would only delay what is urgent.
	config.QPS = -1
	return config, nil
}

func newManager(config *rest.Config, o *options) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	ours, err := labels.NewRequirement(v1alpha1.LabelSet, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting our pods: %w", err)
	}
	only := cache.ByObject{Label: labels.NewSelector().Add(*ours)}
	cached := cache.Options{ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: only, &corev1.PersistentVolumeClaim{}: only, &corev1.Service{}: only,
	}}
	if o.namespace != "" {
		cached.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: cached,
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.healthAddress,
		LeaderElection:         o.leaderElect, LeaderElectionID: leaseName, LeaderElectionNamespace: o.leaderNamespace,
		// The process ends right after, so the next leader need not wait for the Lease to run out.
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}
	for _, kind := range watched {
		// Asked for before the start, so that a replica in waiting has its caches warm.
		if _, err := mgr.GetCache().GetInformer(context.Background(), kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return mgr, errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", cachesReady(mgr)))
}

func cachesReady(mgr ctrl.Manager) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the first lists from the API server are not complete")
		}
		return nil
	}
}

// startChain begins a session once this process leads. A session's age counts from here: an ACM that has lost its memory
// trusts only sessions that are old enough.
func startChain(ctx context.Context, mgr ctrl.Manager, o *options, asking acm.Options) error {
	term, err := termOf(ctx, mgr.GetAPIReader(), o)
	if err != nil {
		return err
	}
	id, err := sessionID()
	if err != nil {
		return err
	}
	links, err := chain.New(chain.Options{
		Cached: mgr.GetCache(), Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Clock: asking.Clock,
		Session: id, Term: term, Asker: acm.New(ctx, asking), Timeout: asking.Timeout,
		Events: mgr.GetEventRecorder(leaseName), Metrics: asking.Metrics,
	})
	if err != nil {
		return err
	}
	for _, link := range links {
		if err := link.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("starting the %s controller: %w", link.Name, err)
		}
	}
	asking.Metrics.Leading(true)
	mgr.GetLogger().Info("leading", "session", id, "term", term)
	<-ctx.Done()
	return nil
}

// termOf grows with every leader: the Lease counts them. Without leader election the start time takes its place.
func termOf(ctx context.Context, live client.Reader, o *options) (int64, error) {
	if !o.leaderElect {
		return clock.RealClock{}.Now().Unix(), nil
	}
	lease := &coordinationv1.Lease{}
	if err := live.Get(ctx, types.NamespacedName{Namespace: o.leaderNamespace, Name: leaseName}, lease); err != nil {
		return 0, fmt.Errorf("reading the leader's Lease: %w", err)
	}
	if lease.Spec.LeaseTransitions == nil {
		return 1, nil
	}
	return int64(*lease.Spec.LeaseTransitions) + 1, nil
}
