package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
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
			namespace, err := o.namespaceFor(mapping, loader)
			if err != nil {
				return err
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
