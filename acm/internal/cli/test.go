package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"assent.dev/assent/acm/internal/bundle"
)

func testCommand() *cobra.Command {
	var quiet bool
	cmd := &cobra.Command{
		Use:   "test DIR...",
		Short: "Take bundles through the gate that a running ACM loads them through",
		Long: `Take each bundle through the whole load gate: manifest, roots, strict compilation with restricted
capabilities and schemas, declared outputs, thresholds, one probe decision, and its own tests with failing
built-ins raised. DIR is a bundle, or a folder of bundles. The exit code is 1 when a bundle is refused, when it
has no tests, and when its tests reach none of its rules.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, dirs []string) error {
			return runTests(cmd.Context(), cmd.OutOrStdout(), dirs, quiet)
		},
	}
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print failing tests only")
	return cmd
}

func runTests(ctx context.Context, out io.Writer, dirs []string, quiet bool) error {
	gate, err := newGate(0)
	if err != nil {
		return err
	}
	failed := false
	for _, dir := range dirs {
		folders, err := bundle.Folders(dir)
		if err != nil {
			return err
		}
		if len(folders) == 0 {
			fmt.Fprintf(out, "%s: no bundle here; a bundle is a folder with a .manifest\n", dir)
			failed = true
		}
		for _, f := range folders {
			failed = !testOne(ctx, out, gate, f, quiet) || failed
		}
	}
	if failed {
		return errFailed
	}
	return nil
}

// testOne prints one bundle's results and gives whether it would be put in force and is tested.
func testOne(ctx context.Context, out io.Writer, gate bundle.Gate, f bundle.Folder, quiet bool) bool {
	content, err := bundle.Read(f)
	if err != nil {
		return refused(out, f.Name, err)
	}
	loaded, report, err := gate.Load(ctx, content)
	for _, t := range report.Results {
		printTest(out, t, quiet)
	}
	if err != nil {
		if report.Failed > 0 {
			fmt.Fprintf(out, "%s: REFUSED, %d of %d tests failed\n", f.Name, report.Failed, report.Passed+report.Failed)
			return false
		}
		return refused(out, f.Name, err)
	}
	for _, w := range loaded.Bundle.Warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	switch {
	case report.Passed == 0:
		fmt.Fprintf(out, "%s: FAILED, no tests\n", f.Name)
		return false
	case !report.Reached:
		fmt.Fprintf(out, "%s: FAILED, %d tests passed and none of them reaches a rule of the policy\n", f.Name, report.Passed)
		return false
	}
	fmt.Fprintf(out, "%s: ok, %d tests passed, %d skipped, coverage %.1f %%, revision %s\n", f.Name, report.Passed, report.Skipped, report.Coverage, loaded.Policy.Revision())
	return true
}

func refused(out io.Writer, name string, err error) bool {
	for _, p := range bundle.ProblemsOf(err) {
		fmt.Fprintln(out, p)
	}
	fmt.Fprintf(out, "%s: REFUSED\n", name)
	return false
}

func printTest(out io.Writer, t bundle.TestResult, quiet bool) {
	word := "FAIL"
	switch {
	case t.Skip:
		word = "SKIP"
	case t.Pass:
		word = "PASS"
	}
	if quiet && word == "PASS" {
		return
	}
	fmt.Fprintf(out, "%s %s (%.1f ms)\n", word, t.Name, float64(t.Duration.Microseconds())/1000)
	if word == "PASS" || t.Message == "" {
		return
	}
	fmt.Fprintf(out, "     %s:%d\n     %s\n", t.File, t.Line, strings.ReplaceAll(t.Message, "\n", "\n     "))
}
