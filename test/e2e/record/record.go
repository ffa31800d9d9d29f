// Package record watches a run from outside, with none of the product's own code, and says afterwards what
// happened: a timeline for people, and the few numbers that must be right.
package record

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Recorder follows Pods, StatefulPods and Operations of one namespace.
type Recorder struct {
	out   io.Writer
	begun time.Time
	stop  context.CancelFunc
	done  chan struct{}

	mu        sync.Mutex
	leader    func() string
	grants    []Grant
	pods      map[string]*corev1.Pod
	spods     map[string]*v1alpha1.StatefulPod
	words     map[string]string
	maxByUs   int
	byUs      map[string]bool
	deletions int
	lines     []string
}

// Grant is a permission to replace a pod, as its record showed when it was made.
type Grant struct {
	Pod string
	// Leader said the application at that moment; empty when nobody was asked.
	Leader string
	// Waiting are the set's other pods that were still to get the same revision.
	Waiting []string
}

// Grants of deployments so far.
func (r *Recorder) Grants() []Grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.grants)
}

// AskLeader makes the recorder ask who leads whenever a grant is made.
func (r *Recorder) AskLeader(who func() string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leader = who
}

// Start lists and watches until Stop. Lines of the timeline go to out as they happen.
func Start(ctx context.Context, cfg *rest.Config, namespace string, out io.Writer) (*Recorder, error) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	c, err := cache.New(cfg, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		return nil, fmt.Errorf("making a cache: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &Recorder{
		out: out, begun: time.Now(), stop: cancel, done: make(chan struct{}),
		pods: map[string]*corev1.Pod{}, spods: map[string]*v1alpha1.StatefulPod{},
		words: map[string]string{}, byUs: map[string]bool{},
	}
	for _, kind := range []client.Object{&corev1.Pod{}, &v1alpha1.StatefulPod{}, &v1alpha1.Operation{}} {
		informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			cancel()
			return nil, fmt.Errorf("watching %T: %w", kind, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { r.see(o, false) },
			UpdateFunc: func(_, o any) { r.see(o, false) },
			DeleteFunc: func(o any) { r.see(o, true) },
		}); err != nil {
			cancel()
			return nil, fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	go func() {
		defer close(r.done)
		if err := c.Start(ctx); err != nil {
			r.Say("recorder: %v", err)
		}
	}()
	if !c.WaitForCacheSync(ctx) {
		cancel()
		return nil, fmt.Errorf("waiting for the first lists: %w", ctx.Err())
	}
	return r, nil
}

// Stop ends the watches.
func (r *Recorder) Stop() {
	r.stop()
	<-r.done
}

// Say writes a line of the timeline.
func (r *Recorder) Say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say(format, args...)
}

func (r *Recorder) say(format string, args ...any) {
	line := fmt.Sprintf("%7.2fs  %s", time.Since(r.begun).Seconds(), fmt.Sprintf(format, args...))
	r.lines = append(r.lines, line)
	if r.out != nil {
		_, _ = fmt.Fprintln(r.out, line) // a broken terminal must not change the outcome
	}
}

// MostDownByUs is the largest number of pods that were down at once because of a grant.
func (r *Recorder) MostDownByUs() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maxByUs
}

// Deletions is how many Pods began to terminate so far.
func (r *Recorder) Deletions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.deletions
}

func (r *Recorder) see(o any, gone bool) {
	if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch obj := o.(type) {
	case *corev1.Pod:
		r.seePod(obj, gone)
	case *v1alpha1.StatefulPod:
		r.seeStatefulPod(obj, gone)
	case *v1alpha1.Operation:
		if !gone {
			r.seeOperation(obj)
		}
	}
	r.count()
}

func (r *Recorder) seePod(pod *corev1.Pod, gone bool) {
	old := r.pods[pod.Name]
	if gone {
		delete(r.pods, pod.Name)
		r.change("pod/"+pod.Name, "gone", "Pod %s is gone", pod.Name)
		return
	}
	r.pods[pod.Name] = pod
	switch {
	case pod.DeletionTimestamp != nil:
		if old == nil || old.DeletionTimestamp == nil {
			r.deletions++
		}
		r.change("pod/"+pod.Name, "terminating", "Pod %s is stopping", pod.Name)
	case ready(pod):
		r.change("pod/"+pod.Name, "ready", "Pod %s is Ready on %s at %s", pod.Name, pod.Spec.NodeName, pod.Labels[v1alpha1.LabelRevision])
	case old != nil && old.UID == pod.UID && ready(old):
		r.change("pod/"+pod.Name, "unready", "Pod %s is no longer Ready", pod.Name)
	case old == nil:
		r.change("pod/"+pod.Name, "new", "Pod %s is created at %s", pod.Name, pod.Labels[v1alpha1.LabelRevision])
	}
}

func (r *Recorder) seeStatefulPod(sp *v1alpha1.StatefulPod, gone bool) {
	if gone {
		delete(r.spods, sp.Name)
		return
	}
	old := r.spods[sp.Name]
	r.spods[sp.Name] = sp
	g := sp.Spec.Grant
	if g == nil || g.Type != v1alpha1.Deployment || old == nil || old.Spec.Grant != nil && old.Spec.Grant.Decision == g.Decision {
		return
	}
	made := Grant{Pod: sp.Name}
	if r.leader != nil {
		made.Leader = r.leader()
	}
	for name, other := range r.spods {
		if name != sp.Name && other.Spec.Set == sp.Spec.Set && other.Spec.Revision != sp.Spec.Revision {
			made.Waiting = append(made.Waiting, name)
		}
	}
	slices.Sort(made.Waiting)
	r.grants = append(r.grants, made)
}

func (r *Recorder) seeOperation(op *v1alpha1.Operation) {
	for _, in := range op.Status.Instances {
		text := string(in.State)
		if in.State == v1alpha1.Waiting || in.State == v1alpha1.Denied {
			for _, reason := range in.Reasons {
				text += " " + reason.Code
			}
			if in.State == v1alpha1.Waiting && len(in.Reasons) == 0 {
				continue
			}
		}
		message := ""
		if len(in.Reasons) > 0 && !in.State.Ended() && !in.State.InFlight() {
			message = ": " + in.Reasons[0].Message
		}
		r.change("op/"+op.Name+"/"+in.Pod, text, "%s %s %s%s", op.Name, in.Pod, text, message)
	}
}

// change says a line when the word for a subject is another one than before.
func (r *Recorder) change(subject, word, format string, args ...any) {
	if r.words[subject] == word {
		return
	}
	r.words[subject] = word
	r.say(format, args...)
}

// count takes the pods that are down while a grant to take them down is not finished.
func (r *Recorder) count() {
	for name, sp := range r.spods {
		g := sp.Spec.Grant
		open := g != nil && g.Stage != v1alpha1.StageAdd && sp.Status.Finished != g.Decision
		pod := r.pods[name]
		down := pod == nil || pod.DeletionTimestamp != nil || !ready(pod)
		r.byUs[name] = open && down
	}
	n := 0
	for name, is := range r.byUs {
		if _, exists := r.spods[name]; is && exists {
			n++
		}
	}
	r.maxByUs = max(r.maxByUs, n)
}

func ready(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
