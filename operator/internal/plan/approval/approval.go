// Package approval is what an approval is and how far it has come, as plain data: the session keeps the register, planners
// read it.
package approval

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"assent.dev/assent/operator/api/v1alpha1"
)

// Phase is how far an approval of this session has come.
type Phase string

// Phases. Only Received and Recorded can be revoked: from Begun on, an act may be on its way to the API server.
const (
	// Received: an ACM answered, no grant is recorded yet, or it is not known whether it is.
	Received Phase = "Received"
	// Recorded: the grant is stored in the StatefulPod.
	Recorded Phase = "Recorded"
	// Begun: the act is being sent.
	Begun Phase = "Begun"
	// Unknown: the act was sent and nobody knows whether it happened.
	Unknown Phase = "Unknown"
	// Acted: the API server accepted the act.
	Acted Phase = "Acted"
)

// Approval is what an ACM allowed. Its decision identifies it.
type Approval struct {
	Decision string
	// Application is its namespace and name.
	Application types.NamespacedName
	Operation   string
	Type        v1alpha1.OperationType
	Stage       v1alpha1.Stage
	Set         string
	Pod         string
	Index       int32
	Incarnation int32
	// Parameters reach the pod as annotations.
	Parameters map[string]string
	// PodUID and PodDown are what the question said of the pod: another pod, or one that has come back, was not judged.
	PodUID  string
	PodDown bool
	// Deadline is the last moment at which the act may be sent.
	Deadline time.Time
}

// Held is an approval and its phase.
type Held struct {
	Approval
	Phase Phase
}

// Expired says whether the act may not be sent anymore.
func (h Held) Expired(now time.Time) bool { return !now.Before(h.Deadline) }

// Revocable says whether it is certain that no act is on its way.
func (h Held) Revocable() bool { return h.Phase == Received || h.Phase == Recorded }
