// Package discovery makes the discovery documents: the legacy ones per group and version, and the aggregated ones
// (KEP-3352), both from the kinds of one policy.
package discovery

import (
	"bytes"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	apidiscovery "k8s.io/apiserver/pkg/endpoints/discovery"
	"stele.dev/stele/core/call/negotiate"
	"stele.dev/stele/policy"
)

// Resource is a resource in one version of a group.
type Resource struct {
	Group, Version string
	metav1.APIResource
	// Unlisted are verbs that work, but that discovery does not list. Clients that read every listable and watchable
	// resource then skip it.
	Unlisted metav1.Verbs
	// Subresources have full names, such as "widgets/status".
	Subresources []metav1.APIResource
}

// NewResource returns a resource outside of namespaces. Its singular is the name of its kind in lower case.
func NewResource(group, version, kind, plural string, verbs ...string) Resource {
	return Resource{Group: group, Version: version, APIResource: metav1.APIResource{Name: plural, SingularName: strings.ToLower(kind), Kind: kind, Verbs: verbs}}
}

// FromPolicy returns the resources of a policy's kinds.
func FromPolicy(p *policy.Policy) []Resource {
	var resources []Resource
	for _, k := range p.Views() {
		resources = append(resources, Resource{Group: k.Group, Version: k.StorageVersion, APIResource: metav1.APIResource{
			Name: k.Plural, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind.Kind, Verbs: metav1.Verbs{"get", "list", "watch"},
		}})
	}
	for _, k := range p.Kinds() {
		for _, v := range k.Versions {
			if !v.Served {
				continue
			}
			r := Resource{Group: k.Group, Version: v.Name, APIResource: metav1.APIResource{
				Name: k.Plural, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind.Kind,
				Verbs:      metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
				ShortNames: k.ShortNames, Categories: k.Categories,
			}}
			if !v.NoDeleteCollection {
				r.Verbs = slices.Insert(r.Verbs, 2, "deletecollection")
			}
			if !k.Builtin { // Kubernetes lists the verbs of custom kinds in another order
				r.Verbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
			}
			if k.Terminating {
				r.Verbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
			}
			r.StorageVersionHash = apidiscovery.StorageVersionHash(k.Group, k.StorageVersion, k.Kind.Kind)
			if v.Status {
				r.Subresources = append(r.Subresources, metav1.APIResource{
					Name: k.Plural + "/status", Namespaced: k.Namespaced, Kind: k.Kind.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
				})
			}
			if v.Scale != nil {
				as := policy.Scale.GroupVersionKind()
				r.Subresources = append(r.Subresources, metav1.APIResource{
					Name: k.Plural + "/scale", Namespaced: k.Namespaced, Group: as.Group, Version: as.Version, Kind: as.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
				})
			}
			if k.Builtin && k.Group == "" && k.Plural == "namespaces" {
				r.Subresources = append(r.Subresources, metav1.APIResource{Name: "namespaces/finalize", Kind: k.Kind.Kind, Verbs: metav1.Verbs{"update"}})
			}
			resources = append(resources, r)
		}
	}
	return resources
}

// Documents are the discovery documents. Each is made on first use. Documents is safe for concurrent use.
type Documents struct {
	groups map[string]*group // by name; "" is the core group

	mu    sync.Mutex
	cache map[string]*Document
}

type group struct {
	name     string
	versions []*groupVersion // preferred one first
}

type groupVersion struct {
	name      string
	resources []Resource
}

// Document is one discovery document.
type Document struct {
	Body []byte
	ETag string

	compressOnce sync.Once
	compressed   []byte
}

// Compressed returns the body with gzip, or nil if it is too short for that.
func (doc *Document) Compressed() []byte {
	if len(doc.Body) <= negotiate.CompressFrom {
		return nil
	}
	doc.compressOnce.Do(func() {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(doc.Body) // a write to memory does not fail
		_ = z.Close()
		doc.compressed = b.Bytes()
	})
	return doc.compressed
}

// New returns the documents for resources.
func New(resources []Resource) *Documents {
	d := &Documents{groups: map[string]*group{}, cache: map[string]*Document{}}
	for _, r := range resources {
		g := d.groups[r.Group]
		if g == nil {
			g = &group{name: r.Group}
			d.groups[r.Group] = g
		}
		i := slices.IndexFunc(g.versions, func(v *groupVersion) bool { return v.name == r.Version })
		if i < 0 {
			i = len(g.versions)
			g.versions = append(g.versions, &groupVersion{name: r.Version})
		}
		g.versions[i].resources = append(g.versions[i].resources, r)
	}
	for _, g := range d.groups {
		slices.SortFunc(g.versions, func(a, b *groupVersion) int { return -version.CompareKubeAwareVersionStrings(a.name, b.name) })
		for _, v := range g.versions {
			slices.SortFunc(v.resources, func(a, b Resource) int { return strings.Compare(a.Name, b.Name) })
		}
	}
	return d
}

// Aggregates reports whether the document at a path has an aggregated form, as /api and /apis do.
func Aggregates(path string) bool { return !strings.Contains(strings.Trim(path, "/"), "/") }

// Paths returns the paths of all documents, as / lists them.
func (d *Documents) Paths() []string {
	paths := []string{"/api", "/apis"}
	for name, g := range d.groups {
		root := "/api"
		if name != "" {
			root = "/apis/" + name
			paths = append(paths, root)
		}
		for _, v := range g.versions {
			paths = append(paths, root+"/"+v.name)
		}
	}
	return paths
}

// Core returns the document at /api. address is the host and port by which the client reaches the server; "" if
// unknown.
func Core(address string) *Document {
	versions := &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
	}
	if address != "" {
		versions.ServerAddressByClientCIDRs = append(versions.ServerAddressByClientCIDRs, metav1.ServerAddressByClientCIDR{ClientCIDR: "0.0.0.0/0", ServerAddress: address})
	}
	return newDocument(versions)
}

// Find returns the document at a path, or nil: /api, /api/v1, /apis, /apis/{group} and /apis/{group}/{version}. /api
// and /apis have an aggregated form. For the plain form of /api, see [Core].
func (d *Documents) Find(path string, aggregated bool) *Document {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	key := strings.Join(parts, "/")
	if aggregated {
		key += " aggregated"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if doc := d.cache[key]; doc != nil {
		return doc
	}
	content := d.content(parts, aggregated)
	if content == nil {
		return nil
	}
	doc := newDocument(content)
	d.cache[key] = doc
	return doc
}

func newDocument(content any) *Document {
	body, err := json.Marshal(content)
	if err != nil {
		panic("discovery: " + err.Error()) // plain data always encodes
	}
	sum := sha512.Sum512(body)
	return &Document{Body: body, ETag: `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`}
}

func (d *Documents) content(parts []string, aggregated bool) any {
	core := parts[0] == "api"
	if !core && parts[0] != "apis" {
		return nil
	}
	switch {
	case len(parts) == 1 && aggregated:
		return d.aggregated(core)
	case len(parts) == 1 && !core:
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, g := range d.named() {
			list.Groups = append(list.Groups, g.api())
		}
		return list
	case core && len(parts) == 2:
		return d.resources("", parts[1])
	case !core && len(parts) == 2:
		g := d.groups[parts[1]]
		if g == nil || parts[1] == "" {
			return nil
		}
		api := g.api()
		api.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return &api
	case !core && len(parts) == 3 && parts[1] != "":
		return d.resources(parts[1], parts[2])
	}
	return nil
}

// named returns all groups except the core group, sorted.
func (d *Documents) named() []*group {
	var named []*group
	for name, g := range d.groups {
		if name != "" {
			named = append(named, g)
		}
	}
	slices.SortFunc(named, func(a, b *group) int { return strings.Compare(a.name, b.name) })
	return named
}

func (g *group) api() metav1.APIGroup {
	api := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		api.Versions = append(api.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v.name, Version: v.name})
	}
	api.PreferredVersion = api.Versions[0]
	return api
}

func (d *Documents) resources(group, version string) any {
	g := d.groups[group]
	if g == nil {
		return nil
	}
	for _, v := range g.versions {
		if v.name != version {
			continue
		}
		gv := version
		if group != "" {
			gv = group + "/" + version
		}
		list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: []metav1.APIResource{}}
		for _, r := range v.resources {
			list.APIResources = append(list.APIResources, r.APIResource)
			list.APIResources = append(list.APIResources, r.Subresources...)
		}
		return list
	}
	return nil
}

func (d *Documents) aggregated(core bool) any {
	list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: "apidiscovery.k8s.io/v2"}, Items: []apidiscoveryv2.APIGroupDiscovery{}}
	groups := d.named()
	if core {
		groups = nil
		if g := d.groups[""]; g != nil {
			groups = []*group{g}
		}
	}
	for _, g := range groups {
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, v := range g.versions {
			item.Versions = append(item.Versions, v.discovery(g.name))
		}
		list.Items = append(list.Items, item)
	}
	return list
}

func (v *groupVersion) discovery(group string) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: v.name, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, r := range v.resources {
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		kind := &metav1.GroupVersionKind{Group: group, Version: v.name, Kind: r.Kind}
		x := apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Name, ResponseKind: kind, Scope: scope, SingularResource: r.SingularName,
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		}
		for _, s := range r.Subresources {
			as := kind
			if s.Version != "" { // its objects are of another kind
				as = &metav1.GroupVersionKind{Group: s.Group, Version: s.Version, Kind: s.Kind}
			}
			x.Subresources = append(x.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: strings.TrimPrefix(s.Name, r.Name+"/"), ResponseKind: as, Verbs: s.Verbs,
			})
		}
		out.Resources = append(out.Resources, x)
	}
	return out
}

// Fresh reports whether the client already has the document.
func (doc *Document) Fresh(r *http.Request) bool {
	return doc.ETag != "" && r.Header.Get("If-None-Match") == doc.ETag
}
