package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/core/blame"
)

type blameOptions struct {
	clientOptions
	outputOptions
	at string
}

func blameCommand() *cobra.Command {
	o := &blameOptions{}
	cmd := &cobra.Command{
		Use:   "blame (KIND NAME | KIND/NAME)",
		Short: "Show of every field of an object since when it has its value, and who gave it that",
		Long: `Blame shows an object as YAML, and left of each field the revision at which it got its
value, the time, and who sent that. For what nobody sent it names the kind whose schema has
it as a default, and the file and line where that stands. What a Secret holds and what a
policy calls sensitive is shown by -o json and yaml alone.

` + momentHelp,
		Example: `  stele blame database orders
  stele blame cm/settings --at 10m
  stele blame db orders -o json`,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
		ValidArgsFunction: o.completeObjects(1),
	}
	o.clientOptions.addFlags(cmd)
	o.addIdentity(cmd)
	o.outputOptions.addFlags(cmd, "json", "yaml", "name")
	cmd.Flags().StringVar(&o.at, "at", "now", "`MOMENT` at which to look at the object")
	_ = cmd.RegisterFlagCompletionFunc("at", completeMoments)
	return cmd
}

func (o *blameOptions) run(cmd *cobra.Command, args []string) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	kind, name, err := parseObject(args)
	if err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	config, loader, err := o.config()
	if err != nil {
		return err
	}
	b := &blame.Blame{TypeMeta: metav1.TypeMeta{APIVersion: blame.Group + "/" + blame.Version, Kind: blame.Kind}}
	if b.Spec.Revision, err = revisionAt(ctx, config, o.at); err != nil {
		return err
	}
	today, err := newKinds(config)
	if err != nil {
		return err
	}
	mapping, _, err := today.resourceThen(kind, b.Spec.Revision)
	if err != nil {
		return err
	}
	b.Spec.Group, b.Spec.Resource, b.Spec.Name = mapping.Resource.Group, mapping.Resource.Resource, name
	if b.Spec.Namespace, err = o.namespaceFor(mapping, loader); err != nil {
		return err
	}
	answer, text, err := askBlame(ctx, config, b)
	if err != nil {
		return err
	}
	out, err := o.open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	switch o.format {
	case "":
		kind := mapping.GroupVersionKind.GroupKind()
		hidden := (&shapes{config: config}).secrets(kind)
		if b.Spec.Revision > 0 {
			hidden = hidden.With((&shapes{config: atRevision(config, b.Spec.Revision)}).secrets(kind))
		}
		return showBlame(out, mapping, hidden, answer)
	case "name":
		_, err := fmt.Fprintln(out, resourceName(mapping.GroupVersionKind, name))
		return err
	}
	return out.document(o.format, text)
}

// askBlame has the server answer a blame, which is returned as it came, too.
func askBlame(ctx context.Context, config *rest.Config, b *blame.Blame) (*blame.Blame, json.RawMessage, error) {
	client, err := newChangesClient(config) // of the same group
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, nil, err
	}
	text, err = client.rest.Post().Resource(blame.Plural).SetHeader("Content-Type", "application/json").Body(text).DoRaw(ctx)
	if err != nil {
		return nil, nil, readable(err, text)
	}
	answer := new(blame.Blame)
	return answer, text, kjson.UnmarshalCaseSensitivePreserveInts(text, answer)
}
