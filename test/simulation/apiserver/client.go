package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Client returns a client whose writes carry the actor's name. Its reads are live.
func (s *Server) Client(actor string) client.Client { return &apiClient{s: s, actor: actor} }

type apiClient struct {
	s     *Server
	actor string
}

func (c *apiClient) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	gvk, err := apiutil.GVKForObject(obj, c.s.scheme)
	if err != nil {
		return fmt.Errorf("finding the kind of %T: %w", obj, err)
	}
	found, err := c.s.get(id{gvk, key})
	if err != nil {
		return err
	}
	copyInto(obj, found)
	return nil
}

func (c *apiClient) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, err := listKind(list, c.s.scheme)
	if err != nil {
		return err
	}
	return fill(list, c.s.Objects(gvk), opts)
}

func (c *apiClient) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return c.s.create(c.actor, obj)
}

func (c *apiClient) Update(_ context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return c.s.update(c.actor, obj, false)
}

func (c *apiClient) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	o := client.DeleteOptions{}
	o.ApplyOptions(opts)
	return c.s.delete(c.actor, obj, o.Preconditions, o.GracePeriodSeconds)
}

func (c *apiClient) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "deletecollection")
}

func (c *apiClient) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	return c.patch(obj, patch, false)
}

// patch understands merge patches, which is what this operator sends.
func (c *apiClient) patch(obj client.Object, patch client.Patch, status bool) error {
	i, err := c.s.identify(obj)
	if err != nil {
		return err
	}
	if t := patch.Type(); t != types.MergePatchType && t != types.StrategicMergePatchType {
		return apierrors.NewBadRequest(fmt.Sprintf("the simulated API server knows no %s", t))
	}
	data, err := patch.Data(obj)
	if err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}
	old, err := c.s.get(i)
	if err != nil {
		return err
	}
	return c.merge(obj, old, data, status)
}

func (c *apiClient) merge(obj, old client.Object, data []byte, status bool) error {
	before, err := json.Marshal(old)
	if err != nil {
		return fmt.Errorf("encoding %T: %w", old, err)
	}
	after, err := jsonpatch.MergePatch(before, data)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	next := reflect.New(reflect.TypeOf(old).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(after, next); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := c.s.update(c.actor, next, status); err != nil {
		return err
	}
	if obj != nil {
		copyInto(obj, next)
	}
	return nil
}

// Apply merges the applied fields into the object, or creates it. Ownership of fields is not kept.
func (c *apiClient) Apply(_ context.Context, ac runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	return c.apply(ac, false)
}

func (c *apiClient) apply(ac runtime.ApplyConfiguration, status bool) error {
	data, err := json.Marshal(ac)
	if err != nil {
		return fmt.Errorf("encoding an apply configuration: %w", err)
	}
	head := metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(data, &head); err != nil {
		return fmt.Errorf("reading an apply configuration: %w", err)
	}
	gvk := head.GroupVersionKind()
	blank, err := c.s.scheme.New(gvk)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	obj := blank.(client.Object)
	old, err := c.s.get(id{gvk, client.ObjectKeyFromObject(&head)})
	if apierrors.IsNotFound(err) && !status {
		if err := json.Unmarshal(data, obj); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		return c.s.create(c.actor, obj)
	}
	if err != nil {
		return err
	}
	return c.merge(nil, old, data, status)
}

func (c *apiClient) Status() client.SubResourceWriter { return &statusClient{c} }

func (c *apiClient) SubResource(name string) client.SubResourceClient {
	return &otherSubresource{statusClient: &statusClient{c}, name: name}
}

func (c *apiClient) Scheme() *runtime.Scheme { return c.s.scheme }

func (c *apiClient) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }

func (c *apiClient) GroupVersionKindFor(obj runtime.Object) (schema.GroupVersionKind, error) {
	return apiutil.GVKForObject(obj, c.s.scheme)
}

func (c *apiClient) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	gvk, err := apiutil.GVKForObject(obj, c.s.scheme)
	return gvk.Kind != "Node" && gvk.Kind != "Namespace", err
}

type statusClient struct{ c *apiClient }

func (s *statusClient) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "create status")
}

func (s *statusClient) Update(_ context.Context, obj client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.c.s.update(s.c.actor, obj, true)
}

func (s *statusClient) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.c.patch(obj, patch, true)
}

func (s *statusClient) Apply(_ context.Context, ac runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	return s.c.apply(ac, true)
}

type otherSubresource struct {
	*statusClient
	name string
}

func (o *otherSubresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return apierrors.NewMethodNotSupported(schema.GroupResource{}, "get "+o.name)
}

func listKind(list client.ObjectList, scheme *runtime.Scheme) (schema.GroupVersionKind, error) {
	gvk, err := apiutil.GVKForObject(list, scheme)
	if err != nil {
		return gvk, fmt.Errorf("finding the kind of %T: %w", list, err)
	}
	if n := len(gvk.Kind) - len("List"); n > 0 && gvk.Kind[n:] == "List" {
		gvk.Kind = gvk.Kind[:n]
	}
	return gvk, nil
}

// fill puts those objects that the options select into the list.
func fill(list client.ObjectList, objects []client.Object, opts []client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		return apierrors.NewBadRequest("the simulated API server knows no field selectors")
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, obj := range objects {
		if o.Namespace != "" && obj.GetNamespace() != o.Namespace {
			continue
		}
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labelSet(obj.GetLabels())) {
			continue
		}
		items = append(items, obj.DeepCopyObject())
	}
	if err := meta.SetList(list, items); err != nil {
		return fmt.Errorf("filling %T: %w", list, err)
	}
	return nil
}

type labelSet map[string]string

func (l labelSet) Has(label string) bool { _, ok := l[label]; return ok }

func (l labelSet) Get(label string) string { return l[label] }

func (l labelSet) Lookup(label string) (string, bool) { v, ok := l[label]; return v, ok }
