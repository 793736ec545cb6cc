package expr

import (
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/common"
	"stele.dev/stele/schemas/celtype"
)

var (
	undeclared = regexp.MustCompile(`^undeclared reference to '([^']+)'`)
	undefined  = regexp.MustCompile(`^undefined field '([^']+)'`)
	container  = regexp.MustCompile(` \(in container '[^']*'\)`)
)

// fault returns CEL's error, with the names that would have been valid.
func (s *Scope) fault(e *common.Error, text string) *Fault {
	f := &Fault{Line: e.Location.Line(), Column: e.Location.Column(), Message: container.ReplaceAllString(e.Message, "")}
	if f.Line < 0 {
		f.Line, f.Column = 0, 0
	}
	f.Message, _, _ = strings.Cut(f.Message, "\n")
	if m := undeclared.FindStringSubmatch(e.Message); m != nil {
		f.Name = m[1]
		for _, v := range s.env.Variables() {
			f.Known = append(f.Known, v.Name())
			if !strings.HasPrefix(v.Name(), f.Name+".") {
				continue
			}
			// a name with dots: the last part is unknown
			if m := regexp.MustCompile(regexp.QuoteMeta(f.Name) + `\.\w+`).FindString(text); m != "" {
				f.Message = strings.Replace(f.Message, "'"+f.Name+"'", "'"+m+"'", 1)
				f.Name = m
			}
		}
		for name := range s.env.Functions() {
			f.Known = append(f.Known, name)
		}
	}
	if m := undefined.FindStringSubmatch(e.Message); m != nil {
		f.Name = m[1]
		if of := s.selectedFrom(text, e.ExprID); of != nil {
			f.Known, f.Inside = of.FieldNames(), fieldInside(of, f.Name, 0)
		} else {
			for _, t := range s.vars {
				f.Known = append(f.Known, fieldNames(t, 0)...)
			}
		}
	}
	f.Known = slices.DeleteFunc(sorted(f.Known), func(name string) bool { return name == f.Name })
	return f
}

// fieldInside returns the path of the first field of a name in the fields of a type; "" if there is none.
func fieldInside(t *celtype.Type, name string, depth int) string {
	const deepest = 3
	if depth > deepest {
		return ""
	}
	for _, field := range t.FieldNames() {
		of := t.Field(field).Type
		if of == nil || !of.IsMessage() {
			continue
		}
		if of.Field(name) != nil {
			return field + "." + name
		}
		if inner := fieldInside(of, name, depth+1); inner != "" {
			return field + "." + inner
		}
	}
	return ""
}

// fieldNames returns the field names of a type and of the types in it.
func fieldNames(t *celtype.Type, depth int) []string {
	for t != nil && !t.IsMessage() {
		t = t.Items()
	}
	if t == nil || depth > 8 {
		return nil
	}
	names := t.FieldNames()
	for _, name := range t.FieldNames() {
		names = append(names, fieldNames(t.Field(name).Type, depth+1)...)
	}
	return names
}

func sorted(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// Names reports whether an expression's text names a variable.
func Names(text, name string) bool {
	for rest := text; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		end := i + len(name)
		if (i == 0 || !isWord(rest[i-1])) && (end == len(rest) || !isWord(rest[end])) {
			return true
		}
		rest = rest[end:]
	}
}

func isWord(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
