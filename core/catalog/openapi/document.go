package openapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/core/object/gotypes"
	"stele.dev/stele/core/object/patch"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas/crd"
	structural "stele.dev/stele/schemas/openapi"
)

// builder builds the documents of versions of kinds.
type builder struct {
	dialect
	schemas map[string]*spec.Schema
	paths   map[string]*spec3.Path
}

// dialect is a version of OpenAPI.
type dialect struct {
	v2     bool
	prefix string // prefix of references
	meta   func() map[string]common.OpenAPIDefinition
}

var (
	version2 = dialect{v2: true, prefix: "#/definitions/", meta: sync.OnceValue(func() map[string]common.OpenAPIDefinition { return metaOf("#/definitions/", true) })}
	version3 = dialect{prefix: "#/components/schemas/", meta: sync.OnceValue(func() map[string]common.OpenAPIDefinition { return metaOf("#/components/schemas/", false) })}
)

func newBuilder(d dialect, versions []Resource) *builder {
	b := &builder{dialect: d, schemas: map[string]*spec.Schema{}, paths: map[string]*spec3.Path{}}
	for _, v := range versions {
		b.kind(v)
	}
	return b
}

// definitionsPackage is Kubernetes' package with the Go types of CustomResourceDefinitions.
const definitionsPackage = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions."

// metaOf returns the definitions of Kubernetes' own types. They are shared and must not be changed.
func metaOf(prefix string, v2 bool) map[string]common.OpenAPIDefinition {
	all := generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef(prefix + name) })
	maps.DeleteFunc(all, func(name string, _ common.OpenAPIDefinition) bool {
		return !strings.HasPrefix(name, "io.k8s.apimachinery.") && !strings.HasPrefix(name, definitionsPackage) &&
			!strings.HasPrefix(name, autoscalingv1.Scale{}.OpenAPIModelName())
	})
	for name, def := range all {
		if of2, ok := def.Schema.Extensions[common.ExtensionV2Schema].(spec.Schema); ok && v2 {
			def.Schema = of2
		}
		delete(def.Schema.Extensions, common.ExtensionV2Schema)
		all[name] = def
	}
	return all
}

// document returns the OpenAPI v3 document of a group and version.
func document(versions []Resource, version string) *spec3.OpenAPI {
	b := newBuilder(version3, versions)
	return &spec3.OpenAPI{
		Version:    "3.0.0",
		Info:       info(version),
		Paths:      &spec3.Paths{Paths: b.paths},
		Components: &spec3.Components{Schemas: b.schemas},
	}
}

func info(version string) *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: "stele", Version: version}}
}

// root returns the path of a group and version.
func root(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// define adds the definition of one of Kubernetes' own types, and of types that it refers to.
func (b *builder) define(name string) string {
	if _, done := b.schemas[name]; done {
		return name
	}
	def := b.meta()[name]
	b.schemas[name] = &def.Schema
	for _, dep := range def.Dependencies {
		b.define(dep)
	}
	return name
}

func (b *builder) ref(name string) *spec.Schema { return spec.RefSchema(b.prefix + name) }

// refWith returns a reference with a description. OpenAPI requires that a reference is alone.
func (b *builder) refWith(name, description string) spec.Schema {
	if b.v2 {
		return *b.ref(name).WithDescription(description)
	}
	return spec.Schema{SchemaProps: spec.SchemaProps{
		Description: description, AllOf: []spec.Schema{*b.ref(name)}, Default: map[string]any{},
	}}
}

// componentName returns the name of a component as kube-apiserver does: the labels of the group in reverse, then
// version and kind. Built-in kinds have the names of their Go packages.
func componentName(v *policy.Version) string {
	if v.Kind.Group == apiextensionsv1.GroupName {
		return definitionsPackage + v.Name + "." + v.Kind.Kind.Kind
	}
	if v.Kind.Builtin {
		group := v.Kind.Group
		group = cmp.Or(group, "core")
		group, _, _ = strings.Cut(group, ".")
		return "io.k8s.api." + group + "." + v.Name + "." + v.Kind.Kind.Kind
	}
	labels := strings.Split(v.Kind.Group, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "." + v.Name + "." + v.Kind.Kind.Kind
}

// SecretsExtension is the extension of a kind's schema with the paths to its secret fields. A path is a list of field
// names, with "*" for any item of a list or any entry of a map.
const SecretsExtension = "x-stele-sensitive"

// secrets returns the paths to the secrets in objects of the kind.
func (v Resource) secrets() [][]string {
	if v.Program != nil {
		return v.Program.SensitivePaths()
	}
	return v.Schema.SensitivePaths()
}

func (b *builder) kind(v Resource) {
	name := componentName(v.Version)
	var s *spec.Schema
	own, known := b.meta()[name]
	switch {
	case known: // Kubernetes' type has a better description than the schema
		b.define(name)
		described := own.Schema
		described.Properties, described.Extensions = maps.Clone(own.Schema.Properties), maps.Clone(own.Schema.Extensions)
		s = &described
	case !b.v2 && !v.Kind.Definition.IsZero():
		if s = crd.OpenAPI(v.Kind.Kind, v.Name); s == nil {
			s = structural.Of(v.Schema)
		}
	case v.Program != nil:
		s = structural.Of(v.Program.Node())
	default:
		s = structural.Of(v.Schema)
	}
	open := s.Extensions["x-kubernetes-preserve-unknown-fields"] == true
	switch {
	case known:
	case b.v2 && open: // kubectl would reject all fields that are not named
		s = &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}, Description: s.Description}}
	case b.v2:
		s = downgrade(s)
	}
	types := map[string]spec.Schema{
		"apiVersion": *spec.StringProperty().WithDescription("APIVersion is the group and version of this representation of the object, as group/version."),
		"kind":       *spec.StringProperty().WithDescription("Kind is the type of the object in CamelCase. It cannot be changed."),
	}
	if !b.v2 || !open {
		b.addEmbedded(s)
		if s.Properties == nil {
			s.Properties = map[string]spec.Schema{}
		}
		s.Properties["apiVersion"], s.Properties["kind"] = types["apiVersion"], types["kind"]
		s.Properties["metadata"] = b.refWith(b.define(metav1.ObjectMeta{}.OpenAPIModelName()), "Standard object's metadata.")
	}
	gvk := v.GroupVersionKind()
	if v.Kind.Builtin && !known {
		b.nameTypes(s, gvk)
	}
	s.AddExtension("x-kubernetes-group-version-kind", []any{gvkExtension(gvk)})
	addSelectable(s, v)
	if secrets := v.secrets(); len(secrets) > 0 && !b.v2 {
		s.AddExtension(SecretsExtension, secrets)
	}
	b.schemas[name] = s

	if !v.takes("list") {
		b.addPaths(v, gvk, name, "")
		return
	}
	listKind := gvk.GroupVersion().WithKind(v.Kind.ListKind)
	listName := strings.TrimSuffix(name, v.Kind.Kind.Kind) + v.Kind.ListKind
	list := &spec.Schema{SchemaProps: spec.SchemaProps{
		Description: v.Kind.ListKind + " is a list of " + v.Kind.Kind.Kind,
		Type:        spec.StringOrArray{"object"},
		Required:    []string{"items"},
		Properties: map[string]spec.Schema{
			"apiVersion": types["apiVersion"],
			"kind":       types["kind"],
			"metadata":   *b.ref(b.define(metav1.ListMeta{}.OpenAPIModelName())),
			"items":      *spec.ArrayProperty(b.ref(name)).WithDescription("The objects."),
		},
	}}
	list.AddExtension("x-kubernetes-group-version-kind", []any{gvkExtension(listKind)})
	addSelectable(list, v)
	b.schemas[listName] = list
	b.addPaths(v, gvk, name, listName)
}

// addSelectable lists the fields that field selectors of a custom kind can use.
func addSelectable(s *spec.Schema, v Resource) {
	if v.Kind.Builtin || len(v.SelectableFields) == 0 {
		return
	}
	fields := make([]any, len(v.SelectableFields))
	for i, path := range v.SelectableFields {
		fields[i] = map[string]any{"fieldPath": strings.TrimPrefix(path, ".")}
	}
	s.AddExtension("x-kubernetes-selectable-fields", fields)
}

// addEmbedded gives embedded objects the fields of all objects, as kube-apiserver does.
func (b *builder) addEmbedded(s *spec.Schema) {
	for name, property := range s.Properties {
		b.addEmbedded(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		b.addEmbedded(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		b.addEmbedded(s.AdditionalProperties.Schema)
	}
	if s.Extensions["x-kubernetes-embedded-resource"] != true || b.v2 && s.Extensions["x-kubernetes-preserve-unknown-fields"] == true {
		return
	}
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription("APIVersion is the group and version of the object, as group/version."))
	s.SetProperty("kind", *spec.StringProperty().WithDescription("Kind is the type of the object in CamelCase."))
	s.SetProperty("metadata", b.refWith(b.define(metav1.ObjectMeta{}.OpenAPIModelName()), "Standard object's metadata."))
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(s.Required, name) {
			s.Required = append(s.Required, name)
		}
	}
}

func gvkExtension(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

func (b *builder) addPaths(v Resource, gvk schema.GroupVersionKind, name, listName string) {
	if v.Of.Resource != "" {
		item := root(v.Of.GroupVersion()) + "/namespaces/{namespace}/" + v.Of.Resource + "/{name}"
		b.paths[item+"/"+v.Kind.Plural] = &spec3.Path{PathProps: spec3.PathProps{
			Parameters: []*spec3.Parameter{pathParameter("namespace", namespaceParameter), pathParameter("name", "name of the "+v.Kind.Kind.Kind)},
			Post:       b.operation("post", gvk, name, name, writeParameters...),
		}}
		return
	}
	base := root(gvk.GroupVersion())
	all := base + "/" + v.Kind.Plural
	if v.Kind.Namespaced {
		if v.takes("list") {
			b.paths[all] = &spec3.Path{PathProps: spec3.PathProps{
				Get: b.operation("list", gvk, listName, "", v.listParameters()...),
			}}
		}
		base += "/namespaces/{namespace}"
	}
	collection := base + "/" + v.Kind.Plural
	var inPath []*spec3.Parameter
	if v.Kind.Namespaced {
		inPath = append(inPath, pathParameter("namespace", namespaceParameter))
	}
	b.paths[collection] = &spec3.Path{PathProps: spec3.PathProps{Parameters: inPath}}
	if v.takes("list") {
		b.paths[collection].Get = b.operation("list", gvk, listName, "", v.listParameters()...)
	}
	if v.takes("create") {
		b.paths[collection].Post = b.operation("post", gvk, name, name, writeParameters...)
	}
	if !v.NoDeleteCollection && v.takes("deletecollection") {
		b.paths[collection].Delete = b.operation("deletecollection", gvk, b.define(metav1.Status{}.OpenAPIModelName()), b.define(metav1.DeleteOptions{}.OpenAPIModelName()), collectionParameters...)
	}
	inPath = append(inPath, pathParameter("name", "name of the "+v.Kind.Kind.Kind))
	item := collection + "/{name}"
	remove := func() *spec3.Operation {
		return b.operation("delete", gvk, b.define(metav1.Status{}.OpenAPIModelName()), b.define(metav1.DeleteOptions{}.OpenAPIModelName()), deleteParameters...)
	}
	if !v.takes("update") { // then there is no patch either
		if v.takes("get") {
			b.paths[item] = &spec3.Path{PathProps: spec3.PathProps{Parameters: inPath, Get: b.operation("get", gvk, name, "")}}
			if v.takes("delete") {
				b.paths[item].Delete = remove()
			}
			if v.Status {
				b.paths[item+"/status"] = &spec3.Path{PathProps: spec3.PathProps{Parameters: inPath, Get: b.operation("get", gvk, name, "")}}
			}
		}
		return
	}
	object := func(path, name string) *spec3.Path {
		b.paths[path] = &spec3.Path{PathProps: spec3.PathProps{
			Parameters: inPath,
			Get:        b.operation("get", gvk, name, ""),
			Put:        b.operation("put", gvk, name, name, writeParameters...),
			Patch:      b.operation("patch", gvk, name, b.define(metav1.Patch{}.OpenAPIModelName()), patchParameters...),
		}}
		return b.paths[path]
	}
	object(item, name).Delete = remove()
	if v.Status {
		object(item+"/status", name)
	}
	if v.Scale != nil {
		object(item+"/scale", b.define(autoscalingv1.Scale{}.OpenAPIModelName()))
	}
	if v.Kind.Builtin && gvk == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
		b.paths[item+"/finalize"] = &spec3.Path{PathProps: spec3.PathProps{
			Parameters: inPath,
			Put:        b.operation("put", gvk, name, name, writeParameters...),
		}}
	}
}

func (r *Resource) listParameters() []*spec3.Parameter {
	if r.takes("watch") {
		return listParameters
	}
	return onlyListParameters
}

// operation describes an operation, with its answer and its body.
func (b *builder) operation(action string, gvk schema.GroupVersionKind, answer, body string, parameters ...*spec3.Parameter) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{
		Parameters: parameters,
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
			http.StatusOK: {ResponseProps: spec3.ResponseProps{Description: "OK", Content: b.content(answer, produced(action, gvk)...)}},
		}}},
	}}
	switch {
	case action == "patch":
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: true, Content: b.content(body, patch.Types(gvk)...)}}
	case body != "":
		op.RequestBody = &spec3.RequestBody{RequestBodyProps: spec3.RequestBodyProps{Required: action == "put" || action == "post", Content: b.content(body, consumed(gvk)...)}}
	}
	op.VendorExtensible.AddExtension("x-kubernetes-action", action)
	op.VendorExtensible.AddExtension("x-kubernetes-group-version-kind", gvkExtension(gvk))
	return op
}

// produced returns the media types of answers as kube-apiserver lists them: for custom kinds only text, for others
// also those of watches, if lists can be watched.
func produced(action string, gvk schema.GroupVersionKind) []string {
	switch {
	case !gotypes.Has(gvk):
		return []string{negotiate.JSON, negotiate.YAML}
	case action == "list":
		return slices.Concat(negotiate.Answers, negotiate.Streams)
	}
	return negotiate.Answers
}

// consumed returns the media types of bodies, except patches.
func consumed(gvk schema.GroupVersionKind) []string {
	if gotypes.Has(gvk) {
		return []string{"*/*"}
	}
	return []string{negotiate.JSON, negotiate.YAML}
}

func (b *builder) content(name string, mediaTypes ...string) map[string]*spec3.MediaType {
	c := map[string]*spec3.MediaType{}
	for _, m := range mediaTypes {
		c[m] = &spec3.MediaType{MediaTypeProps: spec3.MediaTypeProps{Schema: b.ref(name)}}
	}
	return c
}

const namespaceParameter = "object name and auth scope, such as for teams and projects"

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
	patchParameters = append(writeParameters[:len(writeParameters):len(writeParameters)],
		parameter("force", "boolean", "Server-side apply only: takes fields that other managers set."))
	deleteParameters = []*spec3.Parameter{
		parameter("dryRun", "string", "All: everything but the deletion itself is done."),
		parameter("gracePeriodSeconds", "integer", "Not used by the kinds served here."),
		parameter("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean", "Deletes only what cannot be read."),
		parameter("orphanDependents", "boolean", "Deprecated: use propagationPolicy."),
		parameter("propagationPolicy", "string", "What becomes of dependents: Background, Foreground or Orphan."),
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
	// onlyListParameters are the parameters of a list that cannot be watched.
	onlyListParameters = slices.DeleteFunc(slices.Clone(listParameters), func(p *spec3.Parameter) bool {
		return p.Name == "allowWatchBookmarks" || p.Name == "watch" || p.Name == "sendInitialEvents"
	})
	// collectionParameters are the parameters of a deletecollection: which objects to delete, and how.
	collectionParameters = slices.Concat(deleteParameters, slices.DeleteFunc(slices.Clone(listParameters), func(p *spec3.Parameter) bool {
		return p.Name == "allowWatchBookmarks" || p.Name == "watch"
	}))
)
