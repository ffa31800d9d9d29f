package simulation

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/api/v1alpha1"
	acmv1 "assent.dev/assent/proto/acm/v1"
	"assent.dev/assent/test/simulation/apiserver"
)

// invariants are what must never be otherwise, whatever happens. Each violation is kept with the moment it was seen.
type invariants struct {
	w *World
	// approved decisions as the ACM gave them.
	approved map[string][]approved
	// removed are pods that the operator deleted, by UID, with the decision; each decision removes one pod, once.
	removed map[types.UID]string
	spent   map[string]types.UID
	// removedNames are their names, in order.
	removedNames []string
	// wantedAt are the indices that were wanted when a decision was recorded.
	wantedAt map[string]map[place]bool
	// misfortuneAt is when something last happened that nobody was asked about.
	misfortuneAt time.Time
	violations   []string
	// checkedAt is the version of the world that was looked at last.
	checkedAt int64
	// Counters for tests.
	deletions, approvals, grants, returns, maxDown int
	verdicts                                       map[string]int
}

type approved struct {
	operation, pod, session string
	stage                   acmv1.Stage
	at                      time.Time
	until                   time.Time
}

func newInvariants(w *World) *invariants {
	return &invariants{w: w, approved: map[string][]approved{}, removed: map[types.UID]string{}, spent: map[string]types.UID{}, verdicts: map[string]int{}, wantedAt: map[string]map[place]bool{}}
}

func (v *invariants) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	v.w.note("VIOLATION %s", text)
	v.violations = append(v.violations, text)
}

func (v *invariants) misfortune() { v.misfortuneAt = v.w.Clock.Now() }

// before looks at a write that is about to happen.
func (v *invariants) before(wr apiserver.Write) {
	if wr.Verb == apiserver.Delete && wr.Kind == "PersistentVolumeClaim" && wr.Actor != namespaceController {
		v.fail("claim %s is deleted by %s", wr.Key.Name, wr.Actor)
	}
	if !strings.HasPrefix(wr.Actor, "operator") {
		return
	}
	switch wr.Kind {
	case "Pod":
		if wr.Verb == apiserver.Delete {
			v.podRemoved(wr)
		}
	case "StatefulPod":
		switch wr.Verb {
		case apiserver.Create, apiserver.Update:
			v.granted(wr)
		case apiserver.Delete:
			v.identityRemoved(wr)
		}
	case "Operation":
		if wr.Verb == apiserver.Status {
			v.told(wr)
		}
	}
}

// podRemoved: only under an unexpired approval of exactly that operation, pod and stage, recorded first by the session
// that acts; one pod at most for each approval; within the budget.
func (v *invariants) podRemoved(wr apiserver.Write) {
	pod := wr.Before.(*corev1.Pod)
	if pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
		return
	}
	identity := v.identity(pod.Name)
	if identity == nil || identity.Spec.Grant == nil {
		v.fail("%s deletes Pod %s without a grant", wr.Actor, pod.Name)
		return
	}
	g := identity.Spec.Grant
	a, known := v.approval(pod.Name, g)
	switch {
	case !known:
		v.fail("%s deletes Pod %s under decision %s, which no ACM gave", wr.Actor, pod.Name, g.Decision)
	case !a.fits(pod.Name, g):
		v.fail("%s deletes Pod %s under decision %s, which is for %s %s", wr.Actor, pod.Name, g.Decision, a.operation, a.pod)
	case g.Session != wr.Actor || a.session != wr.Actor:
		v.fail("%s deletes Pod %s under a grant of %s", wr.Actor, pod.Name, g.Session)
	case wr.Sent.After(a.until):
		v.fail("%s deletes Pod %s %s after its approval ran out", wr.Actor, pod.Name, wr.Sent.Sub(a.until))
	case g.PodUID != string(pod.UID):
		v.fail("%s deletes Pod %s with UID %s, judged was %s", wr.Actor, pod.Name, pod.UID, g.PodUID)
	}
	if uid, twice := v.spent[g.Decision]; twice && uid != pod.UID {
		v.fail("decision %s removes a second Pod of %s", g.Decision, pod.Name)
	}
	if g.Type == v1alpha1.Deployment && pod.Labels[v1alpha1.LabelRevision] == identity.Spec.Revision && pod.Labels[v1alpha1.LabelRestart] == identity.Spec.Restart {
		v.fail("%s deletes Pod %s, which is as it is wanted already", wr.Actor, pod.Name)
	}
	v.spent[g.Decision], v.removed[pod.UID] = pod.UID, g.Decision
	v.deletions++
	v.removedNames = append(v.removedNames, pod.Name)
	v.budget(wr, pod, a)
}

// budget: what fell down by itself since the approval is nobody's fault; everything else counts.
func (v *invariants) budget(wr apiserver.Write, pod *corev1.Pod, a approved) {
	if !v.misfortuneAt.Before(a.at) || !readyPod(pod) {
		return
	}
	// A wish may come back between the record and the act: what counts was wanted then and is wanted now.
	down, wanted, then := 1, v.wanted(), v.wantedAt[v.identity(pod.Name).Spec.Grant.Decision]
	for _, s := range objects[*v1alpha1.StatefulPod](v.w, identityKind) {
		if s.Name == pod.Name || !s.Status.EverAvailable || v.readyOf(s.Name) {
			continue
		}
		if at := (place{s.Spec.Set, s.Spec.Index}); v.leaving(s) || wanted[at] && then[at] {
			down++
		}
	}
	v.maxDown = max(v.maxDown, down)
	if allowed := v.allowed(); down > allowed {
		v.fail("%s takes %s down while %d other pods are down; %d are allowed together", wr.Actor, pod.Name, down-1, allowed)
	}
	if v.w.careless != nil || v.w.policy != "etcd" || v.w.app.members[pod.Name] == nil || !v.w.app.members[pod.Name].up {
		return
	}
	left := v.w.app.up() - 1
	leaves := v.identity(pod.Name).Spec.Grant.Type == v1alpha1.ScaleIn
	if need := v.w.app.majority(); left < need && len(v.w.app.members) > 2 && !leaves {
		v.fail("%s takes %s down, which leaves %d of %d members, %d are a majority", wr.Actor, pod.Name, left, len(v.w.app.members), need)
	}
}

// leaving says whether the identity's Pod is on its way out under a grant that was not for the repair of what was down:
// it counts even if it is not wanted anymore, until another Pod stands in its place.
func (v *invariants) leaving(s *v1alpha1.StatefulPod) bool {
	g := s.Spec.Grant
	if g == nil || g.Stage != v1alpha1.StageRemove || g.Repair || s.Status.Finished == g.Decision || v.ended(s) {
		return false
	}
	for _, p := range objects[*corev1.Pod](v.w, podKind) {
		if p.Name == s.Name {
			return string(p.UID) == g.PodUID
		}
	}
	return true
}

// allowed is how many pods of the application may be down: what a set says of the application, or else 1.
func (v *invariants) allowed() int {
	for _, s := range objects[*v1alpha1.LiStatefulSet](v.w, setKind) {
		if s.Spec.ApplicationMaxUnavailable != nil {
			return int(*s.Spec.ApplicationMaxUnavailable)
		}
	}
	return 1
}

// place is one index of one set.
type place struct {
	set   string
	index int32
}

// wanted are the indices that are staged to be there. Those that are to go may be down as they like.
func (v *invariants) wanted() map[place]bool {
	wanted := map[place]bool{}
	for _, x := range objects[*v1alpha1.PodIndex](v.w, indexKind) {
		for _, e := range x.Spec.Indices {
			wanted[place{x.Spec.Set, e.Index}] = e.Presence == v1alpha1.Present
		}
	}
	return wanted
}

func (v *invariants) identity(name string) *v1alpha1.StatefulPod {
	for _, s := range objects[*v1alpha1.StatefulPod](v.w, identityKind) {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (v *invariants) readyOf(name string) bool {
	for _, p := range objects[*corev1.Pod](v.w, podKind) {
		if p.Name == name {
			return readyPod(p) && p.DeletionTimestamp == nil
		}
	}
	return false
}

// ended says whether the Operation's status records the end of the pod's instance.
func (v *invariants) ended(s *v1alpha1.StatefulPod) bool {
	for _, op := range objects[*v1alpha1.Operation](v.w, operationKind) {
		if op.Name != s.Spec.Grant.Operation {
			continue
		}
		for _, i := range op.Status.Instances {
			if i.Pod == s.Name {
				return i.State.Ended()
			}
		}
		return false
	}
	return true
}

// check looks at the whole world between two steps.
func (v *invariants) check() {
	if v.checkedAt == v.w.API.Version() {
		return
	}
	v.checkedAt = v.w.API.Version()
	templates := map[string]string{}
	for _, r := range objects[*v1alpha1.Revision](v.w, revisionKind) {
		content := r.Spec.Set + " " + string(r.Spec.Template.Raw)
		if twin, twice := templates[content]; twice {
			v.fail("Revisions %s and %s are equal", twin, r.Name)
		}
		templates[content] = r.Name
	}
	for _, x := range objects[*v1alpha1.PodIndex](v.w, indexKind) {
		held := map[string]string{}
		for _, c := range x.Status.Claims {
			for _, i := range c.Instances {
				if i.Released {
					continue
				}
				key := fmt.Sprintf("%s of index %d", c.Type, i.Index)
				if other, twice := held[key]; twice {
					v.fail("%s and %s both hold %s", other, c.Name, key)
				}
				held[key] = c.Name
			}
		}
	}
}
