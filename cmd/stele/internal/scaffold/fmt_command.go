package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/formatting"
)

// formatOptions are the flags of fmt.
type formatOptions struct{ check, diff bool }

// FormatCommand returns the command `fmt`.
func FormatCommand() *cobra.Command {
	o := &formatOptions{}
	cmd := &cobra.Command{
		Use:   "fmt [PATH...]",
		Short: "Format the CUE files of a module",
		Long: `Fmt formats CUE files as cue fmt does, and prints the names of those that it changes. A PATH is a file,
or a folder with all that is below it. Without one it formats the module that contains this folder.
It leaves alone what is below cue.mod, except cue.mod/module.cue, and names that begin with "." or "_".

If a file is not valid CUE, fmt prints its errors and changes nothing.`,
		Example: `  stele policy fmt
  stele policy fmt --check
  stele policy fmt -d teams/web`,
		RunE: o.run,
	}
	cmd.Flags().BoolVar(&o.check, "check", false, "write nothing; list files that are not formatted, and fail if there are any")
	cmd.Flags().BoolVarP(&o.diff, "diff", "d", false, "write nothing; print the changes")
	return cmd
}

// sourceFile is a file and its formatted content.
type sourceFile struct {
	path              string
	before, formatted []byte
}

func (o *formatOptions) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		root, err := moduleRoot(".")
		if err != nil {
			return err
		}
		wd, err := filepath.Abs(".")
		if err != nil {
			return err
		}
		if root, err = filepath.Rel(wd, root); err != nil {
			return err
		}
		args = []string{root}
	}
	paths, err := cueFiles(args)
	if err != nil {
		return err
	}
	changed, err := formatFiles(cmd, paths)
	if err != nil {
		return err
	}
	return o.apply(cmd, changed)
}

// formatFiles formats files, and returns those that change. It prints the errors of all files.
func formatFiles(cmd *cobra.Command, paths []string) (changed []sourceFile, err error) {
	broken := 0
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			return nil, err
		}
		formatted, diags := formatting.Source(filepath.ToSlash(p), text)
		for _, d := range diags {
			if _, err := fmt.Fprintln(cmd.ErrOrStderr(), d); err != nil {
				return nil, err
			}
		}
		if len(diags) > 0 {
			broken++
		} else if !bytes.Equal(text, formatted) {
			changed = append(changed, sourceFile{p, text, formatted})
		}
	}
	if broken > 0 {
		return nil, fmt.Errorf("%s with errors; nothing was changed", usage.Count(broken, "file"))
	}
	return changed, nil
}

// apply writes the files, or shows what would change.
func (o *formatOptions) apply(cmd *cobra.Command, changed []sourceFile) error {
	out := &printer{w: cmd.OutOrStdout()}
	for _, f := range changed {
		switch {
		case o.diff:
			text, err := difference(f)
			if err != nil {
				return err
			}
			out.line("%s", strings.TrimSuffix(text, "\n"))
			continue
		case !o.check:
			if err := replace(f.path, f.formatted); err != nil {
				return err
			}
		}
		out.line("%s", filepath.ToSlash(f.path))
	}
	if out.err == nil && o.check && len(changed) > 0 {
		return fmt.Errorf("%s not formatted; `stele policy fmt` formats them", usage.Count(len(changed), "file"))
	}
	return out.err
}

func difference(f sourceFile) (string, error) {
	name := filepath.ToSlash(f.path)
	return difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		Context: 3, FromFile: name, ToFile: name + " (formatted)",
		A: difflib.SplitLines(string(f.before)), B: difflib.SplitLines(string(f.formatted)),
	})
}

// cueFiles returns the CUE files that the arguments name, each once and sorted.
func cueFiles(args []string) (paths []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		switch {
		case err != nil:
			return nil, err
		case !info.IsDir() && filepath.Ext(arg) != ".cue":
			return nil, usage.Errorf("%s is not a CUE file: its name does not end in .cue", arg)
		case !info.IsDir():
			if vendored(arg) {
				return nil, usage.Errorf("%s is a copy of another module's file and is not formatted", arg)
			}
			paths = append(paths, filepath.Clean(arg))
			continue
		}
		err = filepath.WalkDir(arg, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			ignored := p != arg && (strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_"))
			switch {
			case d.IsDir() && (ignored || vendored(filepath.Join(p, "x.cue"))):
				return fs.SkipDir
			case !ignored && d.Type().IsRegular() && filepath.Ext(p) == ".cue":
				paths = append(paths, filepath.Clean(p))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if len(paths) == 0 {
		return nil, errors.New("there are no CUE files in " + strings.Join(args, " "))
	}
	slices.Sort(paths)
	return slices.Compact(paths), nil
}

// vendored reports whether a file is below cue.mod/pkg, cue.mod/gen or cue.mod/usr.
func vendored(file string) bool {
	abs, err := filepath.Abs(file)
	if err != nil {
		return false
	}
	segments := strings.Split(filepath.ToSlash(abs), "/")
	for i := range len(segments) - 2 {
		if segments[i] == "cue.mod" && slices.Contains([]string{"pkg", "gen", "usr"}, segments[i+1]) {
			return true
		}
	}
	return false
}
