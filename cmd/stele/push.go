package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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

const renameUsage = "put it in force although its cluster is another than that of the policy in force"

type pushOptions struct {
	clientOptions
	replaces, commit      string
	dryRun, rename, clean bool
	compile               compileOptions
}

func pushCommand() *cobra.Command {
	o := &pushOptions{}
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Put the bundle in a folder in force",
		Long: `Push compiles the bundle in a folder, sends it to the server, and has it put in force:
for every request from one revision on. It replaces the policy that was in force when
push began, or that --replaces names; if another one is in force by then, nothing
changes. To do it takes the permission to create policies.policy.stele.dev, and to list
them.

The server refuses a bundle with errors, one that lacks a kind of which there are
objects, and, without --rename, one whose cluster is another than that of the policy in
force: it is meant for another control plane. Objects stay as they are: a rule of a new
schema is kept from their next write on.`,
		Example: `  stele policy push examples/quickstart
  stele policy push clusters/prod --dry-run`,
		Args: exactly("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.addFlags(cmd)
	o.compile.addFlags(cmd.Flags())
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.replaces, "replaces", "", "digest of the policy that it must replace (default: the one in force now)")
	cmd.Flags().BoolVar(&o.rename, "rename", false, renameUsage)
	cmd.Flags().StringVar(&o.commit, "commit", "", "commit that the bundle is from (default: HEAD, with +changes if the module differs from it)")
	cmd.Flags().BoolVar(&o.clean, "require-clean", false, "refuse to push a module that differs from its commit in git")
	cmd.MarkFlagsMutuallyExclusive("commit", "require-clean")
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
	compiled, diags, err := o.compile.compile(ctx, source)
	if err != nil {
		return err
	}
	if len(diags) > 0 {
		return errDiagnostics(cmd.ErrOrStderr(), source, diags, dir)
	}
	commit, err := o.commitOf(ctx, dir, compiled.Source)
	if err != nil {
		return err
	}
	warn(cmd.ErrOrStderr(), compiled)
	client, err := newPolicyClient(&o.clientOptions, &unprinted{cmd.ErrOrStderr(), compiled.Warnings})
	if err != nil {
		return err
	}
	before, err := client.inForce(ctx)
	if err != nil {
		return err
	}
	p := &activation.Policy{TypeMeta: metav1.TypeMeta{APIVersion: activation.Group + "/" + activation.Version, Kind: activation.Kind}}
	p.Spec = activation.SpecOf(compiled.Source)
	p.Spec.Replaces, p.Spec.Commit, p.Spec.Rename = o.replaces, commit, o.rename
	if p.Spec.Replaces == "" {
		p.Spec.Replaces = before.Name
	}
	after, err := client.create(ctx, p, o.dryRun)
	if err != nil {
		return err
	}
	report(cmd, before, after, o.dryRun)
	return nil
}

// report says what has become of a push.
func report(cmd *cobra.Command, before, after *activation.Policy, dryRun bool) {
	out := cmd.OutOrStdout()
	switch {
	case after.Name == before.Name:
		fmt.Fprintf(out, "Policy %.12s is in force already, since revision %d.\n", after.Name, after.Status.Revision)
	case dryRun:
		fmt.Fprintf(out, "Policy %.12s could replace %.12s.\n", after.Name, before.Name)
	default:
		fmt.Fprintf(out, "Policy %.12s is in force since revision %d, in place of %.12s.\n", after.Name, after.Status.Revision, before.Name)
	}
}

func showCommand() *cobra.Command {
	o := &clientOptions{}
	output, at := "", uint64(0)
	cmd := &cobra.Command{
		Use:     "show [DIGEST]",
		Short:   "Show the policy in force, or one that was",
		Example: "  stele policy show\n  stele policy show --at 1200\n  stele policy show 6e9630c0 -o json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := newPolicyClient(o, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
			if err != nil {
				return err
			}
			list, err := client.list(cmd.Context())
			if err != nil {
				return err
			}
			p := list[0]
			switch {
			case len(args) > 0 && at > 0:
				return errors.New("give a digest or --at, not both")
			case len(args) > 0:
				p, err = find(list, args[0])
			case at > 0:
				p, err = inForceAt(list, at)
			}
			if err != nil {
				return err
			}
			if p, err = client.get(cmd.Context(), p.Name); err != nil {
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
			fmt.Fprintf(out, "Digest    %s\nCluster   %s\nRevision  %d\nActor     %s\n", p.Name, p.Status.Cluster, p.Status.Revision, p.Status.Actor)
			if p.Spec.Commit != "" {
				fmt.Fprintf(out, "Commit    %s\n", p.Spec.Commit)
			}
			if p.Status.InForce {
				fmt.Fprintf(out, "Kinds     %d\n", p.Status.Kinds)
			} else {
				fmt.Fprintln(out, "In force  no")
			}
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
	cmd.Flags().Uint64Var(&at, "at", 0, "the one that was in force at this revision")
	return cmd
}

// policyClient speaks policy.stele.dev/v1.
type policyClient struct{ rest *rest.RESTClient }

// newPolicyClient makes a client; warnings take what the server warns of.
func newPolicyClient(o *clientOptions, warnings rest.WarningHandler) (*policyClient, error) {
	config, _, err := o.config()
	if err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.APIPath = "/apis"
	c.GroupVersion = &schema.GroupVersion{Group: activation.Group, Version: activation.Version}
	c.NegotiatedSerializer = rawSerializer
	c.WarningHandler = warnings
	client, err := rest.RESTClientFor(c)
	return &policyClient{client}, err
}

// list has the policies without their files, that in force first.
func (c *policyClient) list(ctx context.Context) ([]*activation.Policy, error) {
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
	return list.Items, nil
}

// inForce is the policy in force, without its files.
func (c *policyClient) inForce(ctx context.Context) (*activation.Policy, error) {
	list, err := c.list(ctx)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (c *policyClient) get(ctx context.Context, name string) (*activation.Policy, error) {
	text, err := c.rest.Get().Resource(activation.Plural).Name(name).DoRaw(ctx)
	if err != nil {
		return nil, readable(err, text)
	}
	p := new(activation.Policy)
	return p, json.Unmarshal(text, p)
}

// find returns the policy whose digest begins so.
func find(list []*activation.Policy, digest string) (*activation.Policy, error) {
	var found *activation.Policy
	for _, p := range list {
		if !strings.HasPrefix(p.Name, digest) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%s is the beginning of several digests, of %.12s and %.12s among others", digest, found.Name, p.Name)
		}
		found = p
	}
	if found == nil {
		return nil, fmt.Errorf("no policy %s was ever in force; `stele policy log` shows those that were", digest)
	}
	return found, nil
}

// inForceAt returns the policy that was in force at a revision.
func inForceAt(list []*activation.Policy, revision uint64) (*activation.Policy, error) {
	var found *activation.Policy
	since := uint64(0)
	for _, p := range list {
		for _, r := range p.Status.Revisions {
			if r <= revision && r > since {
				found, since = p, r
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no policy was in force at revision %d", revision)
	}
	return found, nil
}

func rollbackCommand() *cobra.Command {
	o := &clientOptions{}
	dryRun, rename := false, false
	cmd := &cobra.Command{
		Use:   "rollback [DIGEST]",
		Short: "Put an earlier policy in force again: the one before, or that of a digest",
		Long: `Rollback sends the files of a policy that was in force before to the server, which compiles
them anew, as it would if they were pushed. Without a digest it is the policy before the
one in force.`,
		Example: "  stele policy rollback\n  stele policy rollback 6e9630c0 --dry-run",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			client, err := newPolicyClient(o, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
			if err != nil {
				return err
			}
			list, err := client.list(ctx)
			if err != nil {
				return err
			}
			var to *activation.Policy
			if len(args) == 1 {
				to, err = find(list, args[0])
			} else {
				to, err = inForceAt(list, list[0].Status.Revision-1)
			}
			if err != nil {
				return err
			}
			if to, err = client.get(ctx, to.Name); err != nil {
				return err
			}
			p := &activation.Policy{TypeMeta: to.TypeMeta, Spec: to.Spec}
			p.Spec.Replaces, p.Spec.Rename = list[0].Name, rename
			after, err := client.create(ctx, p, dryRun)
			if err != nil {
				return err
			}
			report(cmd, list[0], after, dryRun)
			return nil
		},
	}
	o.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().BoolVar(&rename, "rename", false, renameUsage)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "have the server check it, and change nothing")
	return cmd
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
	if text, err = q.Do(ctx).Raw(); err != nil { // DoRaw hears no warnings
		return nil, readable(err, text)
	}
	after := new(activation.Policy)
	return after, json.Unmarshal(text, after)
}
