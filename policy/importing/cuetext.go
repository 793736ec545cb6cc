package importing

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/literal"
)

// fields is a struct whose fields have an order.
type fields []member

type member struct {
	key   string
	value any
}

// raw is CUE text.
type raw string

// add appends a field, unless its value is empty.
func (f *fields) add(key string, value any) {
	switch v := value.(type) {
	case nil:
		return
	case string:
		if v == "" {
			return
		}
	case []string:
		if len(v) == 0 {
			return
		}
	case fields:
		if len(v) == 0 {
			return
		}
	case map[string]string:
		if len(v) == 0 {
			return
		}
	}
	*f = append(*f, member{key, value})
}

// get returns the value of a field; nil if there is none.
func (f fields) get(key string) any {
	for _, m := range f {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// width is the length up to which a struct or a list is written in one line.
const width = 110

// cueText returns a value as CUE.
func cueText(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case raw:
		return string(v)
	case sourced:
		return cueText(v.value)
	case string:
		return quote(v)
	case bool, int, int32, int64, json.Number:
		return fmt.Sprint(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return cueText(list)
	case []any:
		return list(v)
	case []fields:
		all := make([]any, len(v))
		for i, f := range v {
			all[i] = f
		}
		return list(all)
	case map[string]string:
		var f fields
		for _, k := range slices.Sorted(maps.Keys(v)) {
			f = append(f, member{k, v[k]})
		}
		return cueText(f)
	case map[string]any:
		var f fields
		for _, k := range slices.Sorted(maps.Keys(v)) {
			f = append(f, member{k, v[k]})
		}
		return cueText(f)
	case fields:
		return structText(v)
	}
	panic(fmt.Sprintf("importing: a value of type %T", v)) // the importer makes all of them
}

func structText(f fields) string {
	parts := make([]string, len(f))
	size := 0
	for i, m := range f {
		parts[i] = label(m.key) + ": " + cueText(m.value)
		size += len(parts[i]) + 2
	}
	if size <= width && !strings.Contains(strings.Join(parts, ""), "\n") {
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return "{\n" + strings.Join(parts, "\n") + "\n}"
}

func list(v []any) string {
	parts := make([]string, len(v))
	size := 0
	for i, x := range v {
		parts[i] = cueText(x)
		size += len(parts[i]) + 2
	}
	if size <= width || len(v) < 2 {
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return "[\n" + strings.Join(parts, ",\n") + ",\n]"
}

// quote returns a string literal; with # if that needs no escapes.
func quote(s string) string {
	if plain := literal.String.Quote(s); !strings.Contains(plain, `\`) || strings.ContainsAny(s, "\n\r\t") || strings.Contains(s, `"#`) || strings.Contains(s, `\#`) || strings.HasPrefix(s, `""`) || !printable(s) {
		return plain
	}
	return `#"` + s + `"#`
}

func printable(s string) bool {
	for _, r := range s {
		if !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}

// schemaLabel stands for the one definition in the fields of a kind, #schema. No field of the input has this name.
const schemaLabel = "\x00schema"

// label returns the label of a field, in quotes if it must be.
func label(name string) string {
	switch {
	case name == schemaLabel:
		return "#schema"
	case ast.StringLabelNeedsQuoting(name):
		return literal.String.Quote(name)
	}
	return name
}

// comment returns a text as comment lines.
func comment(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		line := "//"
		for word := range strings.FieldsSeq(paragraph) {
			if len(line) > 2 && len(line)+1+len(word) > width {
				b.WriteString(line + "\n")
				line = "//"
			}
			line += " " + word
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// validName are the names of roles, bindings and rules in a bundle.
var (
	validName   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$`)
	notInNames  = regexp.MustCompile(`[^-a-z0-9.:]+`)
	endsOfNames = "-.:"
)

// nameFor returns a name that a bundle admits, from any text.
func nameFor(text string) string {
	if validName.MatchString(text) {
		return text
	}
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), endsOfNames)
	if name == "" {
		return "unnamed"
	}
	return name
}

// unique returns a name that is not taken, and takes it.
func unique(taken map[string]bool, name string) string {
	free := name
	for i := 2; taken[free]; i++ {
		free = name + "-" + strconv.Itoa(i)
	}
	taken[free] = true
	return free
}
