package stored

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/labels"
)

// Selection selects objects of a kind. The zero value selects all.
type Selection struct {
	Namespace, Name string // "" for all
	Labels          map[string]string
	// Fields are equalities of selectable fields, by path, such as spec.owner.
	Fields map[string]string
	// Selector selects by labels as well; nil for all. It is that of params.
	Selector labels.Selector
	// Others leaves out the object that the request is about.
	Others bool
	// nothing is set if the selection contradicts itself.
	nothing bool
}

// String returns the selection in words, such as `in namespace prod, by spec.owner="eve"`: "" for all. Two selections of the
// same objects have the same words.
func (s *Selection) String() string {
	return s.words(func(sign, value string) string { return sign + strconv.Quote(value) })
}

// Outline returns the selection in words without the values of labels and fields, which may be those of an object.
func (s *Selection) Outline() string { return s.words(func(string, string) string { return "" }) }

func (s *Selection) words(value func(sign, value string) string) string {
	var parts []string
	if s.Namespace != "" {
		parts = append(parts, "in namespace "+s.Namespace)
	}
	if s.Name != "" {
		parts = append(parts, "named "+s.Name)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		parts = append(parts, "by label "+k+value("=", s.Labels[k]))
	}
	if s.Selector != nil && !s.Selector.Empty() {
		parts = append(parts, "by labels"+value(" ", s.Selector.String()))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Fields)) {
		parts = append(parts, "by "+k+value("=", s.Fields[k]))
	}
	if s.Others {
		parts = append(parts, "but not the object of the request")
	}
	return strings.Join(parts, ", ")
}

// Source reads the stored objects of one kind. Its values are those of a kind's CEL type.
type Source interface {
	// Get returns an object, nil if there is none.
	Get(namespace, name string) (ref.Val, error)
	Exists(*Selection) (bool, error)
	Count(*Selection) (int, error)
	// List returns at most [MaxListed] objects; it fails if there are more.
	List(*Selection) ([]ref.Val, error)
}

// Selected is a selection of the objects of a source, as a CEL value.
type Selected struct {
	Selection
	from Source
}

// All returns the selection of all objects of a source.
func All(from Source) *Selected { return &Selected{from: from} }

// set sets a part of the selection to a value. If it has another value already, the selection contains nothing.
func (s *Selected) set(part *string, v ref.Val, what string) ref.Val {
	value, ok := v.(types.String)
	switch {
	case !ok:
		return types.MaybeNoSuchOverloadErr(v)
	case value == "":
		return types.NewErr("a %s of objects is empty", what)
	case *part != "" && *part != string(value):
		s.nothing = true
	}
	*part = string(value)
	return s
}

func (s *Selected) namespace(args ...ref.Val) ref.Val {
	return s.set(&s.Selection.Namespace, args[0], "namespace")
}
func (s *Selected) name(args ...ref.Val) ref.Val { return s.set(&s.Selection.Name, args[0], "name") }

func (s *Selected) labels(args ...ref.Val) ref.Val {
	all, ok := pairs(args[0])
	if !ok {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	s.Labels = s.mergeRequirements(s.Labels, all)
	return s
}

// mergeRequirements returns both requirements.
func (s *Selected) mergeRequirements(required, more map[string]string) map[string]string {
	all := maps.Clone(required)
	if all == nil {
		return more
	}
	for k, v := range more {
		if was, has := all[k]; has && was != v {
			s.nothing = true
		}
		all[k] = v
	}
	return all
}

func (s *Selected) filterBy(args ...ref.Val) ref.Val {
	path, ok := args[0].(types.String)
	value, known := text(args[1])
	if !ok || !known {
		return types.MaybeNoSuchOverloadErr(args[1])
	}
	if value == "" {
		return types.NewErr("where(%q, …) was given an empty text: objects without the field would be selected, too", string(path))
	}
	s.Fields = s.mergeRequirements(s.Fields, map[string]string{string(path): value})
	return s
}

func (s *Selected) withoutSelf(...ref.Val) ref.Val {
	s.Others = true
	return s
}

func (s *Selected) exists() ref.Val {
	if s.nothing {
		return types.False
	}
	found, err := s.from.Exists(&s.Selection)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Bool(found)
}

func (s *Selected) count() ref.Val {
	if s.nothing {
		return types.Int(0)
	}
	n, err := s.from.Count(&s.Selection)
	if err != nil {
		return types.WrapErr(err)
	}
	return types.Int(n)
}

func (s *Selected) list() ref.Val {
	var all []ref.Val
	if !s.nothing {
		var err error
		if all, err = s.from.List(&s.Selection); err != nil {
			return types.WrapErr(err)
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// ConvertToNative implements ref.Val.
func (s *Selected) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("objects cannot be converted to %v", to)
}

// ConvertToType implements ref.Val.
func (s *Selected) ConvertToType(to ref.Type) ref.Val {
	if to == types.TypeType {
		return runtimeType
	}
	return types.NewErr("objects cannot be converted to %s", to.TypeName())
}

// Equal implements ref.Val. Selections are not compared.
func (s *Selected) Equal(other ref.Val) ref.Val { return types.Bool(s == other) }

// Type implements ref.Val.
func (s *Selected) Type() ref.Type { return runtimeType }

// Value implements ref.Val.
func (s *Selected) Value() any { return s }
