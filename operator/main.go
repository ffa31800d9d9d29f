// Command operator runs stateful applications: it turns LiStatefulSets into pods and asks an Application Cluster Manager
// before it touches one.
package main

import (
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := command().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}
