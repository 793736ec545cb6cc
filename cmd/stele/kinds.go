package main

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// kinds resolves what people call kinds, as kubectl does. The server is asked once. Safe
// for concurrent use.
type kinds struct {
	config    *rest.Config
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.RESTMapper
}

func newKinds(config *rest.Config) (*kinds, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	return &kinds{config, cached, restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)}, nil
}

// resource finds the resource that a person means: by its plural, its kind, or a short
// name, with its group or without.
func (k *kinds) resource(name string) (*meta.RESTMapping, error) {
	// databases.v1.example.com or databases.example.com: the name does not tell which.
	full, partial := schema.ParseResourceArg(name)
	candidates := []schema.GroupVersionResource{partial.WithVersion("")}
	if full != nil {
		candidates = append(candidates, *full)
	}
	for _, gvr := range candidates {
		kind, err := k.mapper.KindFor(gvr)
		if err == nil {
			return k.mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
		if !meta.IsNoMatchError(err) { // nobody knows which kinds there are
			return nil, err
		}
	}
	kind := schema.ParseGroupKind(name)
	if mapping, err := k.mapper.RESTMapping(kind); err == nil {
		return mapping, nil
	}
	return nil, fmt.Errorf("the server has no kind %q; `kubectl api-resources` lists those it has", name)
}

// resourceOf is kinds.resource for who asks once.
func resourceOf(config *rest.Config, name string) (*meta.RESTMapping, error) {
	k, err := newKinds(config)
	if err != nil {
		return nil, err
	}
	return k.resource(name)
}

// resourceThen finds a resource that there is today or, if there is none, that there was at one of the
// revisions (0 for today): then it is gone.
func (k *kinds) resourceThen(name string, revisions ...uint64) (mapping *meta.RESTMapping, gone bool, err error) {
	if mapping, err = k.resource(name); err == nil {
		return mapping, false, nil
	}
	for _, revision := range revisions {
		if revision == 0 {
			continue
		}
		if was, err := resourceOf(atRevision(k.config, revision), name); err == nil {
			return was, true, nil
		}
	}
	return nil, false, err
}

// objectNames are the objects that arguments name: KIND NAME…, or KIND/NAME….
type objectNames struct {
	kind  string
	names []string // none for all of the kind
}

// parseObjects reads KIND, KIND NAME… or KIND/NAME….
func parseObjects(args []string) ([]objectNames, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if !strings.Contains(args[0], "/") {
		for _, name := range args[1:] {
			if name == "" || strings.Contains(name, "/") {
				return nil, usagef("%q is not a name; use KIND NAME… or KIND/NAME…", name)
			}
		}
		all := []objectNames{}
		for kind := range strings.SplitSeq(args[0], ",") {
			all = append(all, objectNames{kind, args[1:]})
		}
		return all, nil
	}
	var all []objectNames
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, usagef("%q is not KIND/NAME, as %q is", arg, args[0])
		}
		all = append(all, objectNames{kind, []string{name}})
	}
	return all, nil
}

// parseObject reads KIND NAME or KIND/NAME.
func parseObject(args []string) (kind, name string, err error) {
	all, err := parseObjects(args)
	if err != nil {
		return "", "", err
	}
	if len(all) != 1 || len(all[0].names) != 1 {
		return "", "", usagef("missing one object: KIND NAME or KIND/NAME")
	}
	return all[0].kind, all[0].names[0], nil
}
