package kubernetes

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"assent.dev/assent/acm/internal/decision"
	"assent.dev/assent/acm/internal/facts"
)

// Labels and annotations that the operator sets, and marks that people and tools set.
const (
	labelApplication = "assent.dev/application"
	labelSet         = "assent.dev/set"
	labelIndex       = "assent.dev/index"
	labelIncarnation = "assent.dev/incarnation"
	labelRevision    = "assent.dev/revision"

	maintenanceMark  = "assent.dev/maintenance"
	annotationPrefix = "assent.dev/"
)

// podFacts is the pod as facts; nil when its labels do not tell which pod of a set it is.
func podFacts(p *corev1.Pod, zone string, groups map[string][]string) *facts.Pod {
	index, err := strconv.Atoi(p.Labels[labelIndex])
	if err != nil || index < 0 || p.Labels[labelSet] == "" {
		return nil
	}
	incarnation, err := strconv.Atoi(p.Labels[labelIncarnation])
	if err != nil {
		incarnation = 0
	}
	ready := condition(p, corev1.PodReady)
	f := &facts.Pod{
		Set: p.Labels[labelSet], Index: index, Incarnation: incarnation, Revision: p.Labels[labelRevision],
		Node: p.Spec.NodeName, Zone: zone, Groups: groupsOf(p, groups), Phase: string(p.Status.Phase),
		Ready:       ready != nil && ready.Status == corev1.ConditionTrue,
		Terminating: p.DeletionTimestamp != nil,
		UID:         string(p.UID), ResourceVersion: p.ResourceVersion, IP: p.Status.PodIP,
		Annotations: ours(p.Annotations),
	}
	f.Available = f.Ready && !f.Terminating && p.Status.Phase == corev1.PodRunning
	for i := range p.Status.ContainerStatuses {
		f.Restarts += int(p.Status.ContainerStatuses[i].RestartCount)
	}
	switch {
	case f.Terminating: // when it began is when it is first seen
	case ready != nil:
		f.Since = decision.Unix(ready.LastTransitionTime.Time)
	default:
		f.Since = decision.Unix(p.CreationTimestamp.Time)
	}
	return f
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// groupsOf names the pod's group in each grouping; a pod that lacks a label is in none.
func groupsOf(p *corev1.Pod, groups map[string][]string) map[string]string {
	out := map[string]string{}
	for grouping, labels := range groups {
		values := make([]string, 0, len(labels))
		for _, label := range labels {
			if value, ok := p.Labels[label]; ok {
				values = append(values, value)
			}
		}
		if len(values) == len(labels) && len(labels) > 0 {
			out[grouping] = strings.Join(values, "/")
		}
	}
	return out
}

func ours(annotations map[string]string) map[string]string {
	var out map[string]string
	for key, value := range annotations {
		if strings.HasPrefix(key, annotationPrefix) {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = value
		}
	}
	return out
}

func nodeFacts(n *corev1.Node) *facts.Node {
	f := &facts.Node{Schedulable: !n.Spec.Unschedulable, Zone: n.Labels[corev1.LabelTopologyZone], Maintenance: "none"}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			f.Ready = c.Status == corev1.ConditionTrue
		}
	}
	mark := n.Annotations[maintenanceMark]
	for _, t := range n.Spec.Taints {
		switch t.Key {
		case maintenanceMark:
			mark = t.Value
		case corev1.TaintNodeOutOfService:
			f.OutOfService = true
		}
	}
	if mark == "temporary" || mark == "permanent" {
		f.Maintenance = mark
	}
	return f
}
