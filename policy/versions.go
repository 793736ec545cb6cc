package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"stele.dev/stele/schemas"
)

// Versions of a kind may have different forms if the kind was written as a
// CustomResourceDefinition without a conversion webhook (strategy None). Objects are then
// converted as kube-apiserver does it: apiVersion is replaced, and what the other version does
// not know is pruned. What a client writes in one version has the defaults of that version,
// and what is stored those of the storage version as well.

// compareForms finds out which versions have the same form.
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
	if len(k.Definition) == 0 {
		return fmt.Errorf("policy: %s: its versions have different schemas", k.Resource())
	}
	k.forms = forms
	return nil
}

// Converts reports whether the versions of the kind have different forms.
func (k *Kind) Converts() bool { return k.forms != nil }

// From reports whether objects that are in another version of the kind, by its name, have to
// be converted to this one. A version that the kind does not have is one of those.
func (v *Version) From(version string) (convert bool) {
	if v.Kind.forms == nil || version == v.Name {
		return false
	}
	form, ok := v.Kind.forms[version]
	return !ok || form != v.Kind.forms[v.Name]
}

// Store makes of the content of an object of this version what is stored of it. The result is
// the content itself if both have the same form. It reports whether the content changed.
func (v *Version) Store(content map[string]any) (stored map[string]any, changed bool) {
	storage := v.Kind.Storage()
	if !storage.From(v.Name) {
		return content, false
	}
	stored = runtime.DeepCopyJSON(content)
	_, changed = storage.Program.Prepare(stored)
	return stored, changed
}
