// Package brought has the kinds of Kubernetes by whose objects clients bring rules of their own: roles and bindings, webhooks. It does with what
// clients write what kube-apiserver does: defaults and validation.
//
// A bundle says whether clients may (its section dynamic). CustomResourceDefinitions, which bring kinds, are in package definitions.
package brought

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas"
)

// Kind is a kind whose objects are rules. It is immutable and safe for concurrent use.
type Kind struct {
	schemas.Kind
	// Section is the field of a bundle's section dynamic that says what becomes of writes.
	Section string
	// Counted is set if objects have a generation, which counts the changes of what they say.
	Counted bool
	// Names returns what is wrong with a name of an object, or with the beginning of one.
	Names  func(name string, prefix bool) []string
	object reflect.Type
	// validate returns the errors of an object besides those of its metadata. old is nil for a create.
	validate func(object, old any) field.ErrorList
}

// kinds are all kinds, in the order in which their objects are read: what others name comes first.
var kinds = slices.Concat(rbac, webhooks)

// All returns all kinds. The caller must not change them.
func All() []*Kind { return kinds }

// Of returns the kind of a resource; nil if it is none.
func Of(r schema.GroupResource) *Kind {
	i := slices.IndexFunc(kinds, func(k *Kind) bool { return k.Group == r.Group && k.Plural == r.Resource })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// Exempt reports whether no rule of admission is asked about objects of the kind. As in kube-apiserver, these are the rules of admission themselves, so that none
// can keep others from being mended.
func (k *Kind) Exempt() bool { return k.Section != SectionRBAC }

// Is reports whether a stored object of such a kind is one that a client brought. What clients have written beside an object of the bundle has the field
// overlay.
func Is(text []byte) bool { return !gjson.GetBytes(text, "overlay").Exists() }

// GroupResource returns the kind's group and resource.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// newKind returns a kind of a Go type, whose objects have a schema without apiVersion, kind and metadata. The schema says which fields server-side
// apply merges: those of kube-apiserver's OpenAPI document. It validates nothing.
func newKind[T any](group, plural string, content *schemas.Node, validate func(object, old *T) field.ErrorList) *Kind {
	object := reflect.TypeFor[T]()
	return &Kind{
		Kind: schemas.Kind{
			Group: group, Kind: object.Name(), ListKind: object.Name() + "List", Plural: plural, Singular: strings.ToLower(object.Name()),
			StorageVersion: "v1", Builtin: true, Versions: []schemas.Version{{Name: "v1", Served: true, Schema: content}},
		},
		object: object,
		validate: func(object, old any) field.ErrorList {
			was, _ := old.(*T)
			return validate(object.(*T), was)
		},
	}
}

// Prepare fills in the defaults of an object, and drops the fields that the kind does not have, whose paths it returns. A content that cannot be decoded
// stays as it is: the type of the object says that.
func (k *Kind) Prepare(content map[string]any) (unknown []string) {
	o, strict, err := k.of(content)
	if err != nil {
		return nil
	}
	for _, e := range strict {
		if _, quoted, ok := strings.Cut(e.Error(), `unknown field "`); ok {
			unknown = append(unknown, strings.TrimSuffix(quoted, `"`))
		}
	}
	Default(o)
	text, err := json.Marshal(o)
	if err != nil {
		return unknown // it was decoded from JSON
	}
	var fields map[string]any
	if kjson.UnmarshalCaseSensitivePreserveInts(text, &fields) != nil {
		return unknown
	}
	for name := range content {
		if !ofType(name) {
			delete(content, name)
		}
	}
	for name, value := range fields {
		if !ofType(name) {
			content[name] = value
		}
	}
	return unknown
}

// ofType reports whether all kinds have a field.
func ofType(name string) bool { return name == "apiVersion" || name == "kind" || name == "metadata" }

// own returns the fields of a content that not all kinds have.
func own(content map[string]any) map[string]any {
	fields := make(map[string]any, len(content))
	for name, value := range content {
		if !ofType(name) {
			fields[name] = value
		}
	}
	return fields
}

// of returns the object that a content is, without its metadata. strict are the errors of strict decoding.
func (k *Kind) of(content map[string]any) (object any, strict []error, err error) {
	text, err := json.Marshal(own(content))
	if err != nil {
		return nil, nil, err
	}
	object = reflect.New(k.object).Interface()
	strict, err = kjson.UnmarshalStrict(text, object)
	return object, strict, err
}

// Object returns the object that a content is, as a pointer to the Go type of the kind, without its metadata.
func (k *Kind) Object(content map[string]any) (any, error) {
	object, _, err := k.of(content)
	return object, err
}

// Same reports whether two contents say the same, whatever their metadata is.
func (k *Kind) Same(a, b map[string]any) bool { return reflect.DeepEqual(own(a), own(b)) }

// Says returns the part of a stored object by which it is in force: all but its metadata.
func Says(text []byte) string {
	var b strings.Builder
	gjson.ParseBytes(text).ForEach(func(name, value gjson.Result) bool {
		if !ofType(name.Str) {
			b.WriteString(name.Raw + ":" + value.Raw + ",")
		}
		return true
	})
	return b.String()
}

// Validate returns the errors of kube-apiserver about an object, besides those about its metadata. old is the content of the stored object; nil for a
// create. A content that cannot be decoded has no errors: the type of the object says that.
func (k *Kind) Validate(content, old map[string]any) field.ErrorList {
	object, _, err := k.of(content)
	if err != nil {
		return nil
	}
	var was any
	if old != nil {
		if was, _, err = k.of(old); err != nil {
			return nil
		}
	}
	return k.validate(object, was)
}

// Decode decodes a stored object of the kind into its Go type.
func Decode[T any](text []byte) (*T, error) {
	o := new(T)
	return o, kjson.UnmarshalCaseSensitivePreserveInts(text, o)
}

func text() *schemas.Node   { return &schemas.Node{Kinds: schemas.StringKind} }
func number() *schemas.Node { return &schemas.Node{Kinds: schemas.IntegerKind} }

// atomic returns the schema of a list that has one manager as a whole.
func atomic() *schemas.Node {
	return &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListAtomic}}
}

// keyed returns the schema of a list whose items are told apart by their names.
func keyed(item *schemas.Node) *schemas.Node {
	return &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: item, Type: schemas.ListMap, MapKeys: []string{"name"}}}
}

// whole returns the schema of a struct that has one manager.
func whole() *schemas.Node {
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Open: true, Type: schemas.MapAtomic}}
}

// fields is an object's fields, each with its name.
type fields []schemas.Field

func (f fields) with(name string, of *schemas.Node) fields {
	return append(f, schemas.Field{Name: name, Presence: schemas.Optional, Schema: of})
}

func (f fields) object() *schemas.Node {
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: f}}
}
