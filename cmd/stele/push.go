package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/activation"
	"stele.dev/stele/policy/bundles"
)

const dropFieldsUsage = "activate it although stored objects have fields that its schemas do not: these are not shown any more"

const renameUsage = "activate the bundle although it names another cluster than the policy in force"

type pushOptions struct {
	clientOptions
	formatOptions
	replaces, commit                  string
	dryRun, rename, clean, dropFields bool
	compile                           compileOptions
}

func pushCommand() *cobra.Command {
	o := &pushOptions{}
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Activate the bundle in a folder",
		Long: `Push compiles the bundle in a folder, sends it to the server, and has it put in force:
for every request from one revision on. It replaces the policy that was in force when
push began, or that --replaces names; if another one is in force by then, nothing
changes. To do it takes the permission to create policies.policy.stele.dev, and to list
them.

The server refuses a bundle with errors, one that lacks a kind of which there are
objects, and, without --rename, one whose cluster is another than that of the policy in
force: it is meant for another control plane. Objects stay as they are: a rule of a new
schema is kept from their next write on.

Without --drop-fields the server also refuses a bundle whose schemas lack fields that
stored objects have, and counts those objects. A field that is dropped is not shown any
more. It is kept until the part of the object that has it, such as its spec, is written.`,
		Example: `  stele policy push examples/quickstart
  stele policy push clusters/prod --dry-run`,
		Args: exactly("DIR, the folder of the bundle"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.clientOptions.addFlags(cmd)
	o.formatOptions.addFlags(cmd, "json", "yaml", "name")
	o.compile.addFlags(cmd.Flags())
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.replaces, "replaces", "", "digest of the policy that it must replace (default: the one in force now)")
	cmd.Flags().BoolVar(&o.rename, "rename", false, renameUsage)
	cmd.Flags().BoolVar(&o.dropFields, "drop-fields", false, dropFieldsUsage)
	cmd.Flags().StringVar(&o.commit, "commit", "", "commit that the bundle is from (default: HEAD, with +changes if the module differs from it)")
	cmd.Flags().BoolVar(&o.clean, "require-clean", false, "refuse to push a module that differs from its commit in git")
	cmd.MarkFlagsMutuallyExclusive("commit", "require-clean")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the server check it, and change nothing")
	return cmd
}

func (o *pushOptions) run(cmd *cobra.Command, dir string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	source, err := bundles.ReadDir(dir)
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
	p.Spec.Replaces, p.Spec.Commit, p.Spec.Rename, p.Spec.DropFields = o.replaces, commit, o.rename, o.dropFields
	if p.Spec.Replaces == "" {
		p.Spec.Replaces = before.Name
	}
	if !o.quiet {
		client.progress = onTerminal(cmd.ErrOrStderr())
	}
	after, err := client.create(ctx, p, o.dryRun)
	client.show("")
	if err != nil {
		return err
	}
	return o.report(cmd, before, after, o.dryRun)
}

// report says what a push or a rollback has done.
func (o *formatOptions) report(cmd *cobra.Command, before, after *activation.Policy, dryRun bool) error {
	switch {
	case o.format == "name":
		_, err := fmt.Fprintln(cmd.OutOrStdout(), policyName(after))
		return err
	case o.format != "":
		return (&output{Writer: cmd.OutOrStdout()}).document(o.format, after)
	case after.Name == before.Name:
		o.say(cmd, "Policy %.12s is in force already, since revision %d.", after.Name, after.Status.Revision)
	case dryRun:
		o.say(cmd, "Dry run: the server accepts policy %.12s%s in place of %.12s. Nothing was changed.", after.Name, ofCommit(after.Spec.Commit), before.Name)
		o.contents(cmd, after)
	default:
		o.say(cmd, "Policy %.12s%s is in force since revision %d, in place of %.12s.", after.Name, ofCommit(after.Spec.Commit), after.Status.Revision, before.Name)
		o.contents(cmd, after)
	}
	return nil
}

// policyName is the name of a policy as kubectl prints it for -o name.
func policyName(p *activation.Policy) string {
	return resourceName(schema.GroupVersionKind{Group: activation.Group, Kind: activation.Kind}, p.Name)
}

// ofCommit is the commit of a policy, as the end of a phrase.
func ofCommit(commit string) string {
	if commit == "" {
		return ""
	}
	commit, changed := strings.CutSuffix(commit, "+changes")
	text := " of commit " + commit[:min(12, len(commit))]
	if changed {
		text += " with changes"
	}
	return text
}

type showOptions struct {
	clientOptions
	formatOptions
	at string
}

func showCommand() *cobra.Command {
	o := &showOptions{}
	cmd := &cobra.Command{
		Use:     "show [DIGEST]",
		Short:   "Show the policy in force, or an earlier one",
		Long:    "Show prints the policy in force, that of a digest, or that at a moment. -o json and yaml have the contents of its files.\n\n" + momentHelp,
		Example: "  stele policy show\n  stele policy show --at yesterday\n  stele policy show 6e9630c0 -o json",
		Args:    atMost(1),
		RunE:    o.run,
	}
	o.clientOptions.addFlags(cmd)
	o.formatOptions.addFlags(cmd, "json", "yaml", "name")
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.at, "at", "now", "`MOMENT` whose policy is shown")
	_ = cmd.RegisterFlagCompletionFunc("at", completeMoments)
	cmd.ValidArgsFunction = o.completeDigests
	return cmd
}

func (o *showOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	if len(args) > 0 && o.at != "now" {
		return usagef("a digest and --at cannot be given together")
	}
	client, err := newPolicyClient(&o.clientOptions, rest.NewWarningWriter(cmd.ErrOrStderr(), rest.WarningWriterOptions{}))
	if err != nil {
		return err
	}
	list, err := client.list(cmd.Context())
	if err != nil {
		return err
	}
	p, err := o.choose(cmd, args, list)
	if err != nil {
		return err
	}
	if p, err = client.get(cmd.Context(), p.Name); err != nil {
		return err
	}
	switch o.format {
	case "":
		return showPolicy(cmd, p)
	case "name":
		_, err := fmt.Fprintln(cmd.OutOrStdout(), policyName(p))
		return err
	}
	return (&output{Writer: cmd.OutOrStdout()}).document(o.format, p)
}

// choose returns the policy that the arguments mean.
func (o *showOptions) choose(cmd *cobra.Command, args []string, list []*activation.Policy) (*activation.Policy, error) {
	switch {
	case len(args) > 0:
		return find(list, args[0])
	case o.at == "now":
		return list[0], nil
	}
	config, _, err := o.config()
	if err != nil {
		return nil, err
	}
	revision, err := revisionAt(cmd.Context(), config, o.at)
	if err != nil {
		return nil, err
	}
	return inForceAt(list, revision)
}

// showPolicy prints a policy for people.
func showPolicy(cmd *cobra.Command, p *activation.Policy) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Digest    %s\nCluster   %s\nRevision  %d\nActor     %s\n", p.Name, p.Status.Cluster, p.Status.Revision, p.Status.Actor)
	if p.Spec.Commit != "" {
		fmt.Fprintf(&b, "Commit    %s\n", p.Spec.Commit)
	}
	if p.Status.InForce {
		fmt.Fprintf(&b, "Kinds     %d\n", p.Status.Kinds)
	} else {
		fmt.Fprintln(&b, "In force  no")
	}
	for i, f := range p.Spec.Files {
		label := ""
		if i == 0 {
			label = "Files"
		}
		fmt.Fprintf(&b, "%-9s %s\n", label, f.Path)
	}
	_, err := io.WriteString(cmd.OutOrStdout(), b.String())
	return err
}

// policyClient speaks policy.stele.dev/v1.
type policyClient struct {
	rest     *rest.RESTClient
	progress io.Writer // of pushes that take long; nil if nobody sees it
}

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
	return &policyClient{rest: client}, err
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
