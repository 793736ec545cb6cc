package importing_test

import (
	"os"
	"testing"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
)

// TestMain lets the test binary be the child process that compiles bundles.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "policy" {
		root, policy := &cobra.Command{Use: "stele"}, &cobra.Command{Use: "policy"}
		policy.AddCommand(compiling.Command())
		root.AddCommand(policy)
		if root.Execute() != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}
