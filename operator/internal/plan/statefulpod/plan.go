package statefulpod

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
)

// Input is one look at an identity. Nothing in it is changed.
type Input struct {
	Identity *v1alpha1.StatefulPod
	// Revision that the identity's spec names; nil when it does not exist.
	Revision *v1alpha1.Revision
	// Pod of the identity's name, whoever owns it; nil when there is none.
	Pod *corev1.Pod
	// Claims of the identity's claim names that exist.
	Claims []corev1.PersistentVolumeClaim
	// Session that looks.
	Session string
	// Approval of the grant's decision in this session; nil when it has none.
	Approval *approval.Held
	// Trouble is the last refusal by the API server to create the Pod or a claim; empty when there was none.
	Trouble string
	Now     time.Time
}

// Verb is the one thing to do to the Pod.
type Verb string

// Verbs.
const (
	// Nothing is to be done.
	Nothing Verb = ""
	// CreatePod brings the Pod into being: after an approval, or again because it is missing.
	CreatePod Verb = "create"
	// DeletePod removes it, exactly as approved.
	DeletePod Verb = "delete"
	// ClearPod removes a Pod that ended for good, to be made again.
	ClearPod Verb = "clear"
	// Abandon makes a delete that may still be on its way fail.
	Abandon Verb = "abandon"
)

// Plan is what to do about an identity.
type Plan struct {
	Verb Verb
	// Decision under which the act has to begin; empty for one that needs no approval.
	Decision string
	// CreateClaims to create before anything else.
	CreateClaims []*corev1.PersistentVolumeClaim
	// Pod to create, for CreatePod.
	Pod *corev1.Pod
	// Restores: the Pod to create replaces one that nobody was allowed to take away.
	Restores bool
	// Wait says what the Pod's creation waits for; empty when for nothing.
	Wait string
	// Status of the identity and whether it should be written now.
	Status      v1alpha1.StatefulPodStatus
	WriteStatus bool
	// Wake is when to look again if nothing happens; zero for never.
	Wake time.Duration
}

// Make plans one step. With the same input after the step was done it plans nothing.
func Make(in Input) Plan {
	p := Plan{}
	if in.Identity.DeletionTimestamp == nil {
		step(in, &p)
	}
	toStatus(in, &p)
	return p
}

func step(in Input, p *Plan) {
	running := in.Identity.Spec.State == v1alpha1.Running
	c := toClaims(in.Identity, in.Claims)
	if running && (in.Pod == nil || pending(in.Pod)) {
		p.CreateClaims, p.Wait = c.missing, c.waits
	}
	switch {
	case in.Pod == nil:
		if running {
			create(in, p)
		}
	case !Owned(in.Identity, in.Pod):
		p.Wait = fmt.Sprintf("a Pod %s exists that is not this identity's; the Pod is made once that one is gone", in.Pod.Name)
	case in.Pod.DeletionTimestamp != nil:
	case removable(in):
		remove(in, p)
	case running && terminal(in.Pod) && EvidenceOf(in.Identity, in.Pod) != Changed:
		p.Verb = ClearPod
	}
}

// made says whether the first Pod of an open scale-out has existed: it is recorded, or this session remembers that it made
// it, since the Pod may be gone again before anything was recorded.
func made(in Input) bool {
	g := in.Identity.Spec.Grant
	return in.Identity.Status.Acted == g.Decision ||
		g.Session == in.Session && in.Approval != nil && in.Approval.Phase == approval.Acted
}

func pending(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Spec.NodeName == ""
}

// create makes a missing Pod. Only the first Pod of a scale-out needs the approval in hand; after it, a Pod that should
// run is put back without asking anybody.
func create(in Input, p *Plan) {
	g := in.Identity.Spec.Grant
	if Open(in.Identity) && g.Stage == v1alpha1.StageAdd && !made(in) {
		if !usable(in) {
			p.CreateClaims, p.Wait = nil, ""
			return
		}
		p.Decision = g.Decision
	}
	if p.Wait != "" {
		return
	}
	if in.Revision == nil {
		p.Wait = fmt.Sprintf("Revision %s does not exist; the Pod is made once it does", in.Identity.Spec.Revision)
		return
	}
	pod, err := toPod(in.Identity, in.Revision)
	if err != nil {
		p.Wait = err.Error()
		return
	}
	p.Verb, p.Pod = CreatePod, pod
	p.Restores = p.Decision == "" && !(Open(in.Identity) && Removing(g))
}

// removable says whether the Pod is exactly the one that an open grant takes away.
func removable(in Input) bool {
	g := in.Identity.Spec.Grant
	return Open(in.Identity) && Removing(g) && g.PodUID == string(in.Pod.UID)
}

// remove deletes under an approval that can still be acted on. A delete that was sent, or may have been by an earlier
// session, is made to fail before anybody goes back.
func remove(in Input, p *Plan) {
	g := in.Identity.Spec.Grant
	mine := g.Session == in.Session && in.Approval != nil
	switch {
	case in.Pod.Annotations[v1alpha1.AnnotationAbandoned] == g.Decision:
	case mine && usable(in) && !Recovered(in.Identity, in.Pod, in.Now):
		p.Verb, p.Decision = DeletePod, g.Decision
	case g.Session != in.Session, mine && in.Approval.Phase == approval.Unknown:
		p.Verb, p.Decision = Abandon, g.Decision
	}
}

// Recovered says whether the open grant was given because the pod was down, and it is not down anymore. Nobody has judged
// what taking it away would cost now, and the budget does not count it.
func Recovered(identity *v1alpha1.StatefulPod, pod *corev1.Pod, now time.Time) bool {
	return identity.Spec.Grant.Repair && EvidenceOf(identity, pod) == NotActed && AvailabilityOf(identity, pod, now).Available
}

// usable says whether the grant may be acted on: by this session, before it expires.
func usable(in Input) bool {
	return in.Identity.Spec.Grant.Session == in.Session && in.Approval != nil &&
		in.Approval.Phase != approval.Acted && !in.Approval.Expired(in.Now)
}
