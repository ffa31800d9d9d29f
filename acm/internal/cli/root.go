// Package cli is the acm command: serve, eval, test and version.
package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/policies"
)

// errFailed ends the command with exit code 1 after everything worth saying was printed.
var errFailed = errors.New("failed")

// Env is what the process gives the command.
type Env struct {
	Stdout, Stderr io.Writer
	// NewID gives a name that is unique for ever: for this process in Leases, and for decisions.
	NewID func() string
}

// Main runs the command with its arguments and gives the exit code: 0, or 1 after an error, which it prints.
func Main(args []string, env Env) int {
	root := command(env)
	root.SetArgs(args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	if err := root.Execute(); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(env.Stderr, "acm:", err)
		}
		return 1
	}
	return 0
}

func command(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "acm",
		Short:         "Decides whether a pod of a stateful application may be touched now",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(serveCommand(env), evalCommand(), testCommand(), versionCommand())
	return root
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, the policy contract and the library's digest",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			library, err := bundle.LoadLibrary(policies.Files())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "acm %s, policy contract %s, library %s\n", version(), policies.ContractVersion, library.Digest[:12])
			return nil
		},
	}
}

// version is the module's version, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return strings.ToLower(s.Value)
		}
	}
	return "devel"
}
