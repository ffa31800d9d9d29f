// Package install builds the kustomize trees of config/ in process and puts them on an API server, as
// `kubectl apply --server-side -k` would. Tests and the demo install the product through it, so that
// what they prove is what the manifests grant.
package install

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	fieldOwner       = "assent-install"
	establishedLimit = 30 * time.Second
	pollInterval     = 50 * time.Millisecond
	kindCRD          = "CustomResourceDefinition"
)

// Build gives the objects of the kustomization in dir, those first that others need: namespaces, then
// CRDs, then the rest as kustomize gives them. It reads files and talks to nobody. Files outside the
// kustomization's own tree are refused, as kubectl does.
func Build(dir string) ([]*unstructured.Unstructured, error) {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", dir, err)
	}
	var objects []*unstructured.Unstructured
	for _, r := range built.Resources() {
		// Through JSON, since kustomize's numbers are not those that unstructured objects hold.
		content, err := r.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("reading %s of %s: %w", r.CurId(), dir, err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("reading %s of %s: %w", r.CurId(), dir, err)
		}
		objects = append(objects, o)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return objects, nil
}

// Apply builds dir and applies its objects server-side, taking over fields that somebody else owns. It
// returns when every CRD among them is established; it does not wait for Deployments. Applying twice is
// the same as once.
func Apply(ctx context.Context, cfg *rest.Config, dir string) error {
	objects, err := Build(dir)
	if err != nil {
		return err
	}
	c, err := newClient(cfg)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := applyOne(ctx, c, o); err != nil {
			return fmt.Errorf("applying %s: %w", name(o), err)
		}
	}
	return nil
}

// Delete builds dir and deletes its objects, those last that others need, as `kubectl delete -k` does.
// What is gone already is fine. Objects that finish on their own time, such as namespaces, may still be there.
func Delete(ctx context.Context, cfg *rest.Config, dir string) error {
	objects, err := Build(dir)
	if err != nil {
		return err
	}
	c, err := newClient(cfg)
	if err != nil {
		return err
	}
	slices.Reverse(objects)
	for _, o := range objects {
		err := c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err) {
			return fmt.Errorf("deleting %s: %w", name(o), err)
		}
	}
	return nil
}

func newClient(cfg *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("registering CRDs: %w", err)
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

func applyOne(ctx context.Context, c client.Client, o *unstructured.Unstructured) error {
	// Apply writes the server's answer into its argument; what was built stays as it is.
	config := client.ApplyConfigurationFromUnstructured(o.DeepCopy())
	if err := c.Apply(ctx, config, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
		return err
	}
	if o.GetKind() != kindCRD {
		return nil
	}
	return awaitEstablished(ctx, c, o.GetName())
}

func awaitEstablished(ctx context.Context, c client.Client, crd string) error {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, establishedLimit, true, func(ctx context.Context) (bool, error) {
		var got apiextensionsv1.CustomResourceDefinition
		if err := c.Get(ctx, client.ObjectKey{Name: crd}, &got); err != nil {
			return false, err
		}
		return established(&got)
	})
	if err != nil {
		return fmt.Errorf("waiting until it is established: %w", err)
	}
	return nil
}

// established says whether the CRD is served; a name conflict or a schema that is not structural is an error.
func established(crd *apiextensionsv1.CustomResourceDefinition) (bool, error) {
	for _, c := range crd.Status.Conditions {
		switch {
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			return true, nil
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse,
			c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue:
			return false, errors.New(c.Message)
		}
	}
	return false, nil
}

func rank(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "Namespace":
		return 0
	case kindCRD:
		return 1
	}
	return 2
}

func name(o *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s", o.GetKind(), client.ObjectKeyFromObject(o))
}
