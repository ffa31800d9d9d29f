package chain

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/test/controlplane"
	"assent.dev/assent/test/wrap"
)

// restartOn begins a new session whose cache is the reader.
func (w *world) restartOn(cached client.Reader) {
	w.restart()
	var err error
	w.links, err = New(Options{
		Cached: cached, Live: w.Client, Writer: w.faults, Clock: w.clock, Session: w.session, Term: w.term, Asker: w.acm,
		Timeout: 2 * time.Second,
	})
	require.NoError(w, err)
}

func (w *world) revisions() []string {
	list := &v1alpha1.RevisionList{}
	require.NoError(w, w.List(w.Context(), list, client.InNamespace(w.ns)))
	names := []string{}
	for _, r := range list.Items {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func (w *world) status(name string) v1alpha1.LiStatefulSetStatus {
	s := &v1alpha1.LiStatefulSet{}
	require.True(w, w.get(name, s))
	return s.Status
}

// quiet runs until nothing is written for some rounds, whether or not Operations are open.
func (w *world) quiet() {
	w.Helper()
	still := 0
	w.until("quiet", func() bool {
		before := len(w.faults.Writes)
		w.round()
		if len(w.faults.Writes) > before {
			still = 0
		}
		still++
		return still > 8
	})
}

func TestOP07_TwentyRestartsWithEmptyCachesMakeNoRevisionAndRestartNoPod(t *testing.T) {
	w := three(t)
	revisions, pods := w.revisions(), w.uids()
	require.Len(t, revisions, 1)
	for i := range 20 {
		lists := []client.ObjectList{&v1alpha1.RevisionList{}}
		if i%2 == 1 {
			lists = append(lists, &v1alpha1.PodIndexList{}, &v1alpha1.StatefulPodList{}, &v1alpha1.OperationList{})
		}
		w.restartOn(wrap.NewEmpty(w.Client, lists...))
		w.round()
		w.restart() // killed before its caches were filled, and this one's are
		w.round()
		require.Equal(t, revisions, w.revisions(), "restart %d", i)
		require.Equal(t, pods, w.uids(), "restart %d", i)
	}
	require.Empty(t, w.deleted)
	require.Equal(t, 0, w.openOperations())
}

func TestOP08_TwoRevisionsOfEqualContentReplaceNoPod(t *testing.T) {
	w := three(t)
	pods := w.uids()
	mine := &v1alpha1.Revision{}
	require.True(t, w.get(w.revisions()[0], mine))
	for _, name := range []string{"db-0000000000", "db-ffffffffff"} {
		require.NoError(t, w.Create(t.Context(), &v1alpha1.Revision{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: mine.Labels, OwnerReferences: mine.OwnerReferences},
			Spec:       mine.Spec,
		}))
	}
	for range 3 {
		w.restart()
		w.rest()
	}
	// Nor does a lost status, which was all that named the one in use.
	s := &v1alpha1.LiStatefulSet{}
	require.True(t, w.get("db", s))
	s.Status = v1alpha1.LiStatefulSetStatus{}
	require.NoError(t, w.Status().Update(t.Context(), s))
	w.restart()
	w.rest()
	require.Empty(t, w.deleted)
	require.Equal(t, pods, w.uids())
	require.Equal(t, int32(3), w.status("db").UpdatedReplicas)
}

func TestOP09_GoingBackReusesTheRevisionAndTouchesNoPodThatNeverLeftIt(t *testing.T) {
	w := three(t)
	w.acm.judge = lastFirst
	a, before := w.status("db").UpdateRevision, w.uids()
	w.edit("db", image("app:2"))
	w.until("the first step", func() bool { return w.pod("db-2") != nil && w.pod("db-2").Spec.Containers[0].Image == "app:2" })
	w.edit("db", image("app:1"))
	w.rest()
	require.Equal(t, []string{"db-0=app:1", "db-1=app:1", "db-2=app:1"}, w.images())
	require.Equal(t, before["db-0"], w.uids()["db-0"])
	require.Equal(t, before["db-1"], w.uids()["db-1"])
	require.Equal(t, []string{"db-2", "db-2"}, w.deleted)
	require.Len(t, w.revisions(), 2)
	s := w.status("db")
	require.Equal(t, a, s.UpdateRevision)
	require.Equal(t, a, s.CurrentRevision)
}

func TestOP20_ASmallerVolumeIsRefusedNothingIsDeletedAndTheRestGoesOn(t *testing.T) {
	w := newWorld(t, controlplane.Options{})
	volume := func(size string) func(*v1alpha1.LiStatefulSetSpec) {
		return func(s *v1alpha1.LiStatefulSetSpec) {
			c := claimTemplate("data")
			c.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse(size)
			s.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{c}
		}
	}
	w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(2).Edit(volume("15Gi")))
	w.rest()
	before := w.uids()

	s := &v1alpha1.LiStatefulSet{}
	require.True(t, w.get("db", s))
	volume("10Gi")(&s.Spec)
	err := w.Update(t.Context(), s)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "spec.volumeClaimTemplates: cannot be changed in this version")
	w.edit("db", replicas(3))
	w.restart()
	w.rest()
	require.Empty(t, w.deleted)
	for _, name := range []string{"db-0", "db-1"} {
		require.Equal(t, before[name], w.uids()[name])
		claim := &corev1.PersistentVolumeClaim{}
		require.True(t, w.get("data-"+name, claim))
		require.Equal(t, "15Gi", claim.Spec.Resources.Requests.Storage().String())
	}
	require.Equal(t, int32(3), w.status("db").AvailableReplicas)
}

// oneByOne approves the highest waiting index, and nothing while a pod is in flight.
func oneByOne(q question.Question, i question.Instance) question.Decision {
	for _, other := range q.Instances {
		if other.State.InFlight() {
			return deferred("test.order", "one at a time")
		}
	}
	return lastFirst(q, i)
}

// An upgrade of the operator is a new session on objects as the old one left them. Whatever they wait for, one look of
// all four controllers writes nothing, and neither does the answer that only repeats what is known.
func TestAnUpgradeWithUnchangedObjectsWritesNothing(t *testing.T) {
	answer := func(v question.Verdict) func(question.Question, question.Instance) question.Decision {
		return func(question.Question, question.Instance) question.Decision {
			return question.Decision{Verdict: v, Reasons: []v1alpha1.Reason{{Code: "team.freeze", Message: "not this week"}}}
		}
	}
	for name, leave := range map[string]func(*world){
		"at rest":    func(*world) {},
		"deferred":   func(w *world) { w.acm.judge = answer(question.Defer); w.edit("db", image("app:2")) },
		"denied":     func(w *world) { w.acm.judge = answer(question.Deny); w.edit("db", image("app:2")) },
		"no ACM":     func(w *world) { w.acm.away = true; w.edit("db", image("app:2")) },
		"broken pod": func(w *world) { w.acm.judge = oneByOne; w.edit("db", image("app:bad")) },
		"to grow":    func(w *world) { w.acm.judge = answer(question.Defer); w.edit("db", replicas(5)) },
		"to shrink":  func(w *world) { w.acm.judge = answer(question.Defer); w.edit("db", replicas(1)) },
		"template not valid": func(w *world) {
			w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) { s.Template.Raw = []byte(`{"spec":{}}`) })
		},
		"paused": func(w *world) {
			w.edit("db", func(s *v1alpha1.LiStatefulSetSpec) {
				s.Paused = v1alpha1.PausedAll
				s.Template = wrap.Template("app:2")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, controlplane.Options{})
			w.create(wrap.LiStatefulSet(w.ns, "db").Replicas(3).Image("app:1").Edit(func(s *v1alpha1.LiStatefulSetSpec) {
				s.VolumeClaimTemplates = []v1alpha1.VolumeClaimTemplate{claimTemplate("data")}
			}))
			w.rest()
			leave(w)
			w.quiet()
			before := w.instances()
			w.restart()
			for _, link := range w.links {
				require.True(t, w.drive(link))
				require.Empty(t, w.faults.Writes, link.Name)
			}
			for range 5 {
				w.round()
				require.Empty(t, w.faults.Writes, "%v\n%v", before, w.instances())
			}
		})
	}
}
