package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/changes"
)

// completeRecent offers the values that a property of the newest changes has.
func (o *Flags) completeRecent(of func(*changes.Change) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return o.Complete(cmd, func(ctx context.Context, config *rest.Config, _ clientcmd.ClientConfig) ([]string, error) {
			log, err := NewChanges(config)
			if err != nil {
				return nil, err
			}
			values, _, err := log.recent(ctx, of)
			return values, err
		}), usage.NoFiles
	}
}

// completeWithin limits how long a shell completion waits for the server.
const completeWithin = 3 * time.Second

// Complete offers to a shell what read returns, or nothing if that fails or takes too long. It uses no kubeconfig that was
// not named: whoever completes a word has not decided to trust the current folder.
func (o *Flags) Complete(cmd *cobra.Command, read func(context.Context, *rest.Config, clientcmd.ClientConfig) ([]string, error)) []string {
	if usage.FromEnvironment(cmd.Flags()) != nil || o.implicit() {
		return nil
	}
	config, loader, err := o.Config()
	if err != nil {
		return nil
	}
	config.Timeout = completeWithin
	ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeWithin)
	defer stop()
	names, err := read(ctx, config, loader)
	if err != nil {
		return nil
	}
	return names
}

// completeContexts offers the contexts of the kubeconfig.
func (o *Flags) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	if o.implicit() {
		return nil, usage.NoFiles
	}
	config, err := o.LoadingRules().Load()
	if err != nil {
		return nil, usage.NoFiles
	}
	return slices.Sorted(maps.Keys(config.Contexts)), usage.NoFiles
}

// completeNamespaces offers the namespaces.
func (o *Flags) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.completeNames(cmd, "namespaces"), usage.NoFiles
}

// CompleteKinds offers the kinds that can be listed.
func (o *Flags) CompleteKinds(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.Complete(cmd, func(_ context.Context, config *rest.Config, _ clientcmd.ClientConfig) (names []string, err error) {
		kinds, err := ListableKinds(config)
		for _, k := range kinds {
			names = append(names, k.GVR().GroupResource().String())
		}
		slices.Sort(names)
		return names, err
	}), usage.NoFiles
}

// CompleteNames offers to a shell the names that list returns for a kind and the namespace of the flags.
func (o *Flags) CompleteNames(cmd *cobra.Command, kind string, list func(context.Context, *rest.Config, *meta.RESTMapping, string) ([]string, error)) []string {
	return o.Complete(cmd, func(ctx context.Context, config *rest.Config, loader clientcmd.ClientConfig) ([]string, error) {
		mapping, err := ResourceNamed(config, kind)
		if err != nil {
			return nil, err
		}
		namespace, err := o.NamespaceFor(mapping, loader)
		if err != nil {
			return nil, err
		}
		return list(ctx, config, mapping, namespace)
	})
}

// completeNames offers the names of the objects of a kind.
func (o *Flags) completeNames(cmd *cobra.Command, kind string) []string {
	return o.CompleteNames(cmd, kind, func(ctx context.Context, config *rest.Config, mapping *meta.RESTMapping, namespace string) ([]string, error) {
		objects, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		list, err := objects.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
		if err != nil {
			return nil, err
		}
		names := make([]string, len(list.Items))
		for i := range list.Items {
			names[i] = list.Items[i].Name
		}
		return names, nil
	})
}

// CompleteObjects offers a KIND followed by up to atMost names (0 for any number), or KIND/NAME.
func (o *Flags) CompleteObjects(atMost int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		kind, _, slashed := strings.Cut(word, "/")
		switch {
		case slashed && (atMost == 0 || len(args) == 0):
			names := o.completeNames(cmd, kind)
			for i, name := range names {
				names[i] = kind + "/" + name
			}
			return names, usage.NoFiles
		case len(args) == 0:
			return o.CompleteKinds(cmd, args, word)
		case atMost > 0 && len(args) > atMost || strings.Contains(args[0], "/"):
			return nil, usage.NoFiles
		}
		return slices.DeleteFunc(o.completeNames(cmd, args[0]), func(name string) bool { return slices.Contains(args[1:], name) }), usage.NoFiles
	}
}

// CompleteMoments offers examples of moments.
func CompleteMoments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"10m\tten minutes ago", "1h\tan hour ago", "1d\ta day ago", "yesterday\tits beginning", "now\tthe newest revision"}, usage.NoFiles
}

// CompleteDigests offers the digests of policies that have been in force.
func (o *Flags) CompleteDigests(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, usage.NoFiles
	}
	return o.Complete(cmd, func(ctx context.Context, _ *rest.Config, _ clientcmd.ClientConfig) (digests []string, err error) {
		policies, err := NewPolicies(o, rest.NoWarnings{})
		if err != nil {
			return nil, err
		}
		list, err := policies.List(ctx)
		for _, p := range list {
			digests = append(digests, fmt.Sprintf("%.12s\tactivated at revision %d%s", p.Name, p.Status.Revision, CommitText(p.Spec.Commit)))
		}
		return digests, err
	}), usage.NoFiles
}

// CompleteRequest offers verbs, then kinds, then objects.
func (o *Flags) CompleteRequest(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return slices.DeleteFunc(slices.Clone(resourceVerbs), func(v string) bool { return v == "*" }), usage.NoFiles
	case 1:
		return o.CompleteKinds(cmd, nil, word)
	case 2:
		return o.completeNames(cmd, args[1]), usage.NoFiles
	}
	return nil, usage.NoFiles
}
