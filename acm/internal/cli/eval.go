package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/decisionlog"
	"assent.dev/assent/acm/internal/facts"
	"assent.dev/assent/acm/internal/judge"
)

type evalOptions struct {
	bundle, facts, operation string
	output                   string
	printInput               bool
	now                      string
	budget                   time.Duration
}

func evalCommand() *cobra.Command {
	var o evalOptions
	cmd := &cobra.Command{
		Use:   "eval --bundle DIR --facts FILE --operation FILE",
		Short: "Judge one operation offline, as a running ACM would",
		Long: `Judge one operation with a bundle and recorded facts, on the same path as serve: load gate, order, freshness
of the facts, derivation of the question, evaluation, combining.

--facts is the facts document of the policy contract (data.facts), as the decision log's tools, GetApplication or
acm.testing.world write it. --operation is YAML or JSON; only type and pod are needed:

  type: disruption              # scale-out, scale-in, deployment, disruption, swap
  pod: etcd-1
  stage: remove                 # default: the first of the type
  cause: maintenance            # also: node, revision_from, revision_to, canary, deletes_data, deadline, waiting_since
  application: {name: etcd, namespace: default, max_unavailable: 1, bootstrapping: false}
  sets: {etcd: {replicas: 3, max_unavailable: 1}}
  in_flight: [{type: deployment, pod: etcd-2}]
  waiting: [{type: deployment, pod: etcd-0}]
  disabled: [{name: quorum, why: known to be safe tonight}]

--now is RFC 3339 or Unix seconds; the default is when the newest facts were collected, so that recorded facts are fresh.
The exit code is 0 whatever the verdict, and 1 when there is none.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runEval(cmd.Context(), cmd.OutOrStdout(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.bundle, "bundle", "", "folder of the bundle")
	f.StringVar(&o.facts, "facts", "", "file with the facts document")
	f.StringVar(&o.operation, "operation", "", "file with the operation")
	f.StringVarP(&o.output, "output", "o", "table", "table or json (decision-log records)")
	f.BoolVar(&o.printInput, "print-input", false, "print the policy's input of the operation instead of the verdict, for opa eval")
	f.StringVar(&o.now, "now", "", "the time to judge at")
	f.DurationVar(&o.budget, "evaluation-budget", time.Second, "time that one evaluation may take")
	for _, name := range []string{"bundle", "facts", "operation"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	return cmd
}

func runEval(ctx context.Context, out io.Writer, o evalOptions) error {
	if o.output != "table" && o.output != "json" {
		return fmt.Errorf("--output is %q, want table or json", o.output)
	}
	policy, name, err := loadPolicy(ctx, o.bundle, o.budget)
	if err != nil {
		return err
	}
	seen, now, err := readFacts(o.facts, o.now)
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(o.operation)
	if err != nil {
		return fmt.Errorf("reading the operation: %w", err)
	}
	file, err := parseOperation(raw)
	if err != nil {
		return err
	}
	state, err := file.state(name, seen, now)
	if err != nil {
		return err
	}
	entries := judgeOnce(ctx, policy, seen, state, now)
	return printEntries(out, o, state, len(file.InFlight), entries)
}

func loadPolicy(ctx context.Context, dir string, budget time.Duration) (judge.Policy, string, error) {
	gate, err := newGate(budget)
	if err != nil {
		return nil, "", err
	}
	folder, err := onlyFolder(dir)
	if err != nil {
		return nil, "", err
	}
	content, err := bundle.Read(folder)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", decision.CodeBundleInvalid, err)
	}
	loaded, _, err := gate.Load(ctx, content)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", decision.CodeBundleInvalid, err)
	}
	return loaded.Policy, loaded.Bundle.Manifest.Policy, nil
}

// readFacts reads the document and settles the time to judge at. Recorded pods without a standing of the collector
// that brings them count as collected at that time.
func readFacts(file, at string) (*facts.Snapshot, time.Time, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("reading facts: %w", err)
	}
	seen, err := facts.FromJSON(raw)
	if err != nil {
		return nil, time.Time{}, err
	}
	now, err := timeFor(at, seen)
	return seen, now, err
}

func timeFor(at string, seen *facts.Snapshot) (time.Time, error) {
	if at != "" {
		if t, err := time.Parse(time.RFC3339, at); err == nil {
			return t, nil
		}
		seconds, err := strconv.ParseFloat(at, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("--now is %q, want RFC 3339 or Unix seconds", at)
		}
		return unix(seconds), nil
	}
	newest := seen.LastChange()
	for _, c := range seen.Collectors() {
		newest = max(newest, c.AsOf)
	}
	if newest == 0 {
		return time.Time{}, errors.New("the facts carry no time; give one with --now")
	}
	return unix(newest), nil
}

func unix(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)).UTC() }

// judgeOnce asks a judge of its own. A first request tells it what is in flight and what is asked, before the facts were
// collected, so that these are not held to be from before the last step or the question. No policy answers it.
func judgeOnce(ctx context.Context, policy judge.Policy, seen *facts.Snapshot, state *decision.State, now time.Time) []judge.Entry {
	log, at := &kept{}, &fixedClock{}
	source := &recorded{Store: storeOf(seen, now)}
	ids := 0
	answering := &onePolicy{rehearsal{policy}}
	j := judge.New(judge.Deps{
		Policies: answering, Facts: source, Clock: at, Log: log,
		NewID:        func() string { ids++; return "eval-" + strconv.Itoa(ids) },
		Nudge:        func(string) {},
		ExpiresAfter: judge.DefaultExpiresAfter, BatchBudget: time.Minute,
	})
	at.now = earliest(source.Snapshot(), now).Add(-time.Second)
	j.Begin(0, true)
	before := *state
	before.RequestNumber = 1
	before.Instances = slices.Clone(state.Instances)
	for i := range before.Instances {
		before.Instances[i].Key += " before" // else the answer given here would be repeated
	}
	j.Evaluate(ctx, &before)
	log.entries, at.now, answering.policy = nil, now, policy
	state.RequestNumber = 2
	j.Evaluate(ctx, state)
	return log.entries
}

// rehearsal is a policy that says nothing.
type rehearsal struct{ judge.Policy }

// Evaluate neither objects nor approves.
func (rehearsal) Evaluate(context.Context, *decision.Question, *facts.Snapshot) decision.Outcome {
	return decision.Outcome{}
}

func earliest(s *facts.Snapshot, now time.Time) time.Time {
	for _, c := range s.Collectors() {
		if c.AsOf > 0 && unix(c.AsOf).Before(now) {
			now = unix(c.AsOf)
		}
	}
	return now
}

// storeOf makes the snapshot writable, as expectations of the request must be told.
func storeOf(s *facts.Snapshot, now time.Time) *facts.Store {
	own := facts.Facts{Election: s.Election()}
	if s.Members() != nil {
		own.Members = maps.Collect(s.Members().All())
	}
	if s.Shards() != nil {
		own.Shards = maps.Collect(s.Shards().All())
	}
	c := facts.Changes{At: s.LastChange(), Pods: maps.Collect(s.Pods().All()), Nodes: maps.Collect(s.Nodes().All())}
	owner := ""
	for _, name := range slices.Sorted(maps.Keys(s.Collectors())) {
		source := s.Collectors()[name]
		r := facts.Report{Collector: name, OK: source.OK, Error: source.Error, AsOf: source.AsOf}
		if raw, ok := s.Raw()[name]; ok {
			r.Facts = &facts.Facts{Raw: raw}
		}
		if name != facts.Kubernetes && owner == "" {
			owner = name
			shared := own
			if r.Facts != nil {
				shared.Raw = r.Facts.Raw
			}
			r.Facts = &shared
		}
		c.Reports = append(c.Reports, r)
	}
	if s.Collectors()[facts.Kubernetes] == nil {
		c.Reports = append(c.Reports, facts.Report{Collector: facts.Kubernetes, OK: true, AsOf: decision.Unix(now)})
	}
	store := facts.NewStore(nil)
	store.Apply(c)
	return store
}

// recorded is facts that nobody collects any more.
type recorded struct{ *facts.Store }

// Configure does nothing.
func (*recorded) Configure(judge.Manifest) {}

// Refresh does nothing.
func (*recorded) Refresh() {}

type onePolicy struct{ policy judge.Policy }

// Policy gives the one, whatever the name.
func (o onePolicy) Policy(string) (judge.Policy, *decision.MachineryError) { return o.policy, nil }

type kept struct{ entries []judge.Entry }

// Decided keeps the entry.
func (k *kept) Decided(e judge.Entry) { k.entries = append(k.entries, e) }

// fixedClock stands still.
type fixedClock struct{ now time.Time }

var _ clock.PassiveClock = (*fixedClock)(nil)

// Now is the set time.
func (c *fixedClock) Now() time.Time { return c.now }

// Since counts from the set time.
func (c *fixedClock) Since(t time.Time) time.Duration { return c.now.Sub(t) }

func printEntries(out io.Writer, o evalOptions, state *decision.State, first int, entries []judge.Entry) error {
	asked := state.Instances[first].Step
	i := slices.IndexFunc(entries, func(e judge.Entry) bool { return e.Decision.Step == asked })
	if i < 0 {
		return errors.New("no decision was made")
	}
	switch {
	case o.printInput && entries[i].Question == nil:
		return fmt.Errorf("the policy is not asked: %s", oneLine(entries[i].Decision.Reasons))
	case o.printInput:
		return printJSON(out, entries[i].Question)
	case o.output == "json":
		records := make([]decisionlog.Record, 0, len(entries))
		for _, e := range entries {
			records = append(records, decisionlog.RecordOf(e))
		}
		return printJSON(out, records)
	}
	return printTable(out, entries)
}

func oneLine(reasons []decision.Reason) string {
	texts := make([]string, 0, len(reasons))
	for _, r := range reasons {
		texts = append(texts, r.Code+": "+r.Message)
	}
	return strings.Join(texts, "; ")
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

func printTable(out io.Writer, entries []judge.Entry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "VERDICT\tPOD\tTYPE/STAGE\tREASON\tMESSAGE")
	for _, e := range entries {
		d := e.Decision
		verdict, pod, what := string(d.Verdict), d.Pod, string(d.Type)+"/"+string(d.Stage)
		row := func(code, message string) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", verdict, pod, what, code, message)
			verdict, pod, what = "", "", ""
		}
		for _, r := range d.Reasons {
			row(r.Code, r.Message)
		}
		if len(d.Reasons) == 0 {
			row("", "")
		}
		for _, r := range d.Warnings {
			kind := "(warning) "
			if r.Disabled {
				kind = "(disabled) "
			}
			row(kind+r.Code, r.Message)
		}
		for _, n := range d.Needs {
			row("(needs) "+n.Action, n.Subject)
		}
		for _, k := range slices.Sorted(maps.Keys(d.Parameters)) {
			row("(parameter) "+k, d.Parameters[k])
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}
