package localnode

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"assent.dev/assent/test/controlplane"
)

// TestMain is also the program that the pods of the tests run: <test binary> as <name> [arguments].
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "as" {
		os.Exit(program(os.Args[2], os.Args[3:]))
	}
	controlplane.Main(m)
}

// as is the command line of one of the programs below.
func as(words ...string) []string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append([]string{self, "as"}, words...)
}

func program(name string, args []string) int {
	switch name {
	case "waiting": // until a signal without a handler
		fmt.Println("started")
		select {}
	case "polite": // ends well on SIGTERM
		fmt.Println("started")
		awaitTerm()
		fmt.Println("goodbye")
		return 0
	case "stubborn": // does not hear SIGTERM
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("started")
		select {}
	case "failing": // ends at once with a code
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return 99
		}
		return code
	case "env": // prints its environment and waits
		fmt.Println(strings.Join(os.Environ(), "\n"))
		fmt.Println("args:", strings.Join(args, " "))
		select {}
	case "agent": // plays a node until it is killed
		return playing(args[0], args[1], args[2])
	case "serving": // answers 200 on /ok, and on /file/<path> while that file exists
		return serving(args[0])
	}
	return 98
}

func playing(kubeconfig, dir, node string) int {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		_, err = Start(context.Background(), Options{Config: cfg, Dir: dir, Nodes: []Node{{Name: node}}})
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	select {}
}

func awaitTerm() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	<-c
}

func serving(addr string) int {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) {})
	mux.HandleFunc("/file/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(strings.TrimPrefix(r.URL.Path, "/file")); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	fmt.Println(http.Serve(l, mux))
	return 1
}
