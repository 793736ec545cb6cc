// Package importing turns Kubernetes objects into CUE of a bundle: CustomResourceDefinitions, RBAC, FlowSchemas with
// PriorityLevelConfigurations, mutating and validating admission policies with their bindings, webhooks, and audit policies.
//
// What CUE or the format of a bundle cannot express is never dropped in silence: a [Note] says it with the line of the input, and
// the output has a comment. A definition that cannot become an equal kind in CUE is kept as a definition, in `crds`. Whether a kind is
// equal is checked: it is compiled, and compared with the definition on generated objects.
//
// The functions have no state and are safe for concurrent use.
package importing

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/formatting"
	"stele.dev/stele/schemas"
)

// Sections are the parts of a bundle that can be imported.
var Sections = []string{"crds", "rbac", "flow", "admission", "audit"}

// Options say what is imported, and where it will stand.
type Options struct {
	// Sections limits what is imported; empty for all.
	Sections []string
	// Package is the CUE package of the files.
	Package string
	// Team is the team that gets kinds, roles and rules.
	Team string
	// Whole writes the field `bundle`, for a package of the platform. Otherwise the files set the field `team`.
	Whole bool
	// Namespace is that of roles and bindings that name none; "" if they are left out.
	Namespace string
	// KeepDefinitions keeps definitions as they are, also those that could become kinds in CUE.
	KeepDefinitions bool
	// Folder says that the files will stand in a folder. Otherwise there is one file, and definitions are part of it.
	Folder bool
	// Taken are the names of definitions that the package has already.
	Taken map[string]bool
	// Into is the policy of the bundle that the files become part of; nil if it is not known.
	Into *policy.Form
	// IntoSource is the source of that bundle, and IntoFolder the folder in its module where the files will stand; "" if they will stand
	// elsewhere.
	IntoSource *bundles.Source
	IntoFolder string
	// Compile compiles the source of a bundle.
	Compile func(*bundles.Source) (*compile.Result, schemas.Diagnostics, error)
}

// Note says what could not be carried, or is not as it was.
type Note struct {
	File    string
	Line    int
	Message string
}

func (n Note) String() string {
	if n.Line == 0 {
		return n.File + ": " + n.Message
	}
	return fmt.Sprintf("%s:%d: %s", n.File, n.Line, n.Message)
}

// File is a file of the output. Its path has slashes.
type File struct {
	Path string
	Data []byte
}

// Result is what an import makes.
type Result struct {
	Files []File
	Notes []Note
	// Counts are the number of imported parts, by name: kinds, definitions, roles, bindings, rules, mutations, webhooks, flow schemas, priority
	// levels, audit rules.
	Counts map[string]int
	// Carried and Kept are the names of the definitions that became kinds in CUE, and of those that are kept as definitions.
	Carried, Kept []string
}

// importer collects the parts of the output.
type importer struct {
	Options
	objects []*object
	notes   []Note
	counts  map[string]int
	carried []string
	kept    []string
	files   []File
	parts   []part // in the order of sections
	served  *served
	kinds   map[*object]*schemas.Kind
	schemas map[*object]place
	names   map[string]bool           // of definitions
	alone   map[*object]*schemas.Kind // what became of definitions, compiled alone
	origins map[string]origin         // of fields, by their paths
	order   int                       // of the last one that changes objects
}

// part is CUE text for one file.
type part struct {
	file    string
	imports []string
	text    string
	embeds  bool
	// definitions are the names of those in the text.
	definitions []string
}

func (m *importer) note(o *object, path []string, format string, args ...any) {
	m.notes = append(m.notes, Note{o.File, o.line(path...), fmt.Sprintf(format, args...)})
}

func (m *importer) wants(section string) bool {
	return len(m.Sections) == 0 || slices.Contains(m.Sections, section)
}

// Convert imports the objects of documents. It returns an error if there is nothing to import.
func Convert(documents []Document, options Options) (*Result, error) {
	m := &importer{Options: options, counts: map[string]int{}, kinds: map[*object]*schemas.Kind{}, schemas: map[*object]place{}, names: map[string]bool{},
		alone: map[*object]*schemas.Kind{}, origins: map[string]origin{}}
	for _, d := range documents {
		objects, err := d.objects()
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			o.placeIn(options.Namespace)
		}
		m.objects = append(m.objects, objects...)
	}
	if len(m.objects) == 0 {
		return nil, fmt.Errorf("the input has no objects; give YAML or JSON of Kubernetes objects")
	}
	if err := m.servedHere(); err != nil {
		return nil, err
	}
	m.unknown()
	for _, section := range []struct {
		name string
		run  func() error
	}{{"crds", m.definitions}, {"rbac", m.rbac}, {"flow", m.flow}, {"admission", m.admission}, {"audit", m.audit}} {
		if m.wants(section.name) {
			if err := section.run(); err != nil {
				return nil, err
			}
		}
	}
	if len(m.parts) == 0 {
		why := ""
		if len(m.notes) > 0 {
			why = ": " + m.notes[0].String()
		}
		return nil, fmt.Errorf("there is nothing to import in the input%s", why)
	}
	if err := m.assemble(); err != nil {
		return nil, err
	}
	if err := m.whole(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(m.notes, func(a, b Note) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	m.notes = slices.Compact(m.notes)
	return &Result{Files: m.files, Notes: m.notes, Counts: m.counts, Carried: m.carried, Kept: m.kept}, nil
}

// assemble writes the parts into files.
func (m *importer) assemble() error {
	files := map[string][]part{}
	var names []string
	for _, p := range m.parts {
		if !m.Folder {
			p.file = "imported.cue"
		}
		if files[p.file] == nil {
			names = append(names, p.file)
		}
		files[p.file] = append(files[p.file], p)
	}
	for _, name := range names {
		var b strings.Builder
		var imports []string
		for _, p := range files[name] {
			imports = append(imports, p.imports...)
			if p.embeds {
				b.Reset()
				b.WriteString("@extern(embed)\n\n")
			}
		}
		fmt.Fprintf(&b, "package %s\n\n", m.Package)
		if slices.Sort(imports); len(imports) > 0 {
			b.WriteString("import (\n")
			for _, i := range slices.Compact(imports) {
				fmt.Fprintf(&b, "%q\n", i)
			}
			b.WriteString(")\n\n")
		}
		for _, p := range files[name] {
			b.WriteString(p.text)
			b.WriteString("\n")
		}
		formatted, diags := formatting.Source(name, []byte(b.String()))
		if len(diags) > 0 {
			return fmt.Errorf("the CUE that was made of the input is not valid, which is a mistake of stele: %s", diags[0])
		}
		m.files = append(m.files, File{name, formatted})
	}
	slices.SortFunc(m.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// sectionOf returns the section that imports a kind of objects; "" if none does.
func sectionOf(group, kind string) string {
	switch group + "/" + kind {
	case "apiextensions.k8s.io/CustomResourceDefinition":
		return "crds"
	case "rbac.authorization.k8s.io/Role", "rbac.authorization.k8s.io/ClusterRole", "rbac.authorization.k8s.io/RoleBinding", "rbac.authorization.k8s.io/ClusterRoleBinding":
		return "rbac"
	case "flowcontrol.apiserver.k8s.io/FlowSchema", "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration":
		return "flow"
	case "admissionregistration.k8s.io/ValidatingAdmissionPolicy", "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding",
		"admissionregistration.k8s.io/MutatingAdmissionPolicy", "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding",
		"admissionregistration.k8s.io/MutatingWebhookConfiguration", "admissionregistration.k8s.io/ValidatingWebhookConfiguration":
		return "admission"
	case "audit.k8s.io/Policy":
		return "audit"
	}
	return ""
}

// unknown notes the objects that nothing imports. Objects that are the parameters of admission rules are not noted.
func (m *importer) unknown() {
	params := map[string]bool{}
	for _, o := range m.objects {
		if o.is("ValidatingAdmissionPolicy") || o.is("MutatingAdmissionPolicy") {
			params[text(o.part("spec", "paramKind", "kind"))] = true
		}
	}
	for _, o := range m.objects {
		if sectionOf(o.group(), o.kind()) == "" && !params[o.kind()] {
			m.note(o, nil, "%s %q is not imported: a bundle has no such part", o.kind(), o.name())
		}
	}
}

// objectsOf returns the objects of a kind.
func (m *importer) objectsOf(kind string) (list []*object) {
	for _, o := range m.objects {
		if o.is(kind) {
			list = append(list, o)
		}
	}
	return list
}
