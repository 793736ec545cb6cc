// Package kinds reads the declarations of resource types in CUE.
package kinds

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/jsonpath"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue"
)

// FromCUE compiles a kind of a bundle: a value of the form policy.#Kind. id is the key of the kind in
// the bundle, plural.group. If there are diagnostics, the kind is incomplete. locate and packages are
// those of [fromcue.Schema].
func FromCUE(id string, v cue.Value, locate func(token.Pos) (schemas.Position, bool), packages ...*build.Instance) (schemas.Kind, schemas.Diagnostics) {
	r := reader{c: fromcue.NewCompiler(locate, packages...)}
	k := r.kind(id, v)
	return k, r.c.Diagnostics()
}

// BuiltinFromCUE compiles a kind that is built into the server. Such a kind may also be in the core
// group, select and show any field, and count entries in a column.
func BuiltinFromCUE(id string, v cue.Value, locate func(token.Pos) (schemas.Position, bool), packages ...*build.Instance) (schemas.Kind, schemas.Diagnostics) {
	r := reader{c: fromcue.NewCompiler(locate, packages...), builtin: true}
	k := r.kind(id, v)
	k.Builtin = true
	return k, r.c.Diagnostics()
}

// A reader reads the declaration of one kind.
type reader struct {
	c       *fromcue.Compiler
	builtin bool // the kind is built into the server
}

// A section is a struct in the declaration of a kind.
type section struct {
	r      reader
	v      cue.Value
	path   string
	source schemas.Position
}

func (r reader) section(v cue.Value, path string, source schemas.Position) section {
	if pos, ok := r.c.SourceOf(v); ok {
		source = pos
	}
	return section{r, v, path, source}
}

// get returns a regular field.
func (s section) get(name string) (section, bool) {
	v := s.v.LookupPath(cue.MakePath(cue.Str(name)))
	path := name
	if s.path != "" {
		path = s.path + "." + name
	}
	return s.r.section(v, path, s.source), v.Exists()
}

func (s section) refuse(message, hint string) { s.r.c.Refuse(s.path, s.source, message, hint) }

// reported records CUE's errors.
func (s section) reported(err error) { s.r.c.Report(err, s.path, s.source) }

// rejectOthers rejects all fields except the named ones.
func (s section) rejectOthers(names ...string) {
	fields, err := s.v.Fields()
	if err != nil {
		s.reported(err)
		return
	}
	for fields.Next() {
		name := fields.Selector().Unquoted()
		if slices.Contains(names, name) {
			continue
		}
		f, _ := s.get(name)
		f.refuse(fmt.Sprintf("%s is not supported yet", name), "remove it; nothing would enforce it")
	}
}

// text returns a string field, or "" if there is none.
func (s section) text(name string) string {
	f, ok := s.get(name)
	if !ok {
		return ""
	}
	text, err := f.v.String()
	if err != nil {
		f.reported(err)
	}
	return text
}

func (s section) flag(name string) bool {
	f, ok := s.get(name)
	if !ok {
		return false
	}
	b, err := f.v.Bool()
	if err != nil {
		f.reported(err)
	}
	return b
}

// items returns the items of a list field.
func (s section) items(name string) []section {
	f, ok := s.get(name)
	if !ok {
		return nil
	}
	list, err := f.v.List()
	if err != nil {
		f.reported(err)
		return nil
	}
	var items []section
	for list.Next() {
		items = append(items, s.r.section(list.Value(), fmt.Sprintf("%s[%d]", f.path, len(items)), f.source))
	}
	return items
}

func (s section) texts(name string) []string {
	var texts []string
	for _, item := range s.items(name) {
		text, err := item.v.String()
		if err != nil {
			item.reported(err)
			continue
		}
		texts = append(texts, text)
	}
	return texts
}

// check rejects a name that breaks the rule.
func (s section) check(name, value string, rule func(string) []string) {
	if faults := rule(value); len(faults) > 0 {
		f, ok := s.get(name)
		if !ok {
			f = s
		}
		f.refuse(fmt.Sprintf("%s %q: %s", name, value, strings.Join(faults, "; ")), "")
	}
}

func (r reader) kind(id string, v cue.Value) schemas.Kind {
	s := r.section(v, "", schemas.Position{})
	k := schemas.Kind{Source: s.source}
	if !v.Exists() {
		s.refuse("there is no kind", "")
		return k
	}
	if err := v.Validate(); err != nil {
		s.reported(err)
		return k
	}
	s.rejectOthers("group", "names", "scope", "storageVersion", "versions", "index", "history", "retention") // package policy reads the last two
	if kept, ok := s.get("retention"); ok {
		kept.rejectOthers("history", "records", "bytes")
	}
	k.Group = s.text("group")
	if !r.builtin || k.Group != "" {
		s.check("group", k.Group, validation.IsDNS1123Subdomain)
	}
	names, ok := s.get("names")
	if !ok {
		s.refuse("a kind without names", "add names: {kind: ..., plural: ...}")
		return k
	}
	r.names(&k, names)
	if k.Resource() != id {
		s.refuse(fmt.Sprintf("the kind %s stands under the key %s", k.Resource(), id), "the key is plural.group")
	}
	switch scope := s.text("scope"); scope {
	case "Namespaced":
		k.Namespaced = true
	case "Cluster":
	default:
		s.refuse(fmt.Sprintf("scope %q", scope), "write Namespaced or Cluster")
	}
	r.versions(&k, s)
	r.index(&k, s)
	k.StorageVersion = s.text("storageVersion")
	if _, ok := k.Version(k.StorageVersion); !ok && len(k.Versions) > 0 {
		s.refuse(fmt.Sprintf("storageVersion %q is not one of the versions", k.StorageVersion), "")
	}
	return k
}

var kindName = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

func (r reader) names(k *schemas.Kind, s section) {
	s.rejectOthers("kind", "plural", "singular", "shortNames", "categories")
	k.Kind = s.text("kind")
	s.check("kind", k.Kind, func(name string) []string {
		if !kindName.MatchString(name) || len(name) > validation.DNS1035LabelMaxLength {
			return []string{"a kind is a word such as WidgetSet"}
		}
		return nil
	})
	k.ListKind = k.Kind + "List"
	k.Plural = s.text("plural")
	s.check("plural", k.Plural, validation.IsDNS1035Label)
	k.Singular = s.text("singular")
	if k.Singular == "" {
		k.Singular = strings.ToLower(k.Kind)
	}
	s.check("singular", k.Singular, validation.IsDNS1035Label)
	k.ShortNames = s.texts("shortNames")
	for _, name := range k.ShortNames {
		s.check("shortNames", name, validation.IsDNS1035Label)
	}
	k.Categories = s.texts("categories")
	for _, name := range k.Categories {
		s.check("categories", name, validation.IsDNS1035Label)
	}
}

func (r reader) versions(k *schemas.Kind, s section) {
	versions, ok := s.get("versions")
	if !ok {
		s.refuse("a kind without versions", "add versions: v1: #schema: {...}")
		return
	}
	fields, err := versions.v.Fields()
	if err != nil {
		versions.reported(err)
		return
	}
	for fields.Next() {
		name := fields.Selector().Unquoted()
		version, _ := versions.get(name)
		v := r.version(name, version)
		if v.Deprecated != "" {
			v.Deprecated = fmt.Sprintf("%s/%s %s is deprecated: %s", k.Group, name, k.Kind, v.Deprecated)
		}
		k.Versions = append(k.Versions, v)
	}
	if len(k.Versions) == 0 {
		versions.refuse("a kind without versions", "add versions: v1: #schema: {...}")
	}
	r.checkTogether(k, versions)
}

var versionName = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)

func (r reader) version(name string, s section) schemas.Version {
	known := []string{"served", "deprecated", "subresources", "additionalPrinterColumns", "selectableFields", "validations", "conversion"}
	if r.builtin {
		known = append(known, "allowUnconditionalUpdate", "allowCreateOnUpdate", "deleteCollection", "garbageCollection")
	}
	s.rejectOthers(known...)
	v := schemas.Version{Name: name, Served: true, Deprecated: s.text("deprecated")}
	if !versionName.MatchString(name) {
		s.refuse(fmt.Sprintf("the version %q", name), "versions are called v1, v1beta1 or v1alpha1")
	}
	if _, ok := s.get("served"); ok {
		v.Served = s.flag("served")
	}
	subresources, ok := s.get("subresources")
	if ok {
		subresources.rejectOthers("status", "scale")
		_, v.Status = subresources.get("status")
	}
	if r.builtin {
		v.AllowUnconditionalUpdate, v.AllowCreateOnUpdate = s.flag("allowUnconditionalUpdate"), s.flag("allowCreateOnUpdate")
		v.NoDeleteCollection, v.NoGarbageCollection = !s.flag("deleteCollection"), !s.flag("garbageCollection")
	}

	schema := s.v.LookupPath(cue.MakePath(cue.Def("#schema")))
	if !schema.Exists() {
		s.refuse("a version without a schema", "add #schema: {spec: {...}}")
		return v
	}
	v.Schema = r.c.Schema(schema)
	if v.Schema == nil {
		return v
	}
	if scale, ok := subresources.get("scale"); ok {
		v.Scale = r.scale(scale, v.Schema)
	}
	v.Columns = r.columns(s, v.Schema)
	v.Rules = r.celRules(s)
	v.Conversion = r.conversion(s)
	for _, item := range s.items("selectableFields") {
		path, err := item.v.String()
		switch {
		case err != nil:
			item.reported(err)
		case slices.Contains(v.SelectableFields, path):
			item.refuse(fmt.Sprintf("the field %s is listed twice", path), "")
		default:
			r.selectable(path, item, v.Schema)
			v.SelectableFields = append(v.SelectableFields, path)
		}
	}
	return v
}

// index adds the fields of index to the selectable fields of all versions.
func (r reader) index(k *schemas.Kind, s section) {
	var indexed []string
	for _, item := range s.items("index") {
		path, err := item.v.String()
		switch {
		case err != nil:
			item.reported(err)
			continue
		case slices.Contains(indexed, path):
			item.refuse(fmt.Sprintf("the field %s is listed twice", path), "")
			continue
		}
		indexed = append(indexed, path)
		refused := false
		for i := range k.Versions {
			v := &k.Versions[i]
			switch {
			case refused || v.Schema == nil: // already reported
			case slices.Contains(v.SelectableFields, path):
				item.refuse(fmt.Sprintf("the field %s is also in selectableFields of %s", path, v.Name), "remove it there; index is for all versions")
				refused = true
			default:
				refused = !r.selectable(path, item, v.Schema)
				v.SelectableFields = append(v.SelectableFields, path)
			}
		}
	}
}

// celRules reads the CEL rules. Package policy checks the expressions.
func (r reader) celRules(s section) (rules []schemas.Rule) {
	all, ok := s.get("validations")
	if !ok {
		return nil
	}
	fields, err := all.v.Fields()
	if err != nil {
		all.reported(err)
		return nil
	}
	for fields.Next() {
		name := fields.Selector().Unquoted()
		f, _ := all.get(name)
		f.rejectOthers("path", "rule", "message", "messageExpression", "reason")
		rule := schemas.Rule{Name: name, Path: f.text("path"), Rule: f.text("rule"), Message: f.text("message"), MessageExpression: f.text("messageExpression"), Reason: f.text("reason"), Source: f.source}
		if path, ok := f.get("path"); ok {
			rule.PathSource = path.source
		}
		if m, ok := f.get("messageExpression"); ok {
			rule.MessageSource = m.source
		}
		if text, ok := f.get("rule"); ok {
			rule.RuleSource = text.source
		}
		switch rule.Reason {
		case "", "FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate":
		default:
			reason, _ := f.get("reason")
			reason.refuse(fmt.Sprintf("the reason %q", rule.Reason), "write FieldValueInvalid, FieldValueForbidden, FieldValueRequired or FieldValueDuplicate")
		}
		rules = append(rules, rule)
	}
	slices.SortFunc(rules, func(a, b schemas.Rule) int { return strings.Compare(a.Name, b.Name) })
	return rules
}

var columnTypes = []string{"string", "integer", "number", "boolean", "date"}

func (r reader) columns(s section, schema *schemas.Node) []schemas.Column {
	var columns []schemas.Column
	for _, item := range s.items("additionalPrinterColumns") {
		known := []string{"name", "type", "format", "description", "jsonPath", "priority"}
		if r.builtin {
			known = append(known, "count")
		}
		item.rejectOthers(known...)
		col := schemas.Column{
			Name:        item.text("name"),
			Type:        item.text("type"),
			Format:      item.text("format"),
			Description: item.text("description"),
			JSONPath:    item.text("jsonPath"),
			Count:       r.builtin && item.flag("count"),
		}
		if p, ok := item.get("priority"); ok {
			n, err := p.v.Int64()
			if err != nil || n < 0 || n > 1<<31-1 {
				p.refuse("a priority that is not a small number", "")
			}
			col.Priority = int32(n)
		}
		if col.Name == "" {
			item.refuse("a column without a name", "")
		}
		if !slices.Contains(columnTypes, col.Type) {
			item.refuse(fmt.Sprintf("the column type %q", col.Type), "write string, integer, number, boolean or date")
		}
		path, _ := item.get("jsonPath")
		if err := jsonpath.New("").Parse(template(col.JSONPath)); err != nil {
			path.refuse(fmt.Sprintf("the JSON path %q: %v", col.JSONPath, err), "")
		} else if _, unknown := lookup(schema, col.JSONPath); unknown != "" {
			path.refuse(fmt.Sprintf("the schema has no field %s", unknown), "")
		}
		path.checkSecret(col.JSONPath, "a column", schema)
		columns = append(columns, col)
	}
	return columns
}

// template returns a JSON path in the braces that the parser expects.
func template(path string) string {
	if strings.HasPrefix(path, "{") {
		return path
	}
	return "{" + path + "}"
}

// selectable rejects a selectable field that is not a scalar in the schema, or a secret. It reports whether the field can
// be selected by.
func (r reader) selectable(path string, item section, schema *schemas.Node) bool {
	n, unknown := lookup(schema, path)
	switch {
	case unknown != "":
		item.refuse(fmt.Sprintf("the schema has no field %s", unknown), "")
	case !r.builtin && (n == nil || n.Kinds&^schemas.NullKind&^(schemas.BoolKind|schemas.IntegerKind|schemas.StringKind) != 0):
		item.refuse(fmt.Sprintf("the field %s cannot be selected by", path), "a selectable field is a string, an integer or a boolean, and not in a list or map")
	default:
		return item.checkSecret(path, "a selection by the value", schema)
	}
	return false
}

var plainPath = regexp.MustCompile(`^(\.[A-Za-z_][-A-Za-z0-9_]*)+$`)

// lookup follows a JSON path in a schema and returns the node. If the schema lacks a field of the path,
// it returns the path up to that field as unknown. If the path leaves what the schema describes, both
// results are empty.
func lookup(n *schemas.Node, path string) (found *schemas.Node, unknown string) {
	if !plainPath.MatchString(path) {
		return nil, ""
	}
	names := strings.Split(path[1:], ".")
	if schemas.ServerOwned(names[0]) {
		return nil, ""
	}
	for i, name := range names {
		if n.Struct == nil {
			return nil, ""
		}
		j := slices.IndexFunc(n.Struct.Fields, func(f schemas.Field) bool { return f.Name == name })
		if j < 0 {
			if n.Struct.Open || len(n.Struct.Patterns) > 0 {
				return nil, ""
			}
			return nil, "." + strings.Join(names[:i+1], ".")
		}
		n = n.Struct.Fields[j].Schema
	}
	return n, ""
}
