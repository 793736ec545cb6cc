package client

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// ServedKind is a kind in one of the versions in which a control plane serves it.
type ServedKind struct {
	schema.GroupVersionKind
	Resource   string
	Namespaced bool
	Verbs      []string
	// StatusSubresource reports whether status is updated by a write of its own.
	StatusSubresource bool
	// Preferred reports whether this is the version that clients should use.
	Preferred bool
}

// Can reports whether the kind has all of the verbs.
func (k *ServedKind) Can(verbs ...string) bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(k.Verbs, v) })
}

// GVR returns the resource of the kind.
func (k *ServedKind) GVR() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Resource)
}

// ReadKinds returns all kinds that a control plane serves, in all versions, sorted by kind.
func ReadKinds(d discovery.DiscoveryInterface) ([]ServedKind, error) {
	groups, err := restmapper.GetAPIGroupResources(d)
	if err != nil {
		return nil, err
	}
	var all []ServedKind
	for _, g := range groups {
		known := map[string]bool{} // resources that have their preferred version
		versions := []string{g.Group.PreferredVersion.Version}
		for _, v := range g.Group.Versions {
			if v.Version != versions[0] {
				versions = append(versions, v.Version)
			}
		}
		for _, version := range versions {
			withStatus := map[string]bool{}
			for _, r := range g.VersionedResources[version] {
				if resource, sub, _ := strings.Cut(r.Name, "/"); sub == "status" && slices.Contains(r.Verbs, "update") {
					withStatus[resource] = true
				}
			}
			for _, r := range g.VersionedResources[version] {
				if strings.Contains(r.Name, "/") {
					continue
				}
				all = append(all, ServedKind{
					GroupVersionKind: schema.GroupVersionKind{Group: g.Group.Name, Version: version, Kind: r.Kind},
					Resource:         r.Name, Namespaced: r.Namespaced, Verbs: r.Verbs, StatusSubresource: withStatus[r.Name], Preferred: !known[r.Name],
				})
				known[r.Name] = true
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ServedKind) int { return strings.Compare(a.GroupKind().String(), b.GroupKind().String()) })
	return all, nil
}

// ListableKinds returns the kinds that can be listed, each in its preferred version.
func ListableKinds(config *rest.Config) ([]ServedKind, error) {
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	all, err := ReadKinds(d)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(k ServedKind) bool { return !k.Preferred || !k.Can("list") }), nil
}
