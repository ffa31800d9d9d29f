package volume

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/test/localnode/internal/render"
)

const defaultMode = fs.FileMode(0o644)

// collector gathers the files of volumes that are made of data.
type collector struct {
	m     *Manager
	pod   *corev1.Pod
	place render.Place
}

// dataVolume returns the files of v, or ok false when v is not made of data.
func (c collector) dataVolume(ctx context.Context, v *corev1.Volume) (files map[string]file, ok bool, err error) {
	files = map[string]file{}
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		err = c.configMap(ctx, files, s.Name, s.Items, mode(s.DefaultMode), isTrue(s.Optional))
	case v.Secret != nil:
		s := v.Secret
		err = c.secret(ctx, files, s.SecretName, s.Items, mode(s.DefaultMode), isTrue(s.Optional))
	case v.DownwardAPI != nil:
		err = c.downward(files, v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		err = c.projected(ctx, files, v.Projected)
	default:
		return nil, false, nil
	}
	return files, true, err
}

func (c collector) projected(ctx context.Context, files map[string]file, p *corev1.ProjectedVolumeSource) error {
	m := mode(p.DefaultMode)
	for _, s := range p.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = c.configMap(ctx, files, s.ConfigMap.Name, s.ConfigMap.Items, m, isTrue(s.ConfigMap.Optional))
		case s.Secret != nil:
			err = c.secret(ctx, files, s.Secret.Name, s.Secret.Items, m, isTrue(s.Secret.Optional))
		case s.DownwardAPI != nil:
			err = c.downward(files, s.DownwardAPI.Items, m)
		case s.ServiceAccountToken != nil:
			err = c.token(ctx, files, s.ServiceAccountToken, m)
		default:
			err = fmt.Errorf("this kind of projected source is not supported by a local node")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c collector) configMap(ctx context.Context, files map[string]file, name string, items []corev1.KeyToPath, m fs.FileMode, optional bool) error {
	cm, err := c.m.ConfigMap(ctx, c.pod.Namespace, name)
	if optional && apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return pick(files, data, items, m, optional, "config map "+name)
}

func (c collector) secret(ctx context.Context, files map[string]file, name string, items []corev1.KeyToPath, m fs.FileMode, optional bool) error {
	s, err := c.m.Secret(ctx, c.pod.Namespace, name)
	if optional && apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return pick(files, s.Data, items, m, optional, "secret "+name)
}

// pick puts all keys, or the ones named by items, into files.
func pick(files map[string]file, data map[string][]byte, items []corev1.KeyToPath, m fs.FileMode, optional bool, what string) error {
	if len(items) == 0 {
		for k, v := range data {
			files[k] = file{v, m}
		}
		return nil
	}
	for _, it := range items {
		v, ok := data[it.Key]
		if !ok && optional {
			continue
		}
		if !ok {
			return fmt.Errorf("key %s is not in %s", it.Key, what)
		}
		if err := put(files, it.Path, file{v, modeOr(it.Mode, m)}); err != nil {
			return err
		}
	}
	return nil
}

func (c collector) downward(files map[string]file, items []corev1.DownwardAPIVolumeFile, m fs.FileMode) error {
	for _, it := range items {
		if it.FieldRef == nil {
			return fmt.Errorf("downward API file %s: resourceFieldRef is not supported by a local node", it.Path)
		}
		text, err := render.Field(c.pod, c.place, it.FieldRef.FieldPath)
		if err != nil {
			return fmt.Errorf("downward API file %s: %w", it.Path, err)
		}
		if err := put(files, it.Path, file{[]byte(text), modeOr(it.Mode, m)}); err != nil {
			return err
		}
	}
	return nil
}

// token asks the API server for a token bound to the pod, and again once four fifths of its life are over.
func (c collector) token(ctx context.Context, files map[string]file, p *corev1.ServiceAccountTokenProjection, m fs.FileMode) error {
	now := c.m.clock.Now()
	key := string(c.pod.UID) + "/" + p.Path + "/" + p.Audience
	held, ok := c.m.token(key)
	if !ok || !now.Before(held.renew) {
		req := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{
			ExpirationSeconds: p.ExpirationSeconds,
			BoundObjectRef:    &authv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: c.pod.Name, UID: c.pod.UID},
		}}
		if p.Audience != "" {
			req.Spec.Audiences = []string{p.Audience}
		}
		account := c.pod.Spec.ServiceAccountName
		got, err := c.m.client.CoreV1().ServiceAccounts(c.pod.Namespace).CreateToken(ctx, account, req, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("asking for a token of service account %s: %w", account, err)
		}
		life := got.Status.ExpirationTimestamp.Sub(now)
		held = heldToken{text: got.Status.Token, renew: now.Add(life / 5 * 4)}
		c.m.keepToken(key, held)
	}
	return put(files, p.Path, file{[]byte(held.text), m})
}

func put(files map[string]file, name string, f file) error {
	clean := path.Clean(name)
	if path.IsAbs(clean) || clean == ".." || strings.HasPrefix(clean, "../") {
		return fmt.Errorf("path %s leaves the volume", name)
	}
	files[clean] = f
	return nil
}

func mode(m *int32) fs.FileMode { return modeOr(m, defaultMode) }

func modeOr(m *int32, otherwise fs.FileMode) fs.FileMode {
	if m == nil {
		return otherwise
	}
	return fs.FileMode(*m) & fs.ModePerm
}

func isTrue(b *bool) bool { return b != nil && *b }
