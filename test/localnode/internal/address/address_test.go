package address

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

func pod(name, uid, subnet string, labels map[string]string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid), Labels: labels}}
	if subnet != "" {
		p.Annotations = map[string]string{SubnetAnnotation: subnet}
	}
	return p
}

func TestAnAnnotationAndLabelsFixTheAddress(t *testing.T) {
	for _, c := range []struct {
		subnet string
		labels map[string]string
		want   string
	}{
		{"127.0.60.0/24", map[string]string{indexLabel: "0"}, "127.0.60.1"},
		{"127.0.60.0/24", map[string]string{indexLabel: "2"}, "127.0.60.3"},
		{"127.0.60.17/24", map[string]string{indexLabel: "2"}, "127.0.60.3"},
		{"127.0.60.0/24", map[string]string{indexLabel: "2", incarnationLabel: "0"}, "127.0.60.3"},
		{"127.0.60.0/24", map[string]string{indexLabel: "2", incarnationLabel: "1"}, "127.0.60.67"},
		{"127.0.60.0/24", map[string]string{podIndexLabel: "4"}, "127.0.60.5"},
		{"127.0.0.0/16", map[string]string{indexLabel: "300"}, "127.0.1.45"},
	} {
		got, ok, err := Fixed(pod("p", "u", c.subnet, c.labels))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, c.want, got.String())
	}
	_, ok, err := Fixed(pod("p", "u", "", map[string]string{indexLabel: "2"}))
	require.NoError(t, err)
	require.False(t, ok)
}

func TestWhatIsWrongWithAnAnnotationIsSaid(t *testing.T) {
	for _, c := range []struct {
		subnet string
		labels map[string]string
		want   string
	}{
		{"nonsense", map[string]string{indexLabel: "2"}, "reading annotation"},
		{"10.0.0.0/24", map[string]string{indexLabel: "2"}, "not within 127.0.0.0/8"},
		{"::1/64", map[string]string{indexLabel: "2"}, "not within 127.0.0.0/8"},
		{"127.0.60.0/24", nil, "needs the label assent.dev/index"},
		{"127.0.60.0/24", map[string]string{indexLabel: "two"}, `"two" is not an index`},
		{"127.0.60.0/24", map[string]string{indexLabel: "2", incarnationLabel: "-1"}, `"-1" is not an index`},
		{"127.0.60.0/24", map[string]string{indexLabel: "254"}, "has no room for index 254"},
		{"127.0.60.0/24", map[string]string{indexLabel: "62", incarnationLabel: "3"}, "has no room for index 62, incarnation 3"},
		{"127.0.60.1/32", map[string]string{indexLabel: "0"}, "has no room"},
	} {
		_, _, err := Fixed(pod("p", "u", c.subnet, c.labels))
		require.ErrorContains(t, err, c.want)
	}
}

func TestAFixedAddressIsAlwaysAHostOfTheSubnet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(8, 32).Draw(t, "bits")
		subnet := netip.PrefixFrom(netip.MustParseAddr("127.99.77.55"), bits)
		labels := map[string]string{
			indexLabel:       strconv.Itoa(rapid.IntRange(0, 1<<24-1).Draw(t, "index")),
			incarnationLabel: strconv.Itoa(rapid.IntRange(0, 1000).Draw(t, "incarnation")),
		}
		got, _, err := Fixed(pod("p", "u", subnet.String(), labels))
		if err == nil {
			require.True(t, subnet.Contains(got))
			require.NotEqual(t, subnet.Masked().Addr(), got)
			require.True(t, subnet.Contains(got.Next()), "broadcast address %s of %s", got, subnet)
		}
	})
}

func TestAnIdentityKeepsItsAddressOverPodsAndRuns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "addresses.json")
	b, err := Open(path)
	require.NoError(t, err)
	first, err := b.Claim(pod("p", "u1", "", nil))
	require.NoError(t, err)
	require.True(t, pool.Contains(first))
	other, err := b.Claim(pod("q", "u9", "", nil))
	require.NoError(t, err)
	require.NotEqual(t, first, other)
	b.Release("u1")
	b.Release("unknown")
	again, err := b.Claim(pod("p", "u2", "", nil))
	require.NoError(t, err)
	require.Equal(t, first, again)

	b, err = Open(path)
	require.NoError(t, err)
	later, err := b.Claim(pod("p", "u3", "", nil))
	require.NoError(t, err)
	require.Equal(t, first, later)
}

func TestAnAddressIsHeldByOnePodObjectUntilItIsReleased(t *testing.T) {
	b, err := Open(filepath.Join(t.TempDir(), "addresses.json"))
	require.NoError(t, err)
	labels := map[string]string{indexLabel: "0"}
	_, err = b.Claim(pod("p", "u1", "127.0.60.0/24", labels))
	require.NoError(t, err)
	_, err = b.Claim(pod("p", "u1", "127.0.60.0/24", labels))
	require.NoError(t, err)
	var held *Held
	_, err = b.Claim(pod("p", "u2", "127.0.60.0/24", labels))
	require.ErrorAs(t, err, &held)
	require.EqualError(t, err, "address 127.0.60.1 is in use by pod ns/p")
	select {
	case <-held.Freed:
		require.Fail(t, "freed too early")
	default:
	}
	b.Release("u1")
	<-held.Freed
	_, err = b.Claim(pod("q", "u3", "127.0.60.0/24", labels))
	require.NoError(t, err)
}

func TestManyIdentitiesNeverShareAnAddress(t *testing.T) {
	b, err := Open(filepath.Join(t.TempDir(), "addresses.json"))
	require.NoError(t, err)
	seen := map[netip.Addr]string{}
	for i := range 500 {
		name := fmt.Sprintf("p-%d", i)
		a, err := b.Claim(pod(name, name, "", nil))
		require.NoError(t, err)
		require.Empty(t, seen[a])
		seen[a] = name
	}
}
