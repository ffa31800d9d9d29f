package statefulpod

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Environment variables that every container gets, before the template's own, so that those may refer to them.
const (
	EnvIndex       = "ASSENT_INDEX"
	EnvIncarnation = "ASSENT_INCARNATION"
	EnvRevision    = "ASSENT_REVISION"
	EnvSet         = "ASSENT_SET"
	EnvApplication = "ASSENT_APPLICATION"
)

// toPod makes the identity's Pod from the approved Revision. It errs if the Revision's template is no pod template.
func toPod(identity *v1alpha1.StatefulPod, revision *v1alpha1.Revision) (*corev1.Pod, error) {
	template := corev1.PodTemplateSpec{}
	if err := json.Unmarshal(revision.Spec.Template.Raw, &template); err != nil {
		return nil, fmt.Errorf("reading the template of Revision %s: %w", revision.Name, err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: identity.Name, Namespace: identity.Namespace,
			Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(identity, v1alpha1.GroupVersion.WithKind("StatefulPod")),
			},
		},
		Spec: template.Spec,
	}
	setLabels(identity, pod)
	for k, v := range identity.Spec.Parameters {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, v1alpha1.AnnotationParameterPrefix+k, v)
	}
	pod.Spec.Hostname, pod.Spec.Subdomain = identity.Name, identity.Spec.Set
	setVolumes(identity, &pod.Spec)
	setEnv(identity, &pod.Spec)
	tolerateUnreachable(&pod.Spec)
	return pod, nil
}

func setLabels(identity *v1alpha1.StatefulPod, pod *corev1.Pod) {
	for k, v := range map[string]string{
		v1alpha1.LabelApplication: identity.Spec.Application,
		v1alpha1.LabelSet:         identity.Spec.Set,
		v1alpha1.LabelIndex:       strconv.Itoa(int(identity.Spec.Index)),
		v1alpha1.LabelIncarnation: strconv.Itoa(int(identity.Spec.Incarnation)),
		v1alpha1.LabelRevision:    identity.Spec.Revision,
	} {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, k, v)
	}
	if identity.Spec.Restart != "" {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, v1alpha1.LabelRestart, identity.Spec.Restart)
	}
}

// setVolumes gives every claim the volume of its template's name, in place of one that the pod template may have.
func setVolumes(identity *v1alpha1.StatefulPod, spec *corev1.PodSpec) {
	claimed := map[string]bool{}
	for _, c := range identity.Spec.Claims {
		claimed[c.Name] = true
	}
	var volumes []corev1.Volume
	for _, v := range spec.Volumes {
		if !claimed[v.Name] {
			volumes = append(volumes, v)
		}
	}
	for _, c := range identity.Spec.Claims {
		volumes = append(volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v1alpha1.ClaimName(c.Name, identity.Name)},
		}})
	}
	spec.Volumes = volumes
}

func setEnv(identity *v1alpha1.StatefulPod, spec *corev1.PodSpec) {
	env := []corev1.EnvVar{
		{Name: EnvIndex, Value: strconv.Itoa(int(identity.Spec.Index))},
		{Name: EnvIncarnation, Value: strconv.Itoa(int(identity.Spec.Incarnation))},
		{Name: EnvRevision, Value: identity.Spec.Revision},
		{Name: EnvSet, Value: identity.Spec.Set},
		{Name: EnvApplication, Value: identity.Spec.Application},
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].Env = withDefaults(env, containers[i].Env)
		}
	}
}

// withDefaults puts ours first; a variable that the template sets itself stays the template's.
func withDefaults(ours, theirs []corev1.EnvVar) []corev1.EnvVar {
	set := map[string]bool{}
	for _, e := range theirs {
		set[e.Name] = true
	}
	var all []corev1.EnvVar
	for _, e := range ours {
		if !set[e.Name] {
			all = append(all, e)
		}
	}
	return append(all, theirs...)
}

// tolerateUnreachable keeps Kubernetes from deleting the Pod 300 s after its node was last heard of: that is no proof
// that it does not run, and removing it is not ours to do without asking.
func tolerateUnreachable(spec *corev1.PodSpec) {
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if !tolerates(spec.Tolerations, key) {
			spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
				Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			})
		}
	}
}

func tolerates(all []corev1.Toleration, key string) bool {
	for i := range all {
		t := &all[i]
		effect := t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute
		if effect && (t.Key == key || t.Key == "" && t.Operator == corev1.TolerationOpExists) {
			return true
		}
	}
	return false
}
