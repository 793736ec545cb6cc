package client

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"stele.dev/stele/cmd/stele/internal/usage"
)

// Kinds finds kinds by the names that kubectl accepts. It reads them from the server once. It is safe for concurrent use.
type Kinds struct {
	config    *rest.Config
	Discovery discovery.CachedDiscoveryInterface
	mapper    meta.RESTMapper
}

// NewKinds returns the kinds of a server.
func NewKinds(config *rest.Config) (*Kinds, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	return &Kinds{config, cached, restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)}, nil
}

// Resource finds a kind by its plural, its kind or a short name, with or without its group.
func (k *Kinds) Resource(name string) (*meta.RESTMapping, error) {
	// The name may have a version: databases.v1.example.com or databases.example.com.
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
		if !meta.IsNoMatchError(err) { // the discovery failed
			return nil, err
		}
	}
	kind := schema.ParseGroupKind(name)
	if mapping, err := k.mapper.RESTMapping(kind); err == nil {
		return mapping, nil
	}
	return nil, fmt.Errorf("the server has no kind %q; `kubectl api-resources` lists those it has", name)
}

// ResourceNamed finds a kind as [Kinds.Resource] does, for a single name.
func ResourceNamed(config *rest.Config, name string) (*meta.RESTMapping, error) {
	k, err := NewKinds(config)
	if err != nil {
		return nil, err
	}
	return k.Resource(name)
}

// ResourceThen finds a kind as it is served now, or else as it was served at one of the revisions (0 for now). It
// reports whether the kind is gone.
func (k *Kinds) ResourceThen(name string, revisions ...uint64) (mapping *meta.RESTMapping, gone bool, err error) {
	if mapping, err = k.Resource(name); err == nil {
		return mapping, false, nil
	}
	for _, revision := range revisions {
		if revision == 0 {
			continue
		}
		if was, err := ResourceNamed(AtRevision(k.config, revision), name); err == nil {
			return was, true, nil
		}
	}
	return nil, false, err
}

// ObjectNames are names of objects of one kind on the command line.
type ObjectNames struct {
	Kind  string
	Names []string // none for all of the kind
}

// ParseObjects reads KIND, KIND NAME… or KIND/NAME….
func ParseObjects(args []string) ([]ObjectNames, error) {
	if len(args) == 0 {
		return nil, nil
	}
	if !strings.Contains(args[0], "/") {
		for _, name := range args[1:] {
			if name == "" || strings.Contains(name, "/") {
				return nil, usage.Errorf("%q is not a name; use KIND NAME… or KIND/NAME…", name)
			}
		}
		all := []ObjectNames{}
		for kind := range strings.SplitSeq(args[0], ",") {
			all = append(all, ObjectNames{kind, args[1:]})
		}
		return all, nil
	}
	var all []ObjectNames
	for _, arg := range args {
		kind, name, ok := strings.Cut(arg, "/")
		if !ok || kind == "" || name == "" || strings.Contains(name, "/") {
			return nil, usage.Errorf("%q is not KIND/NAME, as %q is", arg, args[0])
		}
		all = append(all, ObjectNames{kind, []string{name}})
	}
	return all, nil
}

// ParseObject reads KIND NAME or KIND/NAME.
func ParseObject(args []string) (kind, name string, err error) {
	all, err := ParseObjects(args)
	if err != nil {
		return "", "", err
	}
	if len(all) != 1 || len(all[0].Names) != 1 {
		return "", "", usage.Errorf("missing one object: KIND NAME or KIND/NAME")
	}
	return all[0].Kind, all[0].Names[0], nil
}
