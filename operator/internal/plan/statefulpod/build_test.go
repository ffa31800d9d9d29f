package statefulpod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// look is an input, built line by line.
type look struct{ Input }

// identity is db-0, approved to run r1, with nothing else.
func identity() *look {
	return &look{Input{
		Session: "s1", Now: noon,
		Identity: &v1alpha1.StatefulPod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-0", UID: "identity", Generation: 1},
			Spec: v1alpha1.StatefulPodSpec{
				Set: "db", Application: "app", Revision: "r1", State: v1alpha1.Running,
			},
		},
		Revision: &v1alpha1.Revision{
			ObjectMeta: metav1.ObjectMeta{Name: "r1"},
			Spec:       v1alpha1.RevisionSpec{Template: runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"main"}]}}`)}},
		},
	}}
}

func (l *look) claims(names ...string) *look {
	for _, n := range names {
		l.Identity.Spec.Claims = append(l.Identity.Spec.Claims, v1alpha1.VolumeClaimTemplate{Name: n})
	}
	return l
}

func (l *look) claim(name string, change ...func(*corev1.PersistentVolumeClaim)) *look {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, f := range change {
		f(&c)
	}
	l.Claims = append(l.Claims, c)
	return l
}

// pod is the identity's own, Ready since an hour, at a revision.
func (l *look) pod(uid types.UID, revision string, change ...func(*corev1.Pod)) *look {
	l.Pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "db-0", UID: uid, ResourceVersion: "7", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour)),
			Labels: map[string]string{v1alpha1.LabelRevision: revision, v1alpha1.LabelSet: "db"},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(l.Identity, v1alpha1.GroupVersion.WithKind("StatefulPod")),
			},
		},
		Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(-time.Hour)),
		}}},
	}
	for _, f := range change {
		f(l.Pod)
	}
	return l
}

func terminating(p *corev1.Pod) {
	at := metav1.NewTime(noon.Add(30 * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, ptr.To(int64(30))
}

func unready(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func pendingPod(p *corev1.Pod) {
	unready(p)
	p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending
}

func failed(p *corev1.Pod) {
	unready(p)
	p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
}

func marked(decision string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{v1alpha1.AnnotationAbandoned: decision} }
}

// granted records decision d1 of session s1.
func (l *look) granted(t v1alpha1.OperationType, podUID string) *look {
	stage, before := v1alpha1.StageRemove, v1alpha1.Approved{Revision: "r1", State: v1alpha1.Running}
	switch t {
	case v1alpha1.ScaleOut:
		stage, before.State = v1alpha1.StageAdd, v1alpha1.Stopped
	case v1alpha1.ScaleIn:
		l.Identity.Spec.State = v1alpha1.Stopped
	default:
		before.Revision, l.Identity.Spec.Revision, l.Revision.Name = "r0", "r1", "r1"
	}
	l.Identity.Spec.Grant = &v1alpha1.Grant{
		Operation: "op", Type: t, Stage: stage, Decision: "d1", Session: "s1", PodUID: podUID, Previous: &before,
	}
	return l.approval(approval.Recorded, 10*time.Second)
}

// repair: the grant was given because the pod was down.
func (l *look) repair() *look {
	l.Identity.Spec.Grant.Repair = true
	return l
}

func (l *look) approval(phase approval.Phase, left time.Duration) *look {
	l.Approval = &approval.Held{Approval: approval.Approval{Decision: "d1", Deadline: noon.Add(left)}, Phase: phase}
	return l
}

func (l *look) unapproved() *look {
	l.Approval = nil
	return l
}

func (l *look) session(id string) *look {
	l.Session = id
	return l.unapproved()
}

func (l *look) finished() *look {
	l.Identity.Status.Finished, l.Identity.Status.Acted = "d1", "d1"
	return l
}

func (l *look) actedOn() *look {
	l.Identity.Status.Acted = "d1"
	return l
}
