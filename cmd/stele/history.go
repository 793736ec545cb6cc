package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/cmd/stele/internal/client"
)

func historyCommand() *cobra.Command {
	o := &logOptions{lives: true}
	uid := ""
	cmd := &cobra.Command{
		Use:   "history (KIND NAME | KIND/NAME)",
		Short: "Show the changes of one object, newest first",
		Long: `History shows every change of one object: revision, time, user and action. It includes deleted
objects of the same name: a line separates them, and --uid selects one. -p shows below each line
the fields that were added (+), removed (-) or replaced (~). Values of Secrets and of fields that a
policy marks as sensitive are shown only by -o json, jsonl and yaml. See also stele blame.

` + client.MomentHelp,
		Example: `  stele history database orders
  stele history db/orders -p --since 1d
  stele history cm settings -n kube-system -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := client.ParseObject(args)
			if err != nil {
				return err
			}
			config, loader, err := o.Config()
			if err != nil {
				return err
			}
			mapping, err := client.ResourceNamed(config, kind)
			if err != nil {
				return err
			}
			namespace, err := o.NamespaceFor(mapping, loader)
			if err != nil {
				return err
			}
			set := fields.Set{"object.namespace": namespace, "object.name": name}
			if uid != "" {
				set["object.uid"] = uid
			}
			o.none = "No changes of that object match the flags; without flags, all are shown."
			if !o.Chooses() && uid == "" {
				where := ""
				if namespace != "" {
					where = " in namespace " + namespace
				}
				o.never = fmt.Errorf("no %s %q%s, now or before", strings.ToLower(mapping.GroupVersionKind.GroupKind().String()), name, where)
			}
			return o.run(cmd, client.ChangesQuery{Namespace: namespace, Fields: set, Resources: []schema.GroupResource{mapping.Resource.GroupResource()}})
		},
		ValidArgsFunction: o.CompleteObjects(1),
	}
	o.addFlags(cmd)
	o.addFilters(cmd)
	cmd.Flags().StringVar(&uid, "uid", "", "only the object with this uid")
	return cmd
}
