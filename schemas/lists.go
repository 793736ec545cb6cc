package schemas

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// CheckList returns the errors in the type of a list. It applies the rules of CustomResourceDefinitions:
// items of sets and maps are never null; items of a set are atomic; items of a map are structs that have
// all keys; a key is a scalar, and is required or has a default.
func CheckList(path *field.Path, l *List) field.ErrorList {
	switch {
	case len(l.MapKeys) > 0 && l.Type != ListMap:
		return field.ErrorList{field.Invalid(path, l.MapKeys, "only a list of type map has keys")}
	case l.Type == "" || l.Type == ListAtomic:
		return nil
	case l.Type != ListSet && l.Type != ListMap:
		return field.ErrorList{field.NotSupported(path, l.Type, []string{ListAtomic, ListSet, ListMap})}
	case l.Items == nil || l.Items.Kinds.Has(NullKind):
		return field.ErrorList{field.Invalid(path, l.Type, "the items of a list of this type must have a type, and must not be null")}
	case l.Type == ListMap:
		return checkMap(path, l)
	case l.Items.Kinds == ListKind && l.Items.List != nil && l.Items.List.Type != "" && l.Items.List.Type != ListAtomic,
		l.Items.Kinds == StructKind && (l.Items.Struct == nil || l.Items.Struct.Type != MapAtomic):
		return field.ErrorList{field.Invalid(path, l.Type, "the items of a set must be scalars or of type atomic")}
	}
	return nil
}

func checkMap(path *field.Path, l *List) field.ErrorList {
	if len(l.MapKeys) == 0 {
		return field.ErrorList{field.Required(path, "a list of type map needs keys")}
	}
	if l.Items.Kinds != StructKind || l.Items.Struct == nil {
		return field.ErrorList{field.Invalid(path, l.Type, "the items of a list of type map must be structs with fields")}
	}
	var errs field.ErrorList
	for i, key := range l.MapKeys {
		fields := l.Items.Struct.Fields
		at := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key })
		switch {
		case slices.Contains(l.MapKeys[:i], key):
			errs = append(errs, field.Duplicate(path, key))
		case at < 0:
			errs = append(errs, field.Invalid(path, key, fmt.Sprintf("the items have no field %s", key)))
		case fields[at].Schema.Kinds&^(ScalarKinds) != 0:
			errs = append(errs, field.Invalid(path, key, fmt.Sprintf("the key %s must be a scalar, not %s", key, fields[at].Schema.Kinds)))
		case fields[at].Presence == Optional && l.Items.Fallback == nil: // a fallback checks that items have the key
			errs = append(errs, field.Invalid(path, key, fmt.Sprintf("the key %s must be required or have a default", key)))
		}
	}
	return errs
}
