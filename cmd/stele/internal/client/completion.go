package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/changes"
)

// completeRecent offers the values that a property of the newest changes has.
func (o *Flags) completeRecent(of func(*changes.Change) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		if usage.FromEnvironment(cmd.Flags()) != nil {
			return nil, usage.NoFiles
		}
		config, _, err := o.Config()
		if err != nil {
			return nil, usage.NoFiles
		}
		config.Timeout = CompleteWithin
		client, err := NewChanges(config)
		if err != nil {
			return nil, usage.NoFiles
		}
		ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), CompleteWithin)
		defer stop()
		values, _, _ := client.recent(ctx, of) // none, if they may not be read
		return values, usage.NoFiles
	}
}

// CompleteWithin limits how long a shell completion waits for the server.
const CompleteWithin = 3 * time.Second

// completeContexts offers the contexts of the kubeconfig.
func (o *Flags) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := o.LoadingRules().Load()
	if err != nil {
		return nil, usage.NoFiles
	}
	names := []string{}
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, usage.NoFiles
}

// completeNamespaces offers the namespaces.
func (o *Flags) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.completeNames(cmd, "namespaces"), usage.NoFiles
}

// CompleteKinds offers the kinds that can be listed.
func (o *Flags) CompleteKinds(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if err := usage.FromEnvironment(cmd.Flags()); err != nil {
		return nil, usage.NoFiles
	}
	config, _, err := o.Config()
	if err != nil {
		return nil, usage.NoFiles
	}
	config.Timeout = CompleteWithin
	kinds, _ := ListableKinds(config) // none, if they cannot be read
	names := []string{}
	for _, k := range kinds {
		names = append(names, k.GVR().GroupResource().String())
	}
	slices.Sort(names)
	return names, usage.NoFiles
}

// completeNames returns the names of the objects of a kind.
func (o *Flags) completeNames(cmd *cobra.Command, kind string) []string {
	if err := usage.FromEnvironment(cmd.Flags()); err != nil {
		return nil
	}
	config, loader, err := o.Config()
	if err != nil {
		return nil
	}
	config.Timeout = CompleteWithin
	mapping, err := ResourceNamed(config, kind)
	if err != nil {
		return nil
	}
	namespace, err := o.NamespaceFor(mapping, loader)
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), CompleteWithin)
	defer stop()
	objects, err := client.Resource(mapping.Resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 500})
	if err != nil {
		return nil
	}
	names := make([]string, len(objects.Items))
	for i := range objects.Items {
		names[i] = objects.Items[i].Name
	}
	return names
}

// CompleteObjects offers a KIND and then at most so many names of it, or KIND/NAME. 0 means any number of names.
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
func (o *Flags) CompleteDigests(cmd *cobra.Command, args []string, _ string) (digests []string, _ cobra.ShellCompDirective) {
	if len(args) > 0 || usage.FromEnvironment(cmd.Flags()) != nil {
		return nil, usage.NoFiles
	}
	policies, err := NewPolicies(o, rest.NoWarnings{})
	if err != nil {
		return nil, usage.NoFiles
	}
	ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), CompleteWithin)
	defer stop()
	list, _ := policies.List(ctx) // none, if it cannot be read
	for _, p := range list {
		digests = append(digests, fmt.Sprintf("%.12s\tactivated at revision %d%s", p.Name, p.Status.Revision, CommitText(p.Spec.Commit)))
	}
	return digests, usage.NoFiles
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
