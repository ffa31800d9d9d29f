// Command demo shows the main job of Assent on this machine: a real control plane, three real etcd members, and
// every step on them approved by a policy. It ends with a table and fails when a number in it is not as it must be.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"assent.dev/assent/test/e2e/scenario"
)

func main() {
	keep := flag.Bool("keep", false, "leave everything running at the end, to explore, until Ctrl-C")
	root := flag.String("root", ".", "root of the repository")
	flag.Parse()
	if err := run(*root, *keep); err != nil {
		fmt.Fprintf(os.Stderr, "\nThe demo failed: %v\n", err)
		os.Exit(1)
	}
}

func run(root string, keep bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := filepath.Abs(root)
	if err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	dir, err := os.MkdirTemp("", "assent-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the demo: %w", err)
	}
	fmt.Printf("Data and logs are in %s.\n", dir)
	r, err := scenario.Start(ctx, scenario.Options{Dir: dir, Root: root, Out: os.Stdout})
	if err != nil {
		return err
	}
	defer r.Close()
	for _, part := range []func(context.Context) error{r.RollingUpdate, r.MemberLostBetweenSteps, r.PolicyEdit, r.WithoutACM} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	end, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	result, err := r.Finish(end)
	if err != nil {
		return err
	}
	fmt.Println()
	result.Print(os.Stdout)
	if err := result.Err(); err != nil {
		return err
	}
	fmt.Println("\nAll as it must be.")
	if keep {
		wait(ctx, r, dir)
	}
	r.Close()
	return os.RemoveAll(dir)
}

func wait(ctx context.Context, r *scenario.Run, dir string) {
	kubectl, err := r.ControlPlane().Binary("kubectl")
	if err != nil {
		kubectl = "kubectl"
	}
	fmt.Printf(`
Everything keeps running. To explore:
  export KUBECONFIG=%s
  %s get lss,rev,pidx,op,spod,pods
  %s edit lss etcd
The policy under the ACM is in %s; edit it and watch. The decisions are in %s.
Logs and data: %s. Ctrl-C ends it all and removes that folder.
`, r.ControlPlane().Kubeconfig(), kubectl, kubectl, r.Stack().BundlesDir, r.Stack().DecisionLog, dir)
	<-ctx.Done()
}
