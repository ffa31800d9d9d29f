package listatefulset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
)

// hashLength is how many hex digits of the content's SHA-256 a Revision's name carries: with 40 bits, two of a
// million templates of one set share a name with odds below one in two, and then a suffix keeps them apart.
const hashLength = 10

// defaultHistory is how many unused Revisions are kept unless the set says otherwise.
const defaultHistory = 10

// revisions is which Revision the template has.
type revisions struct {
	// update is the Revision wanted.
	update string
	// equal holds every Revision of the same content: a pod on any of them is up to date.
	equal map[string]bool
	// create is the Revision to make; nil when there is one.
	create *v1alpha1.Revision
}

// RevisionName names the Revision of a canonical template: <set>-<hash>, and <set>-<hash>-<attempt> when another
// content already has that name.
func RevisionName(set string, canonical []byte, attempt int) string {
	sum := sha256.Sum256(canonical)
	name := set + "-" + hex.EncodeToString(sum[:])[:hashLength]
	if attempt > 0 {
		name += fmt.Sprintf("-%d", attempt)
	}
	return name
}

// SameContent says whether a Revision holds exactly this canonical template.
func SameContent(r *v1alpha1.Revision, canonical []byte) bool {
	have, err := Canonical(r.Spec.Template.Raw)
	return err == nil && bytes.Equal(have, canonical)
}

// toRevisions finds the template's Revision by content, not by name, so that an equal one is never made twice. Among
// several equal ones it keeps the one in use.
func toRevisions(in Input, t Template) revisions {
	r := revisions{equal: map[string]bool{}}
	byName := map[string]bool{}
	for i := range in.Revisions {
		byName[in.Revisions[i].Name] = true
		if SameContent(&in.Revisions[i], t.Canonical) {
			r.equal[in.Revisions[i].Name] = true
		}
	}
	if len(r.equal) > 0 {
		r.update = preferred(in, r.equal)
		return r
	}
	attempt := 0
	for byName[RevisionName(in.Set.Name, t.Canonical, attempt)] {
		attempt++
	}
	r.create = NewRevision(in.Set, t.Canonical, attempt)
	r.update = r.create.Name
	r.equal[r.update] = true
	return r
}

func preferred(in Input, equal map[string]bool) string {
	if equal[in.Set.Status.UpdateRevision] {
		return in.Set.Status.UpdateRevision
	}
	staged := map[string]bool{}
	for i := range in.Indexes {
		for _, e := range in.Indexes[i].Spec.Indices {
			if equal[e.Revision] {
				staged[e.Revision] = true
			}
		}
	}
	if len(staged) > 0 {
		return smallest(staged)
	}
	return smallest(equal)
}

// smallest is the shortest name, then the first: the one without a suffix.
func smallest(names map[string]bool) string {
	best := ""
	for n := range names {
		if best == "" || len(n) < len(best) || len(n) == len(best) && n < best {
			best = n
		}
	}
	return best
}

// NewRevision is the Revision of a canonical template. The set becomes its controlling owner when it is created.
func NewRevision(set *v1alpha1.LiStatefulSet, canonical []byte, attempt int) *v1alpha1.Revision {
	return &v1alpha1.Revision{
		ObjectMeta: metav1.ObjectMeta{
			Name:      RevisionName(set.Name, canonical, attempt),
			Namespace: set.Namespace,
			Labels:    map[string]string{v1alpha1.LabelApplication: set.ApplicationName(), v1alpha1.LabelSet: set.Name},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind("LiStatefulSet")),
			},
		},
		Spec: v1alpha1.RevisionSpec{Set: set.Name, Template: runtime.RawExtension{Raw: slices.Clone(canonical)}},
	}
}

// uses counts, per Revision, the indices that are staged for it or approved to run it, each once.
func uses(in Input) map[string]int32 {
	type use struct {
		revision string
		index    int32
	}
	seen := map[use]bool{}
	for i := range in.Indexes {
		for _, e := range in.Indexes[i].Spec.Indices {
			if e.Revision != "" {
				seen[use{e.Revision, e.Index}] = true
			}
		}
	}
	for i := range in.Pods {
		seen[use{in.Pods[i].Spec.Revision, in.Pods[i].Spec.Index}] = true
	}
	count := map[string]int32{}
	for u := range seen {
		count[u.revision]++
	}
	return count
}

// toRevisionStatus counts users and keeps when a Revision was last the one wanted: nothing while it is.
func toRevisionStatus(in Input, r revisions) []v1alpha1.Revision {
	if r.update == "" {
		return nil
	}
	count := uses(in)
	now := metav1.NewTime(in.Now.Truncate(1e9))
	var changed []v1alpha1.Revision
	for i := range in.Revisions {
		old := &in.Revisions[i]
		status := v1alpha1.RevisionStatus{Pods: count[old.Name], LastUsed: old.Status.LastUsed}
		switch {
		case old.Name == r.update:
			status.LastUsed = nil
		case status.LastUsed == nil:
			status.LastUsed = &now
		}
		if status.Pods != old.Status.Pods || !status.LastUsed.Equal(old.Status.LastUsed) {
			next := old.DeepCopy()
			next.Status = status
			changed = append(changed, *next)
		}
	}
	slices.SortFunc(changed, func(a, b v1alpha1.Revision) int { return strings.Compare(a.Name, b.Name) })
	return changed
}

// unused lists the Revisions beyond the history limit that nothing names anymore.
func unused(in Input, r revisions) []v1alpha1.Revision {
	if r.update == "" {
		return nil
	}
	named := references(in)
	for n := range r.equal {
		named[n] = true
	}
	var free []v1alpha1.Revision
	for i := range in.Revisions {
		if !named[in.Revisions[i].Name] && in.Revisions[i].DeletionTimestamp.IsZero() {
			free = append(free, in.Revisions[i])
		}
	}
	slices.SortFunc(free, func(a, b v1alpha1.Revision) int {
		if c := lastUsed(&a).Compare(lastUsed(&b).Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	limit := int(ptr.Deref(in.Set.Spec.RevisionHistoryLimit, defaultHistory))
	return free[:max(0, len(free)-limit)]
}

func lastUsed(r *v1alpha1.Revision) metav1.Time {
	if r.Status.LastUsed != nil {
		return *r.Status.LastUsed
	}
	return r.CreationTimestamp
}

// references holds every Revision that something names: staged, approved, run, gone back to or ordered.
func references(in Input) map[string]bool {
	named := map[string]bool{in.Set.Status.CurrentRevision: true, in.Set.Status.UpdateRevision: true}
	for i := range in.Indexes {
		for _, e := range in.Indexes[i].Spec.Indices {
			named[e.Revision] = true
		}
		for _, c := range in.Indexes[i].Status.Claims {
			named[c.Target.Revision] = true
		}
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		named[p.Spec.Revision], named[p.Status.PodRevision] = true, true
		if p.Spec.Grant != nil && p.Spec.Grant.Previous != nil {
			named[p.Spec.Grant.Previous.Revision] = true
		}
	}
	for i := range in.Operations {
		if !in.Operations[i].Ended() {
			named[in.Operations[i].Spec.Target.Revision] = true
		}
	}
	return named
}
