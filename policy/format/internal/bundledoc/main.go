// Package main writes docs/BUNDLE.md: a reference of the fields of a bundle, made from the definitions and comments in
// policy.cue. The example of a definition is the file of its name in the folder examples, whose files together are one valid bundle with its tests.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bundledoc:", err)
		os.Exit(1)
	}
}

// run reads the file and the folder of examples that the first arguments name, and writes the file that the last one names.
func run() error {
	if len(os.Args) != 4 {
		return errors.New("usage: bundledoc policy.cue EXAMPLES BUNDLE.md")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	examples, err := readExamples(os.DirFS(os.Args[2]))
	if err != nil {
		return err
	}
	page, err := reference(text, examples)
	if err != nil {
		return err
	}
	return os.WriteFile(os.Args[3], page, 0o644)
}

// readExamples returns the texts of examples without their package, by the name of the definition in lower case.
func readExamples(folder fs.FS) (map[string]string, error) {
	examples := map[string]string{}
	for _, pattern := range []string{"*.cue", "tests/*.cue"} {
		files, err := fs.Glob(folder, pattern)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := fs.ReadFile(folder, file)
			if err != nil {
				return nil, err
			}
			_, example, _ := strings.Cut(string(text), "\n\n") // the package is above it
			examples[strings.TrimSuffix(path.Base(file), ".cue")] = strings.TrimSpace(example)
		}
	}
	return examples, nil
}

const head = `<!-- Made by go generate in policy/format from policy.cue. Edit the comments there. -->

# Fields of a bundle

*Reference for policy authors.*

This is every field of the format of bundles, from the definitions in [policy.cue](../policy/format/policy.cue).
[POLICY.md](POLICY.md) explains what the parts of a bundle do, [TESTING.md](TESTING.md) suites, [REVIEW.md](REVIEW.md) acceptances.

Constraints are as written, in CUE. ` + "`|`" + ` is "or", ` + "`=~`" + ` "matches the regular expression", ` + "`[...X]`" + ` "a list of X", ` + "`[X]: Y`" + ` "a map
from X to Y". NAME in a field stands for a key that the author of a bundle chooses. A field that is neither required nor has a default can
be left out. The examples together are one bundle with its tests.

`

// reference returns the page for the text of policy.cue. An error says which definition or field has no comment, and which definition no example. It
// removes the examples that it has used.
func reference(text []byte, examples map[string]string) ([]byte, error) {
	file, err := parser.ParseFile("policy.cue", text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	w := &writer{text: text, examples: examples, seen: map[string]bool{}, values: map[string]bool{}}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.Field); ok && !hasSection(f) {
			w.values[label(f.Label)] = true
		}
	}
	var values strings.Builder
	first := func(d ast.Decl) int { // what a reader looks for comes first
		if f, ok := d.(*ast.Field); ok && label(f.Label) == "#Bundle" {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(file.Decls, func(a, b ast.Decl) int { return first(a) - first(b) })
	for _, d := range file.Decls {
		f, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		name := label(f.Label)
		if hasSection(f) {
			w.section(name, f, f.Value.(*ast.StructLit))
			continue
		}
		fmt.Fprintf(&values, "| `%s` | %s | %s |\n", name, w.code(f.Value), w.comment(name, f))
	}
	w.page.WriteString("## Values\n\n| definition | constraint | |\n|---|---|---|\n" + values.String())
	if len(w.lacking) > 0 {
		return nil, fmt.Errorf("no comment: %s", strings.Join(w.lacking, ", "))
	}
	if len(w.unshown) > 0 {
		return nil, fmt.Errorf("no example: %s", strings.Join(w.unshown, ", "))
	}
	if len(examples) > 0 {
		return nil, fmt.Errorf("examples of no definition: %s", strings.Join(slices.Sorted(maps.Keys(examples)), ", "))
	}
	return []byte(head + w.page.String()), nil
}

type writer struct {
	text     []byte            // of policy.cue
	examples map[string]string // those that are not on the page yet
	page     strings.Builder
	lacking  []string // the fields without a comment
	unshown  []string // the definitions without an example
	seen     map[string]bool
	values   map[string]bool // the definitions that have no section of their own
}

// hasSection reports whether a definition has fields that a section lists.
func hasSection(f *ast.Field) bool {
	_, isStruct := f.Value.(*ast.StructLit)
	return isStruct && open(f)
}

// section writes the fields of a definition.
func (w *writer) section(name string, f *ast.Field, s *ast.StructLit) {
	fmt.Fprintf(&w.page, "## %s\n\n%s\n\n| field | constraint | | |\n|---|---|---|---|\n", name, w.comment(name, f))
	w.fields(name, "", s)
	w.page.WriteString("\n")
	key := strings.ToLower(strings.TrimPrefix(name, "#"))
	example := w.examples[key]
	if example == "" {
		w.unshown = append(w.unshown, name)
		return
	}
	delete(w.examples, key)
	fmt.Fprintf(&w.page, "```cue\n%s\n```\n\n", example)
}

// fields writes the fields of a struct, with those of the structs in them. Fields that are written in several places of a
// definition stay apart.
func (w *writer) fields(of, path string, s *ast.StructLit) {
	for _, d := range s.Elts {
		f, ok := d.(*ast.Field)
		if !ok {
			continue
		}
		name := label(f.Label)
		if name == "" {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		if again := w.seen[of+"."+at]; again && len(ast.Comments(f)) == 0 {
			continue // a check of a field that is shown
		}
		w.seen[of+"."+at] = true
		inner, isStruct := f.Value.(*ast.StructLit)
		switch {
		case !isStruct || !open(f):
			fmt.Fprintf(&w.page, "| `%s` | %s | %s | %s |\n", at, w.code(f.Value), w.presence(f), w.comment(of+"."+at, f))
		case chained(inner): // a: b: …, whose comment is about the last one
			w.chain(of, at, f, inner)
		default:
			fmt.Fprintf(&w.page, "| `%s` | `{…}` | %s | %s |\n", at, w.presence(f), w.comment(of+"."+at, f))
			w.fields(of, at, inner)
		}
	}
}

// chain writes a field that is written behind others on one line.
func (w *writer) chain(of, path string, outer *ast.Field, s *ast.StructLit) {
	f := s.Elts[0].(*ast.Field)
	name := label(f.Label)
	if name == "" { // a check
		return
	}
	at := path + "." + name
	w.seen[of+"."+at] = true
	inner, isStruct := f.Value.(*ast.StructLit)
	if isStruct && chained(inner) {
		w.chain(of, at, outer, inner)
		return
	}
	kind := "`{…}`"
	if !isStruct || !open(f) {
		kind = w.code(f.Value)
	}
	fmt.Fprintf(&w.page, "| `%s` | %s | %s | %s |\n", at, kind, w.presence(outer), w.comment(of+"."+at, outer))
	if isStruct && open(f) {
		w.fields(of, at, inner)
	}
}

// chained reports whether a struct is a single field without braces.
func chained(s *ast.StructLit) bool { return !s.Lbrace.IsValid() && len(s.Elts) == 1 }

// open reports whether the fields of a struct are shown one by one: it is written on several lines, or is a chain of labels.
func open(f *ast.Field) bool {
	s, ok := f.Value.(*ast.StructLit)
	if !ok || len(s.Elts) == 0 {
		return false
	}
	if chained(s) {
		return true
	}
	return s.Lbrace.Line() != s.Rbrace.Line()
}

// label returns a field's name, NAME for a pattern; "" for a hidden field, and for a constraint on all others.
func label(l ast.Label) string {
	if list, ok := l.(*ast.ListLit); ok {
		if !isAny(list) {
			return "NAME"
		}
		return ""
	}
	name, _, err := ast.LabelName(l)
	if err != nil || strings.HasPrefix(name, "_") {
		return ""
	}
	return name
}

// isAny reports whether a pattern is [_].
func isAny(l *ast.ListLit) bool {
	if len(l.Elts) != 1 {
		return false
	}
	name, ok := l.Elts[0].(*ast.Ident)
	return ok && name.Name == "_"
}

// presence says whether a field is required, or what its default is.
func (w *writer) presence(f *ast.Field) string {
	switch f.Constraint {
	case token.NOT:
		return "required"
	case token.OPTION:
		return ""
	}
	if lit, ok := f.Value.(*ast.BasicLit); ok {
		return "always `" + lit.Value + "`"
	}
	if d := w.standard(f.Value); d != "" {
		return "default `" + cell(d) + "`"
	}
	return ""
}

// standard returns the default of a disjunction; "" if it has none.
func (w *writer) standard(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.BinaryExpr:
		if x.Op == token.OR {
			if d := w.standard(x.X); d != "" {
				return d
			}
			return w.standard(x.Y)
		}
	case *ast.UnaryExpr:
		if x.Op == token.MUL {
			return w.source(x.X)
		}
	}
	return ""
}

// source returns an expression as it is written, in one line.
func (w *writer) source(n ast.Node) string {
	return strings.Join(strings.Fields(string(w.text[n.Pos().Offset():n.End().Offset()])), " ")
}

var references = regexp.MustCompile(`#[A-Z][A-Za-z0-9]*`)

// code returns a constraint for a cell of a table, with links to the definitions that it names.
func (w *writer) code(x ast.Expr) string {
	text := w.source(x)
	names := references.FindAllString(text, -1)
	slices.Sort(names)
	out := "`" + cell(text) + "`"
	for _, n := range slices.Compact(names) {
		if !slices.Contains(plain, n) {
			section := strings.ToLower(n[1:])
			if w.values[n] {
				section = "values"
			}
			out += fmt.Sprintf(" [%s](#%s)", n[1:], section)
		}
	}
	return out
}

// plain are definitions that are not linked, because almost every field names one.
var plain = []string{"#Name", "#CEL", "#Version", "#SHA256", "#Verb", "#KnownVerb", "#Window", "#Operation", "#Subject", "#BuiltinLevels", "#Opinion", "#Person", "#Object", "#SecretRef"}

// comment returns the comments above and behind a field, in one line.
func (w *writer) comment(of string, f *ast.Field) string {
	var words []string
	for _, g := range ast.Comments(f) {
		words = append(words, strings.Fields(g.Text())...)
	}
	if len(words) == 0 && !strings.HasSuffix(of, ".#schema") { // its comments would describe the kinds of bundles
		w.lacking = append(w.lacking, of)
	}
	return cell(strings.Join(words, " "))
}

// cell escapes what would end a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
