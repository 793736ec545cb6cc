package scaffold

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/formatting"
	"stele.dev/stele/schemas"
)

//go:embed additions
var additions embed.FS

// addition is what the templates of additions are filled in with.
type addition struct {
	Package     string // of the CUE file
	Field       string // under which the team's parts stand: team, or bundle: teams: "name"
	Team        string
	TeamPackage string
	Import      string // path of the team's package
	Name        string
	Identifier  string // a name that CUE needs no quotes for, or the name in quotes
	Kind        string
	Plural      string
	Group       string
	Version     string
	Namespaces  string // a list in CUE; "" if there are none
	Path        string // of a field
	Cluster     bool   // the kind is in no namespace
}

// write fills in a template and returns the file, formatted.
func (a addition) write(name, to string) (File, error) {
	text, err := additions.ReadFile("additions/" + name)
	if err != nil {
		return File{}, err
	}
	t, err := template.New(name).Delims("[[", "]]").Parse(string(text))
	if err != nil {
		return File{}, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, a); err != nil {
		return File{}, err
	}
	formatted, diags := formatting.Source(to, b.Bytes())
	if len(diags) > 0 {
		return File{}, fmt.Errorf("%s: %s", to, diags[0])
	}
	return File{to, formatted}, nil
}

// repository is an existing module of policies: what its bundles have, and where.
type repository struct {
	root   string // of the module
	module string
	// bundles are the folders of its bundles, from the root, and forms their policies.
	bundles []string
	forms   []*policy.Form
}

// team returns a team of one of the bundles, with the policy that it is in.
func (r *repository) team(name string) (*policy.Team, *policy.Form, error) {
	var known []string
	for _, f := range r.forms {
		for i := range f.Teams {
			if f.Teams[i].Name == name {
				return &f.Teams[i], f, nil
			}
			if !slices.Contains(known, f.Teams[i].Name) {
				known = append(known, f.Teams[i].Name)
			}
		}
	}
	return nil, nil, fmt.Errorf("there is no team %q; there are %s; `stele policy add team %s` makes one", name, strings.Join(known, ", "), name)
}

// kind returns a kind, given as plural.group, or as plural of a kind that is not built in.
func (r *repository) kind(name string) (*schemas.Kind, error) {
	var known []string
	for _, f := range r.forms {
		for i := range f.Kinds {
			k := &f.Kinds[i]
			if k.Resource() == name || !k.Builtin && (k.Plural == name || strings.EqualFold(k.Kind, name)) {
				return k, nil
			}
			if !k.Builtin && !slices.Contains(known, k.Resource()) {
				known = append(known, k.Resource())
			}
		}
	}
	return nil, fmt.Errorf("there is no kind %q; there are %s", name, strings.Join(known, ", "))
}

// teamFolder returns the folder of a team's package, from the root, with the name of the package, and the field under which the
// team's parts stand there.
func (r *repository) teamFolder(team string) (dir, pkg, field string, err error) {
	dir = path.Join("teams", team)
	pkg, fields, err := r.packageOf(dir)
	switch {
	case err != nil:
		return "", "", "", err
	case pkg == "":
		return "", "", "", fmt.Errorf("there is no package in the folder %s, which a team's package is in; write to one by --dir", dir)
	case slices.Contains(fields, "team"):
		return dir, pkg, "team", nil
	case slices.Contains(fields, "bundle"):
		return dir, pkg, "bundle: teams: " + strconv.Quote(team), nil
	}
	return dir, pkg, "team", nil
}

// packageOf returns the package of a folder, "" if it has no CUE files, and the fields at the top of its files.
func (r *repository) packageOf(dir string) (name string, fields []string, err error) {
	entries, err := os.ReadDir(filepath.Join(r.root, filepath.FromSlash(dir)))
	if os.IsNotExist(err) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	for _, e := range entries {
		if e.IsDir() || path.Ext(e.Name()) != ".cue" {
			continue
		}
		file := filepath.Join(r.root, filepath.FromSlash(dir), e.Name())
		data, err := os.ReadFile(file)
		if err != nil {
			return "", nil, err
		}
		pkg, top, err := formatting.Outline(file, data)
		if err != nil {
			return "", nil, fmt.Errorf("%s: %w", path.Join(dir, e.Name()), err)
		}
		name, fields = cmp.Or(pkg, name), append(fields, top...)
	}
	return name, fields, nil
}

// quotedList returns a list of texts in CUE.
func quotedList(values []string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// pluralOf returns the usual plural of a kind's name in English, in lower case.
func pluralOf(kind string) string {
	word := strings.ToLower(kind)
	switch {
	case strings.HasSuffix(word, "s"), strings.HasSuffix(word, "x"), strings.HasSuffix(word, "ch"), strings.HasSuffix(word, "sh"):
		return word + "es"
	case strings.HasSuffix(word, "y") && len(word) > 1 && !strings.ContainsAny(word[len(word)-2:len(word)-1], "aeiou"):
		return word[:len(word)-1] + "ies"
	}
	return word + "s"
}
