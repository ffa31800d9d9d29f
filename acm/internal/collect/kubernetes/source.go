package kubernetes

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// +kubebuilder:rbac:groups="",resources=pods;nodes,verbs=get;list;watch

// ProbeInterval is between two questions to the API server; ProbeTimeout bounds one.
const (
	ProbeInterval = 2 * time.Second
	ProbeTimeout  = 2 * time.Second
)

const (
	byApplication = "application"
	byNode        = "node"
)

// Source is the cluster's pods and nodes, by application. Safe for concurrent use.
type Source struct {
	client kubernetes.Interface
	clock  clock.WithTicker
	log    logr.Logger
	pods   cache.SharedIndexInformer
	nodes  cache.SharedIndexInformer
	watch  *watchState
	synced chan struct{}

	mu sync.Mutex
	// seen is the highest resourceVersion of a pod event that was delivered.
	seen uint64
	// asOf is the newest proof that everything until then has been delivered.
	asOf    float64
	failure string
	forbids bool
	views   map[*view]bool
}

// view is one application that wants to know.
type view struct {
	key    string
	groups map[string][]string
	sink   func(facts.Changes)
	// nodes are the nodes it has been told of.
	nodes map[string]bool
}

// New makes a source; Run delivers.
func New(client kubernetes.Interface, clk clock.WithTicker, log logr.Logger) *Source {
	s := &Source{client: client, clock: clk, log: log, watch: newWatchState(), synced: make(chan struct{}), views: map[*view]bool{}}
	s.pods = cache.NewSharedIndexInformer(s.watch.of("pods", client.CoreV1().RESTClient(), labelSet), &corev1.Pod{}, 0, cache.Indexers{
		byApplication: func(o any) ([]string, error) { return keyOf(o.(*corev1.Pod)), nil },
		byNode:        func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil },
	})
	s.nodes = cache.NewSharedIndexInformer(s.watch.of("nodes", client.CoreV1().RESTClient(), ""), &corev1.Node{}, 0, cache.Indexers{})
	return s
}

func keyOf(p *corev1.Pod) []string {
	if app := p.Labels[labelApplication]; app != "" {
		return []string{p.Namespace + "/" + app}
	}
	return nil
}

// Run delivers until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	podEvents, err := s.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.podChanged, UpdateFunc: func(_, o any) { s.podChanged(o) }, DeleteFunc: s.podGone,
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	nodeEvents, err := s.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.nodeChanged, UpdateFunc: func(_, o any) { s.nodeChanged(o) }, DeleteFunc: s.nodeChanged,
	})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	var running sync.WaitGroup
	running.Go(func() { s.pods.RunWithContext(ctx) })
	running.Go(func() { s.nodes.RunWithContext(ctx) })
	defer running.Wait()
	ticker := s.clock.NewTicker(ProbeInterval)
	defer ticker.Stop()
	ready := make(chan struct{})
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), podEvents.HasSynced, nodeEvents.HasSynced) {
			close(ready)
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
			ready = nil
			s.begin()
			s.probe(ctx)
		case <-ticker.C():
			s.probe(ctx)
		}
	}
}

// begin counts the first list in.
func (s *Source) begin() {
	s.mu.Lock()
	s.seen = max(s.seen, version(s.pods.LastSyncResourceVersion()))
	s.mu.Unlock()
	close(s.synced)
}

// Synced is closed once the first list of pods and nodes has been delivered.
func (s *Source) Synced() <-chan struct{} { return s.synced }

// Problem tells why the source does not deliver; empty when it does.
func (s *Source) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != "" {
		return s.failure
	}
	return s.watch.problem()
}

// Open sends all that is known of an application, and from then on every change, until closed.
func (s *Source) Open(namespace, application string, groups map[string][]string, sink func(facts.Changes)) func() {
	v := &view{key: namespace + "/" + application, groups: groups, sink: sink, nodes: map[string]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.views[v] = true
	c := s.changes()
	c.Reports = s.report()
	for _, p := range s.podsBy(byApplication, v.key) {
		s.include(&c, v, p)
	}
	v.sink(c)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.views, v)
	}
}

func (s *Source) podsBy(index, key string) []*corev1.Pod {
	found, err := s.pods.GetIndexer().ByIndex(index, key)
	if err != nil {
		s.log.Error(err, "reading the pods of the cache", "index", index)
	}
	pods := make([]*corev1.Pod, 0, len(found))
	for _, o := range found {
		pods = append(pods, o.(*corev1.Pod))
	}
	return pods
}

func (s *Source) changes() facts.Changes {
	return facts.Changes{At: decision.Unix(s.clock.Now()), Seen: s.seen, Pods: map[string]*facts.Pod{}, Nodes: map[string]*facts.Node{}}
}

// include puts a pod, and its node when that is new to the view, among the changes.
func (s *Source) include(c *facts.Changes, v *view, p *corev1.Pod) {
	zone := ""
	if n := s.node(p.Spec.NodeName); n != nil {
		zone = n.Labels[corev1.LabelTopologyZone]
		if !v.nodes[n.Name] {
			v.nodes[n.Name] = true
			c.Nodes[n.Name] = nodeFacts(n)
		}
	}
	if f := podFacts(p, zone, v.groups); f != nil {
		c.Pods[p.Name] = f
	}
}

func (s *Source) node(name string) *corev1.Node {
	if name == "" {
		return nil
	}
	o, found, err := s.nodes.GetIndexer().GetByKey(name)
	if err != nil || !found {
		return nil
	}
	return o.(*corev1.Node)
}

func (s *Source) podChanged(o any) {
	p := o.(*corev1.Pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = max(s.seen, version(p.ResourceVersion))
	for v := range s.views {
		if keys := keyOf(p); len(keys) == 1 && keys[0] == v.key {
			c := s.changes()
			s.include(&c, v, p)
			v.sink(c)
		}
	}
}

func (s *Source) podGone(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	p, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = max(s.seen, version(p.ResourceVersion))
	for v := range s.views {
		if keys := keyOf(p); len(keys) == 1 && keys[0] == v.key {
			c := s.changes()
			c.Pods[p.Name] = nil
			v.sink(c)
		}
	}
}

// nodeChanged tells every view that has pods on the node. A node that is gone stays known by its pods only.
func (s *Source) nodeChanged(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	n, ok := o.(*corev1.Node)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	there := s.node(n.Name)
	for v := range s.views {
		c := s.changes()
		for _, p := range s.podsBy(byNode, n.Name) {
			if keys := keyOf(p); len(keys) == 1 && keys[0] == v.key {
				s.include(&c, v, p)
			}
		}
		if v.nodes[n.Name] {
			c.Nodes[n.Name] = nil
			if there != nil {
				c.Nodes[n.Name] = nodeFacts(there)
			} else {
				delete(v.nodes, n.Name)
			}
		}
		if len(c.Nodes) > 0 {
			v.sink(c)
		}
	}
}

// probe asks the API server whether it is there, and tells every view how fresh its facts are.
func (s *Source) probe(ctx context.Context) {
	began := decision.Unix(s.clock.Now())
	ctx, cancel := context.WithTimeout(ctx, ProbeTimeout)
	defer cancel()
	_, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: labelSet, Limit: 1})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure, s.forbids = "", apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	select {
	case <-s.synced:
		if err == nil && s.watch.problem() == "" {
			s.asOf = began
		}
	default:
	}
	if err != nil {
		s.failure = "asking the API server: " + err.Error()
	}
	for v := range s.views {
		c := s.changes()
		c.Reports = s.report()
		v.sink(c)
	}
}

// report is the standing of the source: nothing before the first list was delivered, and a failure
// only when it lacks a right, since a lost connection shows in the age.
func (s *Source) report() []facts.Report {
	r := facts.Report{Collector: facts.Kubernetes, OK: !s.forbids, AsOf: s.asOf, Error: s.failure}
	if r.Error == "" {
		r.Error = s.watch.problem()
	}
	select {
	case <-s.synced:
	default:
		r.OK = false
		if r.Error == "" {
			r.Error = "pods and nodes are not listed yet"
		}
	}
	return []facts.Report{r}
}

func version(text string) uint64 {
	v, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return v
}
