package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// The derivation of input is written twice: here in Go, and in Rego for the authors of policies
// (acm.testing.world). These tests hold the two against each other on random worlds.

const worldNow = 1764547200.0

// prepareWorld compiles the library with its test helpers, as `opa test` does.
func prepareWorld(t *testing.T) rego.PreparedEvalQuery {
	t.Helper()
	modules := map[string]*ast.Module{}
	root := "../../../policies"
	require.NoError(t, filepath.Walk(root, func(path string, _ os.FileInfo, err error) error {
		if err != nil || !strings.HasSuffix(path, ".rego") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		modules[path], err = ast.ParseModuleWithOpts(path, string(text), ast.ParserOptions{RegoVersion: ast.RegoV1})
		return err
	}))
	compiler := ast.NewCompiler()
	compiler.Compile(modules)
	require.False(t, compiler.Failed(), compiler.Errors)
	store := inmem.NewFromObject(map[string]any{"apps": map[string]any{"app": map[string]any{"config": map[string]any{}}}})
	q, err := rego.New(rego.Query("x := data.acm.testing.world(input)"), rego.Compiler(compiler), rego.Store(store),
		rego.StrictBuiltinErrors(true)).PrepareForEval(context.Background())
	require.NoError(t, err)
	return q
}

// world is one random world, told twice: as acm.testing's spec, and as a request with changes of facts.
type world struct {
	spec    map[string]any
	state   decision.State
	changes facts.Changes
	expect  map[string]facts.Expectation
}

func names(sets ...string) []string {
	var out []string
	for _, set := range sets {
		for i := range 5 {
			out = append(out, fmt.Sprintf("%s-%d", set, i))
		}
	}
	return out
}

func parse(name string) (set string, index int) {
	at := strings.LastIndex(name, "-")
	_, err := fmt.Sscanf(name[at+1:], "%d", &index)
	if err != nil {
		panic(err)
	}
	return name[:at], index
}

func at(seconds float64) time.Time { return time.UnixMicro(int64(seconds * 1e6)) }

func drawWorld(t *rapid.T) *world {
	w := &world{spec: map[string]any{"options": map[string]any{"quorum": map[string]any{"spare": 1}}}, expect: map[string]facts.Expectation{}}
	w.state = decision.State{
		Application: decision.ApplicationRef{Name: "app", Namespace: "default", Policy: "app"},
		Session:     decision.Session{ID: "s", Term: 1, Age: time.Hour}, RequestNumber: 1, MaxUnavailable: 1,
	}
	w.drawPods(t)
	w.drawMembers(t)
	w.drawShards(t)
	w.drawElection(t)
	w.drawOperation(t)
	w.drawFlight(t)
	w.drawWaiting(t)
	w.drawDisabled(t)
	w.settle()
	return w
}

func (w *world) drawPods(t *rapid.T) {
	w.changes.Pods = map[string]*facts.Pod{}
	pods := map[string]any{}
	for _, name := range names("a", "b") {
		if rapid.IntRange(0, 3).Draw(t, name) == 0 {
			continue
		}
		set, index := parse(name)
		p := &facts.Pod{
			Set: set, Index: index, Revision: rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "revision"), Phase: "Running",
			Since: worldNow - float64(rapid.IntRange(1, 9999).Draw(t, "since"))/4, Groups: map[string]string{},
		}
		wanted := rapid.IntRange(0, 5).Draw(t, "wanted") > 0
		if wanted && rapid.IntRange(0, 7).Draw(t, "missing") == 0 {
			p.Phase, p.Revision = facts.PhaseMissing, ""
			pods[name] = map[string]any{"phase": "Missing", "since": p.Since, "wanted": true}
		} else {
			p.Ready = rapid.IntRange(0, 3).Draw(t, "ready") > 0
			p.Terminating = rapid.IntRange(0, 7).Draw(t, "terminating") == 0
			p.Available = p.Ready && !p.Terminating
			p.Zone = rapid.SampledFrom([]string{"", "x", "y", "z"}).Draw(t, "zone")
			p.Node = rapid.SampledFrom([]string{"", "n1", "n2", "n3"}).Draw(t, "node")
			p.Restarts = rapid.IntRange(0, 2).Draw(t, "restarts")
			if rapid.Bool().Draw(t, "grouped") {
				p.Groups["tier"] = rapid.SampledFrom([]string{"hot", "cold"}).Draw(t, "tier")
			}
			pods[name] = map[string]any{"revision": p.Revision, "since": p.Since, "ready": p.Ready, "terminating": p.Terminating,
				"zone": p.Zone, "node": p.Node, "restarts": p.Restarts, "groups": p.Groups, "wanted": wanted}
		}
		e := w.expect[set]
		if wanted {
			e.Wanted = append(e.Wanted, facts.Range{First: index, Last: index})
			e.EverAvailable = append(e.EverAvailable, facts.Range{First: index, Last: index})
		}
		w.expect[set] = e
		w.changes.Pods[name] = p
	}
	w.spec["pods"] = pods
}

func drawKnown(t *rapid.T, label string) *bool {
	switch rapid.IntRange(0, 5).Draw(t, label) {
	case 0:
		return nil
	case 1:
		return new(bool)
	default:
		v := true
		return &v
	}
}

func (w *world) drawMembers(t *rapid.T) {
	if rapid.IntRange(0, 4).Draw(t, "members unknown") == 0 {
		return
	}
	members, spec := map[string]*facts.Member{}, map[string]any{}
	for _, name := range names("a", "b") {
		if rapid.IntRange(0, 2).Draw(t, "member "+name) == 0 {
			continue
		}
		m := &facts.Member{Voter: drawKnown(t, "voter"), Healthy: drawKnown(t, "healthy"), CaughtUp: drawKnown(t, "caught up"), Unknown: map[string]string{}}
		m.Role = rapid.SampledFrom([]facts.Role{"", facts.RoleFollower, facts.RoleLeader, facts.RoleLearner}).Draw(t, "role")
		said := map[string]any{}
		for field, v := range map[string]*bool{"voter": m.Voter, "healthy": m.Healthy, "caught_up": m.CaughtUp} {
			if v != nil {
				said[field] = *v
			}
		}
		if m.Voter == nil && rapid.Bool().Draw(t, "why") {
			m.Unknown["voter"] = "timeout"
		}
		if m.Role != "" {
			said["role"] = m.Role
		}
		said["unknown"] = m.Unknown
		members[name], spec[name] = m, said
	}
	w.spec["members"] = spec
	w.facts().Members = members
}

// facts is the one report of the world's only collector.
func (w *world) facts() *facts.Facts {
	if len(w.changes.Reports) == 0 {
		w.changes.Reports = []facts.Report{{Collector: "x", OK: true, AsOf: worldNow, Facts: &facts.Facts{Replace: true}}}
	}
	return w.changes.Reports[0].Facts
}

func subset(t *rapid.T, label string, of []string) []string {
	out := []string{}
	for _, name := range of {
		if rapid.Bool().Draw(t, label) {
			out = append(out, name)
		}
	}
	return out
}

func (w *world) drawShards(t *rapid.T) {
	if rapid.Bool().Draw(t, "shards unknown") {
		return
	}
	shards, spec := map[string]*facts.Shard{}, map[string]any{}
	most := rapid.SampledFrom([]int{0, 3, 40}).Draw(t, "shards")
	for i := range rapid.IntRange(0, most).Draw(t, "how many") {
		s := &facts.Shard{Replicas: subset(t, "replica", append(names("a"), "elsewhere")), MinInSync: rapid.IntRange(1, 3).Draw(t, "min")}
		s.InSync = subset(t, "in sync", s.Replicas)
		if len(s.Replicas) > 0 && rapid.IntRange(0, 3).Draw(t, "led") > 0 {
			s.Leader = rapid.SampledFrom(s.Replicas).Draw(t, "leader")
		}
		said := map[string]any{"replicas": s.Replicas, "in_sync": s.InSync, "min_in_sync": s.MinInSync}
		if s.Leader != "" {
			said["leader"] = s.Leader
		}
		id := fmt.Sprintf("s%02d", i)
		shards[id], spec[id] = s, said
	}
	w.spec["shards"] = spec
	w.facts().Shards = shards
}

func (w *world) drawElection(t *rapid.T) {
	w.spec["election"] = map[string]any{}
	if rapid.IntRange(0, 2).Draw(t, "election unknown") == 0 {
		return
	}
	e := &facts.Election{InProgress: rapid.Bool().Draw(t, "electing"), Since: worldNow - 12.5}
	said := map[string]any{"in_progress": e.InProgress, "since": e.Since}
	if !e.InProgress {
		e.Leader = rapid.SampledFrom(names("a")).Draw(t, "leads")
		said["leader"] = e.Leader
	}
	w.spec["election"] = said
	w.facts().Election = e
}

var stages = []struct {
	t decision.Type
	s decision.Stage
}{
	{decision.ScaleOut, decision.StageAdd}, {decision.ScaleIn, decision.StageRemove}, {decision.ScaleIn, decision.StageRelease},
	{decision.Deployment, decision.StageRemove}, {decision.Deployment, decision.StageUpdate}, {decision.Disruption, decision.StageRemove},
	{decision.Swap, decision.StageAdd}, {decision.Swap, decision.StageRemove}, {decision.Swap, decision.StageRelease},
}

func (w *world) drawStep(t *rapid.T, pod string) decision.Step {
	what := rapid.SampledFrom(stages).Draw(t, "step")
	set, index := parse(pod)
	return decision.Step{Operation: string(what.t) + "-" + pod, Type: what.t, Stage: what.s, Set: set, Pod: pod, Index: index}
}

func (w *world) drawOperation(t *rapid.T) {
	i := decision.Instance{
		Step: w.drawStep(t, rapid.SampledFrom(names("a", "b")).Draw(t, "asked")), State: decision.Waiting, WaitingSince: at(worldNow - 60),
		DeletesData: rapid.Bool().Draw(t, "deletes data"), Canary: rapid.Bool().Draw(t, "canary"),
		Cause: rapid.SampledFrom([]string{"", "rollout", "maintenance"}).Draw(t, "cause"),
	}
	said := map[string]any{"type": i.Type, "pod": i.Pod, "stage": i.Stage, "deletes_data": i.DeletesData, "canary": i.Canary}
	if i.Cause != "" {
		said["cause"] = i.Cause
	}
	if rapid.Bool().Draw(t, "deadline") {
		i.Deadline, said["deadline"] = at(worldNow+600.5), worldNow+600.5
	}
	if i.Type == decision.Deployment {
		i.RevisionFrom, i.RevisionTo = "r1", "r2"
		said["revision_from"], said["revision_to"] = "r1", "r2"
	}
	w.spec["operation"] = said
	w.state.Instances = append(w.state.Instances, i)
	w.state.Operations = append(w.state.Operations, decision.Summary{Name: i.Operation, Type: i.Type, Progress: decision.Progress{Total: 1, Waiting: 1}})
}

func (w *world) drawFlight(t *rapid.T) {
	spec := map[string]any{}
	for _, pod := range names("a", "b") {
		if pod == w.state.Instances[0].Pod || rapid.IntRange(0, 4).Draw(t, "flies "+pod) > 0 {
			continue
		}
		step := w.drawStep(t, pod)
		deletes := rapid.Bool().Draw(t, "deletes data")
		said := map[string]any{"type": step.Type, "stage": step.Stage}
		if rapid.Bool().Draw(t, "running") {
			said["state"], said["since"], said["deletes_data"] = "running", worldNow-33, deletes
			w.state.Instances = append(w.state.Instances, decision.Instance{
				Step: step, State: decision.Verifying, StateSince: at(worldNow - 33), DeletesData: deletes, DecisionID: "d-" + pod,
			})
		} else {
			said["state"], said["since"], said["expires_at"] = "approved", worldNow, worldNow+30
			w.state.Holding = append(w.state.Holding, decision.Holding{Step: step, DecisionID: "d-" + pod})
		}
		spec[pod] = said
	}
	w.spec["in_flight"] = spec
}

func (w *world) drawWaiting(t *rapid.T) {
	spec := []any{}
	for _, pod := range names("a", "b") {
		if w.spec["in_flight"].(map[string]any)[pod] != nil || pod == w.state.Instances[0].Pod || rapid.Bool().Draw(t, "waits "+pod) {
			continue
		}
		i := decision.Instance{Step: w.drawStep(t, pod), State: decision.Waiting, WaitingSince: at(worldNow - 60)}
		said := map[string]any{"pod": pod, "type": i.Type, "state": "waiting"}
		if rapid.IntRange(0, 3).Draw(t, "denied") == 0 {
			i.State, said["state"] = decision.Denied, "denied"
		}
		w.state.Instances = append(w.state.Instances, i)
		spec = append(spec, said)
	}
	w.spec["waiting"] = spec
}

func (w *world) drawDisabled(t *rapid.T) {
	spec := map[string]any{}
	for _, name := range subset(t, "disabled", []string{"quorum", "leader.last"}) {
		until := worldNow + float64(rapid.SampledFrom([]int{-5, 5}).Draw(t, "until"))
		spec[name] = map[string]any{"until": until, "by": "eve", "why": "night"}
		w.state.Disabled = append(w.state.Disabled, decision.DisabledCheck{Name: name, Until: at(until), By: "eve", Why: "night"})
	}
	w.spec["disabled"] = spec
}

// settle makes the sets, which both tellings share.
func (w *world) settle() {
	sets := map[string]any{}
	for _, name := range []string{"a", "b"} {
		e := w.expect[name]
		w.state.Sets = append(w.state.Sets, decision.Set{Name: name, Wanted: e.Wanted, EverAvailable: e.EverAvailable, MaxUnavailable: 1})
		sets[name] = map[string]any{"replicas": facts.Count(e.Wanted), "max_unavailable": 1}
	}
	w.spec["sets"] = sets
	w.spec["bootstrapping"] = w.state.Bootstrapping()
	w.spec["history"] = map[string]any{"since": worldNow - 3600}
	w.changes.At, w.changes.Expect = worldNow, w.state.Expectations()
}

// derive is what the ACM makes of the world.
func (w *world) derive(t require.TestingT) (input, data any) {
	snapshot := facts.NewStore(nil).Apply(w.changes)
	ledger := decision.NewLedger(30*time.Second, 1, true, at(worldNow-3600))
	opening := ledger.Open(&w.state, at(worldNow))
	require.NotNil(t, opening.Flight)
	b := decision.Batch{
		Now: at(worldNow), State: &w.state, View: decision.NewView(snapshot, nil), Flight: opening.Flight, History: ledger.History(at(worldNow)),
		Options: func(decision.OptionsKey) *decision.Options {
			return &decision.Options{Checks: w.spec["options"].(map[string]any)}
		},
	}
	return asJSON(t, b.Derive(&w.state.Instances[0])), asJSON(t, snapshot)
}

func asJSON(t require.TestingT, v any) any {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var out any
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

func TestTheDerivationInGoEqualsTheOneInRegoOnRandomWorlds(t *testing.T) {
	query := prepareWorld(t)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		rs, err := query.Eval(context.Background(), rego.EvalInput(asJSON(t, w.spec)))
		require.NoError(t, err)
		require.Len(t, rs, 1, "world is undefined")
		told := asJSON(t, rs[0].Bindings["x"]).(map[string]any)
		input, data := w.derive(t)
		require.Equal(t, told["input"], input)
		seen, said := data.(map[string]any), told["facts"].(map[string]any)
		for _, key := range []string{"version", "collectors", "raw"} {
			delete(seen, key)
			delete(said, key)
		}
		require.Equal(t, said, seen)
	})
}

func TestTheRandomWorldsReachEveryPartOfTheDocument(t *testing.T) {
	found := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		input, _ := drawWorld(t).derive(t)
		target := input.(map[string]any)["target"].(map[string]any)
		for _, key := range []string{"shards", "leaders", "quorum", "others", "member", "zone"} {
			if target[key] != nil {
				found[key]++
			}
		}
		if shards, ok := target["shards"].(map[string]any); ok && shards["count"].(float64) > 20 {
			found["extremes"]++
		}
		for _, m := range slices.Concat(target["groups"].(map[string]any)["set"].([]any)) {
			if m.(map[string]any)["others_down"].(float64) > 1 {
				found["others down"]++
			}
		}
	})
	for _, key := range []string{"shards", "leaders", "quorum", "others", "member", "zone", "others down"} {
		require.NotZero(t, found[key], key)
	}
}
