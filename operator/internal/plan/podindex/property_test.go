package podindex

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"assent.dev/assent/operator/api/v1alpha1"
)

// life is a set of two small blocks whose edits, Operations and caches take a random course.
type life struct {
	*rapid.T
	blocks []*world
	// seen is an older view of pods and Operations that a planner may be given instead of the newest.
	seen [2]Input
	made map[string]bool
	// flapped: a pod went down or came back; then one that is down may be claimed beside one that is up.
	flapped bool
}

// edges are the indices that the property tests play with: both sides of a block's border.
var edges = [2][]int32{{253, 254, 255}, {256, 257, 258}}

func newLife(t *rapid.T) *life {
	l := &life{T: t, blocks: []*world{block("db", 0), block("db", 1)}, made: map[string]bool{}}
	l.edit(t)
	l.look(t)
	return l
}

// edit stages a random number of replicas and a random revision, as the set's controller would.
func (l *life) edit(t *rapid.T) {
	replicas := rapid.Int32Range(253, 259).Draw(t, "replicas")
	revision := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "revision")
	for b, w := range l.blocks {
		w.Index = w.Index.DeepCopy()
		w.Index.Generation++
		for _, i := range edges[b] {
			if i < replicas {
				w.present(revision, i)
			} else {
				w.absent(i)
			}
		}
	}
}

// look refreshes the stale view.
func (l *life) look(*rapid.T) {
	for b, w := range l.blocks {
		l.seen[b] = Input{Pods: deepPods(l.pods()), Operations: deepOps(w.Operations)}
	}
}

func (l *life) pods() []v1alpha1.StatefulPod { return l.blocks[0].Pods }

func (l *life) setPods(pods []v1alpha1.StatefulPod) {
	for _, w := range l.blocks {
		w.Pods = pods
	}
}

// plan carries out one block's plan. The ledger is stored under an optimistic lock, so it is never stale; Operations
// may be, and identities are read live before anything is claimed.
func (l *life) plan(t *rapid.T) {
	b := rapid.IntRange(0, 1).Draw(t, "block")
	w := l.blocks[b]
	in := w.Input
	in.Blocks = []v1alpha1.PodIndex{*l.blocks[0].Index, *l.blocks[1].Index}
	in.Operations = l.seen[b].Operations
	p := Make(in)
	w.Index = w.Index.DeepCopy()
	w.Index.Status = p.Status
	for _, op := range slices.Concat(p.Missing, p.Claimed) {
		if !l.made[op.Name] {
			l.made[op.Name] = true
			w.Operations = append(w.Operations, op)
		}
	}
}

// progress ends one instance and changes the identity as its type says.
func (l *life) progress(t *rapid.T) {
	w := l.blocks[rapid.IntRange(0, 1).Draw(t, "block")]
	var open []*v1alpha1.Operation
	for i := range w.Operations {
		if !w.Operations[i].Ended() {
			open = append(open, &w.Operations[i])
		}
	}
	if len(open) == 0 {
		return
	}
	op := rapid.SampledFrom(open).Draw(t, "operation")
	instance := rapid.SampledFrom(op.Spec.Instances).Draw(t, "instance")
	if rapid.Bool().Draw(t, "withdrawn") {
		w.end(op.Name, v1alpha1.Withdrawn, instance.Index)
		return
	}
	l.carryOut(op, instance)
	w.end(op.Name, v1alpha1.Succeeded, instance.Index)
}

func (l *life) carryOut(op *v1alpha1.Operation, instance v1alpha1.OperationInstance) {
	pods := deepPods(l.pods())
	at := slices.IndexFunc(pods, func(p v1alpha1.StatefulPod) bool { return p.Name == instance.Pod })
	switch {
	case op.Spec.Type == v1alpha1.ScaleIn && at >= 0:
		pods = slices.Delete(pods, at, at+1)
	case op.Spec.Type == v1alpha1.ScaleOut && at < 0:
		w := block("db", 0).pods(op.Spec.Target.Revision, instance.Index)
		pods = append(pods, w.Pods...)
	case op.Spec.Type == v1alpha1.Deployment && at >= 0:
		pods[at].Spec.Revision = op.Spec.Target.Revision
	}
	l.setPods(pods)
}

func hasOpenScaleIn(c v1alpha1.Claim) bool {
	return c.Type == v1alpha1.ScaleIn && slices.ContainsFunc(c.Instances, func(i v1alpha1.ClaimedInstance) bool { return !i.Released })
}

// flap takes a pod down or brings it back.
func (l *life) flap(t *rapid.T) {
	if len(l.pods()) == 0 {
		return
	}
	l.flapped = true
	pods := deepPods(l.pods())
	at := rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
	pods[at].Status.Available = !pods[at].Status.Available
	l.setPods(pods)
}

// check holds after every step.
func (l *life) check(t *rapid.T) {
	scaleIns := 0
	for _, w := range l.blocks {
		held := map[v1alpha1.OperationType]map[int32]bool{}
		for _, c := range w.Index.Status.Claims {
			require.LessOrEqual(t, len(c.Instances), v1alpha1.BlockSize)
			if hasOpenScaleIn(c) {
				scaleIns++
			}
			if held[c.Type] == nil {
				held[c.Type] = map[int32]bool{}
			}
			for _, i := range c.Instances {
				require.False(t, held[c.Type][i.Index] && !i.Released, "index %d is claimed twice for %s", i.Index, c.Type)
				held[c.Type][i.Index] = held[c.Type][i.Index] || !i.Released
			}
		}
	}
	if !l.flapped {
		require.LessOrEqual(t, scaleIns, 1, "scale-ins open in the set")
	}
}

func TestNoIndexIsEverClaimedTwiceForOneType(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		t.Repeat(map[string]func(*rapid.T){
			"edit": l.edit, "look": l.look, "plan": l.plan, "progress": l.progress, "flap": l.flap, "": l.check,
		})
	})
}

func TestWhileAllPodsAreUpOneScaleInIsOpenAtMost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		t.Repeat(map[string]func(*rapid.T){"edit": l.edit, "look": l.look, "plan": l.plan, "progress": l.progress, "": l.check})
	})
}

func TestPlanningAgainAfterCarryingOutPlansNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		t.Repeat(map[string]func(*rapid.T){"edit": l.edit, "look": l.look, "plan": l.plan, "progress": l.progress})
		for b, w := range l.blocks {
			in := w.Input
			in.Blocks = []v1alpha1.PodIndex{*l.blocks[0].Index, *l.blocks[1].Index}
			w.store(Make(in))
			in = w.Input
			in.Blocks = []v1alpha1.PodIndex{*l.blocks[0].Index, *l.blocks[1].Index}
			again := Make(in)
			require.Empty(t, again.Missing, "block %d", b)
			require.Empty(t, again.Claimed)
			require.Equal(t, w.Index.Status, again.Status)
		}
	})
}

func TestTheOrderOfSlicesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		t.Repeat(map[string]func(*rapid.T){"edit": l.edit, "look": l.look, "plan": l.plan, "progress": l.progress})
		in := l.blocks[0].Input
		in.Blocks = []v1alpha1.PodIndex{*l.blocks[0].Index, *l.blocks[1].Index}
		want := Make(in)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		in.Index = in.Index.DeepCopy()
		shuffle(r, in.Index.Spec.Indices)
		in.Blocks, in.Pods, in.Operations = slices.Clone(in.Blocks), slices.Clone(in.Pods), slices.Clone(in.Operations)
		shuffle(r, in.Blocks)
		shuffle(r, in.Pods)
		shuffle(r, in.Operations)
		require.Equal(t, want, Make(in))
	})
}

func TestPlanningChangesNothingThatItWasShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		t.Repeat(map[string]func(*rapid.T){"edit": l.edit, "look": l.look, "plan": l.plan, "progress": l.progress})
		in := l.blocks[0].Input
		in.Blocks = []v1alpha1.PodIndex{*l.blocks[0].Index.DeepCopy(), *l.blocks[1].Index.DeepCopy()}
		index, blocks := in.Index.DeepCopy(), []v1alpha1.PodIndex{*in.Blocks[0].DeepCopy(), *in.Blocks[1].DeepCopy()}
		pods, ops := deepPods(in.Pods), deepOps(in.Operations)
		Make(in)
		require.Equal(t, index, in.Index)
		require.Equal(t, blocks, in.Blocks)
		require.Equal(t, pods, deepPods(in.Pods))
		require.Equal(t, ops, deepOps(in.Operations))
	})
}

func TestUndisturbedTheBlocksReachWhatIsWanted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLife(t)
		t.Repeat(map[string]func(*rapid.T){"edit": l.edit, "look": l.look, "plan": l.plan, "progress": l.progress})
		for range 60 {
			l.settle()
		}
		for b, w := range l.blocks {
			s := w.Index.Status
			require.Equal(t, s.Wanted, s.Settled, "block %d", b)
			require.Empty(t, s.Claims)
		}
	})
}

// settle runs each block once with fresh caches and lets everything open succeed.
func (l *life) settle() {
	for b, w := range l.blocks {
		in := w.Input
		in.Blocks = []v1alpha1.PodIndex{*l.blocks[0].Index, *l.blocks[1].Index}
		w.store(Make(in))
		for i := range l.blocks[b].Operations {
			op := w.Operations[i].DeepCopy()
			if op.Ended() {
				continue
			}
			for _, instance := range op.Spec.Instances {
				l.carryOut(op, instance)
			}
			w.end(op.Name, v1alpha1.Succeeded)
		}
	}
}

func shuffle[T any](r *rand.Rand, s []T) {
	r.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
}

func deepPods(pods []v1alpha1.StatefulPod) []v1alpha1.StatefulPod {
	out := make([]v1alpha1.StatefulPod, len(pods))
	for i := range pods {
		out[i] = *pods[i].DeepCopy()
	}
	return out
}

func deepOps(ops []v1alpha1.Operation) []v1alpha1.Operation {
	out := make([]v1alpha1.Operation, len(ops))
	for i := range ops {
		out[i] = *ops[i].DeepCopy()
	}
	return out
}
