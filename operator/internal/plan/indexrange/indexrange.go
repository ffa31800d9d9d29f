// Package indexrange writes sets of pod indices as people read them: "0-2,5".
package indexrange

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Range is the closed range First..Last; both at least 0.
type Range struct {
	First, Last int32
}

// Of makes the shortest ascending list of ranges that holds exactly the indices, in any order, doubles allowed.
func Of(indices []int32) []Range {
	sorted := slices.Sorted(slices.Values(indices))
	var ranges []Range
	for _, i := range sorted {
		if n := len(ranges); n > 0 && i <= ranges[n-1].Last+1 {
			ranges[n-1].Last = i
			continue
		}
		ranges = append(ranges, Range{i, i})
	}
	return ranges
}

// Indices lists what the ranges hold.
func Indices(ranges []Range) []int32 {
	var out []int32
	for _, r := range ranges {
		for i := r.First; i <= r.Last; i++ {
			out = append(out, i)
		}
	}
	return out
}

// Format writes ranges as "0-2,5"; none is "".
func Format(ranges []Range) string {
	parts := make([]string, len(ranges))
	for i, r := range ranges {
		if r.First == r.Last {
			parts[i] = strconv.Itoa(int(r.First))
		} else {
			parts[i] = fmt.Sprintf("%d-%d", r.First, r.Last)
		}
	}
	return strings.Join(parts, ",")
}

// Parse reads what Format wrote. It errs on anything else, naming the part.
func Parse(text string) ([]Range, error) {
	if text == "" {
		return nil, nil
	}
	var ranges []Range
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, errA := strconv.ParseUint(first, 10, 31)
		b, errB := strconv.ParseUint(last, 10, 31)
		if errA != nil || errB != nil || a > b {
			return nil, fmt.Errorf("reading indices %q: %q is no index and no range", text, part)
		}
		ranges = append(ranges, Range{int32(a), int32(b)})
	}
	return ranges, nil
}
