package event

import "k8s.io/apimachinery/pkg/runtime"

// Discard is a Recorder that drops everything.
type Discard struct{}

// Eventf drops the event.
func (Discard) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}
