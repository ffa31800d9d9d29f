package render

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Place is what is known of a pod once it has landed on a node.
type Place struct {
	NodeName, HostIP, PodIP string
}

// Field gives the text that a fieldRef stands for, in environment and downward API volumes alike.
func Field(pod *corev1.Pod, place Place, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.labels":
			return pod.Labels[key], nil
		case "metadata.annotations":
			return pod.Annotations[key], nil
		}
		return "", fmt.Errorf("field %s is not known to a local node", path)
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return quoted(pod.Labels), nil
	case "metadata.annotations":
		return quoted(pod.Annotations), nil
	case "spec.nodeName":
		return place.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return place.HostIP, nil
	case "status.podIP", "status.podIPs":
		return place.PodIP, nil
	}
	return "", fmt.Errorf("field %s is not known to a local node", path)
}

// subscript splits metadata.labels['key'].
func subscript(path string) (name, key string, ok bool) {
	name, rest, ok := strings.Cut(path, "['")
	if !ok || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return name, strings.TrimSuffix(rest, "']"), true
}
