package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// options are the flags.
type options struct {
	acms              []string
	cluster           string
	namespace         string
	leaderElect       bool
	leaderNamespace   string
	metricsAddress    string
	healthAddress     string
	evaluateTimeout   time.Duration
	kubeconfig        string
	developmentOutput bool
}

// command is the program, with the options that its flags set.
func command() (*cobra.Command, *options) {
	o := &options{}
	c := &cobra.Command{
		Use:   "operator",
		Short: "Run stateful applications on Kubernetes, and ask before touching a pod",
		Long: `The operator turns LiStatefulSets into pods. Before it adds, replaces or removes one, it asks the Application Cluster
Manager (ACM) that the set names; without an approval it does nothing but put back what is missing.

Connections to ACMs are not encrypted in this version: keep them on one machine or behind a network policy.`,
		SilenceUsage: true,
		Args:         cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log := zap.New(zap.UseDevMode(o.developmentOutput), zap.StacktraceLevel(zapcore.PanicLevel))
			ctrl.SetLogger(log)
			return run(c.Context(), log, o)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&o.acms, "acm", nil, `an ACM as name=address, repeatable; a set names one in spec.acm ("default" if it does not)`)
	f.StringVar(&o.cluster, "cluster", "default", "name of this cluster, as ACMs and policies know it")
	f.StringVar(&o.namespace, "namespace", "", "only look at this namespace (default: all)")
	f.BoolVar(&o.leaderElect, "leader-elect", false, "of several replicas, let one act")
	f.StringVar(&o.leaderNamespace, "leader-election-namespace", "assent-system", "namespace of the leader's Lease")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", `address for Prometheus metrics ("0": none)`)
	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", `address for /healthz and /readyz ("0": none)`)
	f.DurationVar(&o.evaluateTimeout, "evaluate-timeout", 2*time.Second, "how long to wait for an ACM's answer")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, else the pod's service account)")
	f.BoolVar(&o.developmentOutput, "log-for-people", false, "log lines for people, not JSON")
	return c, o
}

// addresses reads --acm.
func (o *options) addresses() (map[string]string, error) {
	out := map[string]string{}
	for _, entry := range o.acms {
		name, address, ok := strings.Cut(entry, "=")
		if !ok || name == "" || address == "" {
			return nil, fmt.Errorf("--acm %q: want name=address, for example default=dns:///assent-acm.assent-system:50051", entry)
		}
		if _, twice := out[name]; twice {
			return nil, fmt.Errorf("--acm %q: %q is given twice", entry, name)
		}
		out[name] = address
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("--acm: give at least one, for example --acm default=dns:///assent-acm.assent-system:50051")
	}
	return out, nil
}

// check refuses what cannot work.
func (o *options) check() error {
	if o.evaluateTimeout < 100*time.Millisecond || o.evaluateTimeout > 30*time.Second {
		return fmt.Errorf("--evaluate-timeout %s: want 100ms to 30s", o.evaluateTimeout)
	}
	if o.leaderElect && o.leaderNamespace == "" {
		return fmt.Errorf("--leader-election-namespace: needed with --leader-elect")
	}
	return nil
}
