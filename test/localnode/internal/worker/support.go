package worker

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Unsupported lists what the pod asks for and a local node cannot give, one sentence each; nil when nothing is wrong.
// What is merely ignored is listed in the package's README.
func Unsupported(pod *corev1.Pod) []string {
	var out []string
	if pod.Spec.HostNetwork {
		out = append(out, "hostNetwork: every pod of a local node has an address of its own")
	}
	if pod.Spec.ActiveDeadlineSeconds != nil {
		out = append(out, "activeDeadlineSeconds is not supported")
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		out = append(out, "resourceClaims are not supported")
	}
	for i := range pod.Spec.Volumes {
		if kind := unsupportedVolume(&pod.Spec.Volumes[i]); kind != "" {
			out = append(out, fmt.Sprintf("volume %s: %s", pod.Spec.Volumes[i].Name, kind))
		}
	}
	for i := range pod.Spec.InitContainers {
		out = append(out, unsupportedContainer(&pod.Spec.InitContainers[i], true)...)
	}
	for i := range pod.Spec.Containers {
		out = append(out, unsupportedContainer(&pod.Spec.Containers[i], false)...)
	}
	return out
}

func unsupportedVolume(v *corev1.Volume) string {
	s := v.VolumeSource
	switch {
	case s.Projected != nil:
		for _, p := range s.Projected.Sources {
			if p.ConfigMap == nil && p.Secret == nil && p.DownwardAPI == nil && p.ServiceAccountToken == nil {
				return "only configMap, secret, downwardAPI and serviceAccountToken can be projected"
			}
		}
		return ""
	case s.EmptyDir != nil, s.ConfigMap != nil, s.Secret != nil, s.DownwardAPI != nil, s.PersistentVolumeClaim != nil, s.Ephemeral != nil, s.HostPath != nil:
		return ""
	}
	return "only emptyDir, configMap, secret, projected, downwardAPI, hostPath and claims are supported"
}

func unsupportedContainer(c *corev1.Container, isInit bool) []string {
	var out []string
	say := func(format string, args ...any) {
		out = append(out, fmt.Sprintf("container %s: ", c.Name)+fmt.Sprintf(format, args...))
	}
	if len(c.Command)+len(c.Args) == 0 {
		say("no command, and a local node has no image to take one from")
	}
	if len(c.VolumeDevices) > 0 {
		say("volumeDevices are not supported")
	}
	if !isInit && c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0 {
		say("a restart policy of its own is not supported")
	}
	if l := c.Lifecycle; l != nil && (l.PostStart != nil || l.StopSignal != nil) {
		say("of lifecycle only preStop is supported")
	}
	for _, e := range c.Env {
		if f := e.ValueFrom; f != nil && f.FieldRef == nil && f.ConfigMapKeyRef == nil && f.SecretKeyRef == nil {
			say("env %s: only fieldRef, configMapKeyRef and secretKeyRef are supported", e.Name)
		}
	}
	for _, m := range c.VolumeMounts {
		if m.SubPathExpr != "" {
			say("volume mount %s: subPathExpr is not supported", m.Name)
		}
	}
	return out
}

// unpullable says whether the image stands for one that no registry has: name or tag "missing". Every other image is
// only a label of what the command is.
func unpullable(image string) bool {
	name, tag := image, ""
	if i := strings.LastIndexByte(image, ':'); i > strings.LastIndexByte(image, '/') {
		name, tag = image[:i], image[i+1:]
	}
	return tag == "missing" || path.Base(name) == "missing"
}
