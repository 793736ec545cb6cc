package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// completeWithin bounds what a shell waits for a server.
const completeWithin = 3 * time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

func (o *clientOptions) completeContexts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	config, err := o.loadingRules().Load()
	if err != nil {
		return nil, noFiles
	}
	names := []string{}
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, noFiles
}

func (o *clientOptions) completeNamespaces(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return o.completeNames(cmd, "namespaces"), noFiles
}

// completeKinds offers the kinds that can be read.
func (o *clientOptions) completeKinds(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if err := fromEnvironment(cmd.Flags()); err != nil {
		return nil, noFiles
	}
	config, _, err := o.config()
	if err != nil {
		return nil, noFiles
	}
	config.Timeout = completeWithin
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, noFiles
	}
	lists, _ := client.ServerPreferredResources() // what there is, if some is missing
	names := []string{}
	for _, list := range lists {
		group, _, grouped := strings.Cut(list.GroupVersion, "/")
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || strings.Contains(r.Name, "/") {
				continue
			}
			name := r.Name
			if grouped {
				name += "." + group
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, noFiles
}

// completeNames offers the objects of a kind.
func (o *clientOptions) completeNames(cmd *cobra.Command, kind string) []string {
	if err := fromEnvironment(cmd.Flags()); err != nil {
		return nil
	}
	config, loader, err := o.config()
	if err != nil {
		return nil
	}
	config.Timeout = completeWithin
	mapping, err := resourceOf(config, kind)
	if err != nil {
		return nil
	}
	namespace, err := o.namespaceFor(mapping, loader)
	if err != nil {
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil
	}
	ctx, stop := context.WithTimeout(cmp.Or(cmd.Context(), context.Background()), completeWithin)
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

// completeObjects offers KIND, then names of it, as many as a command takes (0 for any
// number); or KIND/NAME.
func (o *clientOptions) completeObjects(atMost int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		kind, _, slashed := strings.Cut(word, "/")
		switch {
		case slashed && (atMost == 0 || len(args) == 0):
			names := o.completeNames(cmd, kind)
			for i, name := range names {
				names[i] = kind + "/" + name
			}
			return names, noFiles
		case len(args) == 0:
			return o.completeKinds(cmd, args, word)
		case atMost > 0 && len(args) > atMost || strings.Contains(args[0], "/"):
			return nil, noFiles
		}
		return slices.DeleteFunc(o.completeNames(cmd, args[0]), func(name string) bool { return slices.Contains(args[1:], name) }), noFiles
	}
}

// completeMoments offers what moments look like.
func completeMoments(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"10m\tten minutes ago", "1h\tan hour ago", "1d\ta day ago", "yesterday\tits beginning", "now\tthe newest revision"}, noFiles
}

// pluginCompletion is the program by which kubectl completes `kubectl stele`.
const pluginCompletion = `#!/bin/sh
# kubectl runs this as kubectl_complete-stele, found in $PATH, to complete "kubectl stele".
exec kubectl stele __complete "$@"
`

func completionForKubectl() *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl",
		Short: "Generate the program by which kubectl completes `kubectl stele`",
		Long: `Kubectl completes the arguments of a plugin by a program beside it. Write it into a folder
in $PATH by the name of kubectl_complete-stele, and let it be run.`,
		Example: `  stele completion kubectl > kubectl_complete-stele
  chmod +x kubectl_complete-stele`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), pluginCompletion)
			return err
		},
	}
}
