package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/bundle/bundletest"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// compiled makes a bundle of one module without the gate, to reach what the gate refuses.
func compiled(t testing.TB, module, data string) *bundle.Bundle {
	t.Helper()
	c := ast.NewCompiler()
	m, err := ast.ParseModule("etcd/policy.rego", module)
	require.NoError(t, err)
	c.Compile(map[string]*ast.Module{"etcd/policy.rego": m})
	require.False(t, c.Failed(), "%v", c.Errors)
	doc := map[string]any{}
	if data != "" {
		require.NoError(t, json.Unmarshal([]byte(data), &doc))
	}
	return &bundle.Bundle{
		Manifest: bundle.Manifest{Policy: "etcd", Root: "apps/etcd", Roots: [][]string{{"apps", "etcd"}}},
		Revision: "etcd-1", Folder: "etcd", Compiler: c, Data: doc,
	}
}

const outputs = "package apps.etcd\n\ndeny := set()\n\ndefer := set()\n\n"

func question(pod string) *decision.Question {
	return &decision.Question{
		Now:         1764547200,
		Operation:   decision.Operation{ID: "op-1", Type: decision.Deployment, Stage: decision.StageRemove, Pod: pod, Set: "etcd", TakesDown: true},
		Application: decision.Application{Name: "etcd", Namespace: "default", Policy: "etcd", Sets: map[string]*decision.SetRef{"etcd": {Replicas: 3, MaxUnavailable: 1}}},
		Target:      decision.Target{Pod: pod, Exists: true, GoesDown: true},
		History:     &decision.History{},
	}
}

// seen is a snapshot of pods etcd-0.., the first ones unavailable.
func seen(pods, unavailable int) (*facts.Store, *facts.Snapshot) {
	store := facts.NewStore(nil)
	rows := map[string]*facts.Pod{}
	for i := range pods {
		rows[fmt.Sprintf("etcd-%d", i)] = &facts.Pod{Set: "etcd", Index: i, Phase: "Running", Node: fmt.Sprintf("n-%d", i), Available: i >= unavailable, Ready: i >= unavailable}
	}
	return store, store.Apply(facts.Changes{At: 1764547100, Pods: rows})
}

func ask(t testing.TB, rules, data, pod string) decision.Outcome {
	t.Helper()
	p, err := New(t.Context(), compiled(t, rules, data), 0)
	require.NoError(t, err)
	_, s := seen(3, 1)
	return p.Evaluate(t.Context(), question(pod), s)
}

func TestOutputsReachTheOutcomeAsDecodedJSON(t *testing.T) {
	o := ask(t, `package apps.etcd

deny contains {"code": "own.a", "message": "a", "retry_after": 2.5}

defer contains {"code": "own.b", "message": "b", "details": {"n": 3}}

defer contains "just a text"

warn contains {"code": "own.w", "message": "w"}

approve if input.target.goes_down == true
`, "", "etcd-1")
	require.Nil(t, o.Err)
	require.Equal(t, []any{map[string]any{"code": "own.a", "message": "a", "retry_after": 2.5}}, o.Deny)
	require.Equal(t, []any{"just a text", map[string]any{"code": "own.b", "message": "b", "details": map[string]any{"n": 3.0}}}, o.Defer)
	require.Equal(t, []any{map[string]any{"code": "own.w", "message": "w"}}, o.Warn)
	require.Equal(t, true, o.Approve)
}

func TestAnUndefinedApproveLeavesTheRestDefined(t *testing.T) {
	o := ask(t, outputs+`approve if input.operation.pod == "other"`, "", "etcd-1")
	require.Nil(t, o.Err)
	require.Nil(t, o.Approve)
}

func TestAnOutputThatIsNoSetIsOneMalformedMember(t *testing.T) {
	o := ask(t, "package apps.etcd\n\ndeny := {\"code\": \"own.a\"}\n\ndefer := set()\n\napprove if input.x\n", "", "etcd-1")
	require.Nil(t, o.Err)
	require.Equal(t, []any{map[string]any{"code": "own.a"}}, o.Deny)
	require.Equal(t, "policy.malformed", decision.Combine(o, nil).Reasons[0].Code)
}

func TestPolicyAndFactsAreReadWhereTheContractSaysSo(t *testing.T) {
	rules := outputs + `
warn contains {"code": "own.facts", "message": sprintf("%v", [x])} if {
	input.operation.id == "op-1"
	x := [
		data.facts.pods["etcd-0"].available,
		data.facts.pods[input.operation.pod].node,
		count(data.facts.pods),
		count(data.facts.index.unavailable),
		data.facts.index.pods,
		data.facts.index.groups.set.etcd.unavailable,
		data.facts.collectors.kubernetes.ok,
		data.facts.raw.etcd.list[1],
		data.apps.etcd.config.n,
		count([p | some p, pod in data.facts.pods; pod.available]),
	]
}

warn contains {"code": "own.whole", "message": concat(" ", [k | some k, _ in data.facts])} if input.operation.id == "op-1"

approve if {
	input.operation.id == "op-1"
	not data.facts.members["etcd-0"].healthy
	not data.facts.shards
	not data.facts.election
}
`
	p, err := New(t.Context(), compiled(t, rules, `{"apps": {"etcd": {"config": {"checks": {}, "overrides": []}}}}`), 0)
	require.NoError(t, err)
	p.store.data = ast.MustParseTerm(`{"apps": {"etcd": {"config": {"n": 7}}}}`)
	store, _ := seen(3, 1)
	s := store.Apply(facts.Changes{Reports: []facts.Report{
		{Collector: "kubernetes", OK: true, AsOf: 1},
		{Collector: "etcd", OK: true, AsOf: 1, Facts: &facts.Facts{Raw: map[string]any{"list": []any{"a", "b"}}}},
	}})
	o := p.Evaluate(t.Context(), question("etcd-1"), s)
	require.Nil(t, o.Err)
	require.Equal(t, true, o.Approve)
	require.Len(t, o.Warn, 2)
	require.Equal(t, `[false, "n-1", 3, 1, 3, 1, true, "b", 7, 2]`, o.Warn[0].(map[string]any)["message"])
	require.Equal(t, "collectors index nodes pods raw version", o.Warn[1].(map[string]any)["message"])
}

func TestTheViewFollowsTheSnapshotAndReusesWhatDidNotChange(t *testing.T) {
	store, first := seen(3, 0)
	before := newView(first, nil)
	one, two := before.read([]string{"pods", "etcd-1"}), before.read([]string{"pods", "etcd-2"})
	changed := *first.Pods().Get("etcd-1")
	changed.Available = false
	second := store.Apply(facts.Changes{At: 1764547200, Pods: map[string]*facts.Pod{"etcd-1": &changed}})
	after := newView(second, before)
	require.Equal(t, "false", after.read([]string{"pods", "etcd-1", "available"}).String())
	require.Equal(t, "true", one.Value.(ast.Object).Get(ast.StringTerm("available")).String(), "the old view stays as it was")
	require.Same(t, two, after.read([]string{"pods", "etcd-2"}))
	require.Same(t, before.nodes, after.nodes)
	require.Equal(t, 3, after.read([]string{"pods"}).Value.(ast.Object).Len())
	require.Nil(t, after.read([]string{"pods", "etcd-9"}))
	require.Nil(t, after.read([]string{"nothing"}))
	require.Nil(t, after.read([]string{"shards"}), "unknown is absent")
}

func TestTheViewEqualsTheSnapshotsOwnJSON(t *testing.T) {
	store, _ := seen(20, 3)
	yes, lag := true, 3.5
	s := store.Apply(facts.Changes{
		Nodes: map[string]*facts.Node{"n-0": {Ready: true, Maintenance: "none"}},
		Reports: []facts.Report{{Collector: "etcd", OK: true, AsOf: 1.25, Facts: &facts.Facts{
			Members:  map[string]*facts.Member{"etcd-0": {Role: facts.RoleLeader, Healthy: &yes, Lag: &lag, Unknown: map[string]string{"voter": "timeout"}}},
			Shards:   map[string]*facts.Shard{"s": {Leader: "etcd-0", Replicas: []string{"etcd-0"}, InSync: []string{"etcd-0"}, MinInSync: 1}},
			Election: &facts.Election{Leader: "etcd-0", Since: 12.5},
			Raw:      map[string]any{"x": 1.0},
		}}},
	})
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	got, err := ast.JSON(newView(s, nil).object())
	require.NoError(t, err)
	text, err := json.Marshal(got)
	require.NoError(t, err)
	require.JSONEq(t, string(raw), string(text))
}

func TestTheInputEqualsTheQuestionsJSON(t *testing.T) {
	yes, at, three := true, 1764547212.5, 3
	q := question("etcd-1")
	q.Options = &decision.Options{Checks: map[string]any{"budget": map[string]any{"set": map[string]any{"max_unavailable": "25%"}}}}
	q.Operation.Deadline = &at
	q.Target.Index, q.Target.Available = &three, &yes
	q.Target.Quorum = &decision.TargetQuorum{Quorum: decision.Quorum{Voters: 3, Up: 2, Needed: 2}, UpSeen: 3, VotersAfter: 3, UpAfter: 1, NeededAfter: 2}
	q.Target.Member = &facts.Member{Role: facts.RoleFollower, Unknown: map[string]string{}}
	q.Target.Groups = map[string][]decision.Membership{"zone": {{Name: "a", Size: 1, Others: []string{}, OtherGroups: []string{"b"}, OtherGroupsDown: 1}}}
	q.Target.Custom = map[string][]decision.Membership{}
	q.Target.Peers.Examples = []string{}
	q.Totals.Down.Examples, q.Totals.Unexpected.Examples = []string{"etcd-2"}, []string{}
	q.Election = &facts.Election{Leader: "etcd-0", Since: 5}
	q.InFlight = map[string]*decision.InFlight{"etcd-2": {Operation: "op-2", Type: decision.Swap, Stage: decision.StageAdd, State: decision.Approved, ExpiresAt: &at}}
	q.History = &decision.History{Since: 1, Approved: []float64{3, 2}}
	q.Disabled = map[string]*decision.Disabled{"quorum": {Until: 9, By: "me", Why: "night"}}
	raw, err := json.Marshal(q)
	require.NoError(t, err)
	for range 2 { // the second time from what was remembered
		var steps stepTerms
		got, err := ast.JSON(inputOf(q, &steps))
		require.NoError(t, err)
		text, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, string(raw), string(text))
	}
}

func TestAnEmptyQuestionHasNoNulls(t *testing.T) {
	input := inputOf(&decision.Question{}, &stepTerms{})
	require.NotContains(t, input.String(), "null")
}

func TestPO01_AnUndefinedOutputIsToldAsMissingOrPresent(t *testing.T) {
	o := askUngated(t, "package apps.etcd\n\ndeny := set()\n\napprove if input.x\n")
	require.Equal(t, decision.CodePolicyUndefined, o.Err.Code)
	require.Equal(t, "data.apps.etcd.defer is missing in bundle etcd-1", o.Err.Message)
	require.Equal(t, "etcd-1", o.Err.Details["bundle_revision"])

	o = askUngated(t, "package apps.etcd\n\ndeny := set() if input.x\n\ndefer := set()\n\napprove if input.x\n")
	require.Equal(t, decision.CodePolicyUndefined, o.Err.Code)
	require.Equal(t, "data.apps.etcd.deny is present but undefined for this question in bundle etcd-1", o.Err.Message)
}

// askUngated skips the probe, which would refuse such a bundle.
func askUngated(t *testing.T, rules string) decision.Outcome {
	t.Helper()
	return ungated(t, rules, time.Minute).Evaluate(t.Context(), question("etcd-1"), facts.NewStore(nil).Snapshot())
}

func ungated(t *testing.T, rules string, budget time.Duration) *Policy {
	t.Helper()
	b := compiled(t, rules, "")
	p := &Policy{name: "etcd", revision: b.Revision, budget: budget, compiler: b.Compiler, options: &options{},
		store: &store{data: ast.ObjectTerm()}, applications: map[application]*perApplication{}}
	require.NoError(t, p.prepare(t.Context(), b.Manifest.Roots[0]))
	return p
}

func TestPO03_AConflictNamesEveryRuleOfTheDocument(t *testing.T) {
	o := ask(t, outputs+`approve if size == 1

size := 1 if input.operation.id == "op-1"

size := 2 if input.operation.pod == "etcd-1"
`, "", "etcd-1")
	require.Equal(t, decision.CodePolicyConflict, o.Err.Code)
	require.Contains(t, o.Err.Message, "rule data.apps.etcd.size produced conflicting values: 1 at etcd/policy.rego:9 2 at etcd/policy.rego:11")
	require.Equal(t, decision.Defer, decision.Combine(o, nil).Verdict)
}

func TestPO04_AnObjectKeyWithTwoValuesIsAConflict(t *testing.T) {
	o := ask(t, outputs+`approve if sizes.a == 1

sizes["a"] := 1 if input.operation.id == "op-1"

sizes[k] := 2 if {
	some k in ["a"]
	input.operation.id == "op-1"
}
`, "", "etcd-1")
	require.Equal(t, decision.CodePolicyConflict, o.Err.Code)
	require.Contains(t, o.Err.Message, "etcd/policy.rego:")
}

func TestPO05_AFailingBuiltInDefersAndIsNamedThoughItStandsInADenyRule(t *testing.T) {
	o := ask(t, `package apps.etcd

deny contains {"code": "own.a", "message": "a"} if {
	input.operation.id == "op-1"
	to_number(input.operation.id) > 3
}

defer := set()

approve if input.operation.takes_down == true
`, "", "etcd-1")
	require.NotNil(t, o.Err)
	require.Equal(t, decision.CodePolicyError, o.Err.Code)
	require.Contains(t, o.Err.Message, "to_number")
	require.Equal(t, decision.Defer, decision.Combine(o, nil).Verdict)
}

const endless = outputs + `approve if {
	some i in numbers.range(1, 10000)
	some j in numbers.range(1, 10000)
	i * j < 0
}
`

func TestAnEvaluationEndsAtItsBudgetAndWithItsCaller(t *testing.T) {
	p := ungated(t, endless, 50*time.Millisecond)
	began := time.Now()
	o := p.Evaluate(t.Context(), question("etcd-1"), facts.NewStore(nil).Snapshot())
	require.Equal(t, decision.CodePolicyTimeout, o.Err.Code)
	require.Contains(t, o.Err.Message, "no answer within 50ms")
	require.Less(t, time.Since(began), 5*time.Second)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o = ungated(t, endless, time.Hour).Evaluate(ctx, question("etcd-1"), facts.NewStore(nil).Snapshot())
	require.Equal(t, decision.CodePolicyTimeout, o.Err.Code)
}

func TestABundleWhoseProbeFailsIsRefused(t *testing.T) {
	_, err := New(t.Context(), compiled(t, outputs+"approve if x == 1\n\nx := 1 if input.operation.pod\n\nx := 2 if input.operation.set\n", ""), 0)
	require.ErrorContains(t, err, "the probe decision failed: policy.conflict: ")
}

func TestParametersAreAskedInAQueryOfTheirOwn(t *testing.T) {
	rules := outputs + `approve if input.operation.id == "op-1"

parameters["priority"] := "1"

parameters["count"] := 2
`
	p, err := New(t.Context(), compiled(t, rules, ""), 0)
	require.NoError(t, err)
	v, fault := p.Parameters(t.Context(), question("etcd-1"), facts.NewStore(nil).Snapshot())
	require.Nil(t, fault)
	require.Equal(t, map[string]any{"priority": "1", "count": 2.0}, v)

	p, err = New(t.Context(), compiled(t, outputs+"approve if input.x", ""), 0)
	require.NoError(t, err)
	v, fault = p.Parameters(t.Context(), question("etcd-1"), facts.NewStore(nil).Snapshot())
	require.Nil(t, fault)
	require.Nil(t, v)

	p = ungated(t, outputs+"approve if input.x\n\nparameters := {\"a\": \"1\"} if input.operation.pod\n\nparameters := {\"a\": \"2\"} if input.operation.set\n", time.Minute)
	_, fault = p.Parameters(t.Context(), question("etcd-1"), facts.NewStore(nil).Snapshot())
	require.Equal(t, decision.CodePolicyConflict, fault.Code)
}

func TestOptionsMergeMatchingOverridesInOrder(t *testing.T) {
	p, err := New(t.Context(), compiled(t, outputs+"approve if input.x", `{"apps": {"etcd": {"config": {
		"checks": {"leaders": true, "guard": false, "budget": {"set": {"max_unavailable": 1, "min_available": 2}}},
		"overrides": [
			{"match": {"set": "proxy"}, "checks": {"leaders": false, "budget": {"set": {"max_unavailable": "25%"}}}},
			{"match": {"type": "disruption", "set": "proxy"}, "checks": {"budget": {"set": {"max_unavailable": 3}}, "leaders": {"x": 1}}}
		]}}}}`), 0)
	require.NoError(t, err)
	plain := p.Options(decision.OptionsKey{Set: "main", Type: "deployment"})
	require.Equal(t, map[string]any{"leaders": map[string]any{}, "budget": map[string]any{"set": map[string]any{"max_unavailable": 1.0, "min_available": 2.0}}}, plain.Checks)
	proxy := p.Options(decision.OptionsKey{Set: "proxy", Type: "deployment"})
	require.Equal(t, map[string]any{"budget": map[string]any{"set": map[string]any{"max_unavailable": "25%", "min_available": 2.0}}}, proxy.Checks)
	drain := p.Options(decision.OptionsKey{Set: "proxy", Type: "disruption", Pod: "proxy-1"})
	require.Equal(t, map[string]any{"leaders": map[string]any{"x": 1.0}, "budget": map[string]any{"set": map[string]any{"max_unavailable": 3.0, "min_available": 2.0}}}, drain.Checks)
	require.Same(t, drain, p.Options(decision.OptionsKey{Set: "proxy", Type: "disruption", Pod: "proxy-2"}))
	require.Same(t, plain, p.Options(decision.OptionsKey{Set: "other"}))
}

func TestOptionsReachTheQuestion(t *testing.T) {
	p, err := New(t.Context(), compiled(t, outputs+"approve if input.options.budget.set == 1", `{"apps": {"etcd": {"config": {"checks": {"budget": {"set": 1}}}}}}`), 0)
	require.NoError(t, err)
	q := question("etcd-1")
	q.Options = p.Options(decision.OptionsKey{})
	require.Equal(t, true, p.Evaluate(t.Context(), q, facts.NewStore(nil).Snapshot()).Approve)
}

func TestPO09_ManyEvaluationsInParallelOverChangingFacts(t *testing.T) {
	p, err := New(t.Context(), compiled(t, outputs+`approve if {
	count(data.facts.index.unavailable) >= 0
	some p, pod in data.facts.pods
	pod.node == "n-1"
}
`, ""), 10*time.Second)
	require.NoError(t, err)
	store, _ := seen(50, 0)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 25 {
				pod := *store.Snapshot().Pods().Get("etcd-1")
				pod.Restarts = i*100 + n
				s := store.Apply(facts.Changes{Pods: map[string]*facts.Pod{"etcd-1": &pod}})
				if o := p.Evaluate(t.Context(), question("etcd-1"), s); o.Err != nil || o.Approve != true {
					t.Errorf("unexpected outcome: %+v", o)
				}
			}
		})
	}
	wg.Wait()
}

func TestTheGateAndTheEngineAgreeOnAWholeBundle(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", bundletest.Bundle("redis").With(bundletest.Files{
		"policy.rego": strings.Replace(bundletest.Bundle("redis")["policy.rego"], "approve", "import data.acm\n\ndefer contains r if some r in acm.defer\n\napprove", 1),
		"data.json":   `{"apps": {"redis": {"config": {"checks": {"limit": {"max": 1}}}}}}`,
	}))
	found, err := bundle.Folders(dir)
	require.NoError(t, err)
	content, err := bundle.Read(found[0])
	require.NoError(t, err)
	var p *Policy
	_, _, err = bundle.Gate{Library: bundletest.Library(t), Build: build(&p)}.Load(t.Context(), content)
	require.NoError(t, err)
	q := question("etcd-1")
	q.Options = p.Options(decision.OptionsKey{})
	_, s := seen(3, 0)
	require.Empty(t, p.Evaluate(t.Context(), q, s).Defer)
	q.Totals.Down.Count = 1
	require.Equal(t, "limit.full", p.Evaluate(t.Context(), q, s).Defer[0].(map[string]any)["code"])
}

func TestADecisionCostsTheSameForTenAndForTenThousandPods(t *testing.T) {
	p := shipped(t, "etcd")
	cost := func(pods int) float64 {
		_, s := seen(pods, 0)
		q := calm(pods)
		q.Options = p.Options(decision.OptionsKey{})
		return testing.AllocsPerRun(20, func() {
			require.Nil(t, p.Evaluate(t.Context(), q, s).Err)
		})
	}
	few, many := cost(10), cost(10_000)
	require.InEpsilon(t, few, many, 0.1, "allocations: %v for 10 pods, %v for 10,000", few, many)
}
