package admission

import (
	"maps"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

// Writes reports whether a write of a subresource can change the field at a JSON pointer into what rules see. What mutations change
// elsewhere is dropped, but for the name and the namespace, which are errors.
func Writes(v *policy.Version, subresource, pointer string) bool {
	within := func(field string) bool { return pointer == field || strings.HasPrefix(pointer, field+"/") }
	switch {
	case pointer == "":
		return true
	case subresource == "scale":
		return pointer == "/spec" || pointer == "/spec/replicas"
	case subresource == "status":
		return within("/status")
	case v.Status && within("/status"):
		return false
	case v.Kind.Group == "" && v.Kind.Plural == "namespaces" && within("/spec"):
		return subresource == "finalize"
	}
	rest, in := strings.CutPrefix(pointer, "/metadata/")
	name, _, _ := strings.Cut(rest, "/")
	return !in || slices.Contains([]string{"labels", "annotations", "finalizers", "ownerReferences"}, name)
}

// WithStatus returns content with the status of another object.
func WithStatus(content, from map[string]any) map[string]any {
	content = maps.Clone(content)
	delete(content, "status")
	if status, has := from["status"]; has {
		content["status"] = status
	}
	return content
}
