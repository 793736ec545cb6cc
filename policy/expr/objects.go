package expr

import (
	"maps"
	"sort"
	"strings"

	"github.com/google/cel-go/cel"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"stele.dev/stele/policy/stored"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

// VarObjects is what the variables of stored objects begin with; a name follows.
const VarObjects = "objects."

// Stored is a variable for the stored objects of a version of a kind.
type Stored struct {
	Name    string
	Kind    *schemas.Kind
	Version *schemas.Version
	// Type is the type of the objects.
	Type *celtype.Type
	// Own is set if the objects that are written may be of the kind.
	Own bool
}

// WithObjects returns the scope with variables for stored objects, each objects.NAME.
func (s *Scope) WithObjects(all []Stored) (*Scope, error) {
	vars := map[string]*celtype.Type{}
	kinds := maps.Clone(s.kinds)
	if kinds == nil {
		kinds = map[string]*stored.Kind{}
	}
	for _, x := range all {
		name := TypeName(x.Kind, x.Version)
		vars[VarObjects+x.Name] = celtype.SelectedOf(stored.TypeName, x.Type)
		kinds[name] = &stored.Kind{Name: x.Kind.Resource(), Namespaced: x.Kind.Namespaced, Own: x.Own, Fields: selectable(x.Kind, x.Version, x.Type)}
	}
	next, err := s.With(vars)
	if err != nil {
		return nil, err
	}
	next.kinds = kinds
	return next, nil
}

// selectable returns the types of the selectable fields of a kind, as a version has them.
func selectable(k *schemas.Kind, v *schemas.Version, t *celtype.Type) map[string]string {
	fields := map[string]string{}
	for i := range k.Versions {
		for _, f := range k.Versions[i].SelectableFields {
			path := strings.TrimPrefix(f, ".")
			fields[path] = fieldType(t, path)
		}
	}
	return fields
}

// fieldType returns the type of a field, if its values are texts, integers or bools; else "".
func fieldType(t *celtype.Type, path string) string {
	for _, name := range strings.Split(path, ".") {
		f := t.Field(name)
		if f == nil {
			return ""
		}
		t = f.Type
	}
	switch c := t.CEL(); {
	case c.IsExactType(cel.StringType):
		return "string"
	case c.IsExactType(cel.IntType):
		return "int"
	case c.IsExactType(cel.BoolType):
		return "bool"
	}
	return ""
}

// reads checks how an expression reads stored objects.
func (s *Scope) reads(checked *exprpb.CheckedExpr) ([]stored.Use, *Fault) {
	if len(s.kinds) == 0 {
		return nil, nil
	}
	mistake, uses := stored.Check(checked, s.kinds)
	if mistake == nil {
		return uses, nil
	}
	f := &Fault{Message: mistake.Message, Name: mistake.Name, Known: mistake.Known, Hint: mistake.Hint}
	if offset, ok := checked.SourceInfo.GetPositions()[mistake.Expr]; ok {
		lines := checked.SourceInfo.GetLineOffsets()
		n := sort.Search(len(lines), func(i int) bool { return lines[i] > offset })
		f.Line, f.Column = n+1, int(offset)
		if n > 0 {
			f.Column = int(offset - lines[n-1])
		}
	}
	return nil, f
}
