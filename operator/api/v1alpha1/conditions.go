package v1alpha1

// Condition types of a LiStatefulSet. They follow kstatus: Ready is positive, Stalled and Progressing abnormal.
const (
	// ConditionReady is True when every wanted pod is available at its wanted revision and nothing is open.
	ConditionReady = "Ready"
	// ConditionProgressing is True while an operation is open.
	ConditionProgressing = "Progressing"
	// ConditionStalled is True when only a person can help: denied, invalid template, progress deadline exceeded.
	ConditionStalled = "Stalled"
	// ConditionTemplateValid is False when spec.template cannot be used; the message names the field.
	ConditionTemplateValid = "TemplateValid"
	// ConditionApplicationAgreed is False when the sets of one application name different policies or ACMs.
	ConditionApplicationAgreed = "ApplicationAgreed"
	// ConditionComplete is True on an Operation whose instances have all ended.
	ConditionComplete = "Complete"
	// ConditionAvailable is the availability of a StatefulPod.
	ConditionAvailable = "Available"
	// ConditionPodLost is True on a StatefulPod whose Pod was removed by somebody else; the message names the cause.
	ConditionPodLost = "PodLost"
	// ConditionPodAccepted is False on a StatefulPod whose Pod or claim the API server refuses; the message says why.
	ConditionPodAccepted = "PodAccepted"
	// ConditionClaimsReady is False while a claim is missing or terminating.
	ConditionClaimsReady = "ClaimsReady"
)
