package listatefulset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// Template is a pod template that can be used.
type Template struct {
	// Canonical JSON: keys sorted, nulls dropped, nothing added. Equal templates have equal bytes.
	Canonical []byte
	// Decoded is the same as the API's type.
	Decoded corev1.PodTemplateSpec
}

// reservedPrefix precedes the labels and annotations that are ours.
const reservedPrefix = "assent.dev/"

// ReadTemplate decodes a template strictly. The error is for the user: it names the field and says what to do.
func ReadTemplate(raw []byte) (Template, error) {
	canonical, err := Canonical(raw)
	if err != nil {
		return Template{}, fmt.Errorf("spec.template: %w", err)
	}
	t := Template{Canonical: canonical}
	strict, err := kjson.UnmarshalStrict(canonical, &t.Decoded)
	if err != nil {
		return Template{}, fmt.Errorf("spec.template: %w", err)
	}
	if len(strict) > 0 {
		return Template{}, fmt.Errorf("spec.template: %w; correct or remove the field", errors.Join(strict...))
	}
	return t, check(&t.Decoded)
}

// check refuses what can never run. The API server checks the rest when a Pod is created.
func check(t *corev1.PodTemplateSpec) error {
	if len(t.Spec.Containers) == 0 {
		return errors.New("spec.template.spec.containers: at least one container is needed")
	}
	if p := t.Spec.RestartPolicy; p != "" && p != corev1.RestartPolicyAlways {
		return fmt.Errorf("spec.template.spec.restartPolicy: %s is not possible here; write Always or remove the field", p)
	}
	for _, m := range []struct {
		path   string
		values map[string]string
	}{{"labels", t.Labels}, {"annotations", t.Annotations}} {
		for _, k := range slices.Sorted(maps.Keys(m.values)) {
			if strings.HasPrefix(k, reservedPrefix) {
				return fmt.Errorf("spec.template.metadata.%s[%s]: names under %s are the operator's own; choose another", m.path, k, reservedPrefix)
			}
		}
	}
	return nil
}

// Canonical rewrites a JSON object with keys sorted and null members dropped. Numbers keep their text. It errs if raw
// is not exactly one object.
func Canonical(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("reading JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errors.New("an object is needed")
	}
	dropNulls(object)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(object); err != nil {
		return nil, fmt.Errorf("writing JSON: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func dropNulls(value any) {
	switch v := value.(type) {
	case map[string]any:
		for k, member := range v {
			if member == nil {
				delete(v, k)
				continue
			}
			dropNulls(member)
		}
	case []any:
		for _, element := range v {
			dropNulls(element)
		}
	}
}
