package listatefulset

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/indexrange"
)

// Describe tells a block as people read it: "0-2 at db-55c631b23c; 3-4 absent".
func Describe(x *v1alpha1.PodIndex) string {
	by := map[string][]int32{}
	for _, e := range x.Spec.Indices {
		what := "at " + e.Revision
		if e.Presence == v1alpha1.Absent {
			what = "absent"
		}
		by[what] = append(by[what], e.Index)
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s %s", indexrange.Format(indexrange.Of(by[what])), what))
	}
	return strings.Join(parts, "; ")
}
