package render

import (
	"sort"
	"strings"
)

// Mount is one volumeMount: what the container calls Path is Dir on this machine.
type Mount struct {
	Volume, Path, Dir string
}

// Variable is the name under which the container finds the directory whatever the rewriting does.
func (m Mount) Variable() string {
	return "ASSENT_MOUNT_" + strings.ToUpper(strings.ReplaceAll(m.Volume, "-", "_"))
}

// Rewrite puts the real directory wherever text holds a mount path as a whole path or as the head of one: "/data",
// "--dir=/data/etcd", "a:/data:b", "file:///data" change, "/var/data", "/data2" and "http://host/data" do not. The
// longest mount path wins where one lies within another.
func Rewrite(text string, mounts []Mount) string {
	sorted := append([]Mount(nil), mounts...)
	sort.SliceStable(sorted, func(i, j int) bool { return len(sorted[i].Path) > len(sorted[j].Path) })
	var out strings.Builder
	for i := 0; i < len(text); {
		m, ok := mountAt(text, i, sorted)
		if !ok {
			out.WriteByte(text[i])
			i++
			continue
		}
		out.WriteString(m.Dir)
		i += len(strings.TrimRight(m.Path, "/"))
	}
	return out.String()
}

func mountAt(text string, i int, mounts []Mount) (Mount, bool) {
	if text[i] != '/' || !startsPath(text[:i]) {
		return Mount{}, false
	}
	for _, m := range mounts {
		path := strings.TrimRight(m.Path, "/")
		if path == "" || !strings.HasPrefix(text[i:], path) {
			continue
		}
		if rest := text[i+len(path):]; rest == "" || rest[0] == '/' || !nameByte(rest[0]) {
			return m, true
		}
	}
	return Mount{}, false
}

// startsPath says whether a path may start after before: not in the middle of another path or of a URL's, nor after a
// reference, $(HOST)/data.
func startsPath(before string) bool {
	if before == "" || strings.HasSuffix(before, "://") {
		return true
	}
	last := before[len(before)-1]
	return last != '/' && last != ')' && !nameByte(last)
}

func nameByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("._-~", b) >= 0
}
