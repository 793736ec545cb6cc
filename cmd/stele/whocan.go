package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/access"
	"stele.dev/stele/core/resources/explain"
)

type whoCanOptions struct {
	client.Flags
	show.OutputFlags
	at    string
	grant bool
}

func whoCanCommand() *cobra.Command {
	o := &whoCanOptions{}
	cmd := &cobra.Command{
		Use:   "who-can VERB (RESOURCE[/SUBRESOURCE] [NAME] | PATH)",
		Short: "List who may do something, by which rule, and since when",
		Long: `Who-can lists the users, groups and service accounts that may do something, by the policy in force
or by that at a moment. For each it shows the binding and its line, the role, the namespaces, the
condition, the denies, and since which revision it has had the permission without interruption.
Without a NAME it asks about any object; with -A about any namespace. RESOURCE is a resource as in
kubectl, or a path that begins with /.

The list has the subjects that the policy names. It does not list the members of groups. Authorizers
outside the policy (an ABAC file, a webhook, a plugin) may allow others or deny some of these; they
are named below the list.

With --grant it lists the teams whose limits let them grant the permission, by a change of their part
of the bundle, with the line of the limit. Denies refuse it nevertheless.

You need permission to create resourceaccessreviews.policy.stele.dev.

` + client.MomentHelp,
		Example: `  stele who-can delete databases
  stele who-can get secrets -A --at "yesterday 14:00"
  stele who-can update databases/status orders -n shop -o name
  stele who-can get secrets -n shop --grant
  stele who-can get /metrics`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > 3 || len(args) == 3 && strings.HasPrefix(args[1], "/") {
				return usage.Missing(cmd, "arguments: VERB RESOURCE [NAME], or VERB PATH")
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
		ValidArgsFunction: o.CompleteRequest,
	}
	o.Flags.AddFlags(cmd)
	o.AddAllNamespaces(cmd)
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml", "name")
	cmd.Flags().BoolVar(&o.grant, "grant", false, "list the teams that may grant it")
	cmd.Flags().StringVar(&o.at, "at", "now", "`MOMENT` whose policy decides")
	_ = cmd.RegisterFlagCompletionFunc("at", client.CompleteMoments)
	return cmd
}

func (o *whoCanOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	review := &access.Review{TypeMeta: metav1.TypeMeta{APIVersion: access.Group + "/" + access.Version, Kind: access.ReviewKind}}
	if review.Spec.Revision, err = client.RevisionAt(ctx, config, o.at); err != nil {
		return err
	}
	if err := o.ask(&review.Spec, args); err != nil {
		return err
	}
	client.WarnOfVerb(cmd.ErrOrStderr(), &explain.Spec{Verb: review.Spec.Verb, Path: review.Spec.Path})
	answer, text, err := client.AskAccess(ctx, &o.Flags, cmd.ErrOrStderr(), access.ReviewPlural, review)
	if err != nil {
		return err
	}
	if o.grant {
		return o.Print(cmd, text,
			func(out *show.Output) error { return show.Grantors(out, answer) },
			func(out *show.Output) error { return show.GrantorNames(out, answer) })
	}
	return o.Print(cmd, text,
		func(out *show.Output) error { return show.Holders(out, answer) },
		func(out *show.Output) error { return show.HolderNames(out, answer) })
}

// ask sets the permission that the arguments describe.
func (o *whoCanOptions) ask(s *access.ReviewSpec, args []string) error {
	s.Verb = args[0]
	if strings.HasPrefix(args[1], "/") {
		s.Verb, s.Path = strings.ToLower(s.Verb), args[1] // users write GET
		return nil
	}
	if len(args) == 3 {
		s.Name = args[2]
	}
	config, loader, err := o.Config()
	if err != nil {
		return err
	}
	resource, subresource := client.SplitSubresource(args[1])
	s.Subresource = subresource
	if resource == "*" {
		s.Group, s.Resource, s.Namespace, s.AnyNamespace = "*", "*", o.Namespace, o.Namespace == ""
		return nil
	}
	today, err := client.NewKinds(config)
	if err != nil {
		return err
	}
	mapping, _, err := today.ResourceThen(resource, s.Revision)
	if err != nil {
		// A rule may name a resource that is not served, such as users, which are impersonated.
		if slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete"}, s.Verb) {
			return err
		}
		gr := schema.ParseGroupResource(resource)
		s.Group, s.Resource, s.Namespace, s.AnyNamespace = gr.Group, gr.Resource, o.Namespace, o.Everywhere
		return nil
	}
	s.Group, s.Resource = mapping.Resource.Group, mapping.Resource.Resource
	if s.AnyNamespace = o.Everywhere && mapping.Scope.Name() == meta.RESTScopeNameNamespace; !s.AnyNamespace {
		s.Namespace, err = o.NamespaceFor(mapping, loader)
	}
	return err
}
