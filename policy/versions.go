package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/policy/conversion"
	"stele.dev/stele/schemas"
)

// Versions of a kind may have different forms. Objects of a kind in CUE are converted by the steps that its versions declare.
// Objects of a CustomResourceDefinition with the conversion strategy None are converted as in kube-apiserver: apiVersion is
// replaced, and fields that the other version does not know are pruned. An object gets the defaults of the version that the
// client wrote, and those of the storage version.

// compareForms numbers the versions by their forms, and loads the conversions between them.
func (k *Kind) compareForms() error {
	forms, different := map[string]int{}, 0
	for i, v := range k.Versions {
		forms[v.Name] = -1
		for _, other := range k.Versions[:i] {
			if (other.Conversion == nil) != (v.Conversion == nil) {
				continue
			}
			if _, differ := schemas.Difference(other.Schema, v.Schema); !differ && sameConversion(other.Conversion, v.Conversion) {
				forms[v.Name] = forms[other.Name]
				break
			}
		}
		if forms[v.Name] < 0 {
			forms[v.Name] = different
			different++
		}
	}
	if different < 2 {
		return nil
	}
	if k.Definition.IsZero() && !k.Converted() {
		return fmt.Errorf("policy: %s: its versions have different schemas", k.Resource())
	}
	k.forms = forms
	return k.loadConversions()
}

func sameConversion(a, b *schemas.Conversion) bool { return schemas.SameConversion(a, b) }

// loadConversions makes the ways between versions with different forms.
func (k *Kind) loadConversions() error {
	hub := k.Hub()
	up := map[string]*conversion.Conversion{}
	for _, v := range k.Versions {
		if v.Conversion == nil {
			continue
		}
		if hub == nil {
			return fmt.Errorf("policy: %s: all its versions have a conversion", k.Resource())
		}
		c, err := conversion.New(k.Kind, v.Version, hub)
		if err != nil {
			return fmt.Errorf("policy: %s %s: %w", k.Resource(), v.Name, err)
		}
		up[v.Name] = c
	}
	k.ways = map[[2]string]*conversion.Way{}
	for _, from := range k.Versions {
		for _, to := range k.Versions {
			if k.forms[from.Name] != k.forms[to.Name] {
				k.ways[[2]string{from.Name, to.Name}] = conversion.NewWay(up[from.Name], up[to.Name], from.Schema, to.Program)
			}
		}
	}
	return nil
}

// Converts reports whether the versions of the kind have different forms.
func (k *Kind) Converts() bool { return k.forms != nil }

// From reports whether objects of another version have to be converted to v. It is true for a
// version that the kind does not have.
func (v *Version) From(version string) (convert bool) {
	if v.Kind.forms == nil || version == v.Name {
		return false
	}
	form, ok := v.Kind.forms[version]
	return !ok || form != v.Kind.forms[v.Name]
}

// Way returns how objects of another version are converted to v; nil if both have the same form, or if the kind does not have
// the other version.
func (v *Version) Way(version string) *conversion.Way {
	return v.Kind.ways[[2]string{version, v.Name}]
}

// Convert converts the content of an object of another version to v, in place. Objects of a version that the kind does not have
// lose the fields that v does not have. After an error, the content is neither. The error names the versions.
func (v *Version) Convert(version string, content map[string]any) error {
	way := v.Way(version)
	if way == nil {
		if !v.From(version) {
			return nil
		}
		if v.Kind.Converted() {
			return fmt.Errorf("cannot be converted from %s, which the policy in force does not have, to %s", version, v.Name)
		}
		v.Program.Prune(content)
		return nil
	}
	if err := way.Convert(content); err != nil {
		return fmt.Errorf("cannot be converted from %s to %s: %w", version, v.Name, err)
	}
	return nil
}

// Converted returns a copy of the content of an object of version v in another one, which may be of an equivalent kind. It is
// content itself if both have the same form.
func (v *Version) Converted(content map[string]any, to *Version) (map[string]any, error) {
	if v.Kind != to.Kind {
		return v.Kind.Convert(content, to.Kind), nil
	}
	if v.Kind.ways == nil || !to.From(v.Name) || !v.Kind.Converted() {
		return content, nil
	}
	converted := runtime.DeepCopyJSON(content)
	return converted, to.Convert(v.Name, converted)
}

// Differs reports whether objects of version v are converted to be seen in another version, which may be of an equivalent kind.
func (v *Version) Differs(to *Version) bool {
	return v.Kind != to.Kind || v.Kind.Converted() && to.From(v.Name)
}

// Unconverted returns a copy of the content of an object, which [Version.Converted] has converted to another version, and which was
// changed there, in version v again. is is the object before. Fields that the way to the other version loses stay as they are.
func (v *Version) Unconverted(changed map[string]any, as *Version, is map[string]any) (map[string]any, error) {
	content, err := as.Converted(changed, v)
	if err != nil || v.Kind != as.Kind {
		return content, err
	}
	if way := v.Way(as.Name); way != nil && way.Loses() {
		shown, err := v.Converted(is, as)
		if err != nil {
			return nil, err
		}
		err = way.Keep(changed, shown, is, content)
		return content, err
	}
	return content, nil
}

// Store returns the content to be stored for an object of this version, and whether it differs from
// content. If both versions have the same form, it returns content itself. Fields that the conversion to
// this version has lost are restored from the stored object, see [conversion.Way.Keep]; old is nil for a new object.
func (v *Version) Store(content map[string]any, old *Before) (stored map[string]any, changed bool, err error) {
	storage := v.Kind.Storage()
	if !storage.From(v.Name) {
		return content, false, nil
	}
	stored = runtime.DeepCopyJSON(content)
	if v.Kind.Converted() {
		if err := storage.Convert(v.Name, stored); err != nil {
			return nil, false, err
		}
		if way := storage.Way(v.Name); old != nil && way.Loses() {
			if err := way.Keep(content, old.Shown, old.Stored, stored); err != nil {
				return nil, false, err
			}
		}
		changed = true
	}
	_, prepared := storage.Program.Prepare(stored)
	return stored, changed || prepared, nil
}

// StoredField returns the path in stored objects of a selectable field of this version, both without a dot in front. It is the same
// path if the value is not moved.
func (v *Version) StoredField(field string) string {
	if way := v.Kind.Storage().Way(v.Name); way != nil && v.Kind.Converted() {
		if moved, ok := way.Field(field); ok {
			return moved
		}
	}
	return field
}

// StoredFields returns selected values by the paths of [Version.StoredField].
func (v *Version) StoredFields(values map[string]string) map[string]string {
	if !v.Kind.Converts() {
		return values
	}
	moved := make(map[string]string, len(values))
	for field, value := range values {
		moved[v.StoredField(field)] = value
	}
	return moved
}

// Before is the content of the object that an update replaces: in the version of the update, and as it is stored.
type Before struct{ Shown, Stored map[string]any }

// Loses reports whether an update in this version may lose fields of the stored object.
func (v *Version) Loses() bool {
	way := v.Kind.Storage().Way(v.Name)
	return way != nil && way.Loses()
}
