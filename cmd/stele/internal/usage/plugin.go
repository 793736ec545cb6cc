package usage

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// IsPlugin tells whether the program has been called as `kubectl stele`: kubectl finds it by
// the name kubectl-stele. Then only what a client does is there, and the kubeconfig is
// kubectl's.
func IsPlugin() bool {
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "kubectl-stele"
}

var programInExample = regexp.MustCompile(`(?m)(^ *|\$\(|\| *)stele `)

// AsPlugin says "kubectl stele" wherever help says how the program is called.
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
