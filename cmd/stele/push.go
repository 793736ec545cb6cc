package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/policy"
)

type pushOptions struct {
	clientOptions
	replaces, commit string
	dryRun           bool
}

func pushCommand() *cobra.Command {
	o := &pushOptions{}
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Put the bundle in a folder in force",
		Long: `Push compiles the bundle in a folder, sends it to the server, and has it put in force:
for every request from one revision on. It replaces the policy that was in force when
push began, or that --replaces names; if another one is in force by then, nothing
changes. To do it takes the permission to create policies.policy.stele.dev.

The server refuses a bundle with errors, and one that lacks a kind of which there are
objects. Objects stay as they are: a rule of a new schema is kept from their next write on.`,
		Example: `  stele policy push examples/quickstart
  stele policy push clusters/prod --dry-run`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.replaces, "replaces", "", "digest of the policy that it must replace (default: the one in force now)")
	cmd.Flags().StringVar(&o.commit, "commit", "", "commit that the bundle is from (default: what git says of the folder)")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the server check it, and change nothing")
	return cmd
}

func (o *pushOptions) run(cmd *cobra.Command, dir string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	source, err := policy.ReadDir(dir)
	if err != nil {
		return err
	}
	compiled, diags := policy.Compile(source)
	if len(diags) > 0 {
		return errDiagnostics(cmd, diags, dir)
	}
	client, err := newPolicyClient(&o.clientOptions)
	if err != nil {
		return err
	}
	before, err := client.inForce(ctx)
	if err != nil {
		return err
	}
	p := &activation.Policy{TypeMeta: metav1.TypeMeta{APIVersion: activation.Group + "/" + activation.Version, Kind: activation.Kind}}
	p.Spec = activation.SpecOf(compiled.Source)
	p.Spec.Replaces, p.Spec.Commit = o.replaces, o.commit
	if p.Spec.Replaces == "" {
		p.Spec.Replaces = before.Name
	}
	if p.Spec.Commit == "" {
		p.Spec.Commit = commitOf(ctx, dir)
	}
	after, err := client.create(ctx, p, o.dryRun)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch {
	case after.Name == before.Name:
		fmt.Fprintf(out, "Policy %.12s is in force already, since revision %d.\n", after.Name, after.Status.Revision)
	case o.dryRun:
		fmt.Fprintf(out, "Policy %.12s could replace %.12s.\n", after.Name, before.Name)
	default:
		fmt.Fprintf(out, "Policy %.12s is in force since revision %d, in place of %.12s.\n", after.Name, after.Status.Revision, before.Name)
	}
	return nil
}

// commitOf asks git for the commit of a folder; "" if there is none. What is not in the
// commit is said.
func commitOf(ctx context.Context, dir string) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("rev-parse", "HEAD")
	if err != nil {
		return ""
	}
	if changed, err := git("status", "--porcelain", "--", "."); err != nil || changed != "" {
		commit += "+changes"
	}
	return commit
}

func showCommand() *cobra.Command {
	o := &clientOptions{}
	output := ""
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show the policy in force",
		Example: "  stele policy show\n  stele policy show -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := newPolicyClient(o)
			if err != nil {
				return err
			}
			p, err := client.inForce(cmd.Context())
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch output {
			case "json":
				return json.NewEncoder(out).Encode(p)
			case "":
			default:
				return fmt.Errorf("-o %s: want json", output)
			}
			fmt.Fprintf(out, "Digest    %s\nRevision  %d\nActor     %s\n", p.Name, p.Status.Revision, p.Status.Actor)
			if p.Spec.Commit != "" {
				fmt.Fprintf(out, "Commit    %s\n", p.Spec.Commit)
			}
			fmt.Fprintf(out, "Kinds     %d\n", p.Status.Kinds)
			for i, f := range p.Spec.Files {
				label := ""
				if i == 0 {
					label = "Files"
				}
				fmt.Fprintf(out, "%-9s %s\n", label, f.Path)
			}
			return nil
		},
	}
	o.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, with the files' contents")
	return cmd
}

// policyClient speaks policy.stele.dev/v1.
type policyClient struct{ rest *rest.RESTClient }

func newPolicyClient(o *clientOptions) (*policyClient, error) {
	config, _, err := o.config()
	if err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &schema.GroupVersion{Group: activation.Group, Version: activation.Version}
	c.NegotiatedSerializer = rawSerializer
	client, err := rest.RESTClientFor(c)
	return &policyClient{client}, err
}

func (c *policyClient) inForce(ctx context.Context) (*activation.Policy, error) {
	text, err := c.rest.Get().Resource(activation.Plural).DoRaw(ctx)
	if err != nil {
		return nil, readable(err, text)
	}
	var list struct{ Items []*activation.Policy }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no policy is in force")
	}
	return list.Items[0], nil
}

func (c *policyClient) create(ctx context.Context, p *activation.Policy, dryRun bool) (*activation.Policy, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	q := c.rest.Post().Resource(activation.Plural).SetHeader("Content-Type", "application/json").Body(text)
	if dryRun {
		q = q.Param("dryRun", metav1.DryRunAll)
	}
	if text, err = q.DoRaw(ctx); err != nil {
		return nil, readable(err, text)
	}
	after := new(activation.Policy)
	return after, json.Unmarshal(text, after)
}
