// Package openapi describes the served kinds as OpenAPI v3 (KEP-2896), one document
// per group and version, from which kubectl explains, completes and validates.
// Documents are built when they are first asked for.
package openapi

import (
	"net/http"
	"slices"
	"strings"

	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/core/negotiate"
	"stele.dev/stele/policy"
)

// Service answers /openapi/v3 and what is below it. It is safe for concurrent use.
type Service struct{ service *handler3.OpenAPIService }

// New makes the service for a policy, and for what is served besides its kinds. The version
// stands in each document.
func New(p *policy.Policy, version string, besides ...*policy.Version) *Service {
	byGV := map[schema.GroupVersion][]*policy.Version{}
	for _, v := range besides {
		gv := v.GroupVersionResource().GroupVersion()
		byGV[gv] = append(byGV[gv], v)
	}
	for _, k := range p.Kinds() {
		for _, v := range k.Versions {
			if v.Served {
				gv := v.GroupVersionResource().GroupVersion()
				byGV[gv] = append(byGV[gv], v)
			}
		}
	}
	s := &Service{handler3.NewOpenAPIService()}
	for gv, versions := range byGV {
		s.service.UpdateGroupVersionLazy(root(gv)[1:], cached.Once(cached.Func(func() (*spec3.OpenAPI, string, error) {
			return Document(gv, versions, version), gv.String(), nil
		})))
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/openapi/v3" || r.URL.Path == "/openapi/v3/" {
		s.service.HandleDiscovery(w, r)
		return
	}
	s.service.HandleGroupVersion(w, r)
}

// root is the path of a group and version.
func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// document is one under construction.
type document struct {
	*spec3.OpenAPI
	gv   schema.GroupVersion
	meta map[string]common.OpenAPIDefinition
}

// Document describes the versions of kinds that one group and version has.
func Document(gv schema.GroupVersion, versions []*policy.Version, version string) *spec3.OpenAPI {
	d := &document{gv: gv, meta: generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return ref(name).Ref })}
	d.OpenAPI = &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       &spec.Info{InfoProps: spec.InfoProps{Title: "stele", Version: version}},
		Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{Schemas: map[string]*spec.Schema{}},
	}
	for _, v := range versions {
		d.kind(v)
	}
	return d.OpenAPI
}

// define adds one of Kubernetes' own types, and what it refers to.
func (d *document) define(name string) string {
	if _, done := d.Components.Schemas[name]; done {
		return name
	}
	def := d.meta[name]
	delete(def.Schema.Extensions, common.ExtensionV2Schema)
	d.Components.Schemas[name] = &def.Schema
	for _, dep := range def.Dependencies {
		d.define(dep)
	}
	return name
}

func ref(name string) *spec.Schema {
	return spec.RefSchema("#/components/schemas/" + name)
}

// componentName follows upstream: the group's labels in reverse, then version and
// kind; built-in kinds have the names of their Go packages.
func componentName(v *policy.Version) string {
	if v.Kind.Builtin {
		group := v.Kind.Group
		if group == "" {
			group = "core"
		}
		group, _, _ = strings.Cut(group, ".")
		return "io.k8s.api." + group + "." + v.Name + "." + v.Kind.Kind.Kind
	}
	labels := strings.Split(v.Kind.Group, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "." + v.Name + "." + v.Kind.Kind.Kind
}

func (d *document) kind(v *policy.Version) {
	name := componentName(v)
	s := v.Schema.OpenAPI()
	if s.Properties == nil {
		s.Properties = map[string]spec.Schema{}
	}
	s.Properties["apiVersion"] = *spec.StringProperty().WithDescription("APIVersion is the group and version of this representation of the object, as group/version.")
	s.Properties["kind"] = *spec.StringProperty().WithDescription("Kind is the type of the object in CamelCase. It cannot be changed.")
	meta := spec.Schema{SchemaProps: spec.SchemaProps{
		Description: "Standard object's metadata.",
		AllOf:       []spec.Schema{*ref(d.define(metav1.ObjectMeta{}.OpenAPIModelName()))},
		Default:     map[string]any{},
	}}
	s.Properties["metadata"] = meta
	gvk := v.GroupVersionKind()
	s.VendorExtensible.AddExtension("x-kubernetes-group-version-kind", []any{gvkExtension(gvk)})
	d.Components.Schemas[name] = s

	listKind := gvk.GroupVersion().WithKind(v.Kind.ListKind)
	listName := strings.TrimSuffix(name, v.Kind.Kind.Kind) + v.Kind.ListKind
	list := &spec.Schema{SchemaProps: spec.SchemaProps{
		Description: v.Kind.ListKind + " is a list of " + v.Kind.Kind.Kind,
		Type:        spec.StringOrArray{"object"},
		Required:    []string{"items"},
		Properties: map[string]spec.Schema{
			"apiVersion": s.Properties["apiVersion"],
			"kind":       s.Properties["kind"],
			"metadata":   *ref(d.define(metav1.ListMeta{}.OpenAPIModelName())),
			"items":      *spec.ArrayProperty(ref(name)).WithDescription("The objects."),
		},
	}}
	list.VendorExtensible.AddExtension("x-kubernetes-group-version-kind", []any{gvkExtension(listKind)})
	d.Components.Schemas[listName] = list
	d.paths(v, gvk, name, listName)
}

func gvkExtension(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

func (d *document) paths(v *policy.Version, gvk schema.GroupVersionKind, name, listName string) {
	base := root(d.gv)
	all := base + "/" + v.Kind.Plural
	if v.Kind.Namespaced {
		d.Paths.Paths[all] = &spec3.Path{PathProps: spec3.PathProps{
			Get: d.operation("list", gvk, listName, "", listParameters...),
		}}
		base += "/namespaces/{namespace}"
	}
	collection := base + "/" + v.Kind.Plural
	var inPath []*spec3.Parameter
	if v.Kind.Namespaced {
		inPath = append(inPath, pathParameter("namespace", "object name and auth scope, such as for teams and projects"))
	}
	d.Paths.Paths[collection] = &spec3.Path{PathProps: spec3.PathProps{
		Parameters: inPath,
		Get:        d.operation("list", gvk, listName, "", listParameters...),
		Post:       d.operation("post", gvk, name, name, writeParameters...),
	}}
	inPath = append(inPath, pathParameter("name", "name of the "+v.Kind.Kind.Kind))
	item := collection + "/{name}"
	d.Paths.Paths[item] = &spec3.Path{PathProps: spec3.PathProps{
		Parameters: inPath,
		Get:        d.operation("get", gvk, name, ""),
		Put:        d.operation("put", gvk, name, name, writeParameters...),
		Patch:      d.operation("patch", gvk, name, d.define(metav1.Patch{}.OpenAPIModelName()), writeParameters...),
		Delete:     d.operation("delete", gvk, d.define(metav1.Status{}.OpenAPIModelName()), d.define(metav1.DeleteOptions{}.OpenAPIModelName()), deleteParameters...),
	}}
	if v.Status {
		d.Paths.Paths[item+"/status"] = &spec3.Path{PathProps: spec3.PathProps{
			Parameters: inPath,
			Get:        d.operation("get", gvk, name, ""),
			Put:        d.operation("put", gvk, name, name, writeParameters...),
			Patch:      d.operation("patch", gvk, name, d.define(metav1.Patch{}.OpenAPIModelName()), writeParameters...),
		}}
	}
}

// operation describes an action: what it answers with and what it takes.
func (d *document) operation(action string, gvk schema.GroupVersionKind, answer, body string, parameters ...*spec3.Parameter) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		Parameters: parameters,
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
			http.StatusOK: {ResponseProps: spec3.ResponseProps{Description: "OK", Content: content(answer, negotiate.JSON, negotiate.YAML)}},
		}}},
	}}
	switch {
	case action == "patch":
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: true, Content: content(body, patchTypes(gvk)...)}}
	case body != "":
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: action != "delete", Content: content(body, negotiate.JSON, negotiate.YAML)}}
	}
	op.VendorExtensible.AddExtension("x-kubernetes-action", action)
	op.VendorExtensible.AddExtension("x-kubernetes-group-version-kind", gvkExtension(gvk))
	return op
}

func patchTypes(gvk schema.GroupVersionKind) []string {
	types := []string{"application/json-patch+json", "application/merge-patch+json"}
	if gvk.Group == "" || strings.HasSuffix(gvk.Group, ".k8s.io") {
		types = append(types, "application/strategic-merge-patch+json")
	}
	return types
}

func content(name string, mediaTypes ...string) map[string]*spec3.MediaType {
	c := map[string]*spec3.MediaType{}
	for _, m := range mediaTypes {
		c[m] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: ref(name)}}
	}
	return c
}

func pathParameter(name, description string) *spec3.Parameter {
	p := parameter(name, "string", description)
	p.In, p.Required = "path", true
	return p
}

func parameter(name, kind, description string) *spec3.Parameter {
	return &spec3.Parameter{ParameterProps: spec3.ParameterProps{
		Name: name, In: "query", Description: description,
		Schema: &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{kind}, UniqueItems: true}},
	}}
}

var (
	writeParameters = []*spec3.Parameter{
		parameter("dryRun", "string", "All: everything but the write itself is done."),
		parameter("fieldManager", "string", "Name of the actor or entity that makes the change."),
		parameter("fieldValidation", "string", "What becomes of fields that are unknown or given twice: Ignore drops them, Warn drops them with a warning (the default), Strict refuses the request."),
	}
	deleteParameters = []*spec3.Parameter{
		parameter("dryRun", "string", "All: everything but the deletion itself is done."),
		parameter("gracePeriodSeconds", "integer", "Not used by the kinds served here."),
		parameter("propagationPolicy", "string", "What becomes of dependents: Background or Orphan."),
	}
	listParameters = []*spec3.Parameter{
		parameter("allowWatchBookmarks", "boolean", "Asks for bookmarks in a watch."),
		parameter("continue", "string", "Where to go on, from the answer before."),
		parameter("fieldSelector", "string", "Restricts the answer by fields."),
		parameter("labelSelector", "string", "Restricts the answer by labels."),
		parameter("limit", "integer", "Most objects in one answer."),
		parameter("resourceVersion", "string", "Revision of the answer, see resourceVersionMatch."),
		parameter("resourceVersionMatch", "string", "How resourceVersion is meant: NotOlderThan or Exact."),
		parameter("sendInitialEvents", "boolean", "Makes a watch begin with the present objects."),
		parameter("timeoutSeconds", "integer", "When a watch ends."),
		parameter("watch", "boolean", "Asks for changes instead of a list."),
	}
)
