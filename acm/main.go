// Command acm is the Application Cluster Manager: it answers the operator's "may this pod go now?" from policies.
package main

import (
	"os"

	"github.com/google/uuid"

	"assent.dev/assent/acm/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], cli.Env{Stdout: os.Stdout, Stderr: os.Stderr, NewID: uuid.NewString}))
}
