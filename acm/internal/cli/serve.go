package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	// Policies name time zones; the image has no zone files of its own.
	_ "time/tzdata"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/collect"
	"assent.dev/assent/acm/internal/collect/etcd"
	k8s "assent.dev/assent/acm/internal/collect/kubernetes"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/decisionlog"
	"assent.dev/assent/acm/internal/engine"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
	"assent.dev/assent/acm/internal/server"
)

const (
	// graceful is how long running calls have to end once the process is told to.
	graceful = 5 * time.Second
	// headerTimeout keeps a silent client from holding a connection of the small HTTP servers.
	headerTimeout = 5 * time.Second
)

type serveOptions struct {
	bundles, listen, metrics, health string
	kubeconfig, namespace            string
	decisionLog                      string
	expiresAfter, budget             time.Duration
}

func serveCommand(env Env) *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve --bundles DIR",
		Short: "Answer operators over gRPC",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			log := logr.FromSlogHandler(slog.NewJSONHandler(env.Stderr, nil))
			// client-go's logger belongs to the whole process and may be set only while nothing runs.
			klog.SetLogger(log.WithName("client-go"))
			return serve(ctx, o, env, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.bundles, "bundles", "", "directory with one folder for each bundle; changes are live")
	f.StringVar(&o.listen, "listen", ":50051", "address of gRPC")
	f.StringVar(&o.metrics, "metrics", ":8080", "address of /metrics; empty: none")
	f.StringVar(&o.health, "health", ":8081", "address of /healthz and /readyz; empty: none")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig; empty: $KUBECONFIG, or the cluster it runs in")
	f.StringVar(&o.namespace, "namespace", "assent-system", "namespace of the Leases, one an application")
	f.StringVar(&o.decisionLog, "decision-log", "", "file that decisions are appended to as JSON lines; - is standard output, empty: none")
	f.DurationVar(&o.expiresAfter, "expires-after", judge.DefaultExpiresAfter, "how long an approval may be acted on")
	f.DurationVar(&o.budget, "evaluation-budget", engine.DefaultBudget, "time that one evaluation may take")
	if err := cmd.MarkFlagRequired("bundles"); err != nil {
		panic(err)
	}
	return cmd
}

func serve(ctx context.Context, o serveOptions, env Env, log logr.Logger) error {
	out, closeOut, err := openDecisionLog(o.decisionLog, env.Stdout)
	if err != nil {
		return err
	}
	defer closeOut()
	config, err := restConfig(o.kubeconfig)
	if err != nil {
		return err
	}
	p, err := newProcess(o, config, env.NewID, out, log)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

func openDecisionLog(name string, stdout io.Writer) (io.Writer, func(), error) {
	switch name {
	case "":
		return io.Discard, func() {}, nil
	case "-":
		return stdout, func() {}, nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the decision log: %w", err)
	}
	return f, func() { _ = f.Close() }, nil
}

// restConfig reads the kubeconfig, or the service account of the pod it runs in.
func restConfig(kubeconfig string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the Kubernetes API: %w", err)
	}
	config.UserAgent = "assent-acm/" + version()
	// Lease renewals of many applications share one client.
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// process is everything that serve runs.
type process struct {
	log       logr.Logger
	bundles   *bundle.Manager
	pods      *k8s.Source
	server    *server.Server
	grpc      *grpc.Server
	health    *server.Health
	decisions *decisionlog.Log
	listener  net.Listener
	web       []*http.Server
}

func newProcess(o serveOptions, config *rest.Config, newID func() string, decisions io.Writer, log logr.Logger) (*process, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the Kubernetes client: %w", err)
	}
	gate, err := newGate(o.budget)
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("finding the host's name: %w", err)
	}
	p := &process{log: log, decisions: decisionlog.New(decisions, log.WithName("decisions"))}
	system := clock.RealClock{}
	p.pods = k8s.New(client, system, log.WithName("kubernetes"))
	collecting := collect.Options{
		Kubernetes: p.pods, Kinds: map[string]collect.Kind{"etcd": etcd.New}, Clock: system, Log: log.WithName("collect"),
	}
	p.bundles = bundle.NewManager(bundle.Options{
		Dir: o.bundles, Gate: gate, Clock: system, Log: log.WithName("bundles"), Changed: func(policy string) { p.server.BundleChanged(policy) },
	})
	p.server = server.New(server.Options{
		Policies: p.bundles, BundleStatus: p.bundleStatus, Facts: func(a decision.ApplicationRef, published func(*facts.Snapshot)) (judge.Facts, func()) {
			source := collect.Open(collecting, a, published)
			return source, source.Close
		},
		Leases: client.CoordinationV1().Leases(o.namespace), Identity: host + "_" + newID(),
		Clock: system, Log: log.WithName("server"), Decisions: p.decisions, NewID: newID, Ready: p.ready, ExpiresAfter: o.expiresAfter,
	})
	p.grpc, p.health = server.GRPC(p.server)
	if p.listener, err = net.Listen("tcp", o.listen); err != nil {
		return nil, fmt.Errorf("listening for gRPC: %w", err)
	}
	p.serveHTTP(o.metrics, server.MetricsHandler(p.registry()))
	p.serveHTTP(o.health, server.HealthHandler(p.ready, p.problems))
	return p, nil
}

func (p *process) serveHTTP(address string, h http.Handler) {
	if address != "" {
		p.web = append(p.web, &http.Server{Addr: address, Handler: h, ReadHeaderTimeout: headerTimeout})
	}
}

func (p *process) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		p.bundles, p.decisions, p.server.Metrics())
	return r
}

// ready: every bundle has been tried, and the caches show what the cluster shows.
func (p *process) ready() bool {
	select {
	case <-p.bundles.Loaded():
	default:
		return false
	}
	select {
	case <-p.pods.Synced():
		return true
	default:
		return false
	}
}

func (p *process) bundleStatus(policy string) (revision, problem string) {
	for _, s := range p.bundles.Statuses() {
		if s.Policy != policy {
			continue
		}
		if len(s.Problems) > 0 {
			problem = s.Problems.Error()
		}
		return s.Revision, problem
	}
	return "", ""
}

// problems lists what is wrong with bundles and with the watch of pods, one line each.
func (p *process) problems() []string {
	var lines []string
	for _, s := range p.bundles.Statuses() {
		for _, problem := range s.Problems {
			lines = append(lines, fmt.Sprintf("bundle %s (in force: %q): %s", s.Policy, s.Revision, problem))
		}
	}
	if problem := p.pods.Problem(); problem != "" {
		lines = append(lines, "kubernetes: "+problem)
	}
	return lines
}

// run serves until ctx ends or a part fails, and then ends the rest: streams and Leases first, so that another replica
// decides at once, then running calls, then what they needed.
func (p *process) run(ctx context.Context) error {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	parts, failing := errgroup.WithContext(ctx)
	part := func(name string, run func() error) {
		parts.Go(func() error {
			if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("running %s: %w", name, err)
			}
			return nil
		})
	}
	part("the bundle watch", func() error { return p.bundles.Run(inner) })
	part("the watch of pods", func() error { return p.pods.Run(inner) })
	part("gRPC", func() error { return p.grpc.Serve(p.listener) })
	part("the announcement", func() error { return p.announce(inner) })
	for _, w := range p.web {
		part("HTTP on "+w.Addr, w.ListenAndServe)
	}
	part("the end", func() error {
		<-failing.Done()
		p.log.Info("stopping")
		p.stop()
		cancel()
		return nil
	})
	p.log.Info("serving", "grpc", p.listener.Addr().String(), "version", version())
	err := parts.Wait()
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer done()
	return errors.Join(err, p.decisions.Close(closing))
}

// announce says SERVING once everything is loaded.
func (p *process) announce(ctx context.Context) error {
	for _, loaded := range []<-chan struct{}{p.bundles.Loaded(), p.pods.Synced()} {
		select {
		case <-loaded:
		case <-ctx.Done():
			return nil
		}
	}
	p.health.SetServing(true)
	p.log.Info("bundles and caches are loaded")
	return nil
}

func (p *process) stop() {
	p.health.Shutdown()
	p.server.Stop()
	late, cancel := context.WithTimeout(context.Background(), graceful)
	defer cancel()
	// Stop ends a GracefulStop that waits for a call that does not end.
	defer context.AfterFunc(late, p.grpc.Stop)()
	p.grpc.GracefulStop()
	for _, w := range p.web {
		_ = w.Close()
	}
}
