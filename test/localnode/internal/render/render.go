package render

import (
	"context"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Source reads the objects an environment refers to. A missing object is the API's NotFound error.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Input is everything that decides a container's command.
type Input struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	Place     Place
	Mounts    []Mount
	// Given holds what stands in for the image's environment (PATH, HOME); it can be overridden but not referred to.
	Given map[string]string
	// Services are the service variables; they can be referred to.
	Services map[string]string
}

// Command is ready to run. Env is sorted by name.
type Command struct {
	Argv, Env []string
}

// Render makes the command of a container. An error is a fault of the pod or of an object it needs, in words for its
// status (reason CreateContainerConfigError).
func Render(ctx context.Context, src Source, in Input) (Command, error) {
	known := map[string]string{}
	for k, v := range in.Services {
		known[k] = v
	}
	for _, m := range in.Mounts {
		if _, ok := known[m.Variable()]; !ok {
			known[m.Variable()] = m.Dir
		}
	}
	if err := addFrom(ctx, src, in, known); err != nil {
		return Command{}, err
	}
	lookup := func(name string) (string, bool) { v, ok := known[name]; return v, ok }
	for i := range in.Container.Env {
		e := &in.Container.Env[i]
		value, ok, err := envValue(ctx, src, in, e, lookup)
		if err != nil {
			return Command{}, fmt.Errorf("env %s: %w", e.Name, err)
		}
		if ok {
			known[e.Name] = value
		}
	}
	// Mount paths are replaced before references are: what a reference brings in has had its turn already, and a real
	// directory may well lie beneath something that is a mount path too (/tmp).
	var cmd Command
	for _, arg := range append(append([]string{}, in.Container.Command...), in.Container.Args...) {
		cmd.Argv = append(cmd.Argv, Expand(Rewrite(arg, in.Mounts), lookup))
	}
	cmd.Env = environment(in, known)
	return cmd, nil
}

// environment joins what stands in for the image with what the pod says.
func environment(in Input, known map[string]string) []string {
	var out []string
	for k, v := range known {
		out = append(out, k+"="+v)
	}
	for k, v := range in.Given {
		if _, ok := known[k]; !ok {
			out = append(out, k+"="+v)
		}
	}
	sort.Strings(out)
	return out
}

func addFrom(ctx context.Context, src Source, in Input, known map[string]string) error {
	for _, from := range in.Container.EnvFrom {
		values, err := fromValues(ctx, src, in.Pod.Namespace, from)
		if err != nil {
			return err
		}
		for k, v := range values {
			known[from.Prefix+k] = Rewrite(v, in.Mounts)
		}
	}
	return nil
}

func fromValues(ctx context.Context, src Source, namespace string, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		cm, err := src.ConfigMap(ctx, namespace, from.ConfigMapRef.Name)
		if missing(err, from.ConfigMapRef.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("envFrom config map %s: %w", from.ConfigMapRef.Name, err)
		}
		return cm.Data, nil
	case from.SecretRef != nil:
		s, err := src.Secret(ctx, namespace, from.SecretRef.Name)
		if missing(err, from.SecretRef.Optional) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("envFrom secret %s: %w", from.SecretRef.Name, err)
		}
		out := map[string]string{}
		for k, v := range s.Data {
			out[k] = string(v)
		}
		return out, nil
	}
	return nil, nil
}

func missing(err error, optional *bool) bool {
	return optional != nil && *optional && apierrors.IsNotFound(err)
}

// envValue resolves one variable; ok is false when it is optional and absent.
func envValue(ctx context.Context, src Source, in Input, e *corev1.EnvVar, lookup func(string) (string, bool)) (string, bool, error) {
	from := e.ValueFrom
	switch {
	case from == nil:
		return Expand(Rewrite(e.Value, in.Mounts), lookup), true, nil
	case from.FieldRef != nil:
		v, err := Field(in.Pod, in.Place, from.FieldRef.FieldPath)
		return v, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := src.ConfigMap(ctx, in.Pod.Namespace, ref.Name)
		if missing(err, ref.Optional) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		v, ok := cm.Data[ref.Key]
		return keyed(Rewrite(v, in.Mounts), ok, ref.Optional, "config map", ref.Name, ref.Key)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		s, err := src.Secret(ctx, in.Pod.Namespace, ref.Name)
		if missing(err, ref.Optional) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		v, ok := s.Data[ref.Key]
		return keyed(Rewrite(string(v), in.Mounts), ok, ref.Optional, "secret", ref.Name, ref.Key)
	}
	return "", false, fmt.Errorf("this kind of valueFrom is not supported by a local node")
}

func keyed(v string, ok bool, optional *bool, kind, name, key string) (string, bool, error) {
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("key %s is not in %s %s", key, kind, name)
	}
	return v, ok, nil
}

// quoted writes labels or annotations as the downward API does: one key="value" a line, sorted.
func quoted(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for k, v := range m {
		lines = append(lines, fmt.Sprintf("%s=%q", k, v))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}
