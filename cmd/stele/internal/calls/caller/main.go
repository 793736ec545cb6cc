// Command caller stands for a program in the PATH of test scripts: it has a worker of that program run its command.
package main

import (
	"fmt"
	"os"

	"stele.dev/stele/cmd/stele/internal/calls"
)

func main() {
	if err := calls.Call(); err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		os.Exit(125)
	}
}
