package main

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

// pastReader reads objects at revisions.
type pastReader struct {
	config   *rest.Config
	selector string // of labels
	kinds    map[uint64]map[schema.GroupResource]servedKind
}

// pastResource is a kind of which objects are to be read.
type pastResource struct {
	schema.GroupVersionResource
	namespace string   // "" for all
	names     []string // none for all
	asked     bool     // for by name
	gone      bool     // it is not served today
	note      string   // what is to be said of it
}

func (r *pastResource) name() string { return r.GroupResource().String() }

// leftOutError is one that keeps a kind from being read, and not others.
type leftOutError struct{ err error }

func (e *leftOutError) Error() string { return e.err.Error() }
func (e *leftOutError) Unwrap() error { return e.err }

// servedKind is a kind of a policy, in the version that it prefers.
type servedKind struct {
	schema.GroupVersionResource
	namespaced, written bool
}

// served are the kinds that can be listed, of a revision or today (0).
func (p *pastReader) served(revision uint64) (map[schema.GroupResource]servedKind, error) {
	if all, ok := p.kinds[revision]; ok {
		return all, nil
	}
	config := p.config
	if revision > 0 {
		config = atRevision(config, revision)
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

// resources are those that objects name; without any all that can be written, of today and
// of the revisions (0 for today).
func (p *pastReader) resources(objects []objectNames, o *clientOptions, loader clientcmd.ClientConfig, revisions ...uint64) ([]*pastResource, error) {
	if len(objects) == 0 {
		return p.allResources(o, loader, revisions)
	}
	today, err := newKinds(p.config)
	if err != nil {
		return nil, err
	}
	var all []*pastResource
	for _, x := range objects {
		r := &pastResource{names: x.names, asked: true}
		mapping, gone, err := today.resourceThen(x.kind, revisions...)
		if err != nil {
			return nil, err
		}
		r.GroupVersionResource, r.gone = mapping.Resource, gone
		if r.namespace, err = o.namespaceFor(mapping, loader); err != nil {
			return nil, err
		}
		if len(x.names) > 0 && o.everywhere && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			return nil, fmt.Errorf("%s are in namespaces: a name is of one, which -n names, not of all of them", r.name())
		}
		all = append(all, r)
	}
	return all, nil
}

func (p *pastReader) allResources(o *clientOptions, loader clientcmd.ClientConfig, revisions []uint64) ([]*pastResource, error) {
	namespace, err := o.namespaceOrDefault(loader)
	if err != nil {
		return nil, err
	}
	var all []*pastResource
	known := map[schema.GroupResource]bool{}
	for _, revision := range append([]uint64{0}, revisions...) {
		kinds, err := p.served(revision)
		if err != nil {
			return nil, err
		}
		for name, k := range kinds {
			if known[name] || !k.written || !k.namespaced && !o.everywhere {
				continue
			}
			known[name] = true
			r := &pastResource{GroupVersionResource: k.GroupVersionResource, gone: revision > 0}
			if k.namespaced {
				r.namespace = namespace
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b *pastResource) int { return strings.Compare(a.Group+"/"+a.Resource, b.Group+"/"+b.Resource) })
	return all, nil
}

// atRevision is a server as it was.
func atRevision(config *rest.Config, revision uint64) *rest.Config {
	then := rest.CopyConfig(config)
	then.Host = presentOf(then.Host) + "/at/" + strconv.FormatUint(revision, 10)
	return then
}

// both reads the objects of a kind at two revisions, by namespace and name: those that are
// selected at one of them. If the second revision is 0, it becomes that of the answer.
func (p *pastReader) both(ctx context.Context, r *pastResource, from uint64, to *uint64) (before, after map[string]*unstructured.Unstructured, err error) {
	if after, err = p.at(ctx, r, to, p.selector); err != nil {
		return nil, nil, err
	}
	if before, err = p.at(ctx, r, &from, p.selector); err != nil || p.selector == "" {
		return before, after, err
	}
	if before, err = p.others(ctx, r, from, before, after); err == nil {
		after, err = p.others(ctx, r, *to, after, before)
	}
	return before, after, err
}

// others adds to those found at a revision the ones that were found at another, whatever their
// labels are here.
func (p *pastReader) others(ctx context.Context, r *pastResource, revision uint64, found, there map[string]*unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	missing := func(key string) bool { return found[key] == nil && there[key] != nil }
	if !slices.ContainsFunc(slices.Collect(maps.Keys(there)), missing) {
		return found, nil
	}
	all, err := p.at(ctx, r, &revision, "")
	maps.DeleteFunc(all, func(key string, _ *unstructured.Unstructured) bool { return there[key] == nil && found[key] == nil })
	return all, err
}

func (p *pastReader) at(ctx context.Context, r *pastResource, revision *uint64, selector string) (map[string]*unstructured.Unstructured, error) {
	config := p.config
	if *revision > 0 {
		kinds, err := p.served(*revision)
		if err != nil {
			return nil, err
		}
		if _, ok := kinds[r.GroupResource()]; !ok {
			r.note = fmt.Sprintf("%s: there was no such kind at revision %d.", r.name(), *revision)
			return nil, nil
		}
		if r.gone {
			config = atRevision(config, *revision)
		}
	} else if r.gone {
		r.note = fmt.Sprintf("%s: there is no such kind any more.", r.name())
		return nil, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found := map[string]*unstructured.Unstructured{}
	names := r.names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		o := metav1.ListOptions{LabelSelector: selector, Limit: 500}
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}
		if *revision > 0 && !r.gone {
			o.ResourceVersion, o.ResourceVersionMatch = strconv.FormatUint(*revision, 10), metav1.ResourceVersionMatchExact
		}
		for {
			page, err := client.Resource(r.GroupVersionResource).Namespace(r.namespace).List(ctx, o)
			switch {
			case apierrors.IsForbidden(err), apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.IsMethodNotSupported(err):
				return nil, &leftOutError{err}
			case err != nil:
				return nil, err
			}
			for i := range page.Items {
				x := &page.Items[i]
				found[x.GetNamespace()+"/"+x.GetName()] = x
			}
			if *revision == 0 {
				if *revision, err = strconv.ParseUint(page.GetResourceVersion(), 10, 64); err != nil {
					return nil, fmt.Errorf("%s: the server's answer is of the revision %q", r.name(), page.GetResourceVersion())
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
