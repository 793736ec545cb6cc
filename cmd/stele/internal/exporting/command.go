// Package exporting has the command that shows a bundle as Kubernetes objects: `stele policy export`.
package exporting

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// Command returns the command `export`.
func Command() *cobra.Command {
	var compile compiling.Options
	var format string
	cmd := &cobra.Command{
		Use:   "export DIR",
		Short: "Print a bundle as Kubernetes objects: definitions, RBAC, admission policies, flow control",
		Long: `Export compiles a bundle and prints what Kubernetes can express of it: CustomResourceDefinitions,
ClusterRoles, ClusterRoleBindings, RoleBindings, ValidatingAdmissionPolicies with their bindings,
FlowSchemas and PriorityLevelConfigurations. What it cannot express is reported on standard error with
its line: denies, conditions of bindings, patterns of namespaces, params, audit rules.`,
		Example: `  stele policy export clusters/dev > dev.yaml`,
		Args:    usage.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := usage.OneOf("-o", format, []string{"yaml", "json"}); err != nil {
				return err
			}
			compiled, err := compile.Folder(cmd.Context(), cmd, args[0])
			if err != nil {
				return err
			}
			objects, notes := Objects(compiled.Form)
			for _, n := range notes {
				if _, err := fmt.Fprintln(cmd.ErrOrStderr(), n); err != nil {
					return err
				}
			}
			return write(cmd.OutOrStdout(), format, objects)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "output `FORMAT`: yaml or json")
	compile.AddFlags(cmd.Flags())
	return cmd
}

// write prints objects: YAML documents, or a List as JSON.
func write(w io.Writer, format string, objects []any) error {
	if format == "json" {
		text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects}, "", "  ")
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", text)
		}
		return err
	}
	var b strings.Builder
	for _, o := range objects {
		text, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
