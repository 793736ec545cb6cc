package expr

import (
	"cmp"
	"fmt"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

// Names of CEL variables.
const (
	VarRequest   = "request"
	VarObject    = "object"
	VarOldObject = "oldObject"
	VarNamespace = "namespaceObject"
	VarParams    = "params"
	VarVariables = "variables." // followed by a name
	VarSelf      = "self"
	VarOldSelf   = "oldSelf"
)

var (
	userType = celtype.MessageOf("kubernetes.UserInfo", map[string]*celtype.Type{
		"username": celtype.String, "uid": celtype.String, "groups": celtype.ListOf(celtype.String), "extra": celtype.MapOf(celtype.ListOf(celtype.String))})
	resourceType = celtype.MessageOf("kubernetes.GroupVersionResource", map[string]*celtype.Type{
		"group": celtype.String, "version": celtype.String, "resource": celtype.String})
	kindType = celtype.MessageOf("kubernetes.GroupVersionKind", map[string]*celtype.Type{
		"group": celtype.String, "version": celtype.String, "kind": celtype.String})

	// AccessType is the type of request in conditions.
	AccessType = celtype.MessageOf("stele.AccessRequest", map[string]*celtype.Type{
		"verb": celtype.String, "resource": resourceType, "subResource": celtype.String, "namespace": celtype.String, "name": celtype.String,
		"path": celtype.String, "userInfo": userType,
	})
	// AdmissionType is the type of request in admission rules: Kubernetes' AdmissionRequest with the verb.
	AdmissionType = celtype.MessageOf("kubernetes.AdmissionRequest", map[string]*celtype.Type{
		"verb": celtype.String, "operation": celtype.String, "kind": kindType, "resource": resourceType, "subResource": celtype.String,
		"requestKind": kindType, "requestResource": resourceType, "requestSubResource": celtype.String,
		"name": celtype.String, "namespace": celtype.String, "userInfo": userType, "dryRun": celtype.Bool,
		"options": celtype.Dynamic,
	})
)

// ResourceType returns the CEL type of a version's objects.
func ResourceType(k *schemas.Kind, v *schemas.Version) *celtype.Type {
	return celtype.Resource(TypeName(k, v), v.Schema)
}

// TypeName returns the name of the CEL type of a version's objects.
func TypeName(k *schemas.Kind, v *schemas.Version) string {
	return fmt.Sprintf("%s.%s.%s", cmp.Or(k.Group, "core"), v.Name, k.Kind)
}
