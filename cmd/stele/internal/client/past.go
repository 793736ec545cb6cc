package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Past reads objects at revisions.
type Past struct {
	Config   *rest.Config
	Selector string // of labels
	kinds    map[uint64]map[schema.GroupResource]servedKind
}

// PastResource is a kind of which objects are to be read.
type PastResource struct {
	schema.GroupVersionResource
	Namespace string   // "" for all
	Names     []string // none for all
	Asked     bool     // for by name
	Gone      bool     // it is not served today
	Note      string   // what is to be said of it
}

func (r *PastResource) Name() string { return r.GroupResource().String() }

// LeftOutError is one that keeps a kind from being read, and not others.
type LeftOutError struct{ err error }

func (e *LeftOutError) Error() string { return e.err.Error() }

func (e *LeftOutError) Unwrap() error { return e.err }

// servedKind is a kind of a policy, in the version that it prefers.
type servedKind struct {
	schema.GroupVersionResource
	namespaced, written bool
}

// served are the kinds that can be listed, of a revision or today (0).
func (p *Past) served(revision uint64) (map[schema.GroupResource]servedKind, error) {
	if all, ok := p.kinds[revision]; ok {
		return all, nil
	}
	config := p.Config
	if revision > 0 {
		config = AtRevision(config, revision)
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	all := map[schema.GroupResource]servedKind{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, x := range list.APIResources {
			if slices.Contains(x.Verbs, "list") {
				k := servedKind{gv.WithResource(x.Name), x.Namespaced, slices.Contains(x.Verbs, "update") || slices.Contains(x.Verbs, "delete")}
				all[k.GroupResource()] = k
			}
		}
	}
	if p.kinds == nil {
		p.kinds = map[uint64]map[schema.GroupResource]servedKind{}
	}
	p.kinds[revision] = all
	return all, nil
}

// Resources are those that objects name; without any all that can be written, of today and
// of the revisions (0 for today).
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
			return nil, fmt.Errorf("%s are in namespaces: a name is of one, which -n names, not of all of them", r.Name())
		}
		all = append(all, r)
	}
	return all, nil
}

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
		for name, k := range kinds {
			if known[name] || !k.written || !k.namespaced && !o.Everywhere {
				continue
			}
			known[name] = true
			r := &PastResource{GroupVersionResource: k.GroupVersionResource, Gone: revision > 0}
			if k.namespaced {
				r.Namespace = namespace
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *PastResource) int { return strings.Compare(a.Group+"/"+a.Resource, b.Group+"/"+b.Resource) })
	return all, nil
}

// AtRevision is a server as it was.
func AtRevision(config *rest.Config, revision uint64) *rest.Config {
	then := rest.CopyConfig(config)
	then.Host = PresentURL(then.Host) + "/at/" + strconv.FormatUint(revision, 10)
	return then
}

// Both reads the objects of a kind at two revisions, by namespace and name: those that are
// selected at one of them. If the second revision is 0, it becomes that of the answer.
func (p *Past) Both(ctx context.Context, r *PastResource, from uint64, to *uint64) (before, after map[string]*unstructured.Unstructured, err error) {
	if after, err = p.at(ctx, r, to, p.Selector); err != nil {
		return nil, nil, err
	}
	if before, err = p.at(ctx, r, &from, p.Selector); err != nil || p.Selector == "" {
		return before, after, err
	}
	if before, err = p.others(ctx, r, from, before, after); err == nil {
		after, err = p.others(ctx, r, *to, after, before)
	}
	return before, after, err
}

// others adds to those found at a revision the ones that were found at another, whatever their
// labels are here.
func (p *Past) others(ctx context.Context, r *PastResource, revision uint64, found, there map[string]*unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	missing := func(key string) bool { return found[key] == nil && there[key] != nil }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(there)), missing) {
		return found, nil
	}
	all, err := p.at(ctx, r, &revision, "")
	maps.DeleteFunc(all, func(key string, _ *unstructured.Unstructured) bool { return there[key] == nil && found[key] == nil })
	return all, err
}

func (p *Past) at(ctx context.Context, r *PastResource, revision *uint64, selector string) (map[string]*unstructured.Unstructured, error) {
	config := p.Config
	if *revision > 0 {
		kinds, err := p.served(*revision)
		if err != nil {
			return nil, err
		}
		if _, ok := kinds[r.GroupResource()]; !ok {
			r.Note = fmt.Sprintf("%s: there was no such kind at revision %d.", r.Name(), *revision)
			return nil, nil
		}
		if r.Gone {
			config = AtRevision(config, *revision)
		}
	} else if r.Gone {
		r.Note = fmt.Sprintf("%s: there is no such kind any more.", r.Name())
		return nil, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found := map[string]*unstructured.Unstructured{}
	names := r.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		o := metav1.ListOptions{LabelSelector: selector, Limit: 500}
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}
		if *revision > 0 && !r.Gone {
			o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(*revision, 10), metav1.ResourceVersionMatchExact
		}
		for {
			page, err := client.Resource(r.GroupVersionResource).Namespace(r.Namespace).List(ctx, o)
			switch {
			case apierrors.IsForbidden(err), apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsMethodNotSupported(err):
				return nil, &LeftOutError{err}
			case err != nil:
				return nil, err
			}
			for i := range page.Items {
				x := &page.Items[i]
				found[x.GetNamespace()+"/"+x.GetName()] = x
			}
			if *revision == 0 {
				if *revision, err = strconv.ParseUint(page.GetResourceVersion(), 10, 64); err != nil {
					return nil, fmt.Errorf("%s: the server's answer is of the revision %q", r.Name(), page.GetResourceVersion())
				}
			}
			if o.Continue = page.GetContinue(); o.Continue == "" {
				break
			}
			o.ResourceVersion, o.ResourceVersionMatch = "", "" // the token has it
		}
	}
	return found, nil
}
