package stored

import (
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// TypeName is the name of the type of a selection of objects. Its parameter is the type of the objects.
const TypeName = "stele.Objects"

// MaxListed limits the objects that list returns.
const MaxListed = 1000

// costs of calls, in CEL's units. The cost of a list is that of its objects, too.
const (
	costOfGet    = 100
	costOfSearch = 1000
)

var (
	objectType = cel.TypeParamType("T")
	selection  = cel.OpaqueType(TypeName, objectType)
	// at run time a selection does not know the type of its objects
	runtimeType = cel.OpaqueType(TypeName, cel.DynType)
)

// Names of the functions that tell where a selection is used.
const (
	funcGet, funcWhere, funcNamespace, funcOthers, funcList = "get", "where", "namespace", "others", "list"
)

// Library declares the functions.
func Library() cel.EnvOption { return cel.Lib(library{}) }

type library struct{}

// LibraryName implements cel.SingletonLibrary.
func (library) LibraryName() string { return "stele.objects" }

// ProgramOptions implements cel.Library.
func (library) ProgramOptions() []cel.ProgramOption { return nil }

// CompileOptions implements cel.Library.
func (library) CompileOptions() []cel.EnvOption {
	text := cel.StringType
	narrows := func(name, id string, args []*cel.Type, with cel.OverloadOpt) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(id, append([]*cel.Type{selection}, args...), selection, with))
	}
	reads := func(name, id string, result *cel.Type, with func(*Selected) ref.Val) cel.EnvOption {
		return cel.Function(name, cel.MemberOverload(id, []*cel.Type{selection}, result, cel.UnaryBinding(func(v ref.Val) ref.Val {
			s, ok := v.(*Selected)
			if !ok {
				return types.MaybeNoSuchOverloadErr(v)
			}
			return with(s)
		})))
	}
	where := func(id string, t *cel.Type) cel.FunctionOpt {
		return cel.MemberOverload(id, []*cel.Type{selection, text, t}, selection, cel.FunctionBinding(func(args ...ref.Val) ref.Val { return narrowed(args, (*Selected).filterBy) }))
	}
	return []cel.EnvOption{
		cel.Function(funcGet,
			cel.MemberOverload("stele_objects_get", []*cel.Type{selection, text}, cel.OptionalType(objectType), cel.BinaryBinding(func(v, name ref.Val) ref.Val { return get(v, types.String(""), name) })),
			cel.MemberOverload("stele_objects_get_namespaced", []*cel.Type{selection, text, text}, cel.OptionalType(objectType), cel.FunctionBinding(func(args ...ref.Val) ref.Val { return get(args[0], args[1], args[2]) })),
		),
		narrows(funcNamespace, "stele_objects_namespace", []*cel.Type{text}, binary((*Selected).namespace)),
		narrows("name", "stele_objects_name", []*cel.Type{text}, binary((*Selected).name)),
		narrows("labels", "stele_objects_labels", []*cel.Type{cel.MapType(text, text)}, binary((*Selected).labels)),
		narrows(funcOthers, "stele_objects_others", nil, cel.UnaryBinding(func(v ref.Val) ref.Val { return narrowed([]ref.Val{v}, (*Selected).withoutSelf) })),
		cel.Function(funcWhere, where("stele_objects_where_string", text), where("stele_objects_where_int", cel.IntType), where("stele_objects_where_bool", cel.BoolType)),
		reads("exists", "stele_objects_exists", cel.BoolType, (*Selected).exists),
		reads("count", "stele_objects_count", cel.IntType, (*Selected).count),
		reads(funcList, "stele_objects_list", cel.ListType(objectType), (*Selected).list),
	}
}

func binary(narrow func(*Selected, ...ref.Val) ref.Val) cel.OverloadOpt {
	return cel.BinaryBinding(func(v, arg ref.Val) ref.Val { return narrowed([]ref.Val{v, arg}, narrow) })
}

func narrowed(args []ref.Val, narrow func(*Selected, ...ref.Val) ref.Val) ref.Val {
	s, ok := args[0].(*Selected)
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	next := *s
	return narrow(&next, args[1:]...)
}

// Costs returns the estimated costs of calls that read.
func Costs() []checker.CostOption {
	cost := func(overload string, cost uint64, result *checker.SizeEstimate) checker.CostOption {
		return checker.OverloadCostEstimate(overload, func(checker.CostEstimator, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
			return &checker.CallEstimate{CostEstimate: checker.CostEstimate{Min: cost, Max: cost}, ResultSize: result}
		})
	}
	return []checker.CostOption{
		cost("stele_objects_get", costOfGet, nil),
		cost("stele_objects_get_namespaced", costOfGet, nil),
		cost("stele_objects_exists", costOfSearch, nil),
		cost("stele_objects_count", costOfSearch, nil),
		cost("stele_objects_list", costOfSearch+MaxListed*costOfGet, &checker.SizeEstimate{Max: MaxListed}),
	}
}

func get(v, namespace, name ref.Val) ref.Val {
	s, ok := v.(*Selected)
	if !ok {
		return types.MaybeNoSuchOverloadErr(v)
	}
	ns, ok1 := namespace.(types.String)
	n, ok2 := name.(types.String)
	if !ok1 || !ok2 {
		return types.MaybeNoSuchOverloadErr(name)
	}
	object, err := s.from.Get(string(ns), string(n))
	switch {
	case err != nil:
		return types.WrapErr(err)
	case object == nil:
		return types.OptionalNone
	}
	return types.OptionalOf(object)
}

// text returns a value as it is in an index of a field.
func text(v ref.Val) (string, bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case types.Int, types.Bool:
		s, ok := v.ConvertToType(types.StringType).(types.String)
		return string(s), ok
	}
	return "", false
}

// pairs returns a map of strings; false if v is something else.
func pairs(v ref.Val) (map[string]string, bool) {
	m, ok := v.(traits.Mapper)
	if !ok {
		return nil, false
	}
	n, ok := m.Size().(types.Int)
	if !ok || n > math.MaxInt16 {
		return nil, false
	}
	all := make(map[string]string, n)
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		key, ok1 := k.(types.String)
		value, ok2 := m.Get(k).(types.String)
		if !ok1 || !ok2 {
			return nil, false
		}
		all[string(key)] = string(value)
	}
	return all, true
}
