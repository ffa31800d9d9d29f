package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/bundle/bundletest"
	acmv1 "assent.dev/assent/proto/acm/v1"
)

const bundles = "../../../bundles"

// acm runs the command and gives its exit code and what it printed.
func acm(args ...string) (int, string) {
	var out bytes.Buffer
	code := Main(args, Env{Stdout: &out, Stderr: &out})
	return code, out.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
	return at
}

func TestTestPrintsEveryTestAndPassesAGoodBundle(t *testing.T) {
	dir := bundletest.Write(t, t.TempDir(), "redis", bundletest.Bundle("redis"))
	code, out := acm("test", dir)
	require.Zero(t, code, out)
	require.Contains(t, out, "PASS data.apps.redis_test.test_approves (")
	require.Contains(t, out, "redis: ok, 2 tests passed, 0 skipped, coverage ")
}

func TestBU09_TestFailsWithoutTestsAndWithTestsThatReachNoRule(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "none", bundletest.Bundle("none").With(bundletest.Files{"policy_test.rego": ""}))
	bundletest.Write(t, dir, "beside", bundletest.Bundle("beside").With(bundletest.Files{"policy_test.rego": "package apps.beside_test\n\ntest_x if true\n"}))
	bundletest.Write(t, dir, "good", bundletest.Bundle("good"))
	code, out := acm("test", dir)
	require.Equal(t, 1, code)
	require.Contains(t, out, "none: FAILED, no tests")
	require.Contains(t, out, "beside: FAILED, 1 tests passed and none of them reaches a rule of the policy")
	require.Contains(t, out, "good: ok, 2 tests passed")
}

func TestTestTellsWhatTheGateRefuses(t *testing.T) {
	good := bundletest.Bundle("redis")
	for name, c := range map[string]struct {
		files bundletest.Files
		want  []string
	}{
		"a failing test": {bundletest.Files{"policy_test.rego": good["policy_test.rego"] + "\ntest_no if {\n\tprint(\"why\")\n\tfalse\n}\n"},
			[]string{"FAIL data.apps.redis_test.test_no (", "redis/policy_test.rego:9\n     why\n", "redis: REFUSED, 1 of 3 tests failed"}},
		"broken Rego":        {bundletest.Files{"policy.rego": "package apps.redis\n\nx := ]\n"}, []string{"redis/policy.rego:3: ", "redis: REFUSED"}},
		"a misspelled check": {bundletest.Files{"data.json": `{"apps": {"redis": {"config": {"checks": {"quorom": true}}}}}`}, []string{"redis/data.json: checks.quorom: no such check; known: budget"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := acm("test", bundletest.Write(t, t.TempDir(), "redis", good.With(c.files)))
			require.Equal(t, 1, code)
			for _, want := range c.want {
				require.Contains(t, out, want)
			}
		})
	}
	code, out := acm("test", t.TempDir())
	require.Equal(t, 1, code)
	require.Contains(t, out, "no bundle here")
	code, out = acm("test", "/nowhere")
	require.Equal(t, 1, code)
	require.Contains(t, out, "acm: resolving the bundle directory /nowhere")
}

func TestTheShippedBundlesPassTheirOwnGate(t *testing.T) {
	code, out := acm("test", "--quiet", bundles)
	require.Zero(t, code, out)
	require.NotContains(t, out, "PASS")
}

// three is the contract's example: etcd-2 is being updated and down, etcd-0 leads.
const three = `{"facts": {
  "version": "f-1042",
  "pods": {
    "etcd-0": {"set": "etcd", "index": 0, "incarnation": 0, "revision": "r1", "node": "n-a1", "zone": "a", "groups": {}, "phase": "Running", "ready": true, "available": true, "terminating": false, "restarts": 0, "since": 1764543600},
    "etcd-1": {"set": "etcd", "index": 1, "incarnation": 0, "revision": "r1", "node": "n-b1", "zone": "b", "groups": {}, "phase": "Running", "ready": true, "available": true, "terminating": false, "restarts": 0, "since": 1764543600},
    "etcd-2": {"set": "etcd", "index": 2, "incarnation": 0, "revision": "r2", "node": "n-c1", "zone": "c", "groups": {}, "phase": "PHASE", "ready": READY, "available": READY, "terminating": false, "restarts": 0, "since": 1764543600}
  },
  "members": {
    "etcd-0": {"role": "leader", "voter": true, "healthy": true, "caught_up": true, "lag": 0, "unknown": {}},
    "etcd-1": {"role": "follower", "voter": true, "healthy": true, "caught_up": true, "lag": 3, "unknown": {}},
    "etcd-2": {"role": "follower", "voter": true, "healthy": READY, "caught_up": READY, "lag": 0, "unknown": {}}
  },
  "election": {"in_progress": false, "leader": "etcd-0", "since": 1764543600},
  "nodes": {}, "collectors": {"etcd": {"ok": true, "as_of": 1764547199}}, "raw": {}
}}`

var (
	well = strings.NewReplacer("READY", "true", "PHASE", "Running").Replace(three)
	down = strings.NewReplacer("READY", "false", "PHASE", "Pending").Replace(three)
)

func eval(t *testing.T, facts, operation string, more ...string) (int, string) {
	t.Helper()
	return acm(append([]string{"eval", "--bundle", bundles + "/etcd", "--facts", write(t, "facts.json", facts), "--operation", write(t, "op.yaml", operation)}, more...)...)
}

func TestEvalApprovesWhenAllIsWell(t *testing.T) {
	code, out := eval(t, well, "type: deployment\npod: etcd-1\nrevision_to: r2\n")
	require.Zero(t, code, out)
	require.Regexp(t, `(?m)^approve +etcd-1 +deployment/remove`, out)
}

func TestEvalGivesTheContractsOwnAnswerToItsExample(t *testing.T) {
	code, out := eval(t, down, "type: disruption\npod: etcd-1\ncause: maintenance\nsets: {etcd: {replicas: 3, max_unavailable: 2}}\napplication: {max_unavailable: 2}\nin_flight: [{type: deployment, pod: etcd-2}]\n")
	require.Zero(t, code, out)
	require.Regexp(t, `(?m)^defer +etcd-1 +disruption/remove +budget\.application +2 of 3 pods would be down, 1 allowed; down or promised: etcd-2$`, out)
	require.Contains(t, out, "caught_up.lagging")
	require.Regexp(t, `quorum\.majority +1 of 3 voters would be up, 2 needed`, out)
}

func TestEvalJudgesTheWholeRequestInOrder(t *testing.T) {
	code, out := eval(t, well, "type: deployment\npod: etcd-0\nwaiting: [{type: deployment, pod: etcd-1}]\n", "-o", "json")
	require.Zero(t, code, out)
	var records []struct {
		Decision struct {
			Pod, Verdict string
			Reasons      []struct{ Code string }
		}
		Question map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(out), &records))
	require.Len(t, records, 2)
	require.Equal(t, "etcd-1", records[0].Decision.Pod)
	require.Equal(t, "approve", records[0].Decision.Verdict)
	require.Equal(t, "etcd-0", records[1].Decision.Pod)
	require.Equal(t, "defer", records[1].Decision.Verdict, "the approval before it is in flight")
	require.Contains(t, records[1].Question["in_flight"], "etcd-1")
}

func TestEvalPrintsTheInputForStockTools(t *testing.T) {
	code, out := eval(t, well, "type: deployment\npod: etcd-1\n", "--print-input")
	require.Zero(t, code, out)
	var input map[string]any
	require.NoError(t, json.Unmarshal([]byte(out), &input))
	require.Equal(t, "etcd-1", input["target"].(map[string]any)["pod"])
	require.Contains(t, input["options"], "quorum")
	require.Equal(t, 1764547199.0, input["now"])
}

func TestEvalHonorsTheTimeItIsGiven(t *testing.T) {
	_, out := eval(t, well, "type: deployment\npod: etcd-1\n", "--now", "1764547260")
	require.Regexp(t, `defer +etcd-1 +deployment/remove +facts\.stale`, out)
	code, out := eval(t, well, "type: deployment\npod: etcd-1\n", "--now", "1764547260", "--print-input")
	require.Equal(t, 1, code)
	require.Contains(t, out, "the policy is not asked: facts.stale")
}

func TestEvalLetsTheFirstPodsOfAClusterCome(t *testing.T) {
	code, out := eval(t, `{"pods": {}, "nodes": {}, "collectors": {"etcd": {"ok": true, "as_of": 1764547199}}, "raw": {}}`,
		"type: scale-out\npod: etcd-0\napplication: {bootstrapping: true}\nsets: {etcd: {replicas: 3}}\n")
	require.Zero(t, code, out)
	require.Regexp(t, `(?m)^approve +etcd-0 +scale-out/add`, out)
}

func TestEvalHonorsADisabledCheck(t *testing.T) {
	_, out := eval(t, down, "type: deployment\npod: etcd-1\nsets: {etcd: {replicas: 3, max_unavailable: 2}}\napplication: {max_unavailable: 2}\ndisabled: [{name: quorum, by: me, why: night}, {name: budget}, {name: caught_up}, {name: guard}]\n")
	require.Regexp(t, `(?m)^approve +etcd-1`, out)
	require.Regexp(t, `\(disabled\) quorum\.majority +1 of 3`, out)
}

func TestEvalTellsWhatIsWrongWithItsFiles(t *testing.T) {
	for name, c := range map[string]struct{ facts, operation, want string }{
		"no type":       {well, "pod: etcd-1\n", "type and pod are needed"},
		"unknown type":  {well, "type: deploy\npod: etcd-1\n", `type "deploy", known: [deployment disruption scale-in scale-out swap]`},
		"unknown key":   {well, "type: deployment\npods: etcd-1\n", `unknown field "pods"`},
		"unknown fact":  {strings.Replace(well, `"phase"`, `"fase"`, 1), "type: deployment\npod: etcd-1\n", `unknown field "fase"`},
		"facts no JSON": {"x", "type: deployment\npod: etcd-1\n", "reading facts"},
		"no time":       {`{"pods": {}, "nodes": {}, "collectors": {}, "raw": {}}`, "type: scale-out\npod: etcd-1\n", "give one with --now"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out := eval(t, c.facts, c.operation)
			require.Equal(t, 1, code)
			require.Contains(t, out, c.want)
		})
	}
	code, out := acm("eval", "--bundle", bundletest.Write(t, t.TempDir(), "redis", bundletest.Files{".manifest": "{"}), "--facts", "/x", "--operation", "/x")
	require.Equal(t, 1, code)
	require.Contains(t, out, "acm: bundle.invalid: redis/.manifest:")
}

func TestVersionNamesContractAndLibrary(t *testing.T) {
	code, out := acm("version")
	require.Zero(t, code)
	require.Regexp(t, `^acm \S+, policy contract v1, library [0-9a-f]{12}\n$`, out)
}

func TestTheREADMENamesEveryReasonCodeAndEveryFlag(t *testing.T) {
	raw, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	text := string(raw)
	values := acmv1.ReasonCode(0).Descriptor().Values()
	for i := 1; i < values.Len(); i++ {
		require.Contains(t, text, "`"+acmv1.ReasonCode(values.Get(i).Number()).Code()+"`")
	}
	for _, sub := range command(Env{}).Commands() {
		if sub.Name() == "serve" {
			sub.Flags().VisitAll(func(f *pflag.Flag) { require.Contains(t, text, "`--"+f.Name+"` | ") })
		}
	}
}
