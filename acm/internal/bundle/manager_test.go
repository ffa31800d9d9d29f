package bundle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/go-logr/logr/testr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"assent.dev/assent/acm/internal/bundle"
	"assent.dev/assent/acm/internal/bundle/bundletest"
	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// patience bounds waiting for the file system's events; the rescan of 30 s must not be what helps.
const patience = 10 * time.Second

func manager(t *testing.T, dir string, c clock.WithTicker) (*bundle.Manager, <-chan string) {
	t.Helper()
	changes := make(chan string, 100)
	return bundle.NewManager(bundle.Options{Dir: dir, Gate: gate(t), Clock: c, Log: testr.New(t), Changed: func(p string) { changes <- p }}), changes
}

func run(t *testing.T, m *bundle.Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		goleak.VerifyNone(t, goleak.IgnoreTopFunction("testing.(*T).Run"), goleak.IgnoreTopFunction("testing.(*T).Parallel"))
	})
}

// answering gives a bundle that denies everything with this code, and no tests.
func answering(policy, code string) bundletest.Files {
	return bundletest.Bundle(policy).With(bundletest.Files{"policy_test.rego": "", "policy.rego": fmt.Sprintf(
		"package apps.%s\n\ndeny contains {\"code\": \"own.%s\", \"message\": \"no\"}\n\ndefer := set()\n\napprove if input.x\n", policy, code)})
}

// answer asks the policy in force, and gives the code of what it says or of why there is none.
func answer(m *bundle.Manager, policy string) string {
	p, missing := m.Policy(policy)
	if missing != nil {
		return missing.Code
	}
	o := p.Evaluate(context.Background(), &decision.Question{}, facts.NewStore(nil).Snapshot())
	return decision.Combine(o, nil).Reasons[0].Code
}

func eventually(t *testing.T, m *bundle.Manager, policy, want string) {
	t.Helper()
	require.Eventually(t, func() bool { return answer(m, policy) == want }, patience, 10*time.Millisecond, "want %s, have %s", want, answer(m, policy))
}

func TestBU01_ThreeSwapsOfAMountedVolumeInARowAllTakeEffect(t *testing.T) {
	for name, below := range map[string]string{"a mount for each bundle": "redis", "one mount for the whole directory": ""} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			mount := func(version, code string) {
				files := answering("redis", code)
				if below == "" {
					files = bundletest.Files{}
					for f, text := range answering("redis", code) {
						files["redis/"+f] = text
					}
					mountDirectory(t, dir, version, files)
					return
				}
				at := filepath.Join(dir, below)
				require.NoError(t, os.MkdirAll(at, 0o755))
				bundletest.Mount(t, at, version, files)
			}
			mount("0", "v0")
			m, _ := manager(t, dir, clock.RealClock{})
			run(t, m)
			eventually(t, m, "redis", "own.v0")
			for i := 1; i <= 3; i++ {
				mount(fmt.Sprint(i), fmt.Sprintf("v%d", i))
				eventually(t, m, "redis", fmt.Sprintf("own.v%d", i))
			}
		})
	}
}

// mountDirectory is a projected volume with paths: ..data holds folders, and the top has a link for each.
func mountDirectory(t *testing.T, dir, version string, files bundletest.Files) {
	t.Helper()
	dated := "..2026_10_10_" + version
	bundletest.Write(t, dir, dated, files)
	require.NoError(t, os.Symlink(dated, filepath.Join(dir, "..data_tmp")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	if _, err := os.Lstat(filepath.Join(dir, "redis")); os.IsNotExist(err) {
		require.NoError(t, os.Symlink(filepath.Join("..data", "redis"), filepath.Join(dir, "redis")))
	}
}

func TestBU01_ASwapThatIsToldAsAWriteOnlyTakesEffectThreeTimes(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "redis")
	require.NoError(t, os.MkdirAll(at, 0o755))
	bundletest.Mount(t, at, "0", answering("redis", "v0"))
	m, _ := manager(t, dir, clock.RealClock{})
	events := make(chan fsnotify.Event)
	m.WatchOnly(events)
	run(t, m)
	eventually(t, m, "redis", "own.v0")
	for i := 1; i <= 3; i++ {
		bundletest.Mount(t, at, fmt.Sprint(i), answering("redis", fmt.Sprintf("v%d", i)))
		events <- fsnotify.Event{Name: filepath.Join(at, "..data"), Op: fsnotify.Write}
		eventually(t, m, "redis", fmt.Sprintf("own.v%d", i))
	}
}

func TestWithoutAnyEventTheRescanFindsTheChange(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", answering("redis", "v0"))
	c := clocktesting.NewFakeClock(time.Unix(1764547200, 0))
	m, _ := manager(t, dir, c)
	m.WatchOnly(make(chan fsnotify.Event))
	run(t, m)
	step := func(want string) {
		require.Eventually(t, func() bool {
			if answer(m, "redis") == want {
				return true
			}
			c.Step(30 * time.Second)
			return false
		}, patience, 10*time.Millisecond)
	}
	step("own.v0")
	bundletest.Write(t, dir, "redis", answering("redis", "v1"))
	step("own.v1")
}

func TestEditedFilesOfAPlainFolderAreLiveWithoutARestart(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", answering("redis", "v0"))
	m, _ := manager(t, dir, clock.RealClock{})
	run(t, m)
	eventually(t, m, "redis", "own.v0")
	bundletest.Write(t, dir, "redis", answering("redis", "v1"))
	eventually(t, m, "redis", "own.v1")
	bundletest.Write(t, dir, "kafka", answering("kafka", "new"))
	eventually(t, m, "kafka", "own.new")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "redis")))
	eventually(t, m, "redis", decision.CodeBundleMissing)
}

func TestADirectoryThatAppearsLaterIsFound(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	m, _ := manager(t, dir, clock.RealClock{})
	run(t, m)
	require.Equal(t, decision.CodeBundleMissing, answer(m, "redis"))
	select {
	case <-m.Loaded():
		t.Fatal("a directory that cannot be read does not count as loaded")
	default:
	}
	bundletest.Write(t, dir, "redis", answering("redis", "v0"))
	eventually(t, m, "redis", "own.v0")
	<-m.Loaded()
}

func TestBU03_ABadFirstBundleDefersItsApplicationAloneAndIsTold(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", bundletest.Bundle("redis").With(bundletest.Files{"policy.rego": "package apps.redis\n\nx :=\n"}))
	bundletest.Write(t, dir, "kafka", answering("kafka", "fine"))
	m, _ := manager(t, dir, clock.RealClock{})
	require.NoError(t, m.Scan(t.Context(), false))
	<-m.Loaded()
	require.Equal(t, "own.fine", answer(m, "kafka"))
	_, missing := m.Policy("redis")
	require.Equal(t, decision.CodeBundleInvalid, missing.Code)
	require.Contains(t, missing.Message, "redis/policy.rego:4: ")
	require.Equal(t, decision.CodeBundleInvalid, answer(m, "redis"))
}

func TestPO10_AnUnknownBundleDefersWithTheNamesThatAreKnown(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "redis", answering("redis", "v0"))
	m, _ := manager(t, dir, clock.RealClock{})
	require.NoError(t, m.Scan(t.Context(), false))
	_, missing := m.Policy("mysql")
	require.Equal(t, &decision.MachineryError{Code: decision.CodeBundleMissing, Message: `no bundle is called "mysql"; known: redis`}, missing)
}

func TestTheLastGoodBundleStaysInForceWhileANewerOneIsBad(t *testing.T) {
	dir := t.TempDir()
	c := clocktesting.NewFakeClock(time.Unix(1764547200, 0))
	m, changes := manager(t, dir, c)
	bundletest.Write(t, dir, "redis", answering("redis", "v0"))
	require.NoError(t, m.Scan(t.Context(), false))
	require.Equal(t, "redis", <-changes)
	good := m.Statuses()[0]

	for name, bad := range map[string]bundletest.Files{
		"broken Rego":     {"policy.rego": "package apps.redis\n\nx :=\n"},
		"failing test":    {"policy_test.rego": "package apps.redis_test\n\ntest_x if false\n"},
		"broken manifest": {".manifest": "{"},
	} {
		t.Run(name, func(t *testing.T) {
			c.Step(time.Minute)
			at := bundletest.Write(t, dir, "redis", bad)
			require.NoError(t, m.Scan(t.Context(), false))
			require.Equal(t, "redis", <-changes)
			require.Equal(t, "own.v0", answer(m, "redis"))
			s := m.Statuses()[0]
			require.Equal(t, good.Revision, s.Revision)
			require.Equal(t, c.Now(), s.FailingSince)
			require.NotEmpty(t, s.Problems)
			c.Step(time.Minute)
			require.NoError(t, m.Scan(t.Context(), true))
			require.Empty(t, changes, "an error that stays the same is told once")
			require.Equal(t, map[string]float64{
				"assent_acm_bundle_info": 1, "assent_acm_bundle_invalid": 1, "assent_acm_bundle_failing_seconds": 60,
				"assent_acm_bundle_good_age_seconds": 120, "assent_acm_bundle_warnings": 1,
			}, gather(t, m))

			require.NoError(t, os.RemoveAll(at))
			bundletest.Write(t, dir, "redis", answering("redis", "v0"))
			require.NoError(t, m.Scan(t.Context(), false))
			require.Equal(t, "redis", <-changes)
			s = m.Statuses()[0]
			require.Empty(t, s.Problems)
			require.Equal(t, good.Revision, s.Revision)
			require.Equal(t, good.Since, s.Since, "the same content was in force all the time")
		})
	}
}

// gather gives the gauges of a manager with one bundle.
func gather(t *testing.T, m *bundle.Manager) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		require.Len(t, f.GetMetric(), 1)
		values[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue()
	}
	return values
}

func TestADirectoryThatCannotBeReadTakesNothingAway(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bundles")
	bundletest.Write(t, dir, "redis", answering("redis", "v0"))
	m, _ := manager(t, dir, clock.RealClock{})
	require.NoError(t, m.Scan(t.Context(), false))
	require.NoError(t, os.Rename(dir, dir+"-away"))
	require.Error(t, m.Scan(t.Context(), false))
	require.Equal(t, "own.v0", answer(m, "redis"))
}

func TestBU05_TwoFoldersOfOnePolicyAreRefusedWithBothNames(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "one", answering("redis", "one"))
	bundletest.Write(t, dir, "two", answering("redis", "two"))
	bundletest.Write(t, dir, "kafka", answering("kafka", "fine"))
	m, _ := manager(t, dir, clock.RealClock{})
	require.NoError(t, m.Scan(t.Context(), false))
	_, missing := m.Policy("redis")
	require.Equal(t, decision.CodeBundleInvalid, missing.Code)
	require.Equal(t, "policy redis is given by the folders one and two; keep one", missing.Message)
	require.Equal(t, "own.fine", answer(m, "kafka"))
}

func TestBU06_PoliciesWhoseNamesBeginAlikeDoNotOverlap(t *testing.T) {
	dir := t.TempDir()
	bundletest.Write(t, dir, "cat", answering("cat", "one"))
	bundletest.Write(t, dir, "c", answering("c", "two"))
	m, _ := manager(t, dir, clock.RealClock{})
	require.NoError(t, m.Scan(t.Context(), false))
	require.Equal(t, "own.one", answer(m, "cat"))
	require.Equal(t, "own.two", answer(m, "c"))
}

func TestEditingAnEarlierConfigMapDoesNotMixVersions(t *testing.T) {
	at := t.TempDir()
	bundletest.Mount(t, at, "0", answering("redis", "v0"))
	found, err := bundle.Folders(at)
	require.NoError(t, err)
	bundletest.Mount(t, at, "1", answering("redis", "v1"))
	_, err = bundle.Read(found[0])
	require.ErrorIs(t, err, os.ErrNotExist, "the version that was resolved is gone: an error to retry, never an empty bundle")
}
