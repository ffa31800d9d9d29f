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

// Main runs the command with its arguments and gives the exit code: 0, or 1 after an error, which it prints.
func Main(args []string, stdout, stderr io.Writer) int {
	root := command()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		if !errors.Is(err, errFailed) {
			fmt.Fprintln(stderr, "acm:", err)
		}
		return 1
	}
	return 0
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "acm",
		Short:         "Decides whether a pod of a stateful application may be touched now",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(evalCommand(), testCommand(), versionCommand())
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
