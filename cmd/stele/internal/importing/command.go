// Package importing has the command that turns Kubernetes objects into CUE of a bundle: `stele policy import`.
package importing

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/importing"
	"stele.dev/stele/schemas"
)

type options struct {
	sections            []string
	cluster, live       bool
	kubeconfig, context string
	pkg, team, out      string
	namespace           string
	into                string
	keepDefinitions     bool
	compile             compiling.Options
}

// Command returns the command `import`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "import FILE|DIR|-...",
		Short: "Turn CustomResourceDefinitions, RBAC, flow control, admission and audit policies into CUE",
		Long: `Import reads Kubernetes objects from YAML and JSON files, from standard input, or from a cluster, and
prints CUE for a bundle. With --out it writes files into a folder instead. With --live it reads the
definitions, roles, bindings and webhooks that clients have brought to a stele server, and that its
policy does not have. A push of a bundle that has them adopts them, kinds with their objects.

Kinds are compared with their definitions on generated objects. A definition that cannot become an
equal kind in CUE is kept as a definition, in crds. With --keep-crds all definitions are kept, so that
what installs them finds them as they were: see dynamic in a bundle. What a bundle cannot express is left out; each such
part is reported on standard error with its line. So is what 'stele policy vet' refuses in the result,
in a bundle that has nothing else, or in that of --into.

With --team it writes the field team, for the folder of that team. With --package it writes the field
bundle, for a package of the platform; flow control and audit policies need that.`,
		Example: `  stele policy import widgets.crd.yaml --team web --out teams/web
  stele policy import rbac.yaml --kind rbac --team web --into clusters/dev
  stele policy import --from-cluster --context prod --package base --team platform --out base
  stele policy import --live --team web --into clusters/dev --out teams/web`,
		RunE: o.run,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.sections, "kind", nil, "import only these: "+usage.Enumerate(importing.Sections))
	f.BoolVar(&o.cluster, "from-cluster", false, "read the objects from a cluster")
	f.BoolVar(&o.live, "live", false, "read what clients have brought to a stele server through the API")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig for --from-cluster (default: $KUBECONFIG, or ~/.kube/config) and --live (default: as for other commands)")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig for --from-cluster and --live")
	f.StringVar(&o.team, "team", "", "team that gets kinds, roles and rules")
	f.StringVar(&o.pkg, "package", "", "CUE package of the platform; the files then set the field bundle")
	f.StringVar(&o.into, "into", "", "folder of the bundle that the result becomes part of: rules about its kinds are imported, and the result is checked in it")
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of Roles and RoleBindings that name none, such as those of a chart")
	f.BoolVar(&o.keepDefinitions, "keep-crds", false, "keep CustomResourceDefinitions as they are, and do not turn them into kinds in CUE")
	f.StringVar(&o.out, "out", "", "write files into this folder (default: print CUE)")
	o.compile.AddFlags(f)
	usage.Exclusive(cmd, "from-cluster", "live")
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	for _, s := range o.sections {
		if err := usage.OneOf("--kind", s, importing.Sections); err != nil {
			return err
		}
	}
	switch {
	case o.team == "":
		return usage.Missing(cmd, "--team, the team that gets kinds, roles and rules")
	case o.cluster && len(args) > 0:
		return usage.Errorf("--from-cluster takes no files")
	case o.live && len(args) > 0:
		return usage.Errorf("--live takes no files")
	case o.live && len(o.sections) > 0:
		return usage.Errorf("--live takes no --kind: clients can only bring definitions")
	case !o.cluster && !o.live && len(args) == 0:
		return usage.Missing(cmd, "FILE, a folder, or - for standard input")
	}
	documents, err := o.documents(cmd, args)
	if err != nil {
		return err
	}
	conversion, err := o.conversion(cmd)
	if err != nil {
		return err
	}
	result, err := importing.Convert(documents, conversion)
	if err != nil {
		return err
	}
	for _, n := range result.Notes {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), n); err != nil {
			return err
		}
	}
	if o.out == "" {
		_, err := cmd.OutOrStdout().Write(result.Files[0].Data)
		return err
	}
	if err := o.write(result.Files); err != nil {
		return err
	}
	return o.summarize(cmd.OutOrStdout(), result)
}

func (o *options) conversion(cmd *cobra.Command) (importing.Options, error) {
	pkg := strings.ReplaceAll(o.team, "-", "_")
	if o.pkg != "" {
		pkg = o.pkg
	}
	c := importing.Options{
		Sections: o.sections, Package: pkg, Team: o.team, Whole: o.pkg != "", Folder: o.out != "", Taken: map[string]bool{}, KeepDefinitions: o.keepDefinitions, Namespace: o.namespace,
		Compile: func(s *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
			return o.compile.Compile(cmd.Context(), s)
		},
	}
	there, err := filepath.Glob(filepath.Join(o.out, "*.cue"))
	if err != nil || o.out == "" {
		there = nil
	}
	for _, p := range there {
		data, err := os.ReadFile(p)
		if err != nil {
			return c, err
		}
		for _, name := range importing.Definitions(data) {
			c.Taken[name] = true
		}
	}
	return c, o.surround(cmd, &c)
}

// surround reads the bundle that the result becomes part of.
func (o *options) surround(cmd *cobra.Command, c *importing.Options) error {
	if o.into == "" {
		return nil
	}
	compiled, err := o.compile.Folder(cmd.Context(), cmd, o.into)
	if err != nil {
		return err
	}
	if c.IntoSource, err = bundles.ReadDir(o.into); err != nil {
		return err
	}
	c.Into = compiled.Form
	root, err := filepath.Abs(o.into)
	if err != nil || o.out == "" {
		return err
	}
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	if c.IntoSource.Package != "." {
		root = strings.TrimSuffix(root, string(filepath.Separator)+filepath.FromSlash(c.IntoSource.Package))
	}
	if in, err := filepath.Rel(root, out); err == nil && filepath.IsLocal(in) {
		c.IntoFolder = filepath.ToSlash(in)
	}
	return nil
}

func (o *options) documents(cmd *cobra.Command, args []string) ([]importing.Document, error) {
	if o.cluster {
		return fromCluster(cmd.Context(), o.kubeconfig, o.context, o.sections)
	}
	if o.live {
		return brought(cmd.Context(), &client.Flags{Kubeconfig: o.kubeconfig, Context: o.context})
	}
	var list []importing.Document
	for _, arg := range args {
		if arg == "-" {
			data, err := limited(cmd.InOrStdin(), "standard input")
			if err != nil {
				return nil, err
			}
			list = append(list, importing.Document{Name: "standard input", Data: data})
			continue
		}
		found, err := files(arg)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// maxInput limits the size of one file of the input.
const maxInput = 64 << 20

func limited(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInput+1))
	if err == nil && len(data) > maxInput {
		err = fmt.Errorf("%s has more than %d MiB", name, maxInput>>20)
	}
	return data, err
}

// files returns the YAML and JSON files of an argument: a file, or a folder with all that is below it.
func files(arg string) (list []importing.Document, err error) {
	err = filepath.WalkDir(arg, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || p != arg && (!d.Type().IsRegular() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p))) {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		data, err := limited(f, p)
		list = append(list, importing.Document{Name: filepath.ToSlash(p), Data: data})
		return err
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("%s has no YAML or JSON files", arg)
	}
	return list, err
}

// write writes the files, unless one of them exists.
func (o *options) write(list []importing.File) error {
	var taken []string
	for _, f := range list {
		_, err := os.Lstat(filepath.Join(o.out, filepath.FromSlash(f.Path)))
		switch {
		case err == nil:
			taken = append(taken, f.Path)
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	if len(taken) > 0 {
		return fmt.Errorf("%s has files in the way, and nothing was written: %s; move them away, or choose another --out", o.out, strings.Join(taken, ", "))
	}
	for _, f := range list {
		p := filepath.Join(o.out, filepath.FromSlash(f.Path))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if err := renameio.WriteFile(p, f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) summarize(w io.Writer, r *importing.Result) error {
	var b strings.Builder
	for _, f := range r.Files {
		fmt.Fprintf(&b, "wrote %s\n", filepath.ToSlash(filepath.Join(o.out, f.Path)))
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(r.Counts)) {
		if n := r.Counts[name]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", name, n))
		}
	}
	fmt.Fprintf(&b, "imported %s\n", strings.Join(parts, ", "))
	if n := len(r.Notes); n > 0 {
		fmt.Fprintf(&b, "%s on standard error\n", usage.Count(n, "note"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
