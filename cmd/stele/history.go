package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

func historyCommand() *cobra.Command {
	o := &logOptions{}
	cmd := &cobra.Command{
		Use:   "history KIND NAME",
		Short: "Show what happened to one object, newest first",
		Long: `History shows every change of one object: revision, time, who, what. Earlier objects of
the same name, deleted since, are part of it.`,
		Example: `  stele history database orders
  stele history cm settings -n kube-system -o json`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			config, loader, err := o.config()
			if err != nil {
				return err
			}
			mapping, err := resourceOf(config, args[0])
			if err != nil {
				return err
			}
			namespace := ""
			if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
				if namespace = o.namespace; namespace == "" {
					if namespace, _, err = loader.Namespace(); err != nil {
						return err
					}
				}
			}
			client, err := newChangesClient(config)
			if err != nil {
				return err
			}
			selector := fields.Set{
				"object.group": mapping.Resource.Group, "object.resource": mapping.Resource.Resource,
				"object.namespace": namespace, "object.name": args[1],
			}.AsSelector()
			o.none = fmt.Sprintf("There never was a %s named %s.", mapping.Resource.GroupResource(), args[1])
			if namespace != "" {
				o.none = fmt.Sprintf("There never was a %s named %s in the namespace %s.", mapping.Resource.GroupResource(), args[1], namespace)
			}
			return o.show(ctx, cmd, client, changesQuery{namespace: namespace, fields: selector.String(), limit: o.limit})
		},
	}
	o.addFlags(cmd)
	return cmd
}

// resourceOf finds the resource that a person means: by its plural, its kind, or a
// short name, with its group or without.
func resourceOf(config *rest.Config, name string) (*meta.RESTMapping, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(cached), cached, nil)
	// databases.v1.example.com or databases.example.com: the name does not tell which.
	full, partial := schema.ParseResourceArg(name)
	candidates := []schema.GroupVersionResource{partial.WithVersion("")}
	if full != nil {
		candidates = append(candidates, *full)
	}
	for _, gvr := range candidates {
		if kind, err := mapper.KindFor(gvr); err == nil {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	kind := schema.ParseGroupKind(name)
	if mapping, err := mapper.RESTMapping(kind); err == nil {
		return mapping, nil
	}
	return nil, fmt.Errorf("the server has no kind %q; `kubectl api-resources` lists those it has", name)
}
