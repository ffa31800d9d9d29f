package metrics

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// CountWrites wraps a client so that each write it sends is counted by kind and verb, whatever its outcome.
func CountWrites(c client.Client, m *Metrics) client.Client { return &counting{Client: c, m: m} }

type counting struct {
	client.Client
	m *Metrics
}

func (c *counting) count(obj runtime.Object, verb string) {
	kind := "unknown"
	if gvk, err := apiutil.GVKForObject(obj, c.Scheme()); err == nil {
		kind = gvk.Kind
	}
	c.m.Write(kind, verb)
}

// Create counts and sends.
func (c *counting) Create(ctx context.Context, obj client.Object, o ...client.CreateOption) error {
	c.count(obj, "create")
	return c.Client.Create(ctx, obj, o...)
}

// Update counts and sends.
func (c *counting) Update(ctx context.Context, obj client.Object, o ...client.UpdateOption) error {
	c.count(obj, "update")
	return c.Client.Update(ctx, obj, o...)
}

// Patch counts and sends.
func (c *counting) Patch(ctx context.Context, obj client.Object, p client.Patch, o ...client.PatchOption) error {
	c.count(obj, "patch")
	return c.Client.Patch(ctx, obj, p, o...)
}

// Delete counts and sends.
func (c *counting) Delete(ctx context.Context, obj client.Object, o ...client.DeleteOption) error {
	c.count(obj, "delete")
	return c.Client.Delete(ctx, obj, o...)
}

// Apply counts and sends.
func (c *counting) Apply(ctx context.Context, obj runtime.ApplyConfiguration, o ...client.ApplyOption) error {
	c.m.Write(appliedKind(obj), "apply")
	return c.Client.Apply(ctx, obj, o...)
}

// Status counts writes of the status.
func (c *counting) Status() client.SubResourceWriter {
	return &countingStatus{SubResourceWriter: c.Client.Status(), c: c}
}

type countingStatus struct {
	client.SubResourceWriter
	c *counting
}

// Update counts and sends.
func (s *countingStatus) Update(ctx context.Context, obj client.Object, o ...client.SubResourceUpdateOption) error {
	s.c.count(obj, "update-status")
	return s.SubResourceWriter.Update(ctx, obj, o...)
}

// Patch counts and sends.
func (s *countingStatus) Patch(ctx context.Context, obj client.Object, p client.Patch, o ...client.SubResourcePatchOption) error {
	s.c.count(obj, "patch-status")
	return s.SubResourceWriter.Patch(ctx, obj, p, o...)
}

// appliedKind is the kind in the name of an apply configuration's type, such as *v1.ServiceApplyConfiguration.
func appliedKind(obj runtime.ApplyConfiguration) string {
	name := fmt.Sprintf("%T", obj)
	return strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "ApplyConfiguration")
}
