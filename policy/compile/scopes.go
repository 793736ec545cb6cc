package compile

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/expr"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/celtype"
)

// scopes are the CEL scopes of one compilation, made when needed.
type scopes struct {
	kinds  []schemas.Kind
	broken map[string]bool        // kinds with errors, by plural.group
	access map[string]*expr.Scope // of conditions, by object type
	admit  map[string]*expr.Scope // of validating admission
	mutate map[string]*expr.Scope // of mutating admission
}

func newScopes(kinds []schemas.Kind, broken map[string]bool) *scopes {
	return &scopes{kinds: kinds, broken: broken, access: map[string]*expr.Scope{}, admit: map[string]*expr.Scope{}, mutate: map[string]*expr.Scope{}}
}

// objectType is the CEL type of a version's objects, with the name used in errors.
type objectType struct {
	name   string // "" for any object
	t      *celtype.Type
	schema *schemas.Node // nil if unknown
}

var (
	anyObject   = objectType{t: celtype.Dynamic}
	scaleObject = objectTypeOf(policy.Scale.Kind.Kind, policy.Scale.Version)
)

func objectTypeOf(k *schemas.Kind, v *schemas.Version) objectType {
	return objectType{name: schema.GroupVersionKind{Group: k.Group, Version: v.Name, Kind: k.Kind}.String(), t: expr.ResourceType(k, v), schema: v.Schema}
}

// schemasOf returns the schemas of types, nil for one that is unknown.
func schemasOf(of []objectType) []*schemas.Node {
	list := make([]*schemas.Node, len(of))
	for i, t := range of {
		list[i] = t.schema
	}
	return list
}

// objectTypes returns the types of the kinds that groups, versions and resources name. For a
// wildcard it returns the type for any object, whose fields are not known.
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
			if scale && v.Scale != nil && !slices.Contains(found, scaleObject) {
				found = append(found, scaleObject)
			}
		}
	}
	return found
}

// forAccess returns the scope of conditions on requests and, perhaps, objects.
func (s *scopes) forAccess(of objectType) (*expr.Scope, error) {
	if s.access[of.name] == nil {
		scope, err := expr.Root().With(map[string]*celtype.Type{expr.VarRequest: expr.AccessType, expr.VarObject: of.t, expr.VarOldObject: of.t})
		if err != nil {
			return nil, err
		}
		s.access[of.name] = scope
	}
	return s.access[of.name], nil
}

// forAdmission returns the scope of validating admission, without params and variables of rules.
func (s *scopes) forAdmission(of objectType) (*expr.Scope, error) {
	if s.admit[of.name] == nil {
		namespace := s.namespaceType()
		if of.name == namespace.name {
			namespace = of // a type name must have one type
		}
		scope, err := expr.Root().With(map[string]*celtype.Type{expr.VarRequest: expr.AdmissionType, expr.VarObject: of.t, expr.VarOldObject: of.t, expr.VarNamespace: namespace.t})
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

// forMutation returns the scope of mutating admission, without params and variables of rules.
func (s *scopes) forMutation(of objectType) (*expr.Scope, error) {
	if s.mutate[of.name] == nil {
		scope, err := expr.Root().With(map[string]*celtype.Type{expr.VarRequest: expr.AdmissionType, expr.VarNamespace: s.namespaceType().t})
		if err == nil {
			scope, err = scope.WithPatches(of.t)
		}
		if err == nil {
			scope, err = scope.WithAuthorizer()
		}
		if err != nil {
			return nil, err
		}
		s.mutate[of.name] = scope
	}
	return s.mutate[of.name], nil
}

// namespaceType returns the type of namespaces.
func (s *scopes) namespaceType() objectType {
	for i := range s.kinds {
		if k := &s.kinds[i]; k.Builtin && k.Group == "" && k.Plural == "namespaces" {
			return objectTypeOf(k, &k.Versions[0])
		}
	}
	return anyObject
}
