// Package documenting has the command that writes a reference of a bundle for readers: `stele policy doc`.
package documenting

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy"
)

// formats are the formats, with the ends of the names of files.
var formats = map[string]struct {
	end   string
	write func(*policy.Form) ([]byte, error)
}{"markdown": {".md", Markdown}, "html": {".html", HTML}}

// Command returns the command `doc`.
func Command() *cobra.Command {
	var compile compiling.Options
	var format, out string
	cmd := &cobra.Command{
		Use:   "doc DIR",
		Short: "Write a reference of a bundle: kinds with their fields, roles, bindings, denies and rules",
		Long: `Doc compiles a bundle and prints what users of the control plane need to know: each field of each kind
with its type, constraints and default, who may do what where, what is denied and why, and the rules of
admission with their messages. Built-in kinds and roles are left out. HTML is one file that loads nothing.

With --out it writes a file into a folder, with the name of the control plane.`,
		Example: `  stele policy doc clusters/dev > dev.md
  stele policy doc clusters/dev -o html --out public`,
		Args: usage.Exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, ok := formats[format]
			if !ok {
				return usage.OneOf("-o", format, []string{"markdown", "html"})
			}
			compiled, err := compile.Folder(cmd.Context(), cmd, args[0])
			if err != nil {
				return err
			}
			text, err := f.write(compiled.Form)
			if err != nil {
				return err
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			if err := os.MkdirAll(out, 0o755); err != nil {
				return err
			}
			return renameio.WriteFile(filepath.Join(out, strings.ReplaceAll(compiled.Form.Cluster, ":", "-")+f.end), text, 0o644)
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", "markdown", "output `FORMAT`: markdown or html")
	cmd.Flags().StringVar(&out, "out", "", "write a file into this folder (default: print)")
	compile.AddFlags(cmd.Flags())
	return cmd
}
