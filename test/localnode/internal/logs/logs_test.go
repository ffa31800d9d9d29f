package logs

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryStartHasItsLogAndTheNewestIsFoundFirst(t *testing.T) {
	s := New(t.TempDir())
	_, err := s.Path("ns", "p", "c", 0)
	require.ErrorIs(t, err, ErrNone)
	for _, text := range []string{"one", "two", "three"} {
		f, err := s.Create("ns", "p", "c", "uid")
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	for back, want := range []string{"three", "two", "one"} {
		path, err := s.Path("ns", "p", "c", back)
		require.NoError(t, err)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(raw))
	}
	_, err = s.Path("ns", "p", "c", 3)
	require.ErrorIs(t, err, ErrNone)
}
