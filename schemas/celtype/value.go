package celtype

import (
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// Value returns decoded JSON as a CEL value of the type. A value of another type, such as one stored
// before a change of the schema, keeps its own type.
func (t *Type) Value(v any) ref.Val {
	switch v := v.(type) {
	case nil:
		return types.NullValue
	case bool:
		return types.Bool(v)
	case int64:
		if t.shape == double {
			return types.Double(v)
		}
		return types.Int(v)
	case float64:
		return types.Double(v)
	case string:
		return t.text(v)
	case []any:
		items := Dynamic
		if t.shape == list {
			items = t.items
		}
		values := types.NewDynamicList(itemAdapter{items}, v)
		if t.unordered {
			return &unorderedList{values, t.keys}
		}
		return values
	case map[string]any:
		items := Dynamic
		switch t.shape {
		case message:
			return &messageValue{t: t, fields: v}
		case mapping:
			items = t.items
		}
		m := newMap(items, v)
		m.json = v
		return m
	case map[string]string:
		return &sortedMap{Mapper: types.NewStringStringMap(types.DefaultTypeAdapter, v), keys: func() []string { return slices.Sorted(maps.Keys(v)) }}
	}
	return types.DefaultTypeAdapter.NativeToValue(v)
}

func (t *Type) text(v string) ref.Val {
	switch t.shape {
	case timestamp:
		if at, err := strfmt.ParseDateTime(v); err == nil {
			return types.Timestamp{Time: time.Time(at)}
		}
	case day:
		if at, err := time.Parse(strfmt.RFC3339FullDate, v); err == nil {
			return types.Timestamp{Time: at}
		}
	case duration:
		if d, err := strfmt.ParseDuration(v); err == nil {
			return types.Duration{Duration: d}
		}
	case bytes:
		if b, err := base64.StdEncoding.DecodeString(v); err == nil {
			return types.Bytes(b)
		}
	}
	return types.String(v)
}

// An itemAdapter converts the items of lists and the values of maps to their type.
type itemAdapter struct{ t *Type }

func (a itemAdapter) NativeToValue(v any) ref.Val {
	if v, ok := v.(ref.Val); ok {
		return v
	}
	return a.t.Value(v)
}

// A sortedMap is a CEL map that iterates in the order of its keys. CEL's own maps iterate in random
// order, but an expression must give the same result on every replica.
type sortedMap struct {
	traits.Mapper
	keys func() []string
	json map[string]any // the map, if it has decoded JSON
}

func newMap(items *Type, entries map[string]any) *sortedMap {
	return &sortedMap{Mapper: types.NewStringInterfaceMap(itemAdapter{items}, entries), keys: func() []string { return slices.Sorted(maps.Keys(entries)) }}
}

func (m *sortedMap) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, m.keys()).Iterator()
}

// ConvertToType implements ref.Val. A conversion to a map keeps the order.
func (m *sortedMap) ConvertToType(to ref.Type) ref.Val {
	if to == types.MapType {
		return m
	}
	return m.Mapper.ConvertToType(to)
}

// Object returns an object as a CEL value. content is the object without apiVersion, kind and metadata,
// which are given separately. t is a [Resource] or a [Self]. The value must be used by one goroutine
// only.
func (t *Type) Object(apiVersion, kind string, meta *metav1.ObjectMeta, content map[string]any) ref.Val {
	return &objectValue{messageValue: messageValue{t: t, fields: content}, apiVersion: apiVersion, kind: kind, meta: meta}
}

// A messageValue is a struct with known fields. Other fields are hidden.
type messageValue struct {
	t      *Type
	fields map[string]any
}

// Part returns decoded JSON as a struct whose fields have no known types.
func Part(fields map[string]any) ref.Val { return &messageValue{t: Dynamic, fields: fields} }

func (m *messageValue) find(name string) (ref.Val, bool) {
	if m.t == Dynamic {
		v, ok := m.fields[name]
		if !ok {
			return nil, false
		}
		return Dynamic.Value(v), true
	}
	f := m.t.Field(name)
	if f == nil {
		return nil, false
	}
	v, ok := m.fields[f.Name]
	if !ok {
		return nil, false
	}
	return f.Type.Value(v), true
}

func (m *messageValue) Find(key ref.Val) (ref.Val, bool) { return find(key, m.find) }

func find(key ref.Val, in func(string) (ref.Val, bool)) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	return in(string(name))
}

func (m *messageValue) Get(key ref.Val) ref.Val { return get(m, key) }

func get(m traits.Mapper, key ref.Val) ref.Val {
	v, found := m.Find(key)
	if !found {
		return types.NewErr("no such key: %v", key.Value())
	}
	return v
}

func (m *messageValue) Contains(key ref.Val) ref.Val {
	_, found := m.Find(key)
	return types.Bool(found)
}

func (m *messageValue) asMap() traits.Mapper {
	if m.t == Dynamic {
		return newMap(Dynamic, m.fields)
	}
	return asMapOf(m.t, m.find)
}

// asMapOf returns a message as a map, for operations on all of its fields.
func asMapOf(t *Type, in func(string) (ref.Val, bool)) traits.Mapper {
	all := map[string]any{}
	for name := range t.byName {
		if v, ok := in(name); ok {
			all[name] = v
		}
	}
	return newMap(Dynamic, all)
}

func (m *messageValue) Iterator() traits.Iterator   { return m.asMap().Iterator() }
func (m *messageValue) Size() ref.Val               { return m.asMap().Size() }
func (m *messageValue) Equal(other ref.Val) ref.Val { return equal(m.asMap(), other) }
func (m *messageValue) Type() ref.Type              { return types.MapType }
func (m *messageValue) Value() any                  { return m.fields }
func (m *messageValue) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.MapType:
		return m
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from 'object' to '%s'", to)
}

func (m *messageValue) ConvertToNative(to reflect.Type) (any, error) {
	if reflect.TypeOf(m.fields).AssignableTo(to) {
		return m.fields, nil
	}
	return nil, fmt.Errorf("type conversion error from 'object' to '%v'", to)
}

// equal compares a map with another message or map.
func equal(m traits.Mapper, other ref.Val) ref.Val {
	switch o := other.(type) {
	case *messageValue:
		return m.Equal(o.asMap())
	case *objectValue:
		return m.Equal(o.asMap())
	}
	return m.Equal(other)
}

// An objectValue is the root of an object.
type objectValue struct {
	messageValue
	apiVersion, kind string
	meta             *metav1.ObjectMeta
	metadata         ref.Val // computed on first use
	// last is the field that was read last: most expressions read the same field first.
	last      string
	lastValue ref.Val
}

func (o *objectValue) find(name string) (ref.Val, bool) {
	switch name {
	case "apiVersion":
		return types.String(o.apiVersion), true
	case "kind":
		return types.String(o.kind), true
	case "metadata":
		if o.metadata == nil {
			o.metadata = o.t.fields["metadata"].Type.Value(metadataFields(o.meta))
		}
		return o.metadata, true
	}
	if o.lastValue != nil && o.last == name {
		return o.lastValue, true
	}
	v, ok := o.messageValue.find(name)
	if ok {
		o.last, o.lastValue = name, v
	}
	return v, ok
}

func (o *objectValue) Find(key ref.Val) (ref.Val, bool) { return find(key, o.find) }
func (o *objectValue) Get(key ref.Val) ref.Val          { return get(o, key) }
func (o *objectValue) Contains(key ref.Val) ref.Val {
	_, found := o.Find(key)
	return types.Bool(found)
}
func (o *objectValue) asMap() traits.Mapper        { return asMapOf(o.t, o.find) }
func (o *objectValue) Iterator() traits.Iterator   { return o.asMap().Iterator() }
func (o *objectValue) Size() ref.Val               { return o.asMap().Size() }
func (o *objectValue) Equal(other ref.Val) ref.Val { return equal(o.asMap(), other) }

// MetadataJSON returns the fields of metadata that are set and that admission rules see, as decoded JSON. The caller may
// change the maps and lists.
func MetadataJSON(m *metav1.ObjectMeta) map[string]any {
	fields := metadataFields(m)
	for name, value := range fields {
		switch v := value.(type) {
		case map[string]string:
			entries := make(map[string]any, len(v))
			for key, text := range v {
				entries[key] = text
			}
			fields[name] = entries
		case []string:
			list := make([]any, len(v))
			for i := range v {
				list[i] = v[i]
			}
			fields[name] = list
		}
	}
	return fields
}

// metadataFields returns the fields of metadata that are set.
func metadataFields(m *metav1.ObjectMeta) map[string]any {
	fields := make(map[string]any, 12)
	set := func(name, value string) {
		if value != "" {
			fields[name] = value
		}
	}
	set("name", m.Name)
	set("generateName", m.GenerateName)
	set("namespace", m.Namespace)
	set("uid", string(m.UID))
	set("resourceVersion", m.ResourceVersion)
	if m.Generation != 0 {
		fields["generation"] = m.Generation
	}
	if !m.CreationTimestamp.IsZero() {
		fields["creationTimestamp"] = m.CreationTimestamp.UTC().Format(time.RFC3339)
	}
	if m.DeletionTimestamp != nil {
		fields["deletionTimestamp"] = m.DeletionTimestamp.UTC().Format(time.RFC3339)
	}
	if m.DeletionGracePeriodSeconds != nil {
		fields["deletionGracePeriodSeconds"] = *m.DeletionGracePeriodSeconds
	}
	if len(m.Labels) > 0 {
		fields["labels"] = m.Labels
	}
	if len(m.Annotations) > 0 {
		fields["annotations"] = m.Annotations
	}
	if len(m.Finalizers) > 0 {
		fields["finalizers"] = m.Finalizers
	}
	if len(m.OwnerReferences) > 0 {
		owners := make([]any, len(m.OwnerReferences))
		for i, r := range m.OwnerReferences {
			owner := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "uid": string(r.UID)}
			if r.Controller != nil {
				owner["controller"] = *r.Controller
			}
			if r.BlockOwnerDeletion != nil {
				owner["blockOwnerDeletion"] = *r.BlockOwnerDeletion
			}
			owners[i] = owner
		}
		fields["ownerReferences"] = owners
	}
	return fields
}
