package listatefulset

import (
	"cmp"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Staging is what changes in the set's blocks. Both lists go from the highest block down, so that a shrinking set is
// never seen with a low index absent and a higher one still wanted.
type Staging struct {
	Create []v1alpha1.PodIndex
	Update []v1alpha1.PodIndex
}

// Empty says whether all is staged.
func (s Staging) Empty() bool { return len(s.Create) == 0 && len(s.Update) == 0 }

// Replicas is the number of pods the set wants.
func Replicas(set *v1alpha1.LiStatefulSet) int32 { return ptr.Deref(set.Spec.Replicas, 1) }

// toPodIndexes stages the lowest replicas indices at the wanted Revision and every other index that was ever staged or
// still has an identity as absent. It never touches spec.maintenance.
func toPodIndexes(in Input, r revisions) Staging {
	have := map[int32]*v1alpha1.PodIndex{}
	for i := range in.Indexes {
		have[in.Indexes[i].Spec.Block] = &in.Indexes[i]
	}
	pods := podsByIndex(in.Pods)
	var s Staging
	for _, block := range blocks(in, have) {
		old := have[block]
		indices := stage(in, r, block, old, pods)
		if old == nil {
			s.Create = append(s.Create, newPodIndex(in.Set, block, indices))
			continue
		}
		next := old.DeepCopy()
		next.Spec.SetGeneration = in.Set.Generation
		next.Spec.Indices = indices
		if !reflect.DeepEqual(next.Spec, old.Spec) {
			s.Update = append(s.Update, *next)
		}
	}
	return s
}

// blocks lists, highest first, the blocks that exist, are wanted or hold an identity.
func blocks(in Input, have map[int32]*v1alpha1.PodIndex) []int32 {
	all := map[int32]bool{}
	for b := range have {
		all[b] = true
	}
	for b := int32(0); b*v1alpha1.BlockSize < Replicas(in.Set); b++ {
		all[b] = true
	}
	for i := range in.Pods {
		all[in.Pods[i].Spec.Index/v1alpha1.BlockSize] = true
	}
	list := make([]int32, 0, len(all))
	for b := range all {
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(b, a) })
	return list
}

// podsByIndex keeps the newest incarnation of each index.
func podsByIndex(pods []v1alpha1.StatefulPod) map[int32]*v1alpha1.StatefulPod {
	byIndex := make(map[int32]*v1alpha1.StatefulPod, len(pods))
	for i := range pods {
		p := &pods[i]
		if old := byIndex[p.Spec.Index]; old == nil || old.Spec.Incarnation < p.Spec.Incarnation {
			byIndex[p.Spec.Index] = p
		}
	}
	return byIndex
}

func stage(in Input, r revisions, block int32, old *v1alpha1.PodIndex, pods map[int32]*v1alpha1.StatefulPod) []v1alpha1.StagedIndex {
	before := map[int32]v1alpha1.StagedIndex{}
	if old != nil {
		for _, e := range old.Spec.Indices {
			before[e.Index] = e
		}
	}
	var staged []v1alpha1.StagedIndex
	for i := block * v1alpha1.BlockSize; i < (block+1)*v1alpha1.BlockSize; i++ {
		e, known := before[i]
		switch {
		case i < Replicas(in.Set):
			staged = append(staged, v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Present, Revision: r.of(e, pods[i])})
		case known || pods[i] != nil:
			staged = append(staged, v1alpha1.StagedIndex{Index: i, Presence: v1alpha1.Absent})
		}
	}
	return staged
}

// of is the Revision for one index: what it has already if the content is the wanted one.
func (r revisions) of(staged v1alpha1.StagedIndex, pod *v1alpha1.StatefulPod) string {
	if r.equal[staged.Revision] {
		return staged.Revision
	}
	if pod != nil && r.equal[pod.Spec.Revision] {
		return pod.Spec.Revision
	}
	return r.update
}

func newPodIndex(set *v1alpha1.LiStatefulSet, block int32, indices []v1alpha1.StagedIndex) v1alpha1.PodIndex {
	return v1alpha1.PodIndex{
		ObjectMeta: metav1.ObjectMeta{
			Name:      v1alpha1.PodIndexName(set.Name, block),
			Namespace: set.Namespace,
			Labels: map[string]string{
				v1alpha1.LabelApplication: set.ApplicationName(),
				v1alpha1.LabelSet:         set.Name,
				v1alpha1.LabelBlock:       itoa(block),
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, v1alpha1.GroupVersion.WithKind("LiStatefulSet")),
			},
		},
		Spec: v1alpha1.PodIndexSpec{
			Set: set.Name, Application: set.ApplicationName(), Block: block,
			SetGeneration: set.Generation, Indices: indices,
		},
	}
}
