package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/cmd/stele/internal/secrets"
	"stele.dev/stele/core/object/difference"
	"stele.dev/stele/core/resources/blame"
)

// part is a field or a list item of an object. It has either parts of its own or the blame of its value.
type part struct {
	step  difference.Step
	key   string // unique among its siblings
	parts []*part
	field *blame.Field
}

// put adds the blame of the field at a path.
func (p *part) put(path difference.Path, f *blame.Field) {
	if len(path) == 0 {
		p.field = f
		return
	}
	key := difference.Path{path[0]}.String()
	at := slices.IndexFunc(p.parts, func(x *part) bool { return x.key == key })
	if at < 0 {
		at = len(p.parts)
		p.parts = append(p.parts, &part{step: path[0], key: key})
	}
	p.parts[at].put(path[1:], f)
}

// yamlLine is a line of YAML with the blame of its field.
type yamlLine struct {
	text  string
	field *blame.Field // nil if the line has no value of its own, or continues a value
}

// lines returns the parts as indented lines of YAML.
func (p *part) lines(indent string) ([]yamlLine, error) {
	var all []yamlLine
	for _, x := range p.parts {
		item := x.step.Item || x.step.Key != nil
		var one any = map[string]any{x.step.Field: nil}
		if item {
			one = []any{nil}
		}
		switch {
		case x.field != nil:
			if item {
				one = []any{x.field.Value}
			} else {
				one = map[string]any{x.step.Field: x.field.Value}
			}
			text, err := yaml.Marshal(one)
			if err != nil {
				return nil, err
			}
			field := x.field
			for line := range strings.Lines(string(text)) {
				all = append(all, yamlLine{indent + strings.TrimSuffix(line, "\n"), field})
				field = nil
			}
		case item:
			below, err := x.lines(indent + "  ")
			if err != nil {
				return nil, err
			}
			if len(below) > 0 {
				below[0].text = indent + "- " + strings.TrimPrefix(below[0].text, indent+"  ")
			}
			all = append(all, below...)
		default:
			name, err := yaml.Marshal(one)
			if err != nil {
				return nil, err
			}
			all = append(all, yamlLine{text: indent + strings.TrimSuffix(strings.TrimSuffix(string(name), "\n"), " null")})
			more := indent + "  "
			if len(x.parts) > 0 && (x.parts[0].step.Item || x.parts[0].step.Key != nil) {
				more = indent // as kubectl writes lists
			}
			below, err := x.lines(more)
			if err != nil {
				return nil, err
			}
			all = append(all, below...)
		}
	}
	return all, nil
}

// Blame prints an object as YAML, with the blame of each field left of it.
func Blame(out *Output, mapping *meta.RESTMapping, hidden secrets.Fields, b *blame.Blame) error {
	version, kind := mapping.GroupVersionKind.ToAPIVersionAndKind()
	root := &part{}
	for i := range b.Status.Fields {
		f := &b.Status.Fields[i]
		f.Value, f.Path = hidden.Value(f.Path, f.Value), hidden.Path(f.Path)
		path, err := difference.Parse(f.Path)
		if err != nil {
			return err
		}
		root.put(path, f)
	}
	below, err := root.lines("")
	if err != nil {
		return err
	}
	c := &Columns{Out: out}
	for _, l := range append([]yamlLine{{text: "apiVersion: " + version}, {text: "kind: " + kind}}, below...) {
		var cells [4]Cell
		if f := l.field; f != nil {
			at := ""
			if t, err := time.Parse(time.RFC3339Nano, f.Time); err == nil {
				at = out.time(t)
			}
			revision := ""
			if f.Revision > 0 {
				revision = fmt.Sprint(f.Revision)
			}
			actor := f.Actor
			if f.Impersonator != "" {
				actor = f.Impersonator + " as " + actor
			}
			cells = [4]Cell{{Text: revision, Style: Altered, right: true}, {Text: at}, {Text: actor}, {Text: byWhat(f), Style: subtle}}
		}
		c.Add("", append(cells[:], Cell{Text: "│ " + l.text})...)
	}
	return c.Flush()
}

// byWhat returns the rule and source of a default or a mutation, or a note, for a field that no user set.
func byWhat(f *blame.Field) string {
	if f.Source == "" && f.Rule == "" {
		return f.Note
	}
	return strings.TrimSpace(f.Rule + " " + f.Source)
}
