// Command operator runs stateful applications: it turns LiStatefulSets into pods and asks an Application Cluster Manager
// before it touches one.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	cmd, _ := command()
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		os.Exit(1)
	}
}

// sessionID is unique for ever: an approval is acted on by the session that received it and by no other.
func sessionID() (string, error) {
	raw := make([]byte, 12)
	if _, err := rand.Read(raw); err != nil {
		return "", fmt.Errorf("making a session id: %w", err)
	}
	return hex.EncodeToString(raw), nil
}
