// Package apiserver is the API server of the simulated world: objects in memory with the rules that safety
// depends on, and nothing else. It keeps resourceVersion and generation, refuses stale updates, honors UID and
// resourceVersion preconditions, keeps status apart from spec, leaves a Pod terminating until its kubelet
// lets go, and collects what has lost its owner. Every write passes a hook that may refuse it, or lose its answer.
//
// It is deterministic and single-threaded on purpose; the real API server is used by all other tests.
package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ErrLost is what a client sees when its connection broke after the request was sent: the write may have happened.
var ErrLost = errors.New("connection lost while waiting for the answer")

// Verb of a write.
type Verb string

// Verbs.
const (
	Create Verb = "create"
	Update Verb = "update"
	Status Verb = "status"
	Delete Verb = "delete"
)

// Write describes one write for hooks and logs.
type Write struct {
	// Actor is the name under which the client was made.
	Actor string
	Verb  Verb
	Kind  string
	Key   types.NamespacedName
	// Sent is when the client sent it: now, unless it was late.
	Sent time.Time
	// Before and After are the object as it was and as it is to be; nil when it does not exist. Never change them.
	Before, After client.Object
}

func (w Write) String() string {
	return fmt.Sprintf("%s %s %s/%s", w.Actor, w.Verb, w.Kind, w.Key.Name)
}

// Change is one step of an object's history, as a watch would deliver it.
type Change struct {
	GVK     schema.GroupVersionKind
	Object  client.Object
	Deleted bool
}

// Hooks let the world interfere. Any may be nil.
type Hooks struct {
	// Admit runs before a write is stored; an error refuses it and nothing happens.
	Admit func(Write) error
	// Delay is asked about each delete before anything is checked: true leaves it on its way, and its client is told
	// that the answer is lost. See Land.
	Delay func(Write) bool
	// Stored runs after a write was stored; an error is returned to the client in place of the answer.
	Stored func(Write) error
}

type id struct {
	gvk schema.GroupVersionKind
	key types.NamespacedName
}

// Server holds the objects.
type Server struct {
	Hooks Hooks

	scheme  *runtime.Scheme
	clock   clock.PassiveClock
	objects tables
	version int64
	uids    int
	watches []*watch
	late    []func() error
	// swept is what was garbage when version was sweptAt.
	swept   []client.Object
	sweptAt int64
}

type watch struct {
	see   func(Change)
	ended bool
}

// New makes an empty server.
func New(scheme *runtime.Scheme, clock clock.PassiveClock) *Server {
	return &Server{scheme: scheme, clock: clock, objects: tables{}}
}

// Watch calls f with every change from now on, in order, until the returned function is called.
func (s *Server) Watch(f func(Change)) (stop func()) {
	w := &watch{see: f}
	s.watches = append(s.watches, w)
	return func() { w.ended = true }
}

// Version is the resourceVersion of the last write.
func (s *Server) Version() int64 { return s.version }

// Objects returns all objects of a kind, ordered by namespace and name. They are the server's own: copy before changing.
func (s *Server) Objects(gvk schema.GroupVersionKind) []client.Object { return s.objects.list(gvk) }

func (s *Server) identify(obj client.Object) (id, error) {
	gvk, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return id{}, fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	return id{gvk, client.ObjectKeyFromObject(obj)}, nil
}

func resource(gvk schema.GroupVersionKind) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	return plural.GroupResource()
}

func (s *Server) get(i id) (client.Object, error) {
	obj, ok := s.objects.get(i)
	if !ok {
		return nil, apierrors.NewNotFound(resource(i.gvk), i.key.Name)
	}
	return obj, nil
}

// create stores a new object and fills what the API server fills.
func (s *Server) create(actor string, obj client.Object) error {
	i, err := s.identify(obj)
	if err != nil {
		return err
	}
	if _, exists := s.objects.get(i); exists {
		return apierrors.NewAlreadyExists(resource(i.gvk), i.key.Name)
	}
	if obj.GetResourceVersion() != "" {
		return apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if s.namespaceTerminating(i.key.Namespace) {
		e := apierrors.NewForbidden(resource(i.gvk), i.key.Name, errors.New("namespace is being terminated"))
		e.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
		return e
	}
	created := obj.DeepCopyObject().(client.Object)
	s.uids++
	created.SetUID(types.UID(fmt.Sprintf("uid-%06d", s.uids)))
	created.SetGeneration(1)
	created.SetCreationTimestamp(metav1.NewTime(s.clock.Now().Truncate(time.Second)))
	if i.gvk.Group == "assent.dev" {
		if created, err = withStatusOf(created, nil); err != nil {
			return err
		}
	}
	return s.store(Write{Actor: actor, Verb: Create, After: created}, i, obj)
}

// update replaces an object; status says which half is taken from the caller.
func (s *Server) update(actor string, obj client.Object, status bool) error {
	i, err := s.identify(obj)
	if err != nil {
		return err
	}
	old, err := s.get(i)
	if err != nil {
		return err
	}
	if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
		return apierrors.NewConflict(resource(i.gvk), i.key.Name, fmt.Errorf("uid is %s, not %s", old.GetUID(), uid))
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() {
		return apierrors.NewConflict(resource(i.gvk), i.key.Name, errors.New("the object has been modified; apply your changes to the latest version and try again"))
	}
	verb, next := Update, obj
	if status {
		verb = Status
		next, err = withStatusOf(old, obj)
	} else {
		next, err = withStatusOf(obj, old)
	}
	if err != nil {
		return err
	}
	keepServerFields(next, old)
	same, specSame := equal(next, old)
	if same {
		copyInto(obj, old)
		return nil
	}
	if !specSame {
		next.SetGeneration(old.GetGeneration() + 1)
	}
	return s.store(Write{Actor: actor, Verb: verb, Before: old, After: next}, i, obj)
}

// delete removes an object, or starts a Pod's termination when grace is not zero. It may be late.
func (s *Server) delete(actor string, obj client.Object, pre *metav1.Preconditions, grace *int64) error {
	i, err := s.identify(obj)
	if err != nil {
		return err
	}
	w := Write{Actor: actor, Verb: Delete, Kind: i.gvk.Kind, Key: i.key, Sent: s.clock.Now()}
	if s.Hooks.Delay != nil && s.Hooks.Delay(w) {
		s.late = append(s.late, func() error { return s.remove(w, i, pre, grace) })
		return ErrLost
	}
	return s.remove(w, i, pre, grace)
}

// Late is how many deletes are on their way.
func (s *Server) Late() int { return len(s.late) }

// Land carries out the delete that has been on its way for longest, if its preconditions hold by now.
func (s *Server) Land() error {
	call := s.late[0]
	s.late = s.late[1:]
	return call()
}

func (s *Server) remove(w Write, i id, pre *metav1.Preconditions, grace *int64) error {
	old, err := s.get(i)
	if err != nil {
		return err
	}
	if pre != nil {
		if pre.UID != nil && *pre.UID != old.GetUID() {
			return apierrors.NewConflict(resource(i.gvk), i.key.Name, fmt.Errorf("precondition failed: uid in precondition %s, in object %s", *pre.UID, old.GetUID()))
		}
		if pre.ResourceVersion != nil && *pre.ResourceVersion != old.GetResourceVersion() {
			return apierrors.NewConflict(resource(i.gvk), i.key.Name, fmt.Errorf("precondition failed: resourceVersion in precondition %s, in object %s", *pre.ResourceVersion, old.GetResourceVersion()))
		}
	}
	w.Before = old
	if !lingers(old, grace) {
		return s.store(w, i, nil)
	}
	if old.GetDeletionTimestamp() != nil {
		return nil
	}
	next := old.DeepCopyObject().(client.Object)
	at := metav1.NewTime(s.clock.Now())
	next.SetDeletionTimestamp(&at)
	w.After = next
	return s.store(w, i, nil)
}

// lingers says whether a deleted object is there until somebody lets go of it: a Pod that a kubelet runs, a Namespace.
func lingers(o client.Object, grace *int64) bool {
	if grace != nil && *grace == 0 {
		return false
	}
	switch o := o.(type) {
	case *corev1.Pod:
		return o.Spec.NodeName != ""
	case *corev1.Namespace:
		return true
	}
	return false
}

// store is the one place where state changes. A nil After removes the object.
func (s *Server) store(w Write, i id, answer client.Object) error {
	w.Kind, w.Key = i.gvk.Kind, i.key
	if w.Sent.IsZero() {
		w.Sent = s.clock.Now()
	}
	if s.Hooks.Admit != nil {
		if err := s.Hooks.Admit(w); err != nil {
			return err
		}
	}
	s.version++
	change := Change{GVK: i.gvk, Object: w.After}
	if w.After == nil {
		s.objects.remove(i)
		gone := w.Before.DeepCopyObject().(client.Object)
		gone.SetResourceVersion(strconv.FormatInt(s.version, 10))
		change = Change{GVK: i.gvk, Object: gone, Deleted: true}
	} else {
		w.After.SetResourceVersion(strconv.FormatInt(s.version, 10))
		w.After.GetObjectKind().SetGroupVersionKind(i.gvk)
		s.objects.put(i, w.After)
		if answer != nil {
			copyInto(answer, w.After)
		}
	}
	for _, w := range s.watches {
		if w.ended {
			continue
		}
		w.see(change)
	}
	if s.Hooks.Stored != nil {
		return s.Hooks.Stored(w)
	}
	return nil
}

// HasGarbage says whether there is anything for CollectGarbage to remove.
func (s *Server) HasGarbage() bool { return len(s.garbage()) > 0 }

// CollectGarbage removes, in the background as the real collector does, everything whose owner is gone.
func (s *Server) CollectGarbage() {
	for _, o := range s.garbage() {
		// The collector retries until it succeeds; a refusal by a hook leaves the object for the next round.
		_ = s.delete("garbage-collector", o, nil, nil) //nolint:errcheck // see above
	}
}

// garbage lists what has owners and none that lives, in a stable order. It is found once after each write.
func (s *Server) garbage() []client.Object {
	if s.sweptAt == s.version {
		return s.swept
	}
	all, alive := s.objects.all(), map[types.UID]bool{}
	for _, o := range all {
		alive[o.GetUID()] = true
	}
	s.sweptAt, s.swept = s.version, nil
	for _, o := range all {
		refs := o.GetOwnerReferences()
		owned := len(refs) > 0
		for _, r := range refs {
			owned = owned && !alive[r.UID]
		}
		if owned && o.GetDeletionTimestamp() == nil {
			s.swept = append(s.swept, o)
		}
	}
	return s.swept
}

func (s *Server) namespaceTerminating(name string) bool {
	ns, ok := s.objects.get(id{corev1.SchemeGroupVersion.WithKind("Namespace"), types.NamespacedName{Name: name}})
	return ok && ns.GetDeletionTimestamp() != nil
}

func keepServerFields(next, old client.Object) {
	next.SetUID(old.GetUID())
	next.SetGeneration(old.GetGeneration())
	next.SetCreationTimestamp(old.GetCreationTimestamp())
	next.SetDeletionTimestamp(old.GetDeletionTimestamp())
	next.SetResourceVersion(old.GetResourceVersion())
}

// withStatusOf returns a copy of obj with the status of other, or with none, as they come out of JSON.
func withStatusOf(obj, other client.Object) (client.Object, error) {
	out, err := decoded(obj)
	if err != nil {
		return nil, err
	}
	status := reflect.ValueOf(out).Elem().FieldByName("Status")
	if !status.IsValid() {
		return out, nil
	}
	status.SetZero()
	if other == nil {
		return out, nil
	}
	from, err := decoded(other)
	if err != nil {
		return nil, err
	}
	status.Set(reflect.ValueOf(from).Elem().FieldByName("Status"))
	return out, nil
}

// equal compares two objects of one type, whole and without status and metadata.
func equal(a, b client.Object) (whole, spec bool) {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	whole, spec = true, true
	for i := range x.NumField() {
		name := x.Type().Field(i).Name
		if name == "TypeMeta" || equality.Semantic.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			continue
		}
		whole = false
		spec = spec && (name == "ObjectMeta" || name == "Status")
	}
	return whole, spec
}

// decoded is what an object becomes on its way over the wire.
func decoded(obj client.Object) (client.Object, error) {
	raw, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", obj, err)
	}
	out := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("decoding %T: %w", obj, err)
	}
	return out, nil
}

// copyInto makes dst a copy of src; both are pointers to the same type.
func copyInto(dst, src client.Object) {
	reflect.ValueOf(dst).Elem().Set(reflect.ValueOf(src.DeepCopyObject()).Elem())
}
