package localnode

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"assent.dev/assent/test/localnode/internal/worker"
)

// podSync gives every pod bound to the node a worker and tells it what happens to the object.
type podSync struct {
	node *worker.Node
	life context.Context
	runs sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*entry
}

type entry struct {
	namespace, name string
	worker          *worker.Worker
}

func newPodSync(n *worker.Node) *podSync {
	return &podSync{node: n, workers: map[types.UID]*entry{}}
}

// run watches until ctx ends and returns when all workers have ended.
func (s *podSync) run(ctx context.Context) {
	s.life = ctx
	watch := cache.NewFilteredListWatchFromClient(s.node.Client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = "spec.nodeName=" + s.node.Name })
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watch, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { s.present(obj) },
			UpdateFunc: func(before, now any) { s.changed(before, now) },
			DeleteFunc: func(obj any) { s.absent(obj) },
		},
	})
	informer.RunWithContext(ctx)
	s.runs.Wait()
}

func (s *podSync) present(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || s.life.Err() != nil {
		return
	}
	s.mu.Lock()
	e := s.workers[pod.UID]
	if e == nil {
		w := worker.New(s.node, pod)
		s.workers[pod.UID] = &entry{pod.Namespace, pod.Name, w}
		s.runs.Add(1)
		go s.work(pod.UID, w)
	}
	s.mu.Unlock()
	if e != nil {
		e.worker.Update(pod)
	}
}

func (s *podSync) work(uid types.UID, w *worker.Worker) {
	defer s.runs.Done()
	w.Run(s.life)
	s.mu.Lock()
	delete(s.workers, uid)
	s.mu.Unlock()
}

// changed also covers a pod that was replaced by another of its name while the watch was interrupted.
func (s *podSync) changed(before, now any) {
	b, ok1 := before.(*corev1.Pod)
	n, ok2 := now.(*corev1.Pod)
	if ok1 && ok2 && b.UID != n.UID {
		s.absent(b)
	}
	s.present(now)
}

func (s *podSync) absent(obj any) {
	if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = t.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	e := s.workers[pod.UID]
	s.mu.Unlock()
	if e != nil {
		e.worker.Vanished()
	}
}

// find returns the worker of the pod's newest object, nil if there is none.
func (s *podSync) find(namespace, name string) *worker.Worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *worker.Worker
	for _, e := range s.workers {
		if e.namespace == namespace && e.name == name && (found == nil || e.worker.Newer(found)) {
			found = e.worker
		}
	}
	return found
}
