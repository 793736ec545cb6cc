package schemas

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
)

// Difference returns the first path at which two forms differ, such as spec.ports[*].name. The path is
// empty if they differ at the root. Positions, docs and the order of fields are ignored.
func Difference(a, b *Node) (path string, differ bool) {
	return difference(reflect.ValueOf(a), reflect.ValueOf(b), "")
}

// Same reports whether two forms are equal except for positions and docs.
func Same(a, b *Node) bool {
	_, differ := Difference(a, b)
	return !differ
}

// SameForm reports whether both kinds store the same version with the same form. Stored objects of one
// kind are then valid stored objects of the other, and objects that were written in any version are
// rendered alike.
func (k *Kind) SameForm(other *Kind) bool {
	a, _ := k.Version(k.StorageVersion)
	b, _ := other.Version(other.StorageVersion)
	return a != nil && b != nil && k.Group == other.Group && k.Kind == other.Kind && a.Name == b.Name && Same(a.Schema, b.Schema) &&
		k.sameConversions(other)
}

// sameConversions reports whether both kinds convert objects of all versions alike. Kinds whose versions have one form do.
func (k *Kind) sameConversions(other *Kind) bool {
	if !k.Converted() && !other.Converted() {
		return true
	}
	if len(k.Versions) != len(other.Versions) {
		return false
	}
	for i := range k.Versions {
		a := &k.Versions[i]
		b, ok := other.Version(a.Name)
		if !ok || !Same(a.Schema, b.Schema) || !SameConversion(a.Conversion, b.Conversion) {
			return false
		}
	}
	return true
}

// SameConversion reports whether two conversions are equal except for positions. Either may be nil.
func SameConversion(a, b *Conversion) bool {
	_, differ := difference(reflect.ValueOf(a), reflect.ValueOf(b), "")
	return !differ
}

// StoredAs reports whether stored objects of the kind can be read as objects of the other: one kind
// has the storage version of the other, or both store the same form under different versions.
func (k *Kind) StoredAs(other *Kind) bool {
	if _, ok := other.Version(k.StorageVersion); ok {
		return true
	}
	if _, ok := k.Version(other.StorageVersion); ok {
		return true
	}
	a, _ := k.Version(k.StorageVersion)
	b, _ := other.Version(other.StorageVersion)
	return a != nil && b != nil && Same(a.Schema, b.Schema)
}

var (
	positionType = reflect.TypeFor[Position]()
	nodeType     = reflect.TypeFor[Node]()
	listType     = reflect.TypeFor[List]()
	patternType  = reflect.TypeFor[KeyPattern]()
	rawType      = reflect.TypeFor[json.RawMessage]()
)

// difference compares by reflection, so that it covers every field of a form, including future ones.
func difference(a, b reflect.Value, path string) (string, bool) {
	t := a.Type()
	switch {
	case t == positionType:
		return path, false
	case t == rawType:
		return path, !bytes.Equal(a.Bytes(), b.Bytes())
	case t.Kind() == reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return path, a.IsNil() != b.IsNil()
		}
		return difference(a.Elem(), b.Elem(), path)
	case t == reflect.TypeFor[[]Field]():
		return fieldsDifference(a.Interface().([]Field), b.Interface().([]Field), path)
	case t.Kind() == reflect.Slice:
		if a.Len() != b.Len() {
			return path, true
		}
		for i := range a.Len() {
			if at, differ := difference(a.Index(i), b.Index(i), path); differ {
				return at, true
			}
		}
		return path, false
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			below := path
			switch name := t.Field(i).Name; {
			case t == nodeType && name == "Doc":
				continue
			case t == listType && name == "Items", t == patternType && name == "Value":
				below += "[*]"
			}
			if at, differ := difference(a.Field(i), b.Field(i), below); differ {
				return at, true
			}
		}
		return path, false
	default:
		return path, !a.Equal(b)
	}
}

func fieldsDifference(a, b []Field, path string) (string, bool) {
	others := make(map[string]*Field, len(b))
	for i := range b {
		others[b[i].Name] = &b[i]
	}
	for i := range a {
		f := &a[i]
		at := strings.TrimPrefix(path+"."+f.Name, ".")
		other := others[f.Name]
		if other == nil || f.Presence != other.Presence {
			return at, true
		}
		if at, differ := difference(reflect.ValueOf(f.Schema), reflect.ValueOf(other.Schema), at); differ {
			return at, true
		}
		delete(others, f.Name)
	}
	for i := range b { // in declared order
		if others[b[i].Name] != nil {
			return strings.TrimPrefix(path+"."+b[i].Name, "."), true
		}
	}
	return path, false
}
