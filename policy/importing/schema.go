package importing

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"stele.dev/stele/schemas"
)

// schemaWriter writes the form of a definition as CUE.
type schemaWriter struct {
	name        string // of the definition with the schema
	imports     map[string]bool
	definitions []definition        // of structs that need a name
	free        func(string) string // returns a free name for one of them
	failed      *notCarried         // the first thing that cannot be carried
}

// definition is the text of a definition in CUE.
type definition struct{ name, text string }

// notCarried says what a kind in CUE cannot express.
type notCarried struct {
	pos  schemas.Position
	what string
}

func (e *notCarried) Error() string { return e.what }

// refuse records that a part cannot be carried. It returns text that is never used.
func (w *schemaWriter) refuse(pos schemas.Position, format string, args ...any) string {
	if w.failed == nil {
		w.failed = &notCarried{pos, fmt.Sprintf(format, args...)}
	}
	return "_"
}

func (w *schemaWriter) use(pkg string) { w.imports[pkg] = true }

// field returns a field with its comment and attributes.
func (w *schemaWriter) field(f *schemas.Field, path string) string {
	n := f.Schema
	var b strings.Builder
	if n.Doc != "" {
		b.WriteString(comment(n.Doc))
	}
	mark := map[schemas.Presence]string{schemas.Required: "!", schemas.Optional: "?"}[f.Presence]
	fmt.Fprintf(&b, "%s%s: %s", fieldLabel(f.Name), mark, w.value(n, join(path, f.Name)))
	for _, a := range w.attributes(n) {
		b.WriteString(" " + a)
	}
	return b.String()
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// meant are the identifiers that the CUE of a schema uses.
var meant = []string{"bool", "int", "number", "string", "list", "strings", "struct"}

// fieldLabel returns the label of a field. In quotes, it does not hide the type or package of the same name below it.
func fieldLabel(name string) string {
	if slices.Contains(meant, name) {
		return quote(name)
	}
	return label(name)
}

// join returns the path of a field, as [schemas.Rule] has it.
func join(path, name string) string {
	switch {
	case !plainName.MatchString(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// attributes returns what CUE cannot say of a value.
func (w *schemaWriter) attributes(n *schemas.Node) (list []string) {
	if l := n.List; l != nil && l.Type != "" && l.Type != schemas.ListAtomic {
		a := "@k8s(listType=" + l.Type
		if len(l.MapKeys) == 1 {
			a += ",listMapKeys=" + l.MapKeys[0]
		} else if len(l.MapKeys) > 1 {
			a += ",listMapKeys=" + strconv.Quote(strings.Join(l.MapKeys, ","))
		}
		list = append(list, a+")")
	}
	if s := n.Struct; s != nil && s.Type == schemas.MapAtomic {
		list = append(list, "@k8s(mapType=atomic)")
	}
	if n.Embedded {
		list = append(list, "@k8s(embeddedResource)")
	}
	if n.Format != "" && n.Kinds.Has(schemas.StringKind) {
		list = append(list, fmt.Sprintf("@k8s(format=%q)", n.Format))
	}
	return list
}

// value returns the CUE of a node.
func (w *schemaWriter) value(n *schemas.Node, path string) string {
	if n.Logic != nil {
		w.logic(n)
	}
	var alternatives []string
	if n.Kinds == schemas.AnyKind {
		if len(n.Scalars) > 0 || n.List != nil && n.List.Items != nil || n.Struct != nil && (len(n.Struct.Fields) > 0 || len(n.Struct.Patterns) > 0) {
			return w.refuse(n.Source, "a value of any type of which something is said")
		}
		return w.withDefault(n, []string{"_"})
	}
	for _, kind := range []schemas.Kinds{schemas.NullKind, schemas.BoolKind, schemas.IntegerKind | schemas.NumberKind, schemas.StringKind, schemas.ListKind, schemas.StructKind} {
		if n.Kinds&kind != 0 {
			alternatives = append(alternatives, w.ofKind(n, n.Kinds&kind, path)...)
		}
	}
	return w.withDefault(n, alternatives)
}

// ofKind returns the alternatives of one kind of values.
func (w *schemaWriter) ofKind(n *schemas.Node, kind schemas.Kinds, path string) []string {
	switch kind {
	case schemas.NullKind:
		return []string{"null"}
	case schemas.ListKind:
		return []string{w.list(n, path)}
	case schemas.StructKind:
		return []string{w.structure(n, path)}
	}
	var s schemas.Scalar
	for _, x := range n.Scalars {
		if x.Kinds&kind != 0 {
			s = x
		}
	}
	return w.scalar(&s, kind)
}

// scalar returns the alternatives of booleans, numbers or strings.
func (w *schemaWriter) scalar(s *schemas.Scalar, kind schemas.Kinds) []string {
	var rules []string
	for _, b := range []struct {
		bound *schemas.Bound
		sign  string
	}{{s.Minimum, ">"}, {s.Maximum, "<"}} {
		if b.bound != nil {
			sign := b.sign + "="
			if b.bound.Exclusive {
				sign = b.sign
			}
			rules = append(rules, sign+b.bound.Value)
		}
	}
	for _, p := range s.Patterns {
		sign := "=~"
		if p.Negated {
			sign = "!~"
		}
		rules = append(rules, sign+quote(p.Regexp))
	}
	for _, l := range []struct {
		limit *schemas.Limit
		name  string
	}{{s.MinRunes, "strings.MinRunes"}, {s.MaxRunes, "strings.MaxRunes"}} {
		if l.limit != nil {
			w.use("strings")
			rules = append(rules, fmt.Sprintf("%s(%d)", l.name, l.limit.Count))
		}
	}
	if s.MultipleOf != nil {
		w.refuse(s.MultipleOf.Source, "multipleOf, which CUE itself would have to check in each write")
	}
	var base []string
	switch {
	case len(s.Enum) > 0:
		for _, x := range s.Enum {
			base = append(base, constant(x))
		}
	case kind == schemas.BoolKind:
		base = []string{"bool"}
	case kind == schemas.IntegerKind:
		base = []string{"int"}
	case kind == schemas.StringKind && len(rules) == 0:
		base = []string{"string"}
	case kind == schemas.StringKind:
		return []string{strings.Join(rules, " & ")}
	default:
		base = []string{"number"}
	}
	if len(rules) == 0 {
		return base
	}
	all := strings.Join(base, " | ")
	if len(base) > 1 {
		all = "(" + all + ")"
	}
	return []string{all + " & " + strings.Join(rules, " & ")}
}

// constant returns canonical JSON of a scalar as CUE.
func constant(text json.RawMessage) string {
	var s string
	if json.Unmarshal(text, &s) == nil {
		return quote(s)
	}
	return string(text)
}

func (w *schemaWriter) list(n *schemas.Node, path string) string {
	l := n.List
	if l == nil {
		return "[...]"
	}
	text := "[...]"
	if l.Items != nil {
		if l.Items.Default != nil {
			return w.refuse(l.Items.Source, "a default of the items of a list")
		}
		item := w.value(l.Items, path+"[*]")
		if attributes := w.attributes(l.Items); len(attributes) > 0 {
			// CUE has attributes in structs and at fields only.
			if l.Items.Kinds != schemas.StructKind {
				return w.refuse(l.Items.Source, "a format, or the type of a list, of the items of a list")
			}
			item = strings.TrimSuffix(item, "}") + "\n" + strings.Join(attributes, "\n") + "\n}"
		}
		if (l.MinItems != nil || l.MaxItems != nil) && strings.HasPrefix(item, "{") {
			item = w.define(path, item) // CUE forgets that a struct is closed if its list is limited
		}
		text = "[..." + item + "]"
	}
	for _, x := range []struct {
		limit *schemas.Limit
		name  string
	}{{l.MinItems, "list.MinItems"}, {l.MaxItems, "list.MaxItems"}} {
		if x.limit != nil {
			w.use("list")
			text += fmt.Sprintf(" & %s(%d)", x.name, x.limit.Count)
		}
	}
	return text
}

// define gives a struct a definition of its own, and returns its name.
func (w *schemaWriter) define(path, text string) string {
	name := w.free(w.name + definitionName(path)[1:])
	w.definitions = append(w.definitions, definition{name, text})
	return name
}

func (w *schemaWriter) structure(n *schemas.Node, path string) string {
	s := n.Struct
	if s == nil {
		s = &schemas.Struct{}
	}
	var lines []string
	for i := range s.Fields {
		f := &s.Fields[i]
		if n.Embedded && slices.Contains([]string{"apiVersion", "kind", "metadata"}, f.Name) {
			if f.Presence == schemas.Required || len(f.Schema.Scalars) > 0 || f.Schema.Struct != nil {
				w.refuse(f.Schema.Source, "what is said of %s of an embedded object", f.Name)
			}
			continue
		}
		lines = append(lines, w.field(f, path))
	}
	for _, p := range s.Patterns {
		if p.Value.Bare {
			return w.refuse(p.Value.Source, "additionalProperties: true, which keeps fields but not the fields below them")
		}
		if p.Value.Default != nil || len(w.attributes(p.Value)) > 0 && p.Value.Kinds != schemas.ListKind && p.Value.Kinds != schemas.StructKind {
			return w.refuse(p.Value.Source, "a default or a format of the values of a map")
		}
		line := "[string]: " + w.value(p.Value, path+"[*]")
		for _, a := range w.attributes(p.Value) {
			line += " " + a
		}
		lines = append(lines, line)
	}
	for _, x := range []struct {
		limit *schemas.Limit
		name  string
	}{{s.MinFields, "struct.MinFields"}, {s.MaxFields, "struct.MaxFields"}} {
		if x.limit != nil {
			w.use("struct")
			lines = append(lines, fmt.Sprintf("%s(%d)", x.name, x.limit.Count))
		}
	}
	if s.Open {
		lines = append(lines, "...")
	}
	if len(lines) == 0 {
		return "{}"
	}
	if len(lines) == 1 && len(lines[0]) < width && !strings.Contains(lines[0], "\n") {
		return "{" + lines[0] + "}"
	}
	return "{\n" + strings.Join(lines, "\n") + "\n}"
}

// withDefault joins alternatives, with the default among them.
func (w *schemaWriter) withDefault(n *schemas.Node, alternatives []string) string {
	if n.Default == nil {
		return strings.Join(alternatives, " | ")
	}
	var value any
	if err := json.Unmarshal(n.Default, &value); err != nil {
		return w.refuse(n.Source, "the default %s", n.Default)
	}
	switch v := value.(type) {
	case map[string]any:
		// A regular field that is a struct is filled in with the defaults of its fields.
		if len(v) > 0 || len(alternatives) != 1 || n.Kinds != schemas.StructKind {
			return w.refuse(n.Source, "a default that is an object with fields")
		}
		return alternatives[0]
	case []any:
		for _, x := range v {
			switch x.(type) {
			case map[string]any, []any:
				return w.refuse(n.Source, "a default that is a list of objects or lists")
			}
		}
	}
	text := constantOf(n.Default, value)
	for i, a := range alternatives {
		if a == text && len(alternatives) == 1 {
			return a // CUE fills in the only value there is
		}
		if a == text {
			alternatives[i] = "*" + a
			return strings.Join(alternatives, " | ")
		}
	}
	for i, a := range alternatives {
		if strings.Contains(a, "&") && len(alternatives) > 1 {
			alternatives[i] = "(" + a + ")"
		}
	}
	return "*" + text + " | " + strings.Join(alternatives, " | ")
}

func constantOf(text json.RawMessage, value any) string {
	if l, ok := value.([]any); ok {
		parts := make([]string, len(l))
		for i, x := range l {
			item, _ := json.Marshal(x)
			parts[i] = constant(item)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return constant(text)
}

// logic carries logical operators that say nothing more than the types.
func (w *schemaWriter) logic(n *schemas.Node) {
	if onlyTypes(n) {
		return
	}
	w.refuse(n.Source, "allOf, anyOf, oneOf or not")
}

// onlyTypes reports whether the logic is what int-or-string is written with: anyOf an integer and a string.
func onlyTypes(n *schemas.Node) bool {
	l := n.Logic
	if len(l.AllOf) > 0 || len(l.OneOf) > 0 || l.Not != nil || len(l.AnyOf) == 0 {
		return false
	}
	var kinds schemas.Kinds
	for _, x := range l.AnyOf {
		if len(x.Scalars) > 0 || x.Logic != nil || x.Format != "" {
			return false
		}
		kinds |= x.Kinds
	}
	return kinds.Has(n.Kinds &^ schemas.NullKind)
}

func (w *schemaWriter) packages() []string { return slices.Sorted(maps.Keys(w.imports)) }
