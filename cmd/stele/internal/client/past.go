package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Past reads objects at past revisions.
type Past struct {
	Config   *rest.Config
	Selector string // a label selector
	kinds    map[uint64][]ServedKind
}

// PastResource selects the objects of a kind that [Past] reads.
type PastResource struct {
	schema.GroupVersionResource
	Namespace string   // "" for all
	Names     []string // none for all
	Asked     bool     // the user named it
	Gone      bool     // the kind is not served today
	Note      string   // a message for the user, for example that the kind did not exist
}

// Name returns the resource, with its group.
func (r *PastResource) Name() string { return r.GroupResource().String() }

// served returns the kinds that can be listed at a revision, or now if that is 0.
func (p *Past) served(revision uint64) ([]ServedKind, error) {
	if all, ok := p.kinds[revision]; ok {
		return all, nil
	}
	config := p.Config
	if revision > 0 {
		config = AtRevision(config, revision)
	}
	all, err := ListableKinds(config)
	if err != nil {
		return nil, err
	}
	if p.kinds == nil {
		p.kinds = map[uint64][]ServedKind{}
	}
	p.kinds[revision] = all
	return all, nil
}

// Resources returns the named kinds. Without names it returns all writable kinds of today and of the revisions (0 for
// today).
func (p *Past) Resources(objects []ObjectNames, o *Flags, loader clientcmd.ClientConfig, revisions ...uint64) ([]*PastResource, error) {
	if len(objects) == 0 {
		return p.allResources(o, loader, revisions)
	}
	today, err := NewKinds(p.Config)
	if err != nil {
		return nil, err
	}
	var all []*PastResource
	for _, x := range objects {
		r := &PastResource{Names: x.Names, Asked: true}
		mapping, gone, err := today.ResourceThen(x.Kind, revisions...)
		if err != nil {
			return nil, err
		}
		r.GroupVersionResource, r.Gone = mapping.Resource, gone
		if r.Namespace, err = o.NamespaceFor(mapping, loader); err != nil {
			return nil, err
		}
		if len(x.Names) > 0 && o.Everywhere && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			return nil, fmt.Errorf("%s are in namespaces: use names with -n, not with -A", r.Name())
		}
		all = append(all, r)
	}
	return all, nil
}

// allResources returns all writable kinds of today and of the revisions.
func (p *Past) allResources(o *Flags, loader clientcmd.ClientConfig, revisions []uint64) ([]*PastResource, error) {
	namespace, err := o.namespaceOrDefault(loader)
	if err != nil {
		return nil, err
	}
	var all []*PastResource
	known := map[schema.GroupResource]bool{}
	for _, revision := range append([]uint64{0}, revisions...) {
		kinds, err := p.served(revision)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			name := k.GVR().GroupResource()
			if known[name] || !k.Can("update") && !k.Can("delete") || !k.Namespaced && !o.Everywhere {
				continue
			}
			known[name] = true
			r := &PastResource{GroupVersionResource: k.GVR(), Gone: revision > 0}
			if k.Namespaced {
				r.Namespace = namespace
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *PastResource) int { return strings.Compare(a.Group+"/"+a.Resource, b.Group+"/"+b.Resource) })
	return all, nil
}

// AtRevision returns a config for the server as it was at a revision.
func AtRevision(config *rest.Config, revision uint64) *rest.Config {
	then := rest.CopyConfig(config)
	then.Host = PresentURL(then.Host) + "/at/" + strconv.FormatUint(revision, 10)
	return then
}

// ListAtBoth reads the objects of a kind at two revisions, by namespace and name. An object is included if it is selected
// at one of them. If the second revision is 0, it is set to the revision of the answer.
func (p *Past) ListAtBoth(ctx context.Context, r *PastResource, from uint64, to *uint64) (before, after map[string]*unstructured.Unstructured, err error) {
	if after, err = p.listAt(ctx, r, to, p.Selector); err != nil {
		return nil, nil, err
	}
	if before, err = p.listAt(ctx, r, &from, p.Selector); err != nil || p.Selector == "" {
		return before, after, err
	}
	if before, err = p.addMissing(ctx, r, from, before, after); err == nil {
		after, err = p.addMissing(ctx, r, *to, after, before)
	}
	return before, after, err
}

// addMissing returns the objects found at a revision, and those that were found only at the other revision, whatever their
// labels are at this one.
func (p *Past) addMissing(ctx context.Context, r *PastResource, revision uint64, found, there map[string]*unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	missing := func(key string) bool { return found[key] == nil && there[key] != nil }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(there)), missing) {
		return found, nil
	}
	all, err := p.listAt(ctx, r, &revision, "")
	maps.DeleteFunc(all, func(key string, _ *unstructured.Unstructured) bool { return there[key] == nil && found[key] == nil })
	return all, err
}

// listAt reads the selected objects of a kind at a revision, by namespace and name. If the revision is 0, it reads them now and
// sets the revision.
func (p *Past) listAt(ctx context.Context, r *PastResource, revision *uint64, selector string) (map[string]*unstructured.Unstructured, error) {
	q := ObjectQuery{Resource: r.GroupVersionResource, Namespace: r.Namespace, Labels: selector, Revision: *revision}
	config := p.Config
	if *revision > 0 {
		kinds, err := p.served(*revision)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(kinds, func(k ServedKind) bool { return k.GVR().GroupResource() == r.GroupResource() }) {
			r.Note = fmt.Sprintf("%s: there was no such kind at revision %d.", r.Name(), *revision)
			return nil, nil
		}
		if r.Gone {
			config, q.Revision = AtRevision(config, *revision), 0
		}
	} else if r.Gone {
		r.Note = fmt.Sprintf("%s: there is no such kind any more.", r.Name())
		return nil, nil
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found := map[string]*unstructured.Unstructured{}
	names := r.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, q.Name = range names {
		answered, err := q.List(ctx, objects, func(x *unstructured.Unstructured) { found[x.GetNamespace()+"/"+x.GetName()] = x })
		if err != nil {
			return nil, err
		}
		if *revision == 0 {
			if *revision, err = strconv.ParseUint(answered, 10, 64); err != nil {
				return nil, fmt.Errorf("%s: the server's answer has the wrong revision %q", r.Name(), answered)
			}
			q.Revision = *revision
		}
	}
	return found, nil
}
