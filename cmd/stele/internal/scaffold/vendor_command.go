package scaffold

import (
	"fmt"
	"os"
	"path"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/format"
)

// VendorCommand returns the command `vendor`.
func VendorCommand() *cobra.Command {
	var check bool
	cmd := &cobra.Command{
		Use:   "vendor [DIR]",
		Short: "Copy this program's CUE definitions into a module, for editors and cue vet",
		Long: `Vendor writes stele's CUE definitions into cue.mod/pkg/stele.dev/policy of the module that contains
the folder. Editors, language servers and cue vet read them there. stele itself always uses the
definitions that it was built with. Files there that this program does not have are removed.`,
		Example: `  stele policy vendor
  stele policy vendor --check`,
		Args: usage.AtMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			return vendor(cmd, dir, check)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "write nothing; fail if a copy is not this program's")
	return cmd
}

// verbs says what vendor does with a copy.
var verbs = map[format.CopyState]string{
	format.Missing: "added", format.Older: "updated, it was of an earlier version", format.Changed: "replaced, it was of no version that this program knows", format.Unknown: "removed, this program does not have it",
}

func vendor(cmd *cobra.Command, dir string, check bool) error {
	found, err := moduleRoot(dir)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(found)
	if err != nil {
		return err
	}
	defer root.Close()
	copies, err := format.Copies(root.FS())
	if err != nil {
		return err
	}
	out := &printer{w: cmd.OutOrStdout()}
	for _, c := range copies {
		if check {
			out.line("%s: %s", c.Path, c.State)
			continue
		}
		if err := update(root, c); err != nil {
			return err
		}
		out.line("%s: %s", c.Path, verbs[c.State])
	}
	switch {
	case out.err != nil:
		return out.err
	case check && len(copies) > 0:
		return fmt.Errorf("%s in the module not as this program has them; `stele policy vendor` writes them", usage.Count(len(copies), "definition file")+map[bool]string{true: " is", false: " are"}[len(copies) == 1])
	case len(copies) == 0:
		out.line("the definitions in the module are those of this program")
	}
	return out.err
}

// update writes or removes a copy.
func update(root *os.Root, c format.Copy) error {
	if c.State == format.Unknown {
		if err := root.Remove(c.Path); err != nil {
			return err
		}
		for dir := path.Dir(c.Path); format.Has(dir + "/x"); dir = path.Dir(dir) {
			if root.Remove(dir) != nil { // it is not empty
				break
			}
		}
		return nil
	}
	if err := root.MkdirAll(path.Dir(c.Path), 0o755); err != nil {
		return err
	}
	return root.WriteFile(c.Path, format.Files()[c.Path], 0o644)
}
