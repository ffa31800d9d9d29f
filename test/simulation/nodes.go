package simulation

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
)

// nodes are the scheduler and the kubelets: they bind pods, start them, report them Ready and let go of those that stop.
type nodes struct {
	w      *World
	client client.Client
	// crashed pods by UID, and until when.
	crashed map[types.UID]time.Time
	// ends is when a terminating pod's processes have ended.
	ends map[types.UID]time.Time
}

// possible lists what can happen to pods now.
func (n *nodes) possible(ctx context.Context) []func() {
	var actions []func()
	for _, pod := range objects[*corev1.Pod](n.w, podKind) {
		switch {
		case pod.DeletionTimestamp != nil:
			if !n.lets(pod) {
				continue
			}
			actions = append(actions, func() { n.must(n.client.Delete(ctx, pod, client.GracePeriodSeconds(0))) })
		case pod.Spec.NodeName == "":
			actions = append(actions, func() {
				bound := pod.DeepCopy()
				bound.Spec.NodeName = "n" + pod.Labels[v1alpha1.LabelIndex]
				n.must(n.client.Update(ctx, bound))
			})
		case pod.Status.Phase == "" || (!readyPod(pod) && !broken(pod) && !n.crashed[pod.UID].After(n.w.Clock.Now())):
			actions = append(actions, func() { n.run(ctx, pod, !broken(pod)) })
		}
	}
	return actions
}

// lets says whether a terminating pod's processes have ended. Some take their time.
func (n *nodes) lets(pod *corev1.Pod) bool {
	at, known := n.ends[pod.UID]
	if !known {
		at = n.w.Clock.Now()
		if n.w.chance(n.w.faults.Slow) {
			at = at.Add(time.Duration(n.w.Rand.IntN(20000)) * time.Millisecond)
		}
		n.ends[pod.UID] = at
	}
	return !at.After(n.w.Clock.Now())
}

func (n *nodes) due() time.Time {
	var next time.Time
	for _, times := range []map[types.UID]time.Time{n.crashed, n.ends} {
		for _, at := range times {
			if at.After(n.w.Clock.Now()) && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// broken pods never become Ready.
func broken(pod *corev1.Pod) bool { return strings.HasSuffix(pod.Spec.Containers[0].Image, ":broken") }

func readyPod(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// run reports a pod as started, Ready or not.
func (n *nodes) run(ctx context.Context, seen *corev1.Pod, ready bool) {
	pod := seen.DeepCopy()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.0.0.1", Conditions: []corev1.PodCondition{{
		Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(n.w.Clock.Now()),
	}}}
	if broken(pod) {
		pod.Status.Phase = corev1.PodPending
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
	}
	n.must(n.client.Status().Update(ctx, pod))
}

// misfortune crashes a process for a while, or lets somebody delete a Pod.
func (n *nodes) misfortune(ctx context.Context) {
	pods := objects[*corev1.Pod](n.w, podKind)
	if len(pods) == 0 {
		return
	}
	pod := pods[n.w.Rand.IntN(len(pods))]
	n.w.watch.misfortune()
	if n.w.chance(500) && pod.DeletionTimestamp == nil {
		n.w.note("somebody deletes Pod %s", pod.Name)
		n.must(n.w.API.Client("somebody").Delete(ctx, pod))
		return
	}
	if pod.DeletionTimestamp == nil && readyPod(pod) {
		n.crash(ctx, pod, time.Duration(n.w.Rand.IntN(20000))*time.Millisecond)
	}
}

// crash ends a pod's process, which comes back after a while.
func (n *nodes) crash(ctx context.Context, pod *corev1.Pod, d time.Duration) {
	n.w.note("the process of %s crashes", pod.Name)
	n.w.watch.misfortune()
	n.crashed[pod.UID] = n.w.Clock.Now().Add(d)
	n.run(ctx, pod, false)
}

func (n *nodes) must(err error) {
	if err != nil {
		panic(err)
	}
}
