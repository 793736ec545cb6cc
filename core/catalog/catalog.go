// Package catalog has the table of virtual resources, which are answered and not stored: changes, blame,
// explanations, policies, questions about access, reviews, token requests, and the policy as RBAC objects and
// CustomResourceDefinitions. A row determines routing, 404 and 405, reads below /at, discovery, OpenAPI and metrics.
package catalog

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"stele.dev/stele/core/call"
	"stele.dev/stele/core/catalog/discovery"
	"stele.dev/stele/core/catalog/openapi"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/status"
	"stele.dev/stele/policy"
	"stele.dev/stele/schemas"
)

// Resource is a row of the table. It is safe for concurrent use.
type Resource struct {
	// Resource has the names and verbs. The name of a subresource is "resource/subresource"; discovery lists it
	// beside its resource.
	discovery.Resource
	// VerbsUnder returns the verbs that discovery lists under a policy; nil for Verbs under all policies.
	VerbsUnder func(*policy.Policy) metav1.Verbs
	// Object returns an empty object of its Go type, which OpenAPI describes.
	Object func() any
	// Builtin is true for kinds of Kubernetes, for which OpenAPI has Kubernetes' own documents.
	Builtin bool
	// Described has the schema for OpenAPI, in place of Object; nil if OpenAPI describes Object.
	Described *policy.Version
	// Past says how the resource behaves below /at.
	Past Past
	// Timeout bounds a create; zero for the timeout of all requests.
	Timeout time.Duration
	// Memory is about how many bytes a request takes besides its body and its answer; 0 if that is little.
	Memory int64
	// Cost estimates how long a call keeps a processor busy, before it is authorized; nil if that is about as long as a get.
	Cost func(*call.Call) time.Duration
	// Route checks that the call's path is served and supports its verb; nil for the rules by Verbs.
	Route func(*call.Call) error
	// Serve answers a call that does not write.
	Serve func(context.Context, *call.Call) error
	// Stored returns the version in which a call writes a stored object, so that the stages treat it as one; nil if Write answers the call. It is
	// nil if no objects of the resource are stored. The stage decode calls it, because the name of a new object is in the body.
	Stored func(*call.Call) (*policy.Version, error)
	// Write starts a call that writes; nil if the resource takes no writes. The result serves all rounds of the call.
	Write func(*call.Call) Write
}

// Past says how a resource behaves below /at.
type Past uint8

const (
	// Answers serves the state at the requested moment.
	Answers Past = iota
	// AsToday answers as without the prefix.
	AsToday
	// Refuses answers with 405, because the resource exists in the present only.
	Refuses
)

// Write is a write of a virtual resource. The stages decode, schema and commit call its methods. Each round starts
// with Decode.
type Write interface {
	Decode(context.Context) error
	Validate(context.Context) error
	Commit(context.Context) error
}

// subresource splits the name of a row into resource and subresource.
func (r *Resource) subresource() (resource, subresource string) {
	resource, subresource, _ = strings.Cut(r.Name, "/")
	return resource, subresource
}

// verbs returns all verbs that the resource supports, also those that discovery does not list.
func (r *Resource) verbs() []string { return slices.Concat(r.Verbs, r.Unlisted) }

// Find sets the call's key, and returns an error if nothing is served at its path (404) or the path does not take
// its verb (405).
func (r *Resource) Find(c *call.Call) error {
	i := c.Info
	c.Key = commit.Key{GroupResource: schema.GroupResource{Group: i.APIGroup, Resource: i.Resource}, Namespace: i.Namespace, Name: i.Name}
	if r.Route != nil {
		return r.Route(c)
	}
	onlyCreated := slices.Equal(r.Verbs, []string{"create"})
	if i.Subresource != "" || i.Namespace != "" && !r.Namespaced || onlyCreated && (i.Name != "" || r.Namespaced && i.Namespace == "") {
		return status.NotServed(i.Verb, c.Resource())
	}
	if !slices.Contains(r.verbs(), i.Verb) || i.Verb == "create" && i.Name != "" {
		return status.MethodNotSupported(c.Resource(), i.Verb)
	}
	return nil
}

// Table is the immutable table of virtual resources. It does not depend on the policy.
type Table struct {
	rows    []*Resource
	by      map[place]*Resource
	openAPI []openapi.Resource // made once: every policy has the same
}

type place struct{ group, version, resource, subresource string }

// NewTable makes a table of rows.
func NewTable(rows ...*Resource) *Table {
	t := &Table{rows: rows, by: map[place]*Resource{}}
	for _, r := range rows {
		resource, subresource := r.subresource()
		t.by[place{r.Group, r.Version, resource, subresource}] = r
		t.openAPI = append(t.openAPI, r.describe())
	}
	return t
}

// Find returns the row that a call is about; nil if it is about stored objects or a path.
func (t *Table) Find(c *call.Call) *Resource {
	i := c.Info
	if !i.IsResourceRequest {
		return nil
	}
	if r := t.by[place{i.APIGroup, i.APIVersion, i.Resource, i.Subresource}]; r != nil || i.Subresource == "" {
		return r
	}
	return t.by[place{i.APIGroup, i.APIVersion, i.Resource, ""}]
}

// Has reports whether a path is exactly that of a row's resource.
func (t *Table) Has(i *request.RequestInfo) bool {
	return t.by[place{i.APIGroup, i.APIVersion, i.Resource, i.Subresource}] != nil
}

// Rows returns the rows, in the order in which discovery lists them.
func (t *Table) Rows() []*Resource { return t.rows }

// Discovery returns what discovery lists under a policy: the stored resources, and the table.
func (t *Table) Discovery(p *policy.Policy) []discovery.Resource {
	all := discovery.FromPolicy(p)
	for _, r := range t.rows {
		resource, subresource := r.subresource()
		if subresource == "" {
			listed := r.Resource
			if r.VerbsUnder != nil {
				listed.Verbs = r.VerbsUnder(p)
				listed.Subresources = slices.Clone(listed.Subresources)
				for i := range listed.Subresources {
					if slices.Contains(listed.Verbs, "update") {
						listed.Subresources[i].Verbs = metav1.Verbs{"get", "patch", "update"}
					}
				}
			}
			all = append(all, listed)
			continue
		}
		for i := range all {
			if all[i].Group == r.Group && all[i].Version == r.Version && all[i].Name == resource {
				all[i].Subresources = append(slices.Clip(all[i].Subresources), r.APIResource)
			}
		}
	}
	return all
}

// OpenAPI returns what OpenAPI describes of the table. The caller must not change it.
func (t *Table) OpenAPI() []openapi.Resource { return t.openAPI }

// describe returns what OpenAPI describes of a row.
func (r *Resource) describe() openapi.Resource {
	o := openapi.Resource{Version: r.Described, Verbs: r.verbs()}
	if o.Version != nil {
		return o
	}
	_, content := openapi.Describe(r.Object())
	kind := schemas.Kind{Group: r.Group, Kind: r.Kind, Plural: r.Name, Namespaced: r.Namespaced, StorageVersion: r.Version}
	if resource, subresource := r.subresource(); subresource != "" {
		o.Of = schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: resource}
		kind.Group, kind.StorageVersion, kind.Plural = r.APIResource.Group, r.APIResource.Version, subresource
	}
	o.Version = openapi.NewVersion(kind, content)
	o.Version.Kind.Builtin = r.Builtin
	return o
}
