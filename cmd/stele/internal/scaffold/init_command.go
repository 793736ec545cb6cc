package scaffold

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/format"
)

// InitCommand returns the command `init`.
func InitCommand() *cobra.Command {
	var names Names
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Make a policy repository: a base, a team, two clusters, tests and CI",
		Long: `Init writes a policy repository that works at once: a CUE module with stele's definitions, a common
base, one team with a kind, roles and a rule, the clusters dev and prod, tests, CODEOWNERS, and checks
for GitHub and GitLab. It needs no server.

It writes nothing if one of its files exists already.`,
		Example: `  stele policy init policy --team web --group web.example.com
  stele policy init`,
		Args: usage.AtMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if len(args) > 0 {
				dir = args[0]
			}
			names.Group = cmp.Or(names.Group, names.Team+".example.com")
			return initialize(cmd, dir, names)
		},
	}
	cmd.Flags().StringVar(&names.Team, "team", "web", "name of the first team")
	cmd.Flags().StringVar(&names.Group, "group", "", "API group of the team's kinds (default TEAM.example.com)")
	cmd.Flags().StringVar(&names.Module, "module", "example.com/policy", "path of the CUE module")
	return cmd
}

func initialize(cmd *cobra.Command, dir string, names Names) error {
	files, err := Files(names)
	if err != nil {
		return usage.Mark(err)
	}
	if err := checkFree(dir, files); err != nil {
		return err
	}
	for _, f := range files {
		path := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := create(path, f.Data); err != nil {
			return err
		}
	}
	out := &printer{w: cmd.OutOrStdout()}
	out.line("made %s in %s:", usage.Count(len(files), "file"), dir)
	for _, part := range parts(files) {
		out.line("  %s", part)
	}
	out.line("")
	out.line("next:")
	if dir != "." {
		out.line("  cd %s", usage.Quote(dir))
	}
	out.line("  stele policy vet ./clusters/...")
	out.line("  stele policy test")
	out.line("  stele serve --data-dir dev-data --policy clusters/dev")
	return out.err
}

// create writes a file that must not exist.
func create(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// checkFree returns an error if a file exists already, or if the folder is inside of another module.
func checkFree(dir string, files []File) error {
	var taken []string
	for _, f := range files {
		found, err := inTheWay(dir, f.Path)
		if err != nil {
			return err
		}
		if found != "" && !slices.Contains(taken, found) {
			taken = append(taken, found)
		}
	}
	if len(taken) > 0 {
		const most = 5
		names := strings.Join(taken[:min(len(taken), most)], ", ")
		if more := len(taken) - most; more > 0 {
			names += fmt.Sprintf(" and %d more", more)
		}
		return fmt.Errorf("%s has files in the way, and nothing was written: %s; choose another folder, or move them away", dir, names)
	}
	return nil
}

// inTheWay returns what prevents a file from being made: itself, or a file in the place of one of its folders; "" if nothing does.
func inTheWay(dir, path string) (string, error) {
	segments := strings.Split(path, "/")
	for i := range segments {
		name := strings.Join(segments[:i+1], "/")
		info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name)))
		switch {
		case os.IsNotExist(err):
			return "", nil
		case err != nil:
			return "", err
		case i == len(segments)-1 || !info.IsDir():
			return name, nil
		}
	}
	return "", nil
}

// parts returns the files, with the definitions as one entry.
func parts(files []File) (list []string) {
	for _, f := range files {
		name := f.Path
		if format.Has(name) {
			name = "cue.mod/pkg/stele.dev/policy/ (stele's definitions, for editors and `cue vet`)"
		}
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
