package indexrange

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRangesReadAsPeopleWriteThem(t *testing.T) {
	for text, indices := range map[string][]int32{
		"":          nil,
		"7":         {7},
		"0-2":       {2, 0, 1},
		"0-2,5":     {0, 1, 2, 5, 5},
		"1,3,9-100": append([]int32{1, 3}, Indices([]Range{{9, 100}})...),
	} {
		require.Equal(t, text, Format(Of(indices)))
	}
}

func TestBrokenRangesAreRefused(t *testing.T) {
	for _, text := range []string{"a", "1-", "-1", "3-1", "1,,2", "0-99999999999"} {
		_, err := Parse(text)
		require.Error(t, err, text)
	}
}

func TestRangesHoldExactlyWhatWentIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		indices := rapid.SliceOf(rapid.Int32Range(0, 600)).Draw(t, "indices")
		ranges, err := Parse(Format(Of(indices)))
		require.NoError(t, err)
		want := slices.Compact(slices.Sorted(slices.Values(indices)))
		require.Len(t, Indices(ranges), len(want))
		require.True(t, slices.Equal(want, Indices(ranges)))
	})
}
