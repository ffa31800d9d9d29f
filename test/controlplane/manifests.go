package controlplane

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %s
  qps: 2000
  burst: 4000
`

// kwokStages are what kwok does to nodes and pods: nodes are Ready and stay so (kwok renews their Leases, which is
// the heartbeat); a pod that is bound becomes Running and Ready at once, its readiness gates included, and goes as
// soon as it is deleted. Its finalizers are somebody else's: as with a kubelet, they hold it.
const kwokStages = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: node-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Node
  selector:
    matchExpressions:
      - key: .status.conditions.[] | select( .type == "Ready" ) | .status
        operator: NotIn
        values: ["True"]
  next:
    statusTemplate: |
      {{ $now := Now }}
      addresses:
        - type: InternalIP
          address: 127.0.0.1
      allocatable: {cpu: "64", memory: 256Gi, pods: "2000"}
      capacity: {cpu: "64", memory: 256Gi, pods: "2000"}
      conditions:
        - type: Ready
          status: "True"
          reason: FakeNode
          lastHeartbeatTime: {{ $now | Quote }}
          lastTransitionTime: {{ $now | Quote }}
      phase: Running
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-ready
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
      - key: .metadata.deletionTimestamp
        operator: DoesNotExist
      - key: .status.podIP
        operator: DoesNotExist
  next:
    statusTemplate: |
      {{ $now := Now }}
      conditions:
        {{ range list "Initialized" "ContainersReady" "Ready" }}
        - type: {{ . }}
          status: "True"
          lastTransitionTime: {{ $now | Quote }}
        {{ end }}
        {{ range .spec.readinessGates }}
        - type: {{ .conditionType | Quote }}
          status: "True"
          lastTransitionTime: {{ $now | Quote }}
        {{ end }}
      containerStatuses:
        {{ range .spec.containers }}
        - name: {{ .name | Quote }}
          image: {{ .image | Quote }}
          imageID: ""
          ready: true
          started: true
          restartCount: 0
          state:
            running:
              startedAt: {{ $now | Quote }}
        {{ end }}
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName false ( or .metadata.uid "" ) ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
      phase: Running
      startTime: {{ $now | Quote }}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata:
  name: pod-delete
spec:
  resourceRef:
    apiGroup: v1
    kind: Pod
  selector:
    matchExpressions:
      - key: .metadata.deletionTimestamp
        operator: Exists
  next:
    delete: true
`
