package operation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/approval"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/operator/internal/plan/statefulpod"
)

// maxPending is how many grants may wait to be acted on at once. More would run out before their turn comes; their
// approvals are held meanwhile.
const maxPending = 100

// grant plans to record the approvals that were received: each once, if it still fits what is seen.
func (w *world) grant(p *Plan) {
	pending := 0
	for _, i := range w.instances {
		if i.standing.state == v1alpha1.Granted {
			pending++
		}
	}
	held := slices.Clone(w.in.Held)
	slices.SortFunc(held, func(a, b approval.Held) int { return strings.Compare(a.Decision, b.Decision) })
	for i := range held {
		h := &held[i]
		if h.Phase != approval.Received {
			continue
		}
		inst := w.byRef[Ref{h.Operation, h.Pod}]
		if inst == nil || inst.standing.state.Ended() {
			p.Void = append(p.Void, h.Decision)
			continue
		}
		if g := grantOf(inst.identity); g != nil && g.Decision == h.Decision && g.Session == w.in.Session && statefulpod.Open(inst.identity) {
			p.Recorded = append(p.Recorded, h.Decision)
			continue
		}
		if inst.standing.state.InFlight() || inst.standing.todo != todoNothing {
			p.Void = append(p.Void, h.Decision)
			continue
		}
		if why := w.against(inst, h); why.Code != "" {
			p.Void = append(p.Void, h.Decision)
			inst.word = machinery(inst.word, why)
			continue
		}
		if inst.identity != nil && !w.replaceable(inst.identity) || pending+len(p.Grants) >= maxPending {
			continue
		}
		p.Grants = append(p.Grants, w.record(inst, h))
	}
}

// against says what stands against an approval: everything that has to be as it was when it was asked for.
func (w *world) against(i *instance, h *approval.Held) v1alpha1.Reason {
	switch {
	case h.Expired(w.in.Now):
		return reasonOf(question.CodeGrantExpired)
	case i.wish != wishSame, h.Stage != stageOf(i.op.Spec.Type), i.set == nil:
		return reasonOf(question.CodeStateChanged)
	case i.pod == nil && h.PodUID != "", i.pod != nil && string(i.pod.UID) != h.PodUID:
		return reasonOf(question.CodeStateChanged)
	case i.identity != nil && used(i.identity, h.Decision):
		return v1alpha1.Reason{Code: question.CodeMalformed, Message: fmt.Sprintf("the ACM used decision id %s twice", h.Decision)}
	}
	if why := w.obstacle(i); why.Code != "" {
		return why
	}
	down := i.identity == nil || !w.up(i.identity)
	if h.PodDown && !down {
		return reasonOf(question.CodeStateChanged)
	}
	if stageOf(i.op.Spec.Type) == v1alpha1.StageAdd {
		return v1alpha1.Reason{}
	}
	if ok, why := w.caps.allows(i.at(), down); !ok {
		return v1alpha1.Reason{Code: question.CodeCapFull, Message: why}
	}
	return v1alpha1.Reason{}
}

// obstacle says what keeps a waiting instance from being asked about or granted, whatever the ACM says.
func (w *world) obstacle(i *instance) v1alpha1.Reason {
	if w.conflict != "" {
		return v1alpha1.Reason{Code: question.CodeConflict, Message: w.conflict}
	}
	if i.set != nil {
		paused := i.set.Spec.Paused
		if paused == v1alpha1.PausedAll || paused == v1alpha1.PausedRollout && i.op.Spec.Type == v1alpha1.Deployment {
			return v1alpha1.Reason{Code: question.CodePaused, Message: fmt.Sprintf("set %s is paused (%s); remove spec.paused to go on", i.set.Name, paused)}
		}
	}
	if s := w.holder(i.at()); s != nil && s.Spec.Grant.Operation != i.op.Name {
		return v1alpha1.Reason{Code: question.CodePodBusy, Message: fmt.Sprintf("Operation %s has the pod; asked once that has ended", s.Spec.Grant.Operation)}
	}
	if s := w.leaving(i); s != nil {
		return v1alpha1.Reason{Code: question.CodePodBusy, Message: fmt.Sprintf(
			"Operation %s removes %s; a set loses one pod at a time, so this is asked once that has ended", s.Spec.Grant.Operation, s.Name)}
	}
	return v1alpha1.Reason{}
}

// leaving is another identity of the set whose scale-in is in flight; nil for any other type of instance.
func (w *world) leaving(i *instance) *v1alpha1.StatefulPod {
	if i.op.Spec.Type != v1alpha1.ScaleIn {
		return nil
	}
	for place := range w.byIndex {
		if place.set != i.op.Spec.Set || place.index == i.spec.Index {
			continue
		}
		if s := w.holder(place); s != nil && s.Spec.Grant.Type == v1alpha1.ScaleIn {
			return s
		}
	}
	return nil
}

// holder is the identity whose grant holds the index's lock: that of the oldest live incarnation. Nil when it is free.
func (w *world) holder(place at) *v1alpha1.StatefulPod {
	list := w.byIndex[place]
	if len(list) == 0 || !statefulpod.Open(list[0]) {
		return nil
	}
	s := list[0]
	if i := w.byRef[Ref{s.Spec.Grant.Operation, s.Name}]; i != nil {
		if i.standing.state.Ended() {
			return nil
		}
		return s
	}
	if w.in.OperationsGone[s.Spec.Grant.Operation] && statefulpod.EvidenceOf(s, w.pods[s.Name]) == statefulpod.Acted {
		return nil
	}
	return s
}

// replaceable says whether the identity's grant may be overwritten: only when the end of what it was for is recorded,
// since the grant is the evidence.
func (w *world) replaceable(s *v1alpha1.StatefulPod) bool {
	g := s.Spec.Grant
	if g == nil {
		return true
	}
	if i := w.byRef[Ref{g.Operation, s.Name}]; i != nil {
		return i.before.State.Ended()
	}
	return w.in.OperationsGone[g.Operation]
}

func grantOf(s *v1alpha1.StatefulPod) *v1alpha1.Grant {
	if s == nil {
		return nil
	}
	return s.Spec.Grant
}

// used says whether a decision's name is taken: a second grant of that name would look finished before it began.
func used(s *v1alpha1.StatefulPod, decision string) bool {
	g := s.Spec.Grant
	return s.Status.Acted == decision || s.Status.Finished == decision || g != nil && g.Decision == decision
}

func stageOf(t v1alpha1.OperationType) v1alpha1.Stage {
	if t == v1alpha1.ScaleOut {
		return v1alpha1.StageAdd
	}
	return v1alpha1.StageRemove
}

// record makes the grant and spends the budget, so that the next approval sees it. The lock is taken by marking the
// instance: a second approval for the same index finds it busy.
func (w *world) record(i *instance, h *approval.Held) Grant {
	s := i.identity
	if s == nil {
		s = newIdentity(i)
	} else {
		s = s.DeepCopy()
	}
	down := i.identity == nil || !w.up(i.identity)
	g := &v1alpha1.Grant{
		Operation: i.op.Name, Type: i.op.Spec.Type, Stage: h.Stage, Decision: h.Decision, Session: w.in.Session,
		Previous: &v1alpha1.Approved{
			Revision: s.Spec.Revision, Restart: s.Spec.Restart, State: s.Spec.State, Parameters: s.Spec.Parameters,
		},
	}
	s.Spec.Grant = g
	s.Spec.Parameters = maps.Clone(h.Parameters)
	s.Spec.MinReadySeconds = i.set.Spec.MinReadySeconds
	switch i.op.Spec.Type {
	case v1alpha1.ScaleIn:
		s.Spec.State = v1alpha1.Stopped
	default:
		s.Spec.State = v1alpha1.Running
		s.Spec.Revision, s.Spec.Restart = i.op.Spec.Target.Revision, i.op.Spec.Target.Restart
	}
	if statefulpod.Removing(g) {
		g.Repair = down
		if i.pod != nil {
			g.PodUID = string(i.pod.UID)
		}
		w.caps.spend(i.at(), down)
	}
	w.byIndex[i.at()] = append([]*v1alpha1.StatefulPod{s}, w.byIndex[i.at()]...)
	return Grant{
		Identity: s, Operation: i.op, Ref: i.ref, Stage: h.Stage, Decision: h.Decision, Deadline: h.Deadline,
		ConfirmAbsent: i.op.Spec.Type == v1alpha1.ScaleIn, Set: i.set.Name, Index: i.spec.Index,
	}
}

// newIdentity is the identity of an index that never had one, or had its last one removed: stopped, until granted.
func newIdentity(i *instance) *v1alpha1.StatefulPod {
	s := &v1alpha1.StatefulPod{
		ObjectMeta: metav1.ObjectMeta{
			Name: i.spec.Pod, Namespace: i.op.Namespace,
			Labels: map[string]string{
				v1alpha1.LabelApplication: i.op.Spec.Application,
				v1alpha1.LabelSet:         i.op.Spec.Set,
				v1alpha1.LabelBlock:       strconv.Itoa(int(i.spec.Index / v1alpha1.BlockSize)),
				v1alpha1.LabelIndex:       strconv.Itoa(int(i.spec.Index)),
				v1alpha1.LabelIncarnation: strconv.Itoa(int(i.spec.Incarnation)),
			},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(i.set, v1alpha1.GroupVersion.WithKind("LiStatefulSet")),
			},
		},
		Spec: v1alpha1.StatefulPodSpec{
			Set: i.op.Spec.Set, Application: i.op.Spec.Application, Index: i.spec.Index, Incarnation: i.spec.Incarnation,
			Revision: i.op.Spec.Target.Revision, State: v1alpha1.Stopped,
		},
	}
	for _, c := range i.set.Spec.VolumeClaimTemplates {
		s.Spec.Claims = append(s.Spec.Claims, *c.DeepCopy())
	}
	return s
}
