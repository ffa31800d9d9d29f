package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/metrics"
)

// constants are the texts of a file's constants whose names begin with the prefix.
func constants(t *testing.T, path, prefix string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	require.NoError(t, err)
	var texts []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != len(spec.Names) {
			return true
		}
		for i, name := range spec.Names {
			literal, ok := spec.Values[i].(*ast.BasicLit)
			if ok && literal.Kind == token.STRING && strings.HasPrefix(name.Name, prefix) {
				text, err := strconv.Unquote(literal.Value)
				require.NoError(t, err)
				texts = append(texts, text)
			}
		}
		return true
	})
	require.NotEmpty(t, texts, path)
	return texts
}

// named keeps the whole README out of the failure.
func named(t *testing.T, readme, text string) {
	t.Helper()
	if !strings.Contains(readme, text) {
		t.Errorf("README.md does not name %s", text)
	}
}

// What people look up when something waits has to be in the README, each name as it appears in the cluster.
func TestTheREADMENamesEveryStateReasonCodeEventMetricAndFlag(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	readme := string(text)
	for _, list := range [][]string{
		constants(t, "api/v1alpha1/operation_types.go", ""),
		constants(t, "api/v1alpha1/conditions.go", "Condition"),
		constants(t, "internal/event/event.go", "Reason"),
		constants(t, "internal/plan/listatefulset/conditions.go", "reason"),
		constants(t, "internal/plan/listatefulset/summary.go", "state"),
		constants(t, "internal/plan/statefulpod/to_status.go", "reason"),
		constants(t, "internal/plan/question/codes.go", "Code"),
	} {
		for _, name := range list {
			if !later[name] {
				named(t, readme, "`"+name+"`")
			}
		}
	}
	cmd, _ := command()
	cmd.Flags().VisitAll(func(f *pflag.Flag) { named(t, readme, "`--"+f.Name) })
}

// later are names that the protocol has and this version does not use yet.
var later = map[string]bool{
	string(v1alpha1.Disrupt): true, string(v1alpha1.SwapPods): true, string(v1alpha1.StageUpdate): true, string(v1alpha1.StageRelease): true,
}

func TestTheREADMENamesEveryMetric(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	reg := prometheus.NewPedanticRegistry()
	m, err := metrics.New(reg)
	require.NoError(t, err)
	m.Decision("defer", "x")
	m.Instances("ns/db", map[metrics.InstanceKey]int{{Type: "scale-out", State: "Waiting"}: 1})
	m.Grant("scale-out", "add")
	m.Act("create", "done")
	m.Write("Pod", "create")
	m.Request("default", "answered", 0.1)
	m.Unavailable("ns", "db", 1)
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Len(t, families, 9)
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "assent_operator_")
		require.True(t, ours, f.GetName())
		named(t, string(text), "| `"+name+"` |")
	}
}

func TestLinksOfTheREADMEAndTheDecisionRecordsLeadSomewhere(t *testing.T) {
	records, err := filepath.Glob("adr/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, records)
	for _, path := range append(records, "README.md") {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, part := range strings.Split(string(text), "](")[1:] {
			target, _, _ := strings.Cut(part, ")")
			if strings.HasPrefix(target, "#") {
				continue
			}
			_, err := os.Stat(filepath.Join(filepath.Dir(path), target))
			require.NoError(t, err, "%s: %s", path, target)
		}
	}
}
