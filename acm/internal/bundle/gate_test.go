package bundle_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/bundle/bundletest"
	"assent.dev/assent/acm/internal/engine"
	"assent.dev/assent/acm/internal/judge"
)

func gate(t testing.TB) bundle.Gate {
	t.Helper()
	return bundle.Gate{
		Library: bundletest.Library(t),
		Build: func(ctx context.Context, b *bundle.Bundle) (judge.Policy, error) {
			p, err := engine.New(ctx, b, 0)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		TestTimeout: 10 * time.Second,
	}
}

func load(t testing.TB, files bundletest.Files) (*bundle.Loaded, bundle.Report, error) {
	t.Helper()
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", files)
	found, err := bundle.Folders(dir)
	require.NoError(t, err)
	require.Len(t, found, 1)
	content, err := bundle.Read(found[0])
	if err != nil {
		return nil, bundle.Report{}, err
	}
	return gate(t).Load(t.Context(), content)
}

func TestAGoodBundlePassesWithItsTestsAndCoverage(t *testing.T) {
	loaded, report, err := load(t, bundletest.Bundle("redis"))
	require.NoError(t, err)
	require.Equal(t, 2, report.Passed)
	require.Zero(t, report.Failed)
	require.Greater(t, report.Coverage, 40.0)
	require.True(t, report.Reached)
	require.Equal(t, "redis", loaded.Bundle.Manifest.Policy)
	require.Equal(t, 10*time.Second, loaded.Bundle.Manifest.Collectors["kubernetes"].MaxAge)
	require.True(t, strings.HasPrefix(loaded.Policy.Revision(), "redis-"))
	require.Empty(t, loaded.Bundle.Warnings)
}

func TestRevisionFollowsContentAndNothingElse(t *testing.T) {
	one, _, err := load(t, bundletest.Bundle("redis"))
	require.NoError(t, err)
	same, _, err := load(t, bundletest.Bundle("redis"))
	require.NoError(t, err)
	require.Equal(t, one.Policy.Revision(), same.Policy.Revision())
	other, _, err := load(t, bundletest.Bundle("redis").With(bundletest.Files{"data.json": `{"apps": {"redis": {"x": 1}}}`}))
	require.NoError(t, err)
	require.NotEqual(t, one.Policy.Revision(), other.Policy.Revision())
}

// policy gives a bundle whose policy.rego has these lines and which has no tests.
func policy(lines ...string) bundletest.Files {
	return bundletest.Bundle("redis").With(bundletest.Files{"policy_test.rego": "", "policy.rego": "package apps.redis\n\n" + strings.Join(lines, "\n") + "\n"})
}

const (
	noDeny   = "deny := set()"
	noDefer  = "defer := set()"
	approves = `approve if input.operation.type == "deployment"`
)

func TestTheGateRefusesWithPlaceAndReason(t *testing.T) {
	good := bundletest.Bundle("redis")
	with := func(name, text string) bundletest.Files { return good.With(bundletest.Files{name: text}) }
	manifest := func(old, text string) bundletest.Files {
		return with(".manifest", strings.Replace(good[".manifest"], old, text, 1))
	}
	cases := map[string]struct {
		files bundletest.Files
		want  []string
	}{
		"no manifest":              {with(".manifest", ""), []string{"redis: no .manifest"}},
		"broken manifest":          {with(".manifest", "{\n\"roots\": [}"), []string{"redis/.manifest:2: "}},
		"unknown key":              {manifest(`"rego_version"`, `"rego_vrsn"`), []string{"redis/.manifest:1: unknown key \"rego_vrsn\"", "known: revision, roots"}},
		"unknown key below":        {manifest(`max_age_seconds`, `max_age`), []string{"redis/.manifest:2: unknown key \"max_age\""}},
		"wrong type":               {manifest(`10`, `"ten"`), []string{"redis/.manifest:2: ", "string, want float64"}},
		"a collector that is none": {manifest(`"kubernetes": {`, `"kubernets": {`), []string{"metadata.assent.collectors.kubernets: no such collector; known: etcd, kubernetes"}},
		"no max age":               {manifest(`"max_age_seconds": 10`, ``), []string{"metadata.assent.collectors.kubernetes.max_age_seconds: missing"}},
		"contract of the future":   {manifest(`"v1"`, `"v2"`), []string{`metadata.assent.contract: "v2", this version knows "v1"`}},
		"BU-08 manifest says v0":   {manifest(`"rego_version": 1`, `"rego_version": 0`), []string{"rego_version: 0, want 1", "opa fmt --write --v0-v1"}},
		"hyphen in the name":       {manifest(`apps/redis"`, `apps/redis-cluster"`), []string{`roots[0]: "apps/redis-cluster", want apps/<policy>`}},
		"foreign root":             {manifest(`apps/redis_test`, `apps/kafka`), []string{`roots[1]: "apps/kafka", only apps/redis_test may stand beside apps/redis`}},
		"PO-01 misspelled package": {with("policy.rego", strings.Replace(good["policy.rego"], "apps.redis", "apps.rediss", 1)),
			[]string{"redis/policy.rego:1: package apps.rediss is not the manifest's root apps/redis"}},
		"BU-06 a root is compared by segment": {with("more.rego", "package apps.redis_cluster\n\nx := 1\n"),
			[]string{"redis/more.rego:1: package apps.redis_cluster is not the manifest's root apps/redis"}},
		"data outside":         {with("data.json", `{"apps": {"kafka": {"x": 1}}}`), []string{"redis/data.json: data at apps/kafka is not under the manifest's root apps/redis"}},
		"facts in data":        {with("data.json", `{"facts": {"pods": {}}}`), []string{"data at facts is not under"}},
		"broken data":          {with("data.json", `{"apps": `), []string{"redis/data.json: "}},
		"data where a rule is": {with("data.json", `{"apps": {"redis": {"approve": true}}}`), []string{"conflicting rule for data path apps/redis/approve"}},
		"BU-08 Rego v0": {with("policy.rego", "package apps.redis\n\ndeny[r] { r := 1 }\n"),
			[]string{"redis/policy.rego:3: written in Rego v0, which is not supported; rewrite it with: opa fmt --write --v0-v1 redis"}},
		"syntax":                            {with("policy.rego", good["policy.rego"]+"\nx := \n"), []string{"redis/policy.rego:"}},
		"PO-04 conflict the compiler finds": {policy(noDeny, noDefer, approves, "x := 1", "x contains 2 if true"), []string{"redis/policy.rego:6: conflicting rules"}},
		"PO-08 network":                     {policy(noDeny, noDefer, approves, `x := http.send({"url": "http://x", "method": "get"})`), []string{"redis/policy.rego:6: undefined function http.send"}},
		"the clock":                         {policy(noDeny, noDefer, approves, `x := time.now_ns()`), []string{"undefined function time.now_ns"}},
		"no deny":                           {policy(noDefer, approves), []string{"deny is not declared in package apps.redis", "deny contains r if"}},
		"no defer":                          {policy(noDeny, approves), []string{"defer is not declared"}},
		"no approve":                        {policy(noDeny, noDefer), []string{"approve is not declared in package apps.redis; the usual line is `approve if acm.clear`"}},
		"deny is an object":                 {policy(`deny := {"code": "a.b"}`, noDefer, approves), []string{"redis/policy.rego:3: deny is not a set of reasons"}},
		"default approve":                   {policy(noDeny, noDefer, "default approve := true"), []string{"redis/policy.rego:5: default approve := true would approve"}},
		"approve without condition":         {policy(noDeny, noDefer, "approve := true"), []string{"redis/policy.rego:5: approve holds without a condition"}},
		"approve if true":                   {policy(noDeny, noDefer, "approve if true"), []string{"approve holds without a condition"}},
		"misspelled library rule": {policy("import data.acm", "", noDeny, "defer contains r if some r in acm.defers", approves),
			[]string{"redis/policy.rego:6: data.acm.defers is no rule of the library"}},
		"misspelled type": {policy(noDeny, noDefer, `approve if input.operation.type == "deploy"`),
			[]string{`redis/policy.rego:5: input.operation.type is never "deploy"; known: scale-out`}},
		"misspelled type in a set": {policy(noDeny, noDefer, `approve if input.operation.type in {"deployment", "drain"}`), []string{`is never "drain"`}},
		"misspelled stage":         {policy(noDeny, noDefer, `approve if input.operation.stage != "Remove"`), []string{`input.operation.stage is never "Remove"`}},
		"misspelled check":         {with("data.json", `{"apps": {"redis": {"config": {"checks": {"limmit": true}}}}}`), []string{"redis/data.json: checks.limmit: no such check; known: limit"}},
		"misspelled option in an override": {with("data.json", `{"apps": {"redis": {"config": {"checks": {"limit": {"max": 1}},
			"overrides": [{"match": {"set": "a"}, "checks": {"limit": {"maxx": 2}}}]}}}}`), []string{"overrides[0]: checks.limit.maxx: no such option"}},
		"misspelled match": {with("data.json", `{"apps": {"redis": {"config": {"overrides": [{"match": {"sett": "a"}, "checks": {}}]}}}}`),
			[]string{"overrides[0].match.sett: unknown key; known: application, cause, namespace, pod, set, stage, type"}},
		"a failing test": {with("policy_test.rego", good["policy_test.rego"]+"\ntest_wrong if {\n\tprint(\"seen\", 1)\n\tfalse\n}\n"),
			[]string{"redis/policy_test.rego:9: test data.apps.redis_test.test_wrong failed: seen 1"}},
		"PO-05 a built-in that fails in a test": {with("policy_test.rego", good["policy_test.rego"]+"\ntest_wrong if not to_number(\"n/a\") == 1\n"),
			[]string{"test data.apps.redis_test.test_wrong failed", "to_number"}},
		"BU-09 a test of a rule that is not there": {with("policy_test.rego", "package apps.redis_test\n\ntest_x if data.apps.redis.aprove\n"), []string{"test_x failed"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := load(t, c.files)
			require.Error(t, err)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

func TestTreacherousRulesPassWithAWarningAtTheirPlace(t *testing.T) {
	loaded, _, err := load(t, policy(noDeny,
		`defer contains {"code": "own.x", "message": "x"} if not input.target.member.lag <= 10`,
		`defer contains {"code": "own.y", "message": p} if some p, _ in data.facts.pods`,
		approves))
	require.NoError(t, err)
	var texts []string
	for _, w := range loaded.Bundle.Warnings {
		texts = append(texts, w.String())
	}
	all := strings.Join(texts, "\n")
	require.Contains(t, all, "redis/policy.rego:4: `not` before lte")
	require.Contains(t, all, "redis/policy.rego:5: goes through all of data.facts.pods, O(n)")
	require.Contains(t, all, "redis: no tests")
}

func TestATarballIsToldToBeUnsupported(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis.tar.gz"), []byte("x"), 0o644))
	found, err := bundle.Folders(dir)
	require.NoError(t, err)
	require.Len(t, found, 1)
	_, err = bundle.Read(found[0])
	require.EqualError(t, err, "redis.tar.gz: tarballs are not supported in this version; unpack it into a folder")
}

func TestRecordedFactsLieAtTheirFolderAndOnlyForTests(t *testing.T) {
	loaded, _, err := load(t, bundletest.Bundle("redis").With(bundletest.Files{
		"apps/redis_test/broken/data.json": `{"facts": {"pods": {}}}`,
		"recorded_test.rego":               "package apps.redis_test\n\ntest_recorded if data.apps.redis_test.broken.facts.pods == {}\n",
	}))
	require.NoError(t, err)
	require.Empty(t, loaded.Bundle.Data["apps"].(map[string]any)["redis_test"])
}

func TestTheLibraryWithoutCapabilitiesIsRefused(t *testing.T) {
	_, err := bundle.LoadLibrary(os.DirFS(t.TempDir()))
	require.ErrorContains(t, err, "capabilities/v1.json is missing")
}
