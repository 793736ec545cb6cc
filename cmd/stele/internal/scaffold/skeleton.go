// This file makes the files of a new policy repository: a base, one team, two control planes, tests, and what CI systems
// need. The templates are in the folder files. It has no state and is safe for concurrent use.

package scaffold

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"stele.dev/stele/policy/format"
	"stele.dev/stele/policy/formatting"
)

//go:embed all:files
var templates embed.FS

// Names are the names that a new repository begins with.
type Names struct {
	Module string // path of the CUE module: example.com/policy
	Team   string
	Group  string // API group of the team's kinds
}

// File is a file to be written.
type File struct {
	Path string // from the root of the repository, with slashes
	Data []byte
}

var (
	modulePath = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+(/[a-z0-9]([-._a-z0-9]*[a-z0-9])?)*$`)
	teamName   = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	groupName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)
	// taken are names that a team's package cannot have: packages of the repository, predeclared names and keywords of CUE.
	taken = []string{"platform", "base", "dev", "prod", "tests", "policy", "bundle", "team", "list",
		"package", "import", "for", "in", "if", "let", "true", "false", "null", "bool", "int", "float", "string", "bytes", "number", "len", "and", "or", "div", "mod", "quo", "rem", "close", "error", "matchN", "matchIf", "self", "try", "fallback", "else"}
)

// check returns an error that says which name is not possible.
func (n Names) check() error {
	switch {
	case !modulePath.MatchString(n.Module):
		return fmt.Errorf("module %q is not the path of a CUE module: write a domain and a path, for example example.com/policy", n.Module)
	case !teamName.MatchString(n.Team) || len(n.Team) > 40:
		return fmt.Errorf("team %q is not a name: write at most 40 lower-case letters, digits and dashes, beginning with a letter", n.Team)
	case slices.Contains(taken, n.Team):
		return fmt.Errorf("a team cannot be named %q here, which has another meaning in the repository or in CUE; choose another name", n.Team)
	case !groupName.MatchString(n.Group) || len(n.Group) > 200:
		return fmt.Errorf("group %q is not an API group of your own: write a domain in lower case, for example %s.example.com", n.Group, n.Team)
	}
	return nil
}

// Package returns the name of the team's CUE package.
func (n Names) Package() string { return strings.ReplaceAll(n.Team, "-", "_") }

// Import returns the path by which clusters import the team's package.
func (n Names) Import() string {
	p := path.Join(n.Module, "teams", n.Team)
	if n.Package() != n.Team {
		p += ":" + n.Package()
	}
	return p
}

// Files returns the files of a repository, sorted by path: the templates with the names filled in, and the program's definitions
// below cue.mod/pkg. It returns an error if a name is not possible.
func Files(n Names) ([]File, error) {
	if err := n.check(); err != nil {
		return nil, err
	}
	var files []File
	err := fs.WalkDir(templates, "files", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := templates.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := n.render(strings.ReplaceAll(strings.TrimPrefix(p, "files/"), "TEAM", n.Team), text)
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, err
	}
	for p, data := range format.Files() {
		files = append(files, File{p, data})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// render fills in the names. CUE is formatted, as the length of names changes the alignment.
func (n Names) render(name string, text []byte) (File, error) {
	t, err := template.New(name).Delims("[[", "]]").Parse(string(text))
	if err != nil {
		return File{}, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, n); err != nil {
		return File{}, err
	}
	f := File{name, b.Bytes()}
	if path.Ext(name) == ".cue" {
		formatted, diags := formatting.Source(name, f.Data)
		if len(diags) > 0 {
			return File{}, fmt.Errorf("%s: %s", name, diags[0].Message)
		}
		f.Data = formatted
	}
	return f, nil
}
