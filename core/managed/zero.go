package managed

import (
	"encoding/json"

	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/typed"
	"stele.dev/stele/policy"
)

// zero is what an object of the kind is before it is anything: for built-in kinds what
// their Go type has in it then, because upstream holds new objects against that, and
// nobody manages an empty struct.
func zero(v *policy.Version) map[string]any {
	content := map[string]any{}
	if !v.Kind.Builtin || !typed.Has(v.GroupVersionKind()) {
		return content
	}
	value, err := typed.New(v.GroupVersionKind())
	if err != nil {
		panic(err) // it has one
	}
	text, err := json.Marshal(value)
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(text, &content)
	}
	if err != nil {
		panic(err) // a zero value
	}
	delete(content, "metadata")
	return content
}
