// Command kubectl is Kubernetes' kubectl, in the version of go.mod, for the program's tests.
package main

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	"stele.dev/stele/cmd/stele/internal/calls"
)

// exit is the code with which a command of a worker ends.
type exit int

func main() {
	if !calls.IsWorker() {
		run()
		return
	}
	util.BehaviorOnFatal(func(message string, code int) {
		if message != "" {
			fmt.Fprint(os.Stderr, strings.TrimSuffix(message, "\n")+"\n")
		}
		panic(exit(code))
	})
	if err := calls.Work(runToExit); err != nil {
		fmt.Fprintln(os.Stderr, "kubectl:", err)
		os.Exit(1)
	}
}

func run() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

func runToExit() (code int) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case exit:
			code = int(ended)
		default:
			panic(ended)
		}
	}()
	run()
	return 0
}
