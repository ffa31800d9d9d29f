package kube

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOfTwoWaitsTheSoonerCountsAndNoWaitCountsNot(t *testing.T) {
	for _, c := range []struct{ a, b, want time.Duration }{
		{0, 0, 0}, {-1, -2, 0}, {time.Second, 0, time.Second}, {0, time.Second, time.Second},
		{-time.Second, time.Minute, time.Minute}, {time.Minute, time.Second, time.Second},
	} {
		require.Equal(t, c.want, Sooner(c.a, c.b), "%s and %s", c.a, c.b)
	}
}
