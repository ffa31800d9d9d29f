package operation

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
	"assent.dev/assent/operator/internal/plan/question"
	"assent.dev/assent/operator/internal/plan/statefulpod"
)

// maxReasons is how many reasons and needs an instance's status keeps.
const maxReasons = 8

// stateComplete is an Operation's state for people once all instances have ended.
const stateComplete = "Complete"

// verdictOf reads a recorded verdict.
func verdictOf(text string) question.Verdict { return question.Verdict(text) }

// show plans the statuses, and keeps the words of the instances that live.
func (w *world) show(p *Plan) {
	byOperation := map[string][]*instance{}
	for _, i := range w.instances {
		w.speak(i)
		byOperation[i.op.Name] = append(byOperation[i.op.Name], i)
		if !i.standing.state.Ended() {
			p.Words[i.ref] = i.word
			p.Count[Kind{i.op.Spec.Type, i.standing.state}]++
		}
	}
	for o := range w.in.Operations {
		op := w.ops[w.in.Operations[o].Name]
		if op == nil {
			continue
		}
		next := w.statusOf(op, byOperation[op.Name])
		if !differs(&op.Status, &next) {
			continue
		}
		write := StatusWrite{Operation: op.DeepCopy(), Before: op.Status, Urgent: w.urgent(op, &next)}
		write.Operation.Status = next
		p.Statuses = append(p.Statuses, write)
	}
	slices.SortFunc(p.Statuses, func(a, b StatusWrite) int { return compareNames(a.Operation, b.Operation) })
}

// speak gives an instance in flight the word of its approval.
func (w *world) speak(i *instance) {
	g := grantOf(i.identity)
	if g == nil || g.Operation != i.op.Name || i.standing.todo == todoReturn {
		return
	}
	if s := i.standing.state; s.InFlight() || s == v1alpha1.Succeeded && !i.before.State.Ended() {
		i.word = Word{Verdict: question.Approve, DecisionID: g.Decision, WaitingSince: i.word.WaitingSince}
	}
}

func (i *instance) since(now time.Time) time.Time {
	if i.before.State == i.standing.state && i.before.Since != nil {
		return i.before.Since.Time
	}
	return now
}

func (w *world) statusOf(op *v1alpha1.Operation, list []*instance) v1alpha1.OperationStatus {
	next := *op.Status.DeepCopy()
	next.ObservedGeneration = op.Generation
	next.Instances = make([]v1alpha1.InstanceStatus, 0, len(list))
	ended := 0
	for _, i := range list {
		if i.standing.state.Ended() {
			ended++
		}
		next.Instances = append(next.Instances, w.instanceStatus(i))
	}
	next.Progress = fmt.Sprintf("%d/%d", ended, len(list))
	if ended == len(list) {
		w.complete(op, &next)
		return next
	}
	shown := mostTelling(list)
	next.State = string(shown.standing.state)
	next.Reason, next.Message = "", w.tell(shown)
	switch refusal := refused(shown); {
	case refusal != "":
		next.Reason, next.Message = question.CodePodRefused, shown.spec.Pod+": "+refusal
	case !shown.standing.state.InFlight():
		next.Reason = shown.word.Code()
	}
	w.sinceOf(op, &next)
	setComplete(&next, metav1.ConditionFalse, next.State, next.Message, w.in.Now)
	return next
}

// refused says why the API server does not take the Pod of an instance in flight; empty when it does.
func refused(i *instance) string {
	if i.identity == nil || !i.standing.state.InFlight() {
		return ""
	}
	c := meta.FindStatusCondition(i.identity.Status.Conditions, v1alpha1.ConditionPodAccepted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	return c.Message
}

func (w *world) complete(op *v1alpha1.Operation, next *v1alpha1.OperationStatus) {
	next.State, next.Reason, next.Message = stateComplete, "", ""
	w.sinceOf(op, next)
	if next.CompletedAt == nil {
		next.CompletedAt = seconds(w.in.Now)
	}
	setComplete(next, metav1.ConditionTrue, stateComplete, "every instance has ended", w.in.Now)
}

func (w *world) sinceOf(op *v1alpha1.Operation, next *v1alpha1.OperationStatus) {
	if next.Since == nil || next.State != op.Status.State || next.Reason != op.Status.Reason {
		next.Since = seconds(w.in.Now)
	}
}

func setComplete(s *v1alpha1.OperationStatus, status metav1.ConditionStatus, reason, message string, now time.Time) {
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionComplete, Status: status, Reason: reason, Message: message,
		ObservedGeneration: s.ObservedGeneration, LastTransitionTime: *seconds(now),
	})
}

// instanceStatus keeps what an ended instance ended with.
func (w *world) instanceStatus(i *instance) v1alpha1.InstanceStatus {
	if i.before.State.Ended() {
		return i.before
	}
	s := v1alpha1.InstanceStatus{
		Index: i.spec.Index, Pod: i.spec.Pod, Stage: stageOf(i.op.Spec.Type), State: i.standing.state,
		Since: seconds(i.since(w.in.Now)), Verdict: string(i.word.Verdict), DecisionID: i.word.DecisionID,
		Reasons: clip(i.word.Reasons), Needs: clip(i.word.Needs), SupersededBy: i.standing.by,
	}
	if i.standing.state == v1alpha1.Superseded && s.SupersededBy == "" {
		s.SupersededBy = w.successor(i)
	}
	if i.word.Verdict == question.Deny {
		s.Key, s.RetryAt = i.word.Key, seconds(i.word.RetryAt)
	}
	if !i.word.WaitingSince.IsZero() {
		s.WaitingSince = seconds(i.word.WaitingSince)
	}
	if i.standing.state.Ended() && i.standing.state != v1alpha1.Succeeded {
		s.Reasons, s.Needs = nil, nil
	}
	return s
}

// successor names what takes over from a superseded instance: another Operation that has the pod, or what is wanted now.
func (w *world) successor(i *instance) string {
	for _, other := range w.instances {
		if other.spec.Pod == i.spec.Pod && other.op.Name != i.op.Name && !other.standing.state.Ended() {
			return other.op.Name
		}
	}
	if e := w.staged[i.at()]; e.Presence == v1alpha1.Present {
		return "revision " + e.Revision
	}
	return "removal of the index"
}

func clip[T any](list []T) []T { return list[:min(len(list), maxReasons)] }

func seconds(t time.Time) *metav1.Time {
	at := metav1.NewTime(t.Truncate(time.Second))
	return &at
}

// furthest orders live states for people: the one furthest on its way first.
var furthest = map[v1alpha1.InstanceState]int{
	v1alpha1.Verifying: 0, v1alpha1.Holding: 1, v1alpha1.Acting: 2, v1alpha1.Granted: 3, v1alpha1.Waiting: 4, v1alpha1.Denied: 5,
}

// mostTelling is the live instance to show: one that only a person can help, else the furthest on its way, and among waiting ones the first that a policy
// speaks about.
func mostTelling(list []*instance) *instance {
	var best *instance
	rank := func(i *instance) int {
		r := furthest[i.standing.state] * 2
		if refused(i) != "" {
			return -1
		}
		if c := i.word.Code(); i.standing.state == v1alpha1.Waiting && (c == question.CodeCapFull || c == question.CodeNotAsked) {
			r++
		}
		return r
	}
	for _, i := range list {
		if i.standing.state.Ended() {
			continue
		}
		if best == nil || rank(i) < rank(best) {
			best = i
		}
	}
	return best
}

// tell says who waits, for what, and since when.
func (w *world) tell(i *instance) string {
	since := i.since(w.in.Now).UTC().Format("15:04:05 MST")
	switch i.standing.state {
	case v1alpha1.Granted:
		return fmt.Sprintf("%s: approved by decision %s, to be acted on since %s", i.spec.Pod, i.word.DecisionID, since)
	case v1alpha1.Acting:
		return fmt.Sprintf("%s: its Pod is being removed as approved since %s", i.spec.Pod, since)
	case v1alpha1.Verifying:
		why := statefulpod.AvailabilityOf(i.identity, i.pod, w.in.Now).Message
		if why == "" {
			why = "about to be recorded as available"
		}
		return fmt.Sprintf("%s: waits until its Pod is available since %s: %s", i.spec.Pod, since, why)
	}
	text := i.word.Code()
	if len(i.word.Reasons) > 0 && i.word.Reasons[0].Message != "" {
		text = i.word.Reasons[0].Message
	}
	if text == "" {
		text = "waits until what it needs is seen"
	}
	return i.spec.Pod + ": " + text
}

// urgent says whether a status may not be delayed: it completes the Operation, or records an end that another instance of
// the same pod waits for.
func (w *world) urgent(op *v1alpha1.Operation, next *v1alpha1.OperationStatus) bool {
	if next.State == stateComplete {
		return true
	}
	before := statuses(op)
	for _, s := range next.Instances {
		old := before[s.Pod]
		if s.State.Ended() && !old.State.Ended() && w.awaited(op.Name, s.Pod) {
			return true
		}
	}
	return false
}

func (w *world) awaited(operation, pod string) bool {
	return slices.ContainsFunc(w.instances, func(i *instance) bool {
		return i.spec.Pod == pod && i.op.Name != operation && !i.standing.state.Ended()
	})
}

// differs compares what is worth a write: states, verdicts, codes and decisions, not ages and texts.
func differs(a, b *v1alpha1.OperationStatus) bool {
	if a.ObservedGeneration != b.ObservedGeneration || a.Progress != b.Progress || a.State != b.State || a.Reason != b.Reason ||
		len(a.Instances) != len(b.Instances) || (a.CompletedAt == nil) != (b.CompletedAt == nil) {
		return true
	}
	for i := range a.Instances {
		x, y := &a.Instances[i], &b.Instances[i]
		if x.Pod != y.Pod || x.State != y.State || x.Stage != y.Stage || x.Verdict != y.Verdict || x.DecisionID != y.DecisionID ||
			x.Key != y.Key || x.SupersededBy != y.SupersededBy || !sameCodes(x.Reasons, y.Reasons) || !sameNeeds(x.Needs, y.Needs) {
			return true
		}
	}
	return false
}

func sameCodes(a, b []v1alpha1.Reason) bool {
	return slices.EqualFunc(a, b, func(x, y v1alpha1.Reason) bool { return x.Code == y.Code })
}

func sameNeeds(a, b []v1alpha1.Need) bool {
	return slices.EqualFunc(a, b, func(x, y v1alpha1.Need) bool { return x.Action == y.Action && x.Subject == y.Subject })
}
