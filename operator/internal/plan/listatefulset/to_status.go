package listatefulset

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/indexrange"
)

// defaultDeadline is how many seconds a pod may take to become available unless the set says otherwise.
const defaultDeadline = 600

// facts is what the other parts of the plan found out.
type facts struct {
	revisions    revisions
	staging      Staging
	template     error
	serviceTaken string
}

// view is the set as its status tells it.
type view struct {
	in       Input
	facts    facts
	wanted   int32
	exist    int32
	ready    int32
	avail    int32
	updated  int32
	open     []*v1alpha1.Operation
	late     []string
	lateAt   time.Time
	pending  bool
	conflict string
}

func toStatus(in Input, f facts) (v1alpha1.LiStatefulSetStatus, time.Time) {
	v := look(in, f)
	old := in.Set.Status
	s := v1alpha1.LiStatefulSetStatus{
		ObservedGeneration: in.Set.Generation,
		Replicas:           v.exist,
		ReadyReplicas:      v.ready,
		AvailableReplicas:  v.avail,
		UpdatedReplicas:    v.updated,
		CurrentRevision:    v.current(),
		UpdateRevision:     v.facts.revisions.update,
		Selector:           v1alpha1.LabelSet + "=" + in.Set.Name,
		EverAvailable:      everAvailable(in),
	}
	s.Summary = v.summary(old.Summary)
	s.Conditions = v.conditions(old.Conditions, s.Summary.WaitingFor)
	return s, v.lateAt
}

func look(in Input, f facts) *view {
	if f.revisions.update == "" {
		last := in.Set.Status.UpdateRevision
		f.revisions = revisions{update: last, equal: map[string]bool{last: last != ""}}
	}
	v := &view{in: in, facts: f, wanted: Replicas(in.Set), exist: int32(len(in.Pods)), ready: in.Ready}
	v.countPods()
	for i := range in.Operations {
		if !in.Operations[i].Ended() {
			v.open = append(v.open, &in.Operations[i])
		}
	}
	slices.SortFunc(v.open, func(a, b *v1alpha1.Operation) int { return strings.Compare(a.Name, b.Name) })
	v.pending = f.template == nil && (f.revisions.create != nil || !f.staging.Empty() || v.unclaimed())
	v.conflict = disagreement(in)
	return v
}

func (v *view) countPods() {
	deadline := time.Duration(ptr.Deref(v.in.Set.Spec.ProgressDeadlineSeconds, defaultDeadline)) * time.Second
	for i := range v.in.Pods {
		p := &v.in.Pods[i]
		if p.Spec.State != v1alpha1.Running || p.Spec.Index >= v.wanted {
			continue
		}
		if available(p) {
			v.avail++
			if v.facts.revisions.equal[p.Status.PodRevision] && v.facts.revisions.equal[p.Spec.Revision] {
				v.updated++
			}
			continue
		}
		if p.Status.Since == nil {
			continue
		}
		if at := p.Status.Since.Add(deadline); !at.After(v.in.Now) {
			v.late = append(v.late, p.Name)
		} else if v.lateAt.IsZero() || at.Before(v.lateAt) {
			v.lateAt = at
		}
	}
	slices.Sort(v.late)
}

// available says whether a pod counts. While a grant to take it away is open, its status may be some seconds old.
func available(p *v1alpha1.StatefulPod) bool {
	g := p.Spec.Grant
	leaving := g != nil && g.Stage != v1alpha1.StageAdd && g.Decision != p.Status.Finished
	return p.Status.Available && !leaving
}

// unclaimed says whether the staged blocks differ from the identities and no Operation covers it yet.
func (v *view) unclaimed() bool {
	pods := podsByIndex(v.in.Pods)
	for i := range v.in.Indexes {
		x := &v.in.Indexes[i]
		if x.Status.ObservedGeneration != x.Generation {
			return true
		}
		for _, e := range x.Spec.Indices {
			if differs(e, pods[e.Index]) {
				return true
			}
		}
	}
	return false
}

func differs(e v1alpha1.StagedIndex, pod *v1alpha1.StatefulPod) bool {
	if e.Presence == v1alpha1.Absent {
		return pod != nil
	}
	return pod == nil || pod.Spec.State != v1alpha1.Running || pod.Spec.Revision != e.Revision || pod.Spec.Restart != e.Restart
}

// current is the Revision that all pods have in common; the last one that they had while they differ.
func (v *view) current() string {
	common := ""
	for i := range v.in.Pods {
		have := v.in.Pods[i].Status.PodRevision
		if v.facts.revisions.equal[have] {
			have = v.facts.revisions.update
		}
		if have == "" || common != "" && have != common {
			return v.in.Set.Status.CurrentRevision
		}
		common = have
	}
	if common == "" {
		return v.in.Set.Status.CurrentRevision
	}
	return common
}

// everAvailable remembers an index while it is wanted or has an identity: a new pod of an index that had gone for good
// starts anew.
func everAvailable(in Input) string {
	kept := map[int32]bool{}
	known, err := indexrange.Parse(in.Set.Status.EverAvailable)
	if err != nil {
		known = nil // written by somebody else: what the identities say is all that is known
	}
	pods := podsByIndex(in.Pods)
	for _, i := range indexrange.Indices(known) {
		if i < Replicas(in.Set) || pods[i] != nil {
			kept[i] = true
		}
	}
	for i := range in.Pods {
		if in.Pods[i].Status.EverAvailable {
			kept[in.Pods[i].Spec.Index] = true
		}
	}
	indices := make([]int32, 0, len(kept))
	for i := range kept {
		indices = append(indices, i)
	}
	return indexrange.Format(indexrange.Of(indices))
}

// disagreement names what the sets of the application differ in; nothing is granted to any of them meanwhile.
func disagreement(in Input) string {
	mine := in.Set
	var others []string
	for i := range in.Siblings {
		o := &in.Siblings[i]
		if o.Name == mine.Name || o.ApplicationName() != mine.ApplicationName() || !o.DeletionTimestamp.IsZero() {
			continue
		}
		if o.Spec.Policy != mine.Spec.Policy || o.ACMName() != mine.ACMName() {
			others = append(others, fmt.Sprintf("%s: policy %s, ACM %s", o.Name, o.Spec.Policy, o.ACMName()))
		}
	}
	if len(others) == 0 {
		return ""
	}
	slices.Sort(others)
	return fmt.Sprintf("application.conflict: application %s: this set has policy %s, ACM %s, but %s; nothing is granted until they agree",
		mine.ApplicationName(), mine.Spec.Policy, mine.ACMName(), strings.Join(others, "; "))
}

// urgent says whether a change must not wait: the generation, a condition's status, or a state that ends the watching.
func urgent(old, next v1alpha1.LiStatefulSetStatus) bool {
	if old.ObservedGeneration != next.ObservedGeneration || len(old.Conditions) != len(next.Conditions) {
		return true
	}
	had := map[string]metav1.ConditionStatus{}
	for _, c := range old.Conditions {
		had[c.Type] = c.Status
	}
	for _, c := range next.Conditions {
		if had[c.Type] != c.Status {
			return true
		}
	}
	return false
}
