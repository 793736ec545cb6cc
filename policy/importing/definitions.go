package importing

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/crd"
)

// definitions imports CustomResourceDefinitions, sorted by name.
func (m *importer) definitions() error {
	list := m.objectsOf("CustomResourceDefinition")
	slices.SortStableFunc(list, func(a, b *object) int { return strings.Compare(a.name(), b.name()) })
	seen := map[string]*object{}
	for _, o := range list {
		if first := seen[o.name()]; first != nil {
			return fmt.Errorf("%s:%d: the definition %s is in the input twice, also at %s:%d", o.File, o.line(), o.name(), first.File, first.line())
		}
		seen[o.name()] = o
	}
	m.nameSchemas(list)
	for _, o := range list {
		if err := m.definition(o); err != nil {
			return err
		}
	}
	return nil
}

// nameSchemas gives the schema of each definition a name in the package, and its kind a file. Kinds of several groups may have one
// name, and resources, too: then the group is part of both.
func (m *importer) nameSchemas(list []*object) {
	kinds, plurals := map[string]int{}, map[string]int{}
	for _, o := range list {
		kinds[definitionName(textAt(o.content, "spec", "names", "kind"))]++
		plurals[textAt(o.content, "spec", "names", "plural")]++
	}
	for _, o := range list {
		name, file := definitionName(textAt(o.content, "spec", "names", "kind")), textAt(o.content, "spec", "names", "plural")
		if kinds[name] > 1 || m.Taken[name] {
			name += definitionName(textAt(o.content, "spec", "group"))[1:]
		}
		if plurals[file] > 1 {
			file = o.name()
		}
		m.schemas[o] = place{m.freeDefinition(name), file + ".cue"}
	}
}

// place is where the schema of a definition is written.
type place struct{ name, file string }

// definitionName returns the words of texts as the name of a definition in CUE.
func definitionName(texts ...string) string {
	name := "#"
	for word := range strings.FieldsFuncSeq(strings.Join(texts, "."), func(r rune) bool { return r > 127 || r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// Definitions returns the names of the definitions at the top of a CUE file; none if the file is not valid.
func Definitions(data []byte) (names []string) {
	file, err := parser.ParseFile("", data)
	if err != nil {
		return nil
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.Field); ok {
			if name, _, err := ast.LabelName(f.Label); err == nil && strings.HasPrefix(name, "#") {
				names = append(names, name)
			}
		}
	}
	return names
}

// freeDefinition returns a name of a definition that nothing in the package has, and takes it.
func (m *importer) freeDefinition(name string) string {
	free := name
	for i := 2; m.names[free] || m.Taken[free]; i++ {
		free = name + "_" + strconv.Itoa(i)
	}
	m.names[free] = true
	return free
}

// kindOf returns the kind of a definition.
func (m *importer) kindOf(o *object) (*schemas.Kind, error) {
	if kind := m.kinds[o]; kind != nil {
		return kind, nil
	}
	if text(o.part("apiVersion")) != "apiextensions.k8s.io/v1" {
		return nil, fmt.Errorf("%s:%d: %s %s is not supported; convert it to apiextensions.k8s.io/v1", o.File, o.line("apiVersion"), text(o.part("apiVersion")), o.name())
	}
	data, err := json.Marshal(o.content)
	if err != nil {
		return nil, err
	}
	kind, errs, _ := crd.Translate(data, func(path []string) schemas.Position {
		return schemas.Position{File: o.File, Line: o.line(path...), Column: 1}
	})
	if len(errs) > 0 {
		more := ""
		if len(errs) > 1 {
			more = fmt.Sprintf(" (and %d more errors in it)", len(errs)-1)
		}
		return nil, fmt.Errorf("the definition %s is not valid: %s%s", o.name(), errs[0], more)
	}
	m.kinds[o] = &kind
	return &kind, nil
}

func (m *importer) definition(o *object) error {
	kind, err := m.kindOf(o)
	if err != nil {
		return err
	}
	data, err := json.Marshal(o.content)
	if err != nil {
		return err
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := json.Unmarshal(data, &definition); err != nil {
		return err
	}
	if m.KeepDefinitions {
		m.kept = append(m.kept, o.name())
		m.counts["definitions"]++
		return m.keep(o, "")
	}
	before := len(m.notes)
	p, why := m.carry(&definition, kind, m.schemas[o])
	if why == nil {
		m.alone[o], why = m.compare(p, kind)
	}
	if why != nil {
		delete(m.alone, o)
		m.notes = append(m.notes[:before], Note{o.File, max(why.pos.Line, o.line()), fmt.Sprintf("%s is kept as a definition: a kind in CUE cannot have %s", o.name(), why.what)})
		m.kept = append(m.kept, o.name())
		m.counts["definitions"]++
		return m.keep(o, comment(fmt.Sprintf("It is kept as a CustomResourceDefinition: a kind in CUE cannot have %s (%s).", why.what, Note{o.File, max(why.pos.Line, o.line()), ""}.place())))
	}
	m.carried = append(m.carried, o.name())
	m.counts["kinds"]++
	m.parts = append(m.parts, *p)
	m.origins[pathKey(m.ofTeam("kinds", kind.Resource()))] = origin{of: o}
	for _, name := range p.definitions {
		m.origins[pathKey([]string{name})] = origin{of: o}
	}
	return nil
}

// keptContent returns a definition as it is kept.
func keptContent(o *object) map[string]any {
	content := map[string]any{}
	for k, v := range o.content {
		if k != "status" {
			content[k] = v
		}
	}
	meta, _ := content["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, k := range []string{"name", "labels", "annotations"} {
		if v, ok := meta[k]; ok {
			kept[k] = v
		}
	}
	if annotations, ok := kept["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	content["metadata"] = kept
	return content
}

// keep adds a definition as it is, with a comment.
func (m *importer) keep(o *object, head string) error {
	content, at := keptContent(o), m.ofTeam("crds", o.name())
	m.origins[pathKey(at)] = origin{of: o}
	if !m.Folder {
		m.parts = append(m.parts, part{file: "definitions.cue", text: head + pathText(at) + cueText(content) + "\n"})
		return nil
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	file := crdFolder + o.name() + ".yaml"
	m.files = append(m.files, File{file, text})
	m.parts = append(m.parts, part{file: "definitions.cue", embeds: true, text: head + fmt.Sprintf("%s{...} @embed(file=%q)\n", pathText(at), file)})
	return nil
}

func (n Note) place() string {
	return fmt.Sprintf("%s:%d", n.File, n.Line)
}

var versionName = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

// carry writes a definition as a kind in CUE.
func (m *importer) carry(d *apiextensionsv1.CustomResourceDefinition, k *schemas.Kind, at place) (*part, *notCarried) {
	if why := unlike(d, k); why != nil {
		return nil, why
	}
	w := &schemaWriter{name: at.name, imports: map[string]bool{}, free: m.freeDefinition}
	storage, _ := k.Version(k.StorageVersion)
	schema := w.structure(storage.Schema, "")
	if storage.Schema.Logic != nil {
		w.logic(storage.Schema)
	}
	if w.failed != nil {
		return nil, w.failed
	}
	var versions fields
	for i := range k.Versions {
		v := &k.Versions[i]
		f, why := m.version(d, k, v, at.name)
		if why != nil {
			return nil, why
		}
		versions = append(versions, member{v.Name, f})
	}
	names := fields{{"kind", k.Kind}, {"plural", k.Plural}}
	if k.Singular != strings.ToLower(k.Kind) {
		names.add("singular", k.Singular)
	}
	names.add("shortNames", k.ShortNames)
	names.add("categories", k.Categories)
	body := fields{{"group", k.Group}, {"names", names}}
	if !k.Namespaced {
		body.add("scope", "Cluster")
	}
	body = append(body, member{"storageVersion", k.StorageVersion}, member{"versions", versions})
	var b strings.Builder
	b.WriteString(comment(strings.TrimSpace(at.name + " is the schema of a " + k.Kind + ".\n\n" + storage.Schema.Doc)))
	fmt.Fprintf(&b, "%s: %s\n\n", at.name, schema)
	defined := []string{at.name}
	for _, d := range w.definitions {
		fmt.Fprintf(&b, "%s: %s\n\n", d.name, d.text)
		defined = append(defined, d.name)
	}
	b.WriteString(pathText(m.ofTeam("kinds", k.Resource())) + structText(body) + "\n")
	return &part{file: at.file, imports: w.packages(), text: b.String(), definitions: defined}, nil
}

// unlike returns what a kind in CUE cannot have, besides its schema.
func unlike(d *apiextensionsv1.CustomResourceDefinition, k *schemas.Kind) *notCarried {
	refuse := func(format string, args ...any) *notCarried {
		return &notCarried{k.Source, fmt.Sprintf(format, args...)}
	}
	if d.Spec.Conversion != nil && d.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter {
		return refuse("a conversion webhook")
	}
	if k.ListKind != k.Kind+"List" {
		return refuse("a listKind other than %sList", k.Kind)
	}
	if k.Group == "" || strings.Contains(k.Plural, "-") {
		return refuse("the name %s", k.Plural)
	}
	storage, ok := k.Version(k.StorageVersion)
	if !ok {
		return refuse("no storage version")
	}
	for i := range k.Versions {
		v := &k.Versions[i]
		if !versionName.MatchString(v.Name) {
			return refuse("a version named %s", v.Name)
		}
		if !reflect.DeepEqual(bare(v.Schema), bare(storage.Schema)) {
			return refuse("versions with different schemas (%s and %s)", storage.Name, v.Name)
		}
	}
	if metadata := constrained(d); metadata != "" {
		return refuse("constraints on %s", metadata)
	}
	return nil
}

// bare returns the form of a schema or of a kind, without comments and positions.
func bare(form any) any {
	text, err := json.Marshal(form)
	if err != nil {
		return err
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return without(v)
}

func without(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "doc")
		delete(v, "source")
		for k, x := range v {
			v[k] = without(x)
		}
	case []any:
		for i, x := range v {
			v[i] = without(x)
		}
	}
	return v
}

// constrained returns the field of the metadata that a schema constrains; "" if there is none.
func constrained(d *apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range d.Spec.Versions {
		if v.Schema == nil || v.Schema.OpenAPIV3Schema == nil {
			continue
		}
		meta := v.Schema.OpenAPIV3Schema.Properties["metadata"]
		if len(meta.Properties) > 0 || len(meta.XValidations) > 0 || len(meta.AllOf)+len(meta.AnyOf)+len(meta.OneOf) > 0 || meta.Not != nil {
			return "metadata"
		}
	}
	return ""
}

// version returns a version of a kind.
func (m *importer) version(d *apiextensionsv1.CustomResourceDefinition, k *schemas.Kind, v *schemas.Version, schema string) (fields, *notCarried) {
	f := fields{{schemaLabel, raw(schema)}}
	if !v.Served {
		f = append(f, member{"served", false})
	}
	if v.Deprecated != "" {
		text := strings.TrimPrefix(v.Deprecated, fmt.Sprintf("%s/%s %s is deprecated", k.Group, v.Name, k.Kind))
		if text = strings.TrimLeft(text, ":; "); text == "" {
			text = "use another version"
		}
		f = append(f, member{"deprecated", text})
	}
	var sub fields
	if v.Status {
		sub = append(sub, member{"status", fields{}})
	}
	if s := v.Scale; s != nil {
		scale := fields{{"specReplicasPath", s.SpecReplicasPath}, {"statusReplicasPath", s.StatusReplicasPath}}
		scale.add("labelSelectorPath", s.LabelSelectorPath)
		sub = append(sub, member{"scale", scale})
	}
	f.add("subresources", sub)
	var columns []fields
	for _, c := range v.Columns {
		if !strings.HasPrefix(c.JSONPath, ".") || c.Name == "" {
			return nil, &notCarried{k.Source, fmt.Sprintf("the column %q", c.JSONPath)}
		}
		column := fields{{"name", c.Name}, {"type", c.Type}, {"jsonPath", c.JSONPath}}
		if c.Priority != 0 {
			column.add("priority", c.Priority)
		}
		column.add("description", c.Description)
		columns = append(columns, column)
	}
	if defaultColumns := len(columns) == 1 && columns[0][0].value == "Age" && !hasColumns(d, v.Name); len(columns) > 0 && !defaultColumns {
		f = append(f, member{"additionalPrinterColumns", columns})
	}
	for _, path := range v.SelectableFields {
		if !strings.HasPrefix(path, ".spec.") && !strings.HasPrefix(path, ".status.") {
			return nil, &notCarried{k.Source, "the selectable field " + path}
		}
	}
	f.add("selectableFields", v.SelectableFields)
	rules, why := m.celRules(v.Rules)
	f.add("validations", rules)
	return f, why
}

func hasColumns(d *apiextensionsv1.CustomResourceDefinition, version string) bool {
	return slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
		return v.Name == version && len(v.AdditionalPrinterColumns) > 0
	})
}

// celRules returns the field validations.
func (m *importer) celRules(rules []schemas.Rule) (fields, *notCarried) {
	var list fields
	taken := map[string]bool{}
	for i := range rules {
		r := &rules[i]
		switch {
		case r.OptionalOldSelf:
			return nil, &notCarried{r.Source, "a rule with optionalOldSelf"}
		case strings.Contains(r.Rule, "oldSelf") && strings.Contains(r.Path, "[*]"):
			return nil, &notCarried{r.Source, "a rule about changes of the items of a list or the values of a map"}
		case strings.Contains(r.Path, `["`):
			return nil, &notCarried{r.Source, "a rule below a field whose name is not a word"}
		}
		name := "object"
		if r.Path != "" {
			segments := strings.Split(strings.ReplaceAll(r.Path, "[*]", ""), ".")
			name = segments[len(segments)-1]
		}
		f := fields{}
		f.add("path", r.Path)
		f = append(f, member{"rule", r.Rule})
		f.add("message", r.Message)
		f.add("messageExpression", r.MessageExpression)
		f.add("reason", r.Reason)
		if r.FieldPath != "" {
			m.notes = append(m.notes, Note{r.Source.File, r.Source.Line, fmt.Sprintf("the error of the rule %q names %s, and no more its field %s", r.Rule, orElse(r.Path, "the object"), r.FieldPath)})
		}
		list = append(list, member{unique(taken, nameFor(name)), f})
	}
	return list, nil
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
