package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/formatting"
)

// AddCommand returns the command `add`.
func AddCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "add",
		Short: "Add a team, kind, rule, view or quota to a policy repository",
		Long: `Add writes a new file into an existing policy repository: a part that compiles, to be changed from there.
It changes no file that exists, but adds a new team to CODEOWNERS if there is one. The repository must
compile before, and if it does not afterwards, nothing is left of the addition.

It expects the layout of stele policy init: the common part in base, a team's package in teams/TEAM.`,
		Args: usage.NoArguments,
	}
	cmd.AddCommand(addTeam(), addKind(), addRule(), addView(), addQuota())
	return cmd
}

// adding is what the commands below `add` have in common.
type adding struct {
	team, kind, group, path, plural, base string
	cluster                               bool
	compile                               compiling.Options
}

var (
	kindName     = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	partName     = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,60}[a-z0-9])?$`)
	fieldOfQuota = regexp.MustCompile(`^(\.[a-z][A-Za-z0-9]*(\[\*\])?)+$`)
)

func addTeam() *cobra.Command {
	o := &adding{}
	cmd := &cobra.Command{
		Use:   "team NAME",
		Short: "Add a team: its limits, its package, and its import in each bundle",
		Long: `Team writes what the team controls into the folder base, a package for it into teams/NAME, and into each bundle a
file that imports it. Without --group its API group is NAME.example.com; its namespaces are NAME-*.`,
		Example: `  stele policy add team data --group data.example.com`,
		Args:    usage.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, func(r *repository) ([]File, error) { return o.teamFiles(r, args[0]) })
		},
	}
	cmd.Flags().StringVar(&o.group, "group", "", "API group of the team's kinds (default NAME.example.com)")
	o.flags(cmd, true)
	return cmd
}

func addKind() *cobra.Command {
	o := &adding{}
	cmd := &cobra.Command{
		Use:   "kind KIND",
		Short: "Add a kind with a schema, a role to read it and one to write it",
		Long: `Kind writes the schema of a kind into the package of a team, roles to read and to write its objects, and a binding of the
latter to the group team-TEAM in the team's namespaces.`,
		Example: `  stele policy add kind Database --team data`,
		Args:    usage.Exactly("KIND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, func(r *repository) ([]File, error) { return o.kindFiles(r, args[0]) })
		},
	}
	cmd.Flags().StringVar(&o.plural, "plural", "", "plural of the kind (default: the usual one in English)")
	cmd.Flags().StringVar(&o.group, "group", "", "API group (default: the first of the team's)")
	cmd.Flags().BoolVar(&o.cluster, "cluster-scoped", false, "its objects are in no namespace; without roles and bindings")
	o.flags(cmd, false)
	return cmd
}

func addRule() *cobra.Command {
	o := &adding{}
	cmd := &cobra.Command{
		Use:     "rule NAME",
		Short:   "Add an admission rule that validates objects of a kind",
		Long:    `Rule writes an admission rule into the package of a team: it limits the length of names, until it is changed.`,
		Example: `  stele policy add rule short-names --team data --kind databases`,
		Args:    usage.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, func(r *repository) ([]File, error) { return o.ruleFiles(r, args[0]) })
		},
	}
	o.kindFlag(cmd)
	o.flags(cmd, false)
	return cmd
}

func addView() *cobra.Command {
	o := &adding{}
	cmd := &cobra.Command{
		Use:   "view NAME",
		Short: "Add a view of the objects of a kind, with a role to read it",
		Long: `View writes a view into the package of a team, a role to read it, and a binding of that to the group team-TEAM in the
team's namespaces.`,
		Example: `  stele policy add view new-databases --team data --kind databases`,
		Args:    usage.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, func(r *repository) ([]File, error) { return o.viewFiles(r, args[0]) })
		},
	}
	o.kindFlag(cmd)
	o.flags(cmd, false)
	return cmd
}

func addQuota() *cobra.Command {
	o := &adding{}
	cmd := &cobra.Command{
		Use:     "quota NAME",
		Short:   "Add a sum that resource quotas can limit",
		Long:    `Quota writes into the folder base that resource quotas can limit the sum of a field, under the name GROUP/NAME.`,
		Example: `  stele policy add quota storage --kind databases --path .spec.storage`,
		Args:    usage.Exactly("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd, func(r *repository) ([]File, error) { return o.quotaFiles(r, args[0]) })
		},
	}
	o.kindFlag(cmd)
	cmd.Flags().StringVar(&o.path, "path", "", "path of the field that is summed, a number or a quantity, such as .spec.storage")
	usage.Required(cmd, "path")
	o.flags(cmd, true)
	return cmd
}

func (o *adding) kindFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kind, "kind", "", "kind, as plural, plural.group or the name of the kind")
	usage.Required(cmd, "kind")
}

// flags adds the flags of parts of a team, or of the common part.
func (o *adding) flags(cmd *cobra.Command, common bool) {
	if common {
		cmd.Flags().StringVar(&o.base, "base", "base", "folder of the package that all bundles begin with")
	} else {
		cmd.Flags().StringVar(&o.team, "team", "", "team whose package it is written into")
		usage.Required(cmd, "team")
	}
	o.compile.AddFlags(cmd.Flags())
}

// run reads the repository around the current folder, writes the files, and compiles it again.
func (o *adding) run(cmd *cobra.Command, files func(*repository) ([]File, error)) error {
	r, err := o.read(cmd)
	if err != nil {
		return err
	}
	added, err := files(r)
	if err != nil {
		return usage.Mark(err)
	}
	if err := checkFree(r.root, added); err != nil {
		return err
	}
	for _, f := range added {
		if err = os.MkdirAll(filepath.Dir(r.file(f.Path)), 0o755); err == nil {
			err = create(r.file(f.Path), f.Data)
		}
		if err != nil {
			return errors.Join(err, r.remove(added))
		}
	}
	if _, err := o.read(cmd); err != nil {
		return errors.Join(fmt.Errorf("with the addition the repository does not compile, so that nothing was added: %w", err), r.remove(added))
	}
	out := &printer{w: cmd.OutOrStdout()}
	for _, f := range added {
		out.line("made %s", f.Path)
	}
	if o.team == "" && o.path == "" {
		if err := r.own(cmd.Flags().Arg(0)); err != nil {
			return err
		}
	}
	out.line("")
	out.line("next: change it, then")
	out.line("  stele policy vet ./...")
	return out.err
}

// read compiles the bundles of the module around the current folder.
func (o *adding) read(cmd *cobra.Command) (*repository, error) {
	root, err := moduleRoot(".")
	if err != nil {
		return nil, err
	}
	targets, err := compiling.Targets([]string{root + "/..."})
	if err != nil {
		return nil, err
	}
	r := &repository{root: root}
	for _, t := range targets {
		compiled, diags, err := o.compile.Compile(cmd.Context(), t.Source)
		if err == nil && len(diags) > 0 {
			err = show.ErrDiagnostics(cmd.ErrOrStderr(), t.Source, diags, t.Source.Package)
		}
		if err != nil {
			return nil, err
		}
		r.module = t.Source.ModulePath()
		r.bundles, r.forms = append(r.bundles, t.Source.Package), append(r.forms, compiled.Form)
	}
	return r, nil
}

// file returns the place of a file of the repository.
func (r *repository) file(p string) string { return filepath.Join(r.root, filepath.FromSlash(p)) }

// remove removes files that were made, and folders that are empty then.
func (r *repository) remove(files []File) (err error) {
	for _, f := range files {
		if e := os.Remove(r.file(f.Path)); e != nil && !os.IsNotExist(e) {
			err = e
		}
		_ = os.Remove(filepath.Dir(r.file(f.Path))) // if it is empty
	}
	return err
}

// own appends a team to CODEOWNERS, with the organization of the last line, if there is such a file.
func (r *repository) own(team string) error {
	file := r.file("CODEOWNERS")
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	organization := "@example"
	for _, word := range strings.Fields(string(text)) {
		if name, _, found := strings.Cut(word, "/"); found && strings.HasPrefix(name, "@") {
			organization = name
		}
	}
	line := fmt.Sprintf("/teams/%s/ %s/%s\n", team, organization, team)
	if strings.Contains(string(text), line) {
		return nil
	}
	if !strings.HasSuffix(string(text), "\n") {
		line = "\n" + line
	}
	return replace(file, append(text, line...))
}

// common returns the package that all bundles begin with; "" if there is none.
func (o *adding) common(r *repository) (pkg string, err error) {
	pkg, fields, err := r.packageOf(o.base)
	if err == nil && pkg != "" && !slices.Contains(fields, "bundle") {
		return "", fmt.Errorf("the package in %s has no field bundle; name the folder of the common part by --base", o.base)
	}
	if err == nil && pkg == "" {
		return "", fmt.Errorf("there is no package in the folder %s; name the folder of the common part by --base", o.base)
	}
	return pkg, err
}

func (o *adding) teamFiles(r *repository, name string) ([]File, error) {
	n := Names{Module: r.module, Team: name, Group: cmp.Or(o.group, name+".example.com")}
	if err := (Names{Module: "example.com/policy", Team: n.Team, Group: n.Group}).check(); err != nil {
		return nil, err
	}
	if _, _, err := r.team(name); err == nil {
		return nil, fmt.Errorf("there is a team %q already", name)
	}
	base, err := o.common(r)
	if err != nil {
		return nil, err
	}
	a := addition{Package: n.Package(), Team: name, TeamPackage: n.Package(), Group: n.Group, Import: n.Import()}
	own, err := a.write("team.cue", path.Join("teams", name, "team.cue"))
	if err != nil {
		return nil, err
	}
	a.Package = base
	limits, err := a.write("team-limits.cue", path.Join(o.base, name+".cue"))
	if err != nil {
		return nil, err
	}
	files := []File{limits, own}
	for _, dir := range r.bundles {
		if a.Package, _, err = r.packageOf(dir); err != nil {
			return nil, err
		}
		f, err := a.write("team-import.cue", path.Join(dir, name+".cue"))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// ofTeam returns what all parts of a team are filled in with, and the folder of its package.
func (o *adding) ofTeam(r *repository) (a addition, dir string, err error) {
	team, _, err := r.team(o.team)
	if err != nil {
		return a, "", err
	}
	a.Team, a.Namespaces = o.team, quotedList(team.Namespaces.Values)
	if a.Group = o.group; a.Group == "" {
		i := slices.IndexFunc(team.Groups.Values, func(g string) bool { return g != "*" && g != "" })
		if i >= 0 {
			a.Group = team.Groups.Values[i]
		}
	}
	dir, a.Package, a.Field, err = r.teamFolder(o.team)
	return a, dir, err
}

func (o *adding) kindFiles(r *repository, kind string) ([]File, error) {
	if !kindName.MatchString(kind) {
		return nil, fmt.Errorf("%q is not the name of a kind: write a word that begins with a capital, such as Database", kind)
	}
	a, dir, err := o.ofTeam(r)
	if err != nil {
		return nil, err
	}
	if a.Group == "" {
		return nil, fmt.Errorf("the team %s has all API groups; choose one by --group", o.team)
	}
	a.Kind, a.Plural, a.Cluster = kind, cmp.Or(o.plural, pluralOf(kind)), o.cluster
	if o.cluster {
		a.Namespaces = ""
	}
	f, err := a.write("kind.cue", path.Join(dir, a.Plural+".cue"))
	return []File{f}, err
}

// ofKind adds what is known of the kind of a rule or a view.
func (o *adding) ofKind(r *repository, a *addition, name string) error {
	if !partName.MatchString(name) {
		return fmt.Errorf("%q is not a name: write lower-case letters, digits and dashes, beginning with a letter", name)
	}
	k, err := r.kind(o.kind)
	if err != nil {
		return err
	}
	a.Name, a.Identifier, a.Kind, a.Plural, a.Group, a.Version = name, formatting.Label(name), k.Kind, k.Plural, k.Group, k.StorageVersion
	if !k.Namespaced {
		a.Namespaces = `["*"]`
	}
	return nil
}

func (o *adding) ruleFiles(r *repository, name string) ([]File, error) {
	a, dir, err := o.ofTeam(r)
	if err == nil {
		err = o.ofKind(r, &a, name)
	}
	if err != nil {
		return nil, err
	}
	f, err := a.write("rule.cue", path.Join(dir, name+".cue"))
	return []File{f}, err
}

func (o *adding) viewFiles(r *repository, name string) ([]File, error) {
	a, dir, err := o.ofTeam(r)
	if err == nil {
		err = o.ofKind(r, &a, name)
	}
	if err != nil {
		return nil, err
	}
	f, err := a.write("view.cue", path.Join(dir, name+".cue"))
	return []File{f}, err
}

func (o *adding) quotaFiles(r *repository, name string) ([]File, error) {
	if !fieldOfQuota.MatchString(o.path) {
		return nil, fmt.Errorf("--path is %q; write the path of a field, such as .spec.storage", o.path)
	}
	a := addition{Path: o.path}
	if err := o.ofKind(r, &a, name); err != nil {
		return nil, err
	}
	a.Identifier = formatting.Label(a.Plural)
	var err error
	if a.Package, err = o.common(r); err != nil {
		return nil, err
	}
	f, err := a.write("quota.cue", path.Join(o.base, "quota-"+name+".cue"))
	return []File{f}, err
}
