package quotas

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"stele.dev/stele/schemas"
)

// fieldPath leads from the root of an object to values: names with dots, and [*] for each item of a list or value of a map.
type fieldPath struct {
	names []string // names, and each for [*]
	top   string   // gjson path of the first name
	steps []string // gjson paths between the [*], without top
}

const each = "[*]"

func (p fieldPath) equal(other fieldPath) bool { return slices.Equal(p.names, other.names) }

func parsePath(text string) (p fieldPath, err error) {
	wrong := fmt.Errorf("%q is no path: write names with dots in front, and [*] for each item of a list", text)
	if !strings.HasPrefix(text, ".") {
		return p, wrong
	}
	var run []string
	for _, part := range strings.Split(text[1:], ".") {
		name, rest, _ := strings.Cut(part, "[")
		if name == "" || strings.ContainsAny(name, "]*\"'") {
			return p, wrong
		}
		if len(p.names) == 0 {
			p.top = gjson.Escape(name)
		} else {
			run = append(run, gjson.Escape(name))
		}
		p.names = append(p.names, name)
		for rest != "" {
			if !strings.HasPrefix(rest, "*]") {
				return p, wrong
			}
			p.names, p.steps, run = append(p.names, each), append(p.steps, strings.Join(run, ".")), nil
			if rest = rest[2:]; rest != "" && rest[0] == '[' {
				rest = rest[1:]
			} else if rest != "" {
				return p, wrong
			}
		}
	}
	p.steps = append(p.steps, strings.Join(run, "."))
	return p, nil
}

// visit calls f for the values at the path in an object, given the value of its first name. Fields that are absent or null are
// left out.
func (p fieldPath) visit(top gjson.Result, f func(gjson.Result)) {
	if p.steps[0] != "" {
		top = top.Get(p.steps[0])
	}
	visit(top, p.steps[1:], f)
}

func visit(at gjson.Result, steps []string, f func(gjson.Result)) {
	switch {
	case !at.Exists() || at.Type == gjson.Null:
	case len(steps) == 0:
		f(at)
	default:
		at.ForEach(func(_, item gjson.Result) bool {
			if steps[0] != "" {
				item = item.Get(steps[0])
			}
			visit(item, steps[1:], f)
			return true
		})
	}
}

// Node returns the schema of the values at a path in the objects of a schema. The error says what is wrong with the path.
func Node(text string, root *schemas.Node) (*schemas.Node, error) {
	p, err := parsePath(text)
	if err != nil {
		return nil, err
	}
	n, at := root, ""
	for _, name := range p.names {
		if name == each {
			n, at = items(n), at+each
		} else {
			n, at = fieldOf(n, name), at+"."+name
		}
		if n == nil {
			return nil, fmt.Errorf("the schema says nothing of %s", at)
		}
	}
	return n, nil
}

// items returns the schema of the items of a list, or of the values of a map; nil if the value is neither.
func items(n *schemas.Node) *schemas.Node {
	switch {
	case n.List != nil && n.Kinds&^schemas.NullKind == schemas.ListKind:
		return n.List.Items
	case n.Struct != nil && n.Union == nil && n.Kinds&^schemas.NullKind == schemas.StructKind && len(n.Struct.Fields) == 0 && len(n.Struct.Patterns) == 1:
		return n.Struct.Patterns[0].Value
	}
	return nil
}

// fieldOf returns the schema of a field; nil if the schema does not declare it.
func fieldOf(n *schemas.Node, name string) *schemas.Node {
	if n.Kinds&^schemas.NullKind != schemas.StructKind || n.Struct == nil {
		return nil
	}
	for _, f := range n.Struct.AllFields() {
		if f.Name == name {
			return f.Schema
		}
	}
	if len(n.Struct.Patterns) == 1 && len(n.Struct.Fields) == 0 {
		return n.Struct.Patterns[0].Value // a key of a map
	}
	return nil
}
