// This file describes a compiled policy for readers: its kinds with their fields, roles, bindings, denies, admission rules and
// mutations, as Markdown and as HTML. The output depends on the policy alone. The functions are safe for concurrent use.

package documenting

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	htmltemplate "html/template"
	"slices"
	"strings"
	"text/template"

	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/wording"
)

//go:embed page.md page.html
var pages embed.FS

// page is what the templates show.
type page struct {
	Cluster  string
	Kinds    []kind
	Roles    []policy.Role
	Bindings []policy.Binding
	Denies   []policy.Deny
	Rules    []policy.Validation
	// Mutations are the rules that change objects, by their order.
	Mutations []policy.Mutation
	// Reviewers are the webhooks and plugins that review writes: those that change objects by their order, then the others.
	Reviewers []policy.Reviewer
}

type kind struct {
	schemas.Kind
	Versions []version
}

type version struct {
	schemas.Version
	Fields []field
}

// field is a row of the table of fields.
type field struct {
	Path, Type, Constraints, Default, Description string
	Required                                      bool
	Source                                        schemas.Position
}

// pageOf returns what is documented of a policy: what its bundle says, without built-in kinds, roles and bindings.
func pageOf(f *policy.Form) *page {
	p := &page{Cluster: f.Cluster, Denies: f.Denies, Rules: f.Validations}
	for i := range f.Kinds {
		if !f.Kinds[i].Builtin {
			p.Kinds = append(p.Kinds, kindOf(&f.Kinds[i]))
		}
	}
	for _, r := range f.Roles {
		if policy.OwningTeam(r.ID) != policy.BuiltinTeam {
			p.Roles = append(p.Roles, r)
		}
	}
	for _, b := range f.Bindings {
		if policy.OwningTeam(b.ID) != policy.BuiltinTeam {
			p.Bindings = append(p.Bindings, b)
		}
	}
	p.Reviewers = slices.SortedStableFunc(slices.Values(f.Reviewers), func(a, b policy.Reviewer) int {
		switch {
		case a.Mutating != b.Mutating && a.Mutating:
			return -1
		case a.Mutating != b.Mutating:
			return 1
		}
		return cmp.Compare(a.Order, b.Order)
	})
	p.Mutations = slices.SortedStableFunc(slices.Values(f.Mutations), func(a, b policy.Mutation) int { return cmp.Compare(a.Order, b.Order) })
	slices.SortStableFunc(p.Kinds, func(a, b kind) int { return strings.Compare(a.Resource(), b.Resource()) })
	slices.SortStableFunc(p.Roles, func(a, b policy.Role) int { return strings.Compare(a.Name, b.Name) })
	slices.SortStableFunc(p.Bindings, func(a, b policy.Binding) int { return strings.Compare(a.ID, b.ID) })
	return p
}

func kindOf(k *schemas.Kind) kind {
	out := kind{Kind: *k}
	for i := range k.Versions {
		v := version{Version: k.Versions[i]}
		v.Fields = fieldsOf(v.Schema, "")
		out.Versions = append(out.Versions, v)
	}
	return out
}

// maxDepth limits how deep fields are listed. Schemas can contain themselves.
const maxDepth = 24

func fieldsOf(n *schemas.Node, path string) (rows []field) {
	if n == nil || strings.Count(path, ".") > maxDepth {
		return nil
	}
	if n.Struct != nil {
		for i := range n.Struct.Fields {
			f := &n.Struct.Fields[i]
			at := strings.TrimPrefix(path+"."+f.Name, ".")
			rows = append(rows, row(at, f))
			rows = append(rows, fieldsOf(f.Schema, at)...)
		}
		for _, p := range n.Struct.Patterns {
			rows = append(rows, fieldsOf(p.Value, path+".*")...)
		}
	}
	if n.List != nil && n.List.Items != nil {
		rows = append(rows, fieldsOf(n.List.Items, path+"[]")...)
	}
	return rows
}

func row(path string, f *schemas.Field) field {
	n := f.Schema
	r := field{Path: path, Type: n.Kinds.String(), Description: strings.Join(strings.Fields(n.Doc), " "), Source: n.Source, Default: string(n.Default)}
	r.Required = f.Presence == schemas.Required || f.Presence == schemas.Regular && n.Default == nil && n.From == nil && n.Struct == nil
	var said []string
	if len(n.Scalars) > 0 {
		said = append(said, wording.Node(n))
	}
	if n.Format != "" {
		said = append(said, "format "+n.Format)
	}
	if l := n.List; l != nil {
		said = append(said, listWords(l)...)
	}
	for _, x := range []struct {
		yes  bool
		text string
	}{{n.Immutable != nil, "cannot be changed"}, {n.Sensitive, "a secret"}, {n.Fallback != nil, "checked by CUE"}, {n.Union != nil, "one of several alternatives"}} {
		if x.yes {
			said = append(said, x.text)
		}
	}
	r.Constraints = strings.Join(said, "; ")
	return r
}

func listWords(l *schemas.List) (said []string) {
	if l.Items != nil {
		said = append(said, "items: "+cmp.Or(wordsOf(l.Items), l.Items.Kinds.String()))
	}
	if l.MinItems != nil {
		said = append(said, "at least "+wording.Count(l.MinItems.Count, "item"))
	}
	if l.MaxItems != nil {
		said = append(said, "at most "+wording.Count(l.MaxItems.Count, "item"))
	}
	if len(l.MapKeys) > 0 {
		said = append(said, "unique by "+strings.Join(l.MapKeys, ", "))
	}
	return said
}

func wordsOf(n *schemas.Node) string {
	if len(n.Scalars) == 0 {
		return ""
	}
	return wording.Node(n)
}

// subjects returns subjects as text.
func subjects(list []policy.Subject) string {
	all := make([]string, len(list))
	for i, s := range list {
		all[i] = "user " + s.User
		if s.Group != "" {
			all[i] = "group " + s.Group
		}
	}
	return strings.Join(all, ", ")
}

// grants returns what a rule is about.
func grants(r policy.Rule) string {
	if len(r.NonResourceURLs) > 0 {
		return strings.Join(r.Verbs, ", ") + " " + strings.Join(r.NonResourceURLs, ", ")
	}
	groups := slices.Clone(r.APIGroups)
	for i, g := range groups {
		if g == "" {
			groups[i] = "core"
		}
	}
	text := strings.Join(r.Verbs, ", ") + " " + strings.Join(r.Resources, ", ") + " of " + strings.Join(groups, ", ")
	if len(r.ResourceNames) > 0 {
		text += " named " + strings.Join(r.ResourceNames, ", ")
	}
	return text
}

// reviews returns what a webhook or a plugin is asked about.
func reviews(r policy.Reviewer) string {
	var all []string
	for _, rule := range r.Rules {
		all = append(all, strings.Join(rule.Operations, ", ")+" of "+strings.Join(rule.Resources, ", "))
	}
	return strings.Join(all, "; ")
}

// otherwise returns what happens if a mutation cannot be made, and whether it runs again.
func otherwise(m policy.Mutation) string {
	text := "a write that it cannot change is refused"
	if m.Ignore {
		text = "a write that it cannot change goes on without it"
	}
	if m.Reinvoke {
		text += "; it runs again if others changed the object after it"
	}
	return text
}

// asks returns who is asked, and in which order.
func asks(r policy.Reviewer) string {
	text := cmp.Or(r.Plugin, r.Name())
	if r.Mutating {
		return fmt.Sprintf("%s %s, which may change objects, with the order %d", r.What(), text, r.Order)
	}
	return r.What() + " " + text
}

// failure returns what happens if a webhook or a plugin cannot be asked.
func failure(r policy.Reviewer) string {
	if r.Ignore {
		return fmt.Sprintf("goes on without it, after %s", r.Timeout)
	}
	return fmt.Sprintf("is refused, after %s", r.Timeout)
}

// Markdown returns the reference of a policy as Markdown.
func Markdown(f *policy.Form) ([]byte, error) {
	t, err := template.New("page.md").Funcs(template.FuncMap{
		"subjects": func(s []policy.Subject) string { return escape(subjects(s)) }, "grants": func(r policy.Rule) string { return escape(grants(r)) },
		"reviews": func(r policy.Reviewer) string { return escape(reviews(r)) }, "asks": func(r policy.Reviewer) string { return escape(asks(r)) }, "failure": failure, "otherwise": otherwise,
		"join": func(s []string) string { return escape(strings.Join(s, ", ")) }, "text": escape, "code": code, "at": func(p schemas.Position) string { return escape(p.String()) },
	}).ParseFS(pages, "page.md")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, pageOf(f))
	return b.Bytes(), err
}

var markdown = strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "<", "&lt;", "&", "&amp;", "`", "\\`", "[", "\\[", "]", "\\]", "\r", " ", "\n", " ")

// escape returns a text that Markdown shows as it is, also in a table.
func escape(text string) string { return markdown.Replace(text) }

// code returns a text as code in Markdown, also in a table.
func code(text string) string {
	if text == "" {
		return ""
	}
	text = strings.Join(strings.Fields(text), " ")
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if len(fence) > 1 {
		text = " " + text + " "
	}
	return fence + strings.ReplaceAll(text, "|", "\\|") + fence
}

// HTML returns the reference of a policy as one HTML page that loads nothing.
func HTML(f *policy.Form) ([]byte, error) {
	t, err := htmltemplate.New("page.html").Funcs(htmltemplate.FuncMap{
		"subjects": subjects, "grants": grants, "reviews": reviews, "asks": asks, "failure": failure, "otherwise": otherwise, "join": func(s []string) string { return strings.Join(s, ", ") }, "at": schemas.Position.String,
	}).ParseFS(pages, "page.html")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = t.Execute(&b, pageOf(f))
	return b.Bytes(), err
}
