package core

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/core/access"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/core/blame"
	"stele.dev/stele/core/changes"
	"stele.dev/stele/core/discovery"
	"stele.dev/stele/core/explain"
	"stele.dev/stele/core/openapi"
	"stele.dev/stele/core/rendered"
	"stele.dev/stele/core/reviews"
	"stele.dev/stele/schemas"
)

// virtual is a resource that is answered and not stored. Discovery and OpenAPI are both made of this list, and so tell of
// the same resources.
type virtual struct {
	discovery.Resource
	openapi openapi.Resource
}

// virtuals are all of them. They do not depend on the policy.
var virtuals = listVirtuals()

func listVirtuals() (all []virtual) {
	add := func(r discovery.Resource, object any, builtin bool) {
		all = append(all, virtual{r, describe(r, object, builtin)})
	}
	add(activation.Resource(), activation.Policy{}, false)
	add(explain.Resource(), explain.Explanation{}, false)
	add(changes.Resource(), changes.Change{}, false)
	add(blame.Resource(), blame.Blame{}, false)
	add(access.ReviewResource(), access.Review{}, false)
	add(access.DifferenceResource(), access.Difference{}, false)
	for _, r := range reviews.Resources() {
		add(r, reviews.Find(gvrOf(&r)).New(), true)
	}
	for _, k := range renderedKinds {
		r := k.Resource()
		all = append(all, virtual{r, openapi.Resource{Version: k.Version, Verbs: r.Verbs}})
	}
	return all
}

// describe returns what OpenAPI says of a resource, by its Go type.
func describe(r discovery.Resource, object any, builtin bool) openapi.Resource {
	_, content := rendered.Describe(object)
	v := rendered.NewVersion(schemas.Kind{Group: r.Group, Kind: r.Kind, Plural: r.Name, Namespaced: r.Namespaced, StorageVersion: r.Version}, content)
	v.Kind.Builtin = builtin
	return openapi.Resource{Version: v, Verbs: slices.Concat(r.Verbs, r.Unlisted)}
}

func gvrOf(r *discovery.Resource) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Name}
}

// isVirtual reports whether a resource is one that is answered and not stored.
func isVirtual(gvr schema.GroupVersionResource) bool {
	return slices.ContainsFunc(virtuals, func(v virtual) bool { return gvrOf(&v.Resource) == gvr })
}

// discoverVirtuals and describeVirtuals are for discovery and OpenAPI.
func discoverVirtuals() (all []discovery.Resource) {
	for _, v := range virtuals {
		all = append(all, v.Resource)
	}
	return all
}

func describeVirtuals() (all []openapi.Resource) {
	for _, v := range virtuals {
		all = append(all, v.openapi)
	}
	return all
}
