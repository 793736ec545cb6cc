package policy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

// What expressions can name.
const (
	varRequest   = "request"
	varObject    = "object"
	varOldObject = "oldObject"
	varNamespace = "namespaceObject"
	varParams    = "params"
	varVariables = "variables." // and a name
	varSelf      = "self"
	varOldSelf   = "oldSelf"
)

var (
	userType = celtype.MessageOf("kubernetes.UserInfo", map[string]*celtype.Type{
		"username": celtype.String, "uid": celtype.String, "groups": celtype.ListOf(celtype.String), "extra": celtype.MapOf(celtype.ListOf(celtype.String))})
	resourceType = celtype.MessageOf("kubernetes.GroupVersionResource", map[string]*celtype.Type{
		"group": celtype.String, "version": celtype.String, "resource": celtype.String})
	kindType = celtype.MessageOf("kubernetes.GroupVersionKind", map[string]*celtype.Type{
		"group": celtype.String, "version": celtype.String, "kind": celtype.String})

	// accessType is what conditions know of a request.
	accessType = celtype.MessageOf("stele.AccessRequest", map[string]*celtype.Type{
		"verb": celtype.String, "resource": resourceType, "subResource": celtype.String, "namespace": celtype.String, "name": celtype.String,
		"path": celtype.String, "userInfo": userType,
	})
	// admissionType is what admission knows of it: Kubernetes' AdmissionRequest, without
	// options, and with the verb.
	admissionType = celtype.MessageOf("kubernetes.AdmissionRequest", map[string]*celtype.Type{
		"verb": celtype.String, "operation": celtype.String, "kind": kindType, "resource": resourceType, "subResource": celtype.String,
		"requestKind": kindType, "requestResource": resourceType, "requestSubResource": celtype.String,
		"name": celtype.String, "namespace": celtype.String, "userInfo": userType, "dryRun": celtype.Bool,
	})
)

// scopes are the scopes of a compilation, made when they are asked for.
type scopes struct {
	kinds  []schemas.Kind
	broken map[string]bool        // kinds with errors of their own, by plural.group
	access map[string]*expr.Scope // of conditions, by the type of object
	admit  map[string]*expr.Scope // of admission
}

func newScopes(kinds []schemas.Kind, broken map[string]bool) *scopes {
	return &scopes{kinds: kinds, broken: broken, access: map[string]*expr.Scope{}, admit: map[string]*expr.Scope{}}
}

// objectType is how objects of a version are typed, by what names it in errors.
type objectType struct {
	name   string // "" for any object
	t      *celtype.Type
	schema *schemas.Node // nil if it is not known
}

var anyObject = objectType{t: celtype.Dynamic}

func objectTypeOf(k *schemas.Kind, v *schemas.Version) objectType {
	return objectType{name: schema.GroupVersionKind{Group: k.Group, Version: v.Name, Kind: k.Kind}.String(), t: resourceTypeOf(k, v), schema: v.Schema}
}

func resourceTypeOf(k *schemas.Kind, v *schemas.Version) *celtype.Type {
	return celtype.Resource(fmt.Sprintf("%s.%s.%s", cmpGroup(k.Group), v.Name, k.Kind), v.Schema)
}

func cmpGroup(group string) string {
	if group == "" {
		return "core"
	}
	return group
}

// objectTypes are those of the kinds that groups, versions and resources name. Where
// there is a wildcard it is any object: rules for whatever comes do not know its fields.
func (s *scopes) objectTypes(groups, versions, resources []string) (found []objectType) {
	if slices.Contains(groups, "*") || slices.ContainsFunc(resources, func(r string) bool { return strings.HasPrefix(r, "*") }) {
		return []objectType{anyObject}
	}
	for id, broken := range s.broken {
		plural, group, _ := strings.Cut(id, ".")
		if broken && slices.Contains(groups, group) && slices.ContainsFunc(resources, func(r string) bool { r, _, _ = strings.Cut(r, "/"); return r == plural }) {
			return []objectType{anyObject}
		}
	}
	for i := range s.kinds {
		k := &s.kinds[i]
		if !slices.Contains(groups, k.Group) {
			continue
		}
		whole, scale := false, false
		for _, r := range resources {
			if resource, sub, _ := strings.Cut(r, "/"); resource == k.Plural {
				whole = whole || sub != "scale"
				scale = scale || sub == "scale" || sub == "*"
			}
		}
		for j := range k.Versions {
			v := &k.Versions[j]
			if !slices.Contains(versions, "*") && !slices.Contains(versions, v.Name) {
				continue
			}
			if whole {
				found = append(found, objectTypeOf(k, v))
			}
			if scale && v.Scale != nil && !slices.Contains(found, scaleType) {
				found = append(found, scaleType)
			}
		}
	}
	return found
}

// forAccess is the scope of conditions about requests and, perhaps, objects.
func (s *scopes) forAccess(of objectType) (*expr.Scope, error) {
	if s.access[of.name] == nil {
		scope, err := expr.Root().With(map[string]*celtype.Type{varRequest: accessType, varObject: of.t, varOldObject: of.t})
		if err != nil {
			return nil, err
		}
		s.access[of.name] = scope
	}
	return s.access[of.name], nil
}

// forAdmission is the scope of admission rules, without their params and variables.
func (s *scopes) forAdmission(of objectType) (*expr.Scope, error) {
	if s.admit[of.name] == nil {
		namespace := celtype.Dynamic
		for i := range s.kinds {
			if k := &s.kinds[i]; k.Builtin && k.Group == "" && k.Plural == "namespaces" {
				namespace = resourceTypeOf(k, &k.Versions[0])
				if of.name == objectTypeOf(k, &k.Versions[0]).name {
					namespace = of.t // one name, one type
				}
			}
		}
		scope, err := expr.Root().With(map[string]*celtype.Type{varRequest: admissionType, varObject: of.t, varOldObject: of.t, varNamespace: namespace})
		if err == nil {
			scope, err = scope.WithAuthorizer()
		}
		if err != nil {
			return nil, err
		}
		s.admit[of.name] = scope
	}
	return s.admit[of.name], nil
}
