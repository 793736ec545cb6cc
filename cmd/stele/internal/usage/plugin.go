package usage

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// IsPlugin reports whether the program runs as `kubectl stele`, because its file is named kubectl-stele. It then has
// only the client commands, and uses kubectl's kubeconfig.
func IsPlugin() bool {
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "kubectl-stele"
}

// programInExample matches the program's name in examples.
var programInExample = regexp.MustCompile(`(?m)(^ *|\$\(|\| *)stele `)

// AsPlugin makes the help of all commands say "kubectl stele" instead of "stele".
func AsPlugin(root *cobra.Command) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl stele"}
	var each func(*cobra.Command)
	each = func(cmd *cobra.Command) {
		cmd.Example = programInExample.ReplaceAllString(cmd.Example, "${1}kubectl stele ")
		for _, sub := range cmd.Commands() {
			each(sub)
		}
	}
	each(root)
}
