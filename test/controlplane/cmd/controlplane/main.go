// Command controlplane builds the Kubernetes programs (build) or runs a control plane until it is told to end (up).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"assent.dev/assent/test/controlplane"
)

const usage = `usage: controlplane build [PROGRAM...]   build what is missing and print the folder
       controlplane up                   run a control plane until Ctrl-C and print its kubeconfig
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no subcommand\n%s", usage)
	}
	switch args[0] {
	case "build":
		dir, err := controlplane.Ensure(ctx, os.Stderr, args[1:]...)
		if err == nil {
			fmt.Println(dir)
		}
		return err
	case "up":
		cp, err := controlplane.Start(ctx, controlplane.Options{ControllerManager: true, Scheduler: true, Kwok: true, Out: os.Stderr})
		if err != nil {
			return err
		}
		fmt.Println(cp.Kubeconfig())
		<-ctx.Done()
		return cp.Stop()
	}
	return fmt.Errorf("no subcommand %q\n%s", args[0], usage)
}
