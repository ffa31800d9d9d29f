package simulation

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/chain"
	acmv1 "assent.dev/assent/proto/acm/v1"
	"assent.dev/assent/test/simulation/apiserver"
)

// answered notes what the ACM approved, and holds it to what it was told in the same question.
func (v *invariants) answered(l *letter) {
	leaving := takenDown(l.question)
	for _, d := range l.response.GetDecisions() {
		v.verdicts[d.GetVerdict().Code()]++
		text := d.GetVerdict().Code()
		if d.GetVerdict() == acmv1.Verdict_VERDICT_APPROVE {
			text += " " + d.GetDecisionId()
		}
		for _, r := range d.GetReasons() {
			text += " " + r.GetCode()
		}
		v.w.note("ACM to %s: %s %s %s: %s", l.from.actor, d.GetOperation(), d.GetPod(), d.GetStage().Code(), text)
		if d.GetVerdict() != acmv1.Verdict_VERDICT_APPROVE {
			continue
		}
		for _, old := range v.approved[d.GetDecisionId()] {
			if v.w.careless == nil && old.pod != d.GetPod() {
				v.fail("decision %s was given to %s and to %s", d.GetDecisionId(), old.pod, d.GetPod())
			}
		}
		v.approvals++
		v.approved[d.GetDecisionId()] = append(v.approved[d.GetDecisionId()], approved{
			operation: d.GetOperation(), pod: d.GetPod(), session: l.question.Session, stage: d.GetStage(),
			at: v.w.Clock.Now(), until: l.sent.Add(d.GetExpiresAfter().AsDuration()),
		})
		if v.w.careless == nil && d.GetStage() != acmv1.Stage_STAGE_ADD && v.knownUp(l.question, d.GetPod()) {
			v.reserved(l, d, leaving)
			v.seen(l, d)
			leaving[d.GetPod()] = true
		}
	}
}

// takenDown are the pods that a question shows as about to go: in flight, or approved and held.
func takenDown(q chain.Question) map[string]bool {
	pods := map[string]bool{}
	for i := range q.Instances {
		if in := &q.Instances[i]; in.State.InFlight() && in.Stage != v1alpha1.StageAdd {
			pods[in.Pod] = true
		}
	}
	for i := range q.Holding {
		if q.Holding[i].Stage != v1alpha1.StageAdd {
			pods[q.Holding[i].Pod] = true
		}
	}
	return pods
}

// knownUp says whether both, the question and the ACM's collector, show a pod to be ready. One that either knows to be
// down may be repaired while others leave.
func (v *invariants) knownUp(q chain.Question, name string) bool {
	told := false
	for i := range q.Pods {
		told = told || q.Pods[i].Name == name && q.Pods[i].Ready
	}
	for _, o := range v.w.app.pods.Objects(podKind) {
		if o.GetName() == name {
			return told && readyPod(o.(*corev1.Pod)) && o.GetDeletionTimestamp() == nil
		}
	}
	return false
}

// reserved: what is in flight, held or approved in the same answer counts as gone when the next is approved.
func (v *invariants) reserved(l *letter, d *acmv1.Decision, leaving map[string]bool) {
	others := 0
	for pod := range leaving {
		if pod != d.GetPod() {
			others++
		}
	}
	if others >= v.allowed() {
		v.fail("the ACM approves to %s that %s goes while %d others are leaving", l.from.actor, d.GetPod(), others)
	}
}

// seen: facts of the application that approve a removal know every other pod that the question shows to be ready.
func (v *invariants) seen(l *letter, d *acmv1.Decision) {
	if v.w.policy != "etcd" {
		return
	}
	for _, p := range l.question.Pods {
		if p.Ready && p.Name != d.GetPod() && string(v.w.app.published[p.Name]) != p.UID {
			v.fail("the ACM approves to %s that %s goes on facts from before %s was %s", l.from.actor, d.GetPod(), p.Name, p.UID)
		}
	}
}

// approval is the one that a grant of the pod rests on: under its decision's name, for its operation and stage if there
// is one, and lasting longest, since the same answer may have been given again.
func (v *invariants) approval(pod string, g *v1alpha1.Grant) (approved, bool) {
	var best approved
	known := false
	for _, a := range v.approved[g.Decision] {
		better := a.fits(pod, g) && !best.fits(pod, g) || a.fits(pod, g) == best.fits(pod, g) && a.until.After(best.until)
		if !known || better {
			best, known = a, true
		}
	}
	return best, known
}

func (a approved) fits(pod string, g *v1alpha1.Grant) bool {
	return a.session == g.Session && a.operation == g.Operation && a.pod == pod && a.stage.Code() == string(g.Stage)
}

// granted: a new grant takes the place only of one that is finished, ended or never acted on, and is not made in a set
// that is paused, whatever its writer's cache shows.
func (v *invariants) granted(wr apiserver.Write) {
	next := wr.After.(*v1alpha1.StatefulPod)
	old := &v1alpha1.StatefulPod{}
	if wr.Before != nil {
		old = wr.Before.(*v1alpha1.StatefulPod)
	}
	g := next.Spec.Grant
	if g == nil && old.Spec.Grant != nil && old.Status.Finished != old.Spec.Grant.Decision {
		v.returns++
	}
	if g == nil || old.Spec.Grant != nil && old.Spec.Grant.Decision == g.Decision {
		return
	}
	v.grants++
	v.wantedAt[g.Decision] = v.wanted()
	a, known := v.approval(next.Name, g)
	if !known {
		v.fail("%s records decision %s for %s, which no ACM gave", wr.Actor, g.Decision, next.Name)
	} else if wr.Sent.After(a.until) {
		v.fail("%s records decision %s for %s %s after it ran out", wr.Actor, g.Decision, next.Name, wr.Sent.Sub(a.until))
	}
	if set := v.w.setNamed(next.Spec.Set); set != nil {
		mode := set.Spec.Paused
		if mode == v1alpha1.PausedAll || mode == v1alpha1.PausedRollout && g.Type == v1alpha1.Deployment {
			v.fail("%s gives %s to %s though the set is paused (%s)", wr.Actor, g.Decision, next.Name, mode)
		}
	}
	if old.Spec.Grant == nil || old.Status.Finished == old.Spec.Grant.Decision || v.ended(old) {
		return
	}
	v.fail("%s gives %s to %s while %s of %s is executing on it", wr.Actor, g.Decision, next.Name, old.Spec.Grant.Decision, old.Spec.Grant.Operation)
}

// identityRemoved: an identity goes only when nothing runs under it.
func (v *invariants) identityRemoved(wr apiserver.Write) {
	for _, p := range objects[*corev1.Pod](v.w, podKind) {
		if client.ObjectKeyFromObject(p) == wr.Key && len(p.OwnerReferences) > 0 && p.OwnerReferences[0].UID == wr.Before.GetUID() {
			v.fail("%s deletes the identity of %s, whose Pod exists", wr.Actor, p.Name)
		}
	}
}

// told: who waits is told why.
func (v *invariants) told(wr apiserver.Write) {
	for _, i := range wr.After.(*v1alpha1.Operation).Status.Instances {
		if (i.State == v1alpha1.Waiting || i.State == v1alpha1.Denied) && len(i.Reasons) == 0 {
			v.fail("%s of %s is %s and nobody says why", i.Pod, wr.Key.Name, i.State)
		}
	}
}
