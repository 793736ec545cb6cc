// Package definitions does with CustomResourceDefinitions that clients write what kube-apiserver does with them: defaults,
// validation, and the conditions of their status.
//
// kube-apiserver has controllers that write the conditions after the definition is stored. Here a write stores them with the definition, so that
// they are true as soon as anybody sees it.
package definitions

import (
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/schemas"
)

// Resource is the resource of definitions.
var Resource = schema.GroupResource{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}

// Finalizer keeps a definition until the objects of its kind are deleted.
const Finalizer = apiextensionsv1.CustomResourceCleanupFinalizer

// Kind returns the kind of definitions as stored objects. Its schema says which fields server-side apply merges: those of kube-apiserver's
// OpenAPI document. It validates nothing, see [Validate].
func Kind() schemas.Kind {
	return schemas.Kind{
		Group: Resource.Group, Kind: "CustomResourceDefinition", ListKind: "CustomResourceDefinitionList", Plural: Resource.Resource, Singular: "customresourcedefinition",
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"}, StorageVersion: "v1", Builtin: true,
		Versions: []schemas.Version{{Name: "v1", Served: true, Status: true, Schema: content()}},
	}
}

// content returns the schema of a definition, without apiVersion, kind and metadata.
func content() *schemas.Node {
	names := func() *schemas.Node {
		return object(map[string]*schemas.Node{
			"plural": text(), "singular": text(), "shortNames": atomic(text()), "kind": text(), "listKind": text(), "categories": atomic(text()),
		})
	}
	service := object(map[string]*schemas.Node{"namespace": text(), "name": text(), "path": text(), "port": number()})
	webhook := object(map[string]*schemas.Node{
		"clientConfig":             object(map[string]*schemas.Node{"service": service, "url": text(), "caBundle": text()}),
		"conversionReviewVersions": atomic(text()),
	})
	condition := object(map[string]*schemas.Node{
		"type": text(), "status": text(), "reason": text(), "message": text(), "lastTransitionTime": text(), "observedGeneration": number(),
	})
	conditions := atomic(condition)
	conditions.List.Type, conditions.List.MapKeys = "map", []string{"type"}
	spec := object(map[string]*schemas.Node{
		"group": text(), "names": names(), "scope": text(), "versions": atomic(nil), "preserveUnknownFields": {Kinds: schemas.BoolKind},
		"conversion": object(map[string]*schemas.Node{"strategy": text(), "webhook": webhook}),
	})
	spec.Doc = "spec describes how the user wants the resources to appear"
	status := object(map[string]*schemas.Node{"conditions": conditions, "acceptedNames": names(), "storedVersions": atomic(text()), "observedGeneration": number()})
	status.Doc = "status indicates the actual state of the CustomResourceDefinition"
	whole := object(map[string]*schemas.Node{"spec": spec, "status": status})
	whole.Doc = "CustomResourceDefinition represents a resource that should be exposed on the API server.  Its name MUST be in the format <.spec.name>.<.spec.group>."
	return whole
}

func text() *schemas.Node   { return &schemas.Node{Kinds: schemas.StringKind} }
func number() *schemas.Node { return &schemas.Node{Kinds: schemas.IntegerKind} }

// atomic returns the schema of a list that has one manager as a whole.
func atomic(items *schemas.Node) *schemas.Node {
	return &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: items, Type: schemas.ListAtomic}}
}

func object(fields map[string]*schemas.Node) *schemas.Node {
	s := &schemas.Struct{}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		s.Fields = append(s.Fields, schemas.Field{Name: name, Presence: schemas.Optional, Schema: fields[name]})
	}
	return &schemas.Node{Kinds: schemas.StructKind, Struct: s}
}
