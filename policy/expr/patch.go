package expr

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	exprpb "google.golang.org/genproto/googleapis/api/expr/v1alpha1"
	"google.golang.org/protobuf/proto"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
	"stele.dev/stele/policy/patches"
	"stele.dev/stele/schemas/celtype"
)

// The types that expressions of mutations make, as in MutatingAdmissionPolicy: Object{…} is an apply configuration,
// and its parts are named by their path, Object.spec{…}. A part in a list or a map has the path of the list or map.
// Unlike in Kubernetes, they are checked against the schema of the object.
var (
	ApplyType = cel.ObjectType(mutation.ObjectTypeName)
	PatchType = cel.ListType(cel.ObjectType(mutation.JSONPatchTypeName))
)

// WithPatches returns the scope with the variables object and oldObject, and with the types and functions of mutations.
// of is the type of the objects; Dynamic if it is not known.
func (s *Scope) WithPatches(of *celtype.Type) (*Scope, error) {
	object := of.CEL()
	if of.IsMessage() {
		object = ApplyType
	}
	options := append(patchOptions(of), cel.Variable(VarObject, object), cel.Variable(VarOldObject, object))
	env, err := s.env.Extend(options...)
	next := &Scope{env: env, vars: maps.Clone(s.vars), growth: s.growth, patches: of, kinds: s.kinds}
	if next.vars == nil {
		next.vars = map[string]*celtype.Type{}
	}
	next.vars[VarObject], next.vars[VarOldObject] = of, of
	return next, err
}

func patchOptions(of *celtype.Type) []cel.EnvOption {
	return []cel.EnvOption{common.ResolverEnvOption(patchTypes{of}), library.JSONPatch()}
}

// patching is the environment in which expressions of mutations are evaluated.
var patching = sync.OnceValue(func() *planner {
	env, err := base().Extend(patchOptions(celtype.Dynamic)...)
	if err != nil {
		panic(err) // does not depend on any input
	}
	return newPlanner(env)
})

// LoadPatch is [Load] for an expression of a mutation.
func LoadPatch(ast []byte, text string) (*Program, error) { return loadIn(patching(), ast, text) }

// patchTypes resolves the names of the types of mutations.
type patchTypes struct{ of *celtype.Type }

// Resolve implements common.TypeResolver.
func (p patchTypes) Resolve(name string) (common.ResolvedType, bool) {
	if name == mutation.JSONPatchTypeName {
		return jsonPatchType, true
	}
	if p.of == celtype.Dynamic {
		if !isPart(name) {
			return nil, false
		}
		return &partType{celtype.Dynamic, name}, true
	}
	t := p.typeNamed(name)
	if t == nil {
		return nil, false
	}
	return &partType{t, name}, true
}

var jsonPatchType = jsonPatch{&mutation.JSONPatchType{}}

// typeNamed returns the type with a name; nil if there is none.
func (p patchTypes) typeNamed(name string) *celtype.Type {
	path := strings.Split(name, ".")
	if path[0] != mutation.ObjectTypeName {
		return nil
	}
	t := p.of
	for _, step := range path[1:] {
		if t.IsMessage() {
			f := t.Field(step)
			if f == nil {
				return nil
			}
			t = innermost(f.Type)
		}
		if !t.IsMessage() && t != celtype.Dynamic {
			return nil
		}
	}
	return t
}

// writeMaps writes the parts that are maps, such as Object.metadata.labels{tier: "x"}, as the literals {"tier": "x"}. In Kubernetes each
// field has a type of its name, also if it is a map.
func (p patchTypes) writeMaps(tree *celast.AST) {
	factory, last := celast.NewExprFactory(), celast.MaxID(tree)
	celast.PostOrderVisit(tree.Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.StructKind || !p.isMap(e.AsStruct()) {
			return
		}
		var entries []celast.EntryExpr
		for _, f := range e.AsStruct().Fields() {
			if place, ok := tree.SourceInfo().GetOffsetRange(f.ID()); ok {
				tree.SourceInfo().SetOffsetRange(last, place)
			}
			key := factory.NewLiteral(last, types.String(jsonName(f.AsStructField().Name())))
			last++
			entries = append(entries, factory.NewMapEntry(f.ID(), key, f.AsStructField().Value(), f.AsStructField().IsOptional()))
		}
		e.SetKindCase(factory.NewMap(e.ID(), entries))
	}))
}

// isMap reports whether a part is a map with any keys. A part of a map whose values are objects is one of these objects, unless it has
// other fields.
func (p patchTypes) isMap(part celast.StructExpr) bool {
	at := strings.LastIndexByte(part.TypeName(), '.')
	if at < 0 || p.of == celtype.Dynamic {
		return false
	}
	around := p.typeNamed(part.TypeName()[:at])
	if around == nil || !around.IsMessage() {
		return false
	}
	f := around.Field(part.TypeName()[at+1:])
	if f == nil {
		return false
	}
	t := f.Type
	for t.Items() != nil && t.CEL().Kind() != types.MapKind {
		t = t.Items()
	}
	if t.Items() == nil || t.CEL().Kind() != types.MapKind {
		return false
	}
	of := innermost(t)
	return !of.IsMessage() || slices.ContainsFunc(part.Fields(), func(f celast.EntryExpr) bool { return of.Field(f.AsStructField().Name()) == nil })
}

// innermost returns the type of the items of lists and the values of maps, in any depth.
func innermost(t *celtype.Type) *celtype.Type {
	for t.Items() != nil {
		t = t.Items()
	}
	return t
}

// partType is the type of a part of an object.
type partType struct {
	of   *celtype.Type
	name string
}

func (p *partType) HasTrait(trait int) bool { return p.Type().HasTrait(trait) }
func (p *partType) TypeName() string        { return p.name }
func (p *partType) Type() *types.Type       { return types.NewObjectType(p.name) }

// Field implements common.ResolvedType.
func (p *partType) Field(name string) (*types.FieldType, bool) {
	if !p.of.IsMessage() {
		return &types.FieldType{Type: types.DynType}, true
	}
	f := p.of.Field(name)
	if f == nil {
		return nil, false
	}
	return &types.FieldType{Type: partOf(f.Type, p.TypeName()+"."+name)}, true
}

// partOf returns the CEL type of a part with a name.
func partOf(t *celtype.Type, name string) *types.Type {
	switch of := t.CEL(); {
	case t.IsMessage():
		return types.NewObjectType(name)
	case t.Items() != nil && of.Kind() == types.MapKind:
		return types.NewMapType(types.StringType, partOf(t.Items(), name))
	case t.Items() != nil:
		return types.NewListType(partOf(t.Items(), name))
	default:
		return of
	}
}

// FieldNames implements common.ResolvedType.
func (p *partType) FieldNames() ([]string, bool) {
	if !p.of.IsMessage() {
		return nil, true
	}
	return p.of.FieldNames(), true
}

// Val returns the part with the given fields: a map, as JSON has it.
func (p *partType) Val(fields map[string]ref.Val) ref.Val {
	part := make(map[string]any, len(fields))
	for name, value := range fields {
		x, err := celtype.Native(value)
		if err != nil {
			return types.NewErr("%s.%s: %v", p.TypeName(), name, err)
		}
		part[jsonName(name)] = x
	}
	return celtype.Part(part)
}

// jsonName returns the name in JSON of a field that CEL names.
func jsonName(name string) string {
	if strings.Contains(name, "__") {
		if plain, ok := apiservercel.Unescape(name); ok {
			return plain
		}
	}
	return name
}

// jsonPatch is the type JSONPatch, without other fields than its own.
type jsonPatch struct{ *mutation.JSONPatchType }

// Field implements common.ResolvedType.
func (j jsonPatch) Field(name string) (*types.FieldType, bool) {
	if names, _ := j.FieldNames(); !slices.Contains(names, name) {
		return nil, false
	}
	return j.JSONPatchType.Field(name)
}

// Operations returns the operations that an expression of type [PatchType] evaluated to.
func Operations(v ref.Val) ([]patches.Operation, error) {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("a JSONPatch must evaluate to a list of JSONPatch, and not to a %s", v.Type().TypeName())
	}
	var operations []patches.Operation
	for i := list.Iterator(); i.HasNext() == types.True; {
		item := i.Next()
		p, ok := item.(*mutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("a JSONPatch must evaluate to a list of JSONPatch, and not of %s", item.Type().TypeName())
		}
		o := patches.Operation{Op: p.Op, Path: p.Path, From: p.From}
		if p.Val != nil {
			var err error
			if o.Value, err = celtype.Native(p.Val); err != nil {
				return nil, fmt.Errorf("the value of the operation %s %s: %w", p.Op, p.Path, err)
			}
		}
		operations = append(operations, o)
	}
	return operations, nil
}

// Configuration returns the apply configuration that an expression of type [ApplyType] evaluated to.
func Configuration(v ref.Val) (map[string]any, error) {
	x, err := celtype.Native(v)
	if err != nil {
		return nil, err
	}
	config, ok := x.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("an ApplyConfiguration must evaluate to an Object, and not to a %s", v.Type().TypeName())
	}
	return config, nil
}

// CheckParts checks the parts of objects that an expression of a mutation makes. A part is named by its path from
// Object; CEL's types do not show that if the type of the object is not known. atomic, if not nil, reports whether a
// part, named by its path, must not be in an apply configuration.
func CheckParts(ast []byte, atomic func(path []string) bool) *Fault {
	var checked exprpb.CheckedExpr
	if err := proto.Unmarshal(ast, &checked); err != nil {
		return &Fault{Message: err.Error()}
	}
	var fault *Fault
	eachExpr(checked.Expr, func(e *exprpb.Expr) {
		s := e.GetStructExpr()
		if s == nil || fault != nil || !isPart(s.MessageName) {
			return
		}
		for _, entry := range s.Entries {
			name := s.MessageName + "." + entry.GetFieldKey()
			partsIn(entry.Value, func(part string) {
				if part != name && fault == nil {
					fault = &Fault{Message: fmt.Sprintf("type mismatch: unexpected type name %q, expected %q, which matches the path of the field", part, name)}
				}
			})
			if atomic != nil && fault == nil && atomic(jsonNames(name)) {
				fault = &Fault{Message: fmt.Sprintf("%s is atomic: an ApplyConfiguration may not set a part of it, and would remove the rest; use a JSONPatch", strings.Join(jsonNames(name), "."))}
			}
		}
	})
	return fault
}

func isPart(name string) bool {
	return name == mutation.ObjectTypeName || strings.HasPrefix(name, mutation.ObjectTypeName+".")
}

// jsonNames returns the path of a part without Object.
func jsonNames(part string) []string {
	names := strings.Split(part, ".")[1:]
	for i := range names {
		names[i] = jsonName(names[i])
	}
	return names
}

// partsIn calls with the names of the parts that an expression makes itself: alone, or as items of a list or a map.
func partsIn(e *exprpb.Expr, with func(part string)) {
	switch x := e.GetExprKind().(type) {
	case *exprpb.Expr_StructExpr:
		if isPart(x.StructExpr.MessageName) {
			with(x.StructExpr.MessageName)
			return
		}
		if x.StructExpr.MessageName == "" {
			for _, entry := range x.StructExpr.Entries {
				partsIn(entry.Value, with)
			}
		}
	case *exprpb.Expr_ListExpr:
		for _, item := range x.ListExpr.Elements {
			partsIn(item, with)
		}
	case *exprpb.Expr_CallExpr:
		if x.CallExpr.Function == "_?_:_" {
			partsIn(x.CallExpr.Args[1], with)
			partsIn(x.CallExpr.Args[2], with)
		}
	}
}
