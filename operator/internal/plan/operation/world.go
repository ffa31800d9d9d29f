package operation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/indexrange"
	"assent.dev/assent/operator/internal/plan/statefulpod"
)

// world is the input, joined and sorted.
type world struct {
	in Input
	// sets that exist and are not being deleted, by name; names in order.
	sets  map[string]*v1alpha1.LiStatefulSet
	names []string
	// indexes by name, each of a set above.
	indexes map[string]*v1alpha1.PodIndex
	staged  map[at]v1alpha1.StagedIndex
	// wanted are the indices of a set that are staged present, in order.
	wanted map[string][]int32
	ops    map[string]*v1alpha1.Operation
	// identities by name, and those of an index, the oldest incarnation first.
	identities map[string]*v1alpha1.StatefulPod
	byIndex    map[at][]*v1alpha1.StatefulPod
	// pods by name, each its identity's own.
	pods map[string]*corev1.Pod
	held map[string]*approval.Held
	// instances of the Operations in order, and by reference.
	instances []*instance
	byRef     map[Ref]*instance
	caps      *caps
	// conflict says in what the sets differ; empty when they agree.
	conflict string
}

// instance is one pod of one Operation.
type instance struct {
	ref    Ref
	op     *v1alpha1.Operation
	spec   v1alpha1.OperationInstance
	before v1alpha1.InstanceStatus
	set    *v1alpha1.LiStatefulSet
	// identity and pod; nil when there is none.
	identity *v1alpha1.StatefulPod
	pod      *corev1.Pod
	wish     wish
	standing standing
	word     Word
	key      string
	// asks: the question asks for it.
	asks bool
}

func (i *instance) at() at { return at{i.op.Spec.Set, i.spec.Index} }

func newWorld(in Input) *world {
	w := &world{
		in: in, sets: map[string]*v1alpha1.LiStatefulSet{}, indexes: map[string]*v1alpha1.PodIndex{},
		staged: map[at]v1alpha1.StagedIndex{}, wanted: map[string][]int32{}, ops: map[string]*v1alpha1.Operation{},
		identities: map[string]*v1alpha1.StatefulPod{}, byIndex: map[at][]*v1alpha1.StatefulPod{},
		pods: map[string]*corev1.Pod{}, held: map[string]*approval.Held{}, byRef: map[Ref]*instance{},
	}
	uids := w.joinSets()
	for i := range in.Indexes {
		x := &in.Indexes[i]
		if uid, ok := uids[x.Spec.Set]; ok && ownedBy(x.OwnerReferences, uid) {
			w.indexes[x.Name] = x
			for _, e := range x.Spec.Indices {
				w.staged[at{x.Spec.Set, e.Index}] = e
				if e.Presence == v1alpha1.Present {
					w.wanted[x.Spec.Set] = append(w.wanted[x.Spec.Set], e.Index)
				}
			}
		}
	}
	for _, indices := range w.wanted {
		slices.Sort(indices)
	}
	w.joinIdentities(uids)
	for i := range in.Held {
		w.held[in.Held[i].Decision] = &in.Held[i]
	}
	w.conflict = conflictOf(w)
	w.joinOperations()
	w.caps = w.countCaps()
	return w
}

func (w *world) joinSets() map[string]types.UID {
	uids := map[string]types.UID{}
	for i := range w.in.Sets {
		s := &w.in.Sets[i]
		if s.DeletionTimestamp == nil {
			w.sets[s.Name] = s
			w.names = append(w.names, s.Name)
			uids[s.Name] = s.UID
		}
	}
	slices.Sort(w.names)
	return uids
}

func (w *world) joinIdentities(uids map[string]types.UID) {
	for i := range w.in.Identities {
		s := &w.in.Identities[i]
		uid, ok := uids[s.Spec.Set]
		if !ok || !ownedBy(s.OwnerReferences, uid) {
			continue
		}
		w.identities[s.Name] = s
		place := at{s.Spec.Set, s.Spec.Index}
		w.byIndex[place] = append(w.byIndex[place], s)
	}
	for _, list := range w.byIndex {
		slices.SortFunc(list, func(a, b *v1alpha1.StatefulPod) int {
			return cmp.Compare(a.Spec.Incarnation, b.Spec.Incarnation)
		})
	}
	for i := range w.in.Pods {
		p := &w.in.Pods[i]
		if s := w.identities[p.Name]; s != nil && statefulpod.Owned(s, p) {
			w.pods[p.Name] = p
		}
	}
}

func (w *world) joinOperations() {
	order := make([]*v1alpha1.Operation, 0, len(w.in.Operations))
	for i := range w.in.Operations {
		op := &w.in.Operations[i]
		if x := w.indexes[op.Spec.PodIndex]; x != nil && ownedBy(op.OwnerReferences, x.UID) {
			w.ops[op.Name] = op
			order = append(order, op)
		}
	}
	slices.SortFunc(order, func(a, b *v1alpha1.Operation) int { return strings.Compare(a.Name, b.Name) })
	for _, op := range order {
		before := statuses(op)
		for _, spec := range op.Spec.Instances {
			inst := &instance{
				ref: Ref{op.Name, spec.Pod}, op: op, spec: spec, before: before[spec.Pod], set: w.sets[op.Spec.Set],
				identity: w.identities[spec.Pod], pod: w.pods[spec.Pod], key: keyOf(op, spec),
			}
			inst.wish = w.wishOf(inst)
			inst.word = w.wordOf(inst)
			inst.standing = project(w.view(inst))
			w.instances = append(w.instances, inst)
			w.byRef[inst.ref] = inst
		}
	}
}

func statuses(op *v1alpha1.Operation) map[string]v1alpha1.InstanceStatus {
	m := make(map[string]v1alpha1.InstanceStatus, len(op.Status.Instances))
	for _, s := range op.Status.Instances {
		m[s.Pod] = s
	}
	return m
}

func (w *world) view(i *instance) view {
	v := view{
		operation: i.op.Name, kind: i.op.Spec.Type, target: i.op.Spec.Target, before: i.before.State, wish: i.wish,
		identity: i.identity, absent: w.in.Absent[i.spec.Pod], pod: i.pod, session: w.in.Session, now: w.in.Now,
		parked: i.word.Verdict == "deny" && i.word.Key == i.key && w.in.Now.Before(i.word.RetryAt),
	}
	if i.identity != nil && i.identity.Spec.Grant != nil {
		v.approval = w.held[i.identity.Spec.Grant.Decision]
	}
	return v
}

// wishOf compares the instance with the staging, if that is at least as new as the claim.
func (w *world) wishOf(i *instance) wish {
	x := w.indexes[i.op.Spec.PodIndex]
	if x == nil || x.Generation < i.op.Spec.Generation {
		return wishUnknown
	}
	e, known := w.staged[i.at()]
	present := known && e.Presence == v1alpha1.Present
	var same bool
	switch i.op.Spec.Type {
	case v1alpha1.ScaleIn:
		same = !present
	case v1alpha1.ScaleOut:
		same = present && e.Revision == i.op.Spec.Target.Revision
	case v1alpha1.Deployment:
		same = present && e.Revision == i.op.Spec.Target.Revision && e.Restart == i.op.Spec.Target.Restart
	case v1alpha1.Disrupt, v1alpha1.SwapPods:
		return wishUnknown
	}
	if same {
		return wishSame
	}
	return wishChanged
}

// keyOf changes whenever a parked instance deserves a new answer; the order itself is sealed, so it is the order's
// identity and what it asks for. The ACM adds its bundle's revision.
func keyOf(op *v1alpha1.Operation, spec v1alpha1.OperationInstance) string {
	return fmt.Sprintf("%s/%d/%s/%s", op.UID, spec.Index, op.Spec.Target.Revision, op.Spec.Target.Restart)
}

func (w *world) wordOf(i *instance) Word {
	if word, ok := w.in.Words[i.ref]; ok {
		return word
	}
	b := &i.before
	word := Word{Verdict: verdictOf(b.Verdict), DecisionID: b.DecisionID, Reasons: b.Reasons, Needs: b.Needs, Key: b.Key}
	if b.RetryAt != nil {
		word.RetryAt = b.RetryAt.Time
	}
	if b.WaitingSince != nil {
		word.WaitingSince = b.WaitingSince.Time
	}
	return word
}

// conflictOf says in what the sets of the application differ though they must agree.
func conflictOf(w *world) string {
	for _, n := range w.names[:max(0, len(w.names)-1)] {
		a, b := w.sets[n], w.sets[w.names[len(w.names)-1]]
		if a.Spec.Policy != b.Spec.Policy {
			return fmt.Sprintf("sets %s and %s of the application name different policies (%s, %s); nothing is granted until they agree",
				a.Name, b.Name, a.Spec.Policy, b.Spec.Policy)
		}
		if acmOf(a) != acmOf(b) {
			return fmt.Sprintf("sets %s and %s of the application name different ACMs (%s, %s); nothing is granted until they agree",
				a.Name, b.Name, acmOf(a), acmOf(b))
		}
	}
	return ""
}

// defaultACM is the entry of the operator's configuration that a set uses unless it names another.
const defaultACM = "default"

func acmOf(s *v1alpha1.LiStatefulSet) string {
	if s.Spec.ACM == "" {
		return defaultACM
	}
	return s.Spec.ACM
}

// everAvailable are those of the wanted indices that have been available once.
func (w *world) everAvailable(set string) []int32 {
	remembered := map[int32]bool{}
	ranges, err := indexrange.Parse(w.sets[set].Status.EverAvailable)
	for _, i := range indexrange.Indices(ranges) {
		remembered[i] = true
	}
	var list []int32
	for _, i := range w.wanted[set] {
		// A memory that cannot be read is taken for the worst: that every index counts.
		ever := remembered[i] || err != nil
		for _, s := range w.byIndex[at{set, i}] {
			ever = ever || s.Status.EverAvailable
		}
		if ever {
			list = append(list, i)
		}
	}
	return list
}

// available says whether an index has an available incarnation.
func (w *world) available(i at) bool {
	return slices.ContainsFunc(w.byIndex[i], func(s *v1alpha1.StatefulPod) bool { return w.up(s) })
}

func (w *world) up(s *v1alpha1.StatefulPod) bool {
	return statefulpod.AvailabilityOf(s, w.pods[s.Name], w.in.Now).Available
}

// maxUnavailable of a set as a number: percentages of the wanted pods round up, and at least 1.
func (w *world) maxUnavailable(set string) int32 {
	s := w.sets[set]
	if s.Spec.MaxUnavailable == nil {
		return 1
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(s.Spec.MaxUnavailable, len(w.wanted[set]), true)
	if err != nil {
		return 1
	}
	return int32(max(1, n))
}

// applicationMaxUnavailable is the smallest that a set names, or else the largest of the sets' own.
func (w *world) applicationMaxUnavailable() int32 {
	var named, largest int32
	for _, n := range w.names {
		largest = max(largest, w.maxUnavailable(n))
		if m := w.sets[n].Spec.ApplicationMaxUnavailable; m != nil && (named == 0 || *m < named) {
			named = *m
		}
	}
	if named > 0 {
		return named
	}
	return max(1, largest)
}

// countCaps counts what is unavailable and in flight now.
func (w *world) countCaps() *caps {
	c := &caps{sets: map[string]*budget{}, application: newBudget(w.applicationMaxUnavailable())}
	for _, n := range w.names {
		c.sets[n] = newBudget(w.maxUnavailable(n))
		for _, i := range w.everAvailable(n) {
			if !w.available(at{n, i}) {
				c.miss(at{n, i})
			}
		}
	}
	for place, list := range w.byIndex {
		for _, s := range list {
			if statefulpod.Removing(s.Spec.Grant) && w.inFlight(s) {
				c.spend(place, s.Spec.Grant.Repair)
			}
		}
	}
	return c
}

// inFlight says whether the identity's grant counts: it is not finished, and its instance has not ended otherwise.
func (w *world) inFlight(s *v1alpha1.StatefulPod) bool {
	if !statefulpod.Open(s) {
		return false
	}
	i := w.byRef[Ref{s.Spec.Grant.Operation, s.Name}]
	return i == nil || !i.standing.state.Ended()
}

func ownedBy(refs []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(refs, func(r metav1.OwnerReference) bool { return r.UID == uid })
}
