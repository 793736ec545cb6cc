package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/schemas"
)

// Versions of a kind may have different forms if the kind is a CustomResourceDefinition with
// conversion strategy None. Then objects are converted as in kube-apiserver: apiVersion is replaced,
// and fields that the other version does not know are pruned. An object gets the defaults of the
// version that the client wrote, and those of the storage version.

// compareForms numbers the versions by their forms.
func (k *Kind) compareForms() error {
	forms, different := map[string]int{}, 0
	for i, v := range k.Versions {
		forms[v.Name] = -1
		for _, other := range k.Versions[:i] {
			if _, differ := schemas.Difference(other.Schema, v.Schema); !differ {
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
	if k.Definition.IsZero() {
		return fmt.Errorf("policy: %s: its versions have different schemas", k.Resource())
	}
	k.forms = forms
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

// Store returns the content to be stored for an object of this version, and whether it differs from
// content. If both versions have the same form, it returns content itself.
func (v *Version) Store(content map[string]any) (stored map[string]any, changed bool) {
	storage := v.Kind.Storage()
	if !storage.From(v.Name) {
		return content, false
	}
	stored = runtime.DeepCopyJSON(content)
	_, changed = storage.Program.Prepare(stored)
	return stored, changed
}
