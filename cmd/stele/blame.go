package main

import (
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/blame"
)

type blameOptions struct {
	client.Flags
	show.OutputFlags
	at string
}

func blameCommand() *cobra.Command {
	o := &blameOptions{}
	cmd := &cobra.Command{
		Use:   "blame (KIND NAME | KIND/NAME)",
		Short: "Show who set each field of an object, and when",
		Long: `Blame shows an object as YAML. Left of each field it shows the revision at which the field got its
value, the time, and the user. For a default it shows the kind whose schema has the default, with
file and line. Values of Secrets and of fields that a policy marks as sensitive are shown only by
-o json and yaml.

` + client.MomentHelp,
		Example: `  stele blame database orders
  stele blame cm/settings --at 10m
  stele blame db orders -o json`,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
		ValidArgsFunction: o.CompleteObjects(1),
	}
	o.Flags.AddFlags(cmd)
	o.AddIdentity(cmd)
	o.OutputFlags.AddFlags(cmd, "json", "yaml", "name")
	cmd.Flags().StringVar(&o.at, "at", "now", "`MOMENT` at which to look at the object")
	_ = cmd.RegisterFlagCompletionFunc("at", client.CompleteMoments)
	return cmd
}

func (o *blameOptions) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	kind, name, err := client.ParseObject(args)
	if err != nil {
		return err
	}
	config, loader, err := o.Config()
	if err != nil {
		return err
	}
	b := &blame.Blame{TypeMeta: metav1.TypeMeta{APIVersion: blame.Group + "/" + blame.Version, Kind: blame.Kind}}
	if b.Spec.Revision, err = client.RevisionAt(ctx, config, o.at); err != nil {
		return err
	}
	today, err := client.NewKinds(config)
	if err != nil {
		return err
	}
	mapping, _, err := today.ResourceThen(kind, b.Spec.Revision)
	if err != nil {
		return err
	}
	b.Spec.Group, b.Spec.Resource, b.Spec.Name = mapping.Resource.Group, mapping.Resource.Resource, name
	if b.Spec.Namespace, err = o.NamespaceFor(mapping, loader); err != nil {
		return err
	}
	answer, text, err := client.AskBlame(ctx, config, b)
	if err != nil {
		return err
	}
	return o.Print(cmd, text, func(out *show.Output) error {
		kind := mapping.GroupVersionKind.GroupKind()
		hidden := (&client.Shapes{Config: config}).Secrets(kind)
		if b.Spec.Revision > 0 {
			hidden = hidden.Union((&client.Shapes{Config: client.AtRevision(config, b.Spec.Revision)}).Secrets(kind))
		}
		return show.Blame(out, mapping, hidden, answer)
	}, func(out *show.Output) error {
		_, err := fmt.Fprintln(out, show.ResourceName(mapping.GroupVersionKind, name))
		return err
	})
}
