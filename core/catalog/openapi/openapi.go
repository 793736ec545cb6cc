// Package openapi describes the served kinds: as OpenAPI v3 (KEP-2896), one document per group and version, which
// kubectl uses to explain, complete and validate, and as one OpenAPI v2 document for older clients. A document is
// built on first use, and kept compressed. If a new policy does not change what a document describes, it is reused.
package openapi

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"slices"
	"strings"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/handler3"
	"stele.dev/stele/policy"
)

// Service serves /openapi/v2, /openapi/v3 and the paths below it. It is safe for concurrent use.
type Service struct {
	program string
	groups  map[string]*group // by path, without the leading slash
	index   *served
	v2      *served
}

// Resource is a served version of a kind.
type Resource struct {
	*policy.Version
	// Verbs are the verbs, as in discovery; nil means all that the kind allows.
	Verbs []string
	// Of is set for a subresource: the resource that it belongs to. The subresource is namespaced, can only be
	// created, and is described with that resource.
	Of schema.GroupVersionResource
}

// takes reports whether the resource has a verb.
func (r *Resource) takes(verb string) bool { return r.Verbs == nil || slices.Contains(r.Verbs, verb) }

// group is what one group and version serves.
type group struct {
	versions []Resource
	document *served
}

// New returns the service for a policy, and for other resources. program is the program's version, which every
// document contains. Documents of the service before, which may be nil, are reused if they describe the same. If it
// was in use, missing documents are built at once, in the background.
func New(p *policy.Policy, program string, before *Service, besides ...Resource) *Service {
	s := &Service{program: program, groups: map[string]*group{}}
	add := func(v Resource) {
		at := v.GroupVersionResource()
		if v.Of.Resource != "" {
			at = v.Of
		}
		path := root(at.GroupVersion())[1:]
		if s.groups[path] == nil {
			s.groups[path] = &group{}
		}
		s.groups[path].versions = append(s.groups[path].versions, v)
	}
	for _, v := range besides {
		add(v)
	}
	for _, k := range p.Views() {
		add(Resource{Version: k.Versions[0], Verbs: []string{"get", "list", "watch"}})
	}
	for _, k := range p.Kinds() {
		for _, v := range k.Versions {
			if v.Served {
				add(Resource{Version: v})
			}
		}
	}
	same := before != nil && len(before.groups) == len(s.groups)
	for path, g := range s.groups {
		if g.document = before.documentOf(path, g.versions, program); g.document == nil {
			same = false
			g.document = newServed(func() any { return document(g.versions, program) }, handler3.ToV3ProtoBinary)
		}
	}
	s.index = newServed(s.discovery, nil)
	s.v2 = newServed(func() any { return swagger(s.all(), program) }, func(json []byte) ([]byte, error) {
		doc, err := openapiv2.ParseDocument(json)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(doc)
	})
	if before != nil {
		s.index = s.index.reuse(before.index, same)
		s.v2 = s.v2.reuse(before.v2, same)
	}
	return s
}

// documentOf returns the document of the versions, if it was built.
func (s *Service) documentOf(path string, versions []Resource, program string) *served {
	if s == nil || s.program != program || s.groups[path] == nil || !s.groups[path].document.made() {
		return nil
	}
	if !slices.EqualFunc(s.groups[path].versions, versions, sameToClients) {
		return nil
	}
	return s.groups[path].document
}

// sameToClients reports whether two versions of kinds have the same description.
func sameToClients(a, b Resource) bool {
	x, y := a.Kind, b.Kind
	return x.Group == y.Group && x.Plural == y.Plural && x.Kind.Kind == y.Kind.Kind && x.ListKind == y.ListKind && x.Namespaced == y.Namespaced &&
		x.Builtin == y.Builtin && a.Name == b.Name && a.Status == b.Status && (a.Scale == nil) == (b.Scale == nil) &&
		a.NoDeleteCollection == b.NoDeleteCollection && slices.Equal(a.Verbs, b.Verbs) && a.Of == b.Of &&
		slices.Equal(a.SelectableFields, b.SelectableFields) && x.Definition == y.Definition && reflect.DeepEqual(a.Schema, b.Schema)
}

// all returns the versions of all groups, in order.
func (s *Service) all() []Resource {
	var versions []Resource
	for _, path := range slices.Sorted(maps.Keys(s.groups)) {
		versions = append(versions, s.groups[path].versions...)
	}
	return versions
}

// discovery lists the documents, with their hashes.
func (s *Service) discovery() any {
	var building errgroup.Group
	building.SetLimit(max(1, runtime.GOMAXPROCS(0)/2)) // leave processors to other requests
	for _, g := range s.groups {
		building.Go(g.document.prepare)
	}
	if err := building.Wait(); err != nil {
		return err
	}
	d := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for path, g := range s.groups {
		d.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: urlOf(path, g.document.etag)}
	}
	return d
}

func urlOf(path, hash string) string {
	return (&url.URL{Path: "/openapi/v3/" + path, RawQuery: url.Values{"hash": {hash}}.Encode()}).String()
}

// ServeHTTP implements http.Handler.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimSuffix(r.URL.Path, "/")
	switch path {
	case "/openapi/v3":
		s.index.serve(w, r, jsonOnly, "")
		return
	case "/openapi/v2":
		s.v2.serve(w, r, mediaTypes2, "")
		return
	}
	path = strings.TrimPrefix(path, "/openapi/v3/")
	if g := s.groups[path]; g != nil {
		g.document.serve(w, r, mediaTypes3, path)
		return
	}
	http.Error(w, fmt.Sprintf("404 %s is not served", cmp.Or(path, "/")), http.StatusNotFound)
}
