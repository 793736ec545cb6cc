package pushing

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/cmd/stele/internal/planning"
	"stele.dev/stele/cmd/stele/internal/progress"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/replicas"
	"stele.dev/stele/policy/bundles"
)

// commitOf returns the commit that git reports, and the files that differ from it. --commit must be that one, or the
// folder is in no repository.
func (o *pushOptions) commitOf(ctx context.Context, dir string, source *bundles.Source) (commit string, changed []string, err error) {
	c, err := gitrepo.ReadCheckout(ctx, dir, source)
	if err == nil && o.clean {
		err = c.Clean(dir)
	}
	if err != nil || o.commit == "" {
		return c.String(), c.Changed, err
	}
	commit, err = c.Named(ctx, dir, o.commit)
	return commit, c.Changed, err
}

// The usages of --drop-fields and --rename, of push and rollback.
const (
	dropFieldsUsage = "activate the bundle although its schemas lack fields that stored objects have; these fields are no longer shown"
	renameUsage     = "activate the bundle although it names another cluster than the policy in force"
)

type pushOptions struct {
	client.Flags
	show.FormatFlags
	replaces, commit                  string
	dryRun, rename, clean, dropFields bool
	wait                              time.Duration
	compile                           compiling.Options
	plan                              planFlags
}

// PushCommand returns the command `stele policy push`.
func PushCommand() *cobra.Command {
	o := &pushOptions{}
	cmd := &cobra.Command{
		Use:   "push DIR",
		Short: "Activate the bundle in a folder",
		Long: `Push compiles the bundle in a folder and sends it to the server, which activates it: it
is in force for every request from one revision on. It replaces the policy that was in
force when push began, or the one that --replaces names. If another policy is in force
by then, nothing changes. You need permission to create and list
policies.policy.stele.dev.

Push first makes the plan of the change, as stele policy plan does, without replaying recorded
writes. With --dry-run, and if the change breaks something, it prints the plan. It refuses a change
that breaks something, with exit code 3, unless the finding is accepted: by --accept, or
by an entry of the field accept beside the bundle. You need permission to create
plans.policy.stele.dev as well, or --skip-plan.

With --plan it pushes what was reviewed, and nothing else: the bundle and the policy in force
must be those of the plan, and there must be no findings that the plan does not have.

The server refuses a bundle with errors, and one that lacks a kind of which objects
exist. Without --rename it refuses a bundle for another cluster than that of the policy
in force. Stored objects do not change: new rules apply from their next write on.

Without --drop-fields the server also refuses a bundle whose schemas lack fields that
stored objects have, and counts those objects. A dropped field is no longer shown. It
stays stored until the part of the object that has it, such as its spec, is written.

--wait=60s returns when every replica has applied the policy, and the server is ready. If
that takes longer, the exit code is 4, and the error names the replicas that lack it; the
policy is in force all the same. It needs permission to list replicas.log.stele.dev.
Replicas say every 10 seconds what they have applied.`,
		Example: `  stele policy push examples/quickstart
  stele policy push clusters/prod --dry-run
  stele policy push clusters/prod --plan plan.json`,
		Args: usage.Exactly("DIR, the folder of the bundle"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) },
	}
	o.Flags.AddFlags(cmd)
	o.FormatFlags.AddFlags(cmd, "json", "yaml", "name")
	o.compile.AddFlags(cmd.Flags())
	o.plan.addFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	cmd.Flags().StringVar(&o.replaces, "replaces", "", "digest of the policy that it must replace (default: the one in force now)")
	cmd.Flags().BoolVar(&o.rename, "rename", false, renameUsage)
	cmd.Flags().BoolVar(&o.dropFields, "drop-fields", false, dropFieldsUsage)
	cmd.Flags().StringVar(&o.commit, "commit", "", "commit that the bundle is from; in a git repository it must be the one that is checked out (default: HEAD, with +changes if the module differs from it)")
	cmd.Flags().BoolVar(&o.clean, "require-clean", false, "refuse to push a module that differs from its commit in git")
	usage.DurationVar(cmd.Flags(), &o.wait, "wait", 0, "wait at most this long until every replica has applied the policy and the server is ready (without a value 60s)")
	cmd.Flags().Lookup("wait").NoOptDefVal = "60s"
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "have the server check it, and change nothing")
	return cmd
}

func (o *pushOptions) run(cmd *cobra.Command, dir string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if !o.Quiet {
		tracked, done := progress.Track(ctx, cmd.ErrOrStderr(), show.IsTerminal(cmd.ErrOrStderr()))
		defer done()
		ctx = tracked
	}
	compiled, err := o.compile.Folder(ctx, cmd, dir)
	if err != nil {
		return err
	}
	commit, changed, err := o.commitOf(ctx, dir, compiled.Source)
	if err != nil {
		return err
	}
	show.Warn(cmd.ErrOrStderr(), compiled)
	policies, err := client.NewPolicies(&o.Flags, &show.Unprinted{Out: cmd.ErrOrStderr(), Printed: compiled.Warnings})
	if err != nil {
		return err
	}
	before, err := policies.InForce(ctx)
	if err != nil {
		return err
	}
	spec := planning.SpecOf(activation.SpecOf(compiled.Source), commit, changed)
	planned, err := o.planOf(ctx, cmd, policies, dir, compiled, spec, before)
	if err != nil {
		return err
	}
	p := &activation.Policy{TypeMeta: metav1.TypeMeta{APIVersion: activation.Group + "/" + activation.Version, Kind: activation.Kind}}
	p.Spec = activation.SpecOf(compiled.Source)
	p.Spec.Replaces, p.Spec.Commit, p.Spec.Rename, p.Spec.DropFields = o.replaces, commit, o.rename, o.dropFields
	if p.Spec.Replaces == "" {
		p.Spec.Replaces = before.Name
		if planned != nil && planned.From.Digest != "" {
			p.Spec.Replaces = planned.From.Digest // what the plan is about
		}
	}
	refused := 0
	if planned != nil {
		refused = planning.Refused(planned, refusing)
	}
	other := planned != nil && planned.From.Digest != "" && planned.From.Digest != p.Spec.Replaces // the plan says nothing of it
	after, err := policies.Create(ctx, p, o.dryRun || refused > 0 || other)                        // the server may have more reasons to refuse it
	if err != nil {
		return err
	}
	if other {
		return fmt.Errorf("policy %.12s has just come in force, and the plan is about replacing policy %.12s; push again", p.Spec.Replaces, planned.From.Digest)
	}
	if refused > 0 {
		return planning.Refusal(refused, refusing)
	}
	if err := o.Report(cmd, before, after, o.dryRun); err != nil || o.wait == 0 || o.dryRun {
		return err
	}
	return o.waitFor(ctx, cmd, after.Status.Revision)
}

// waitFor waits until all replicas have applied a revision.
func (o *pushOptions) waitFor(ctx context.Context, cmd *cobra.Command, revision uint64) error {
	config, _, err := o.Config()
	if err != nil {
		return err
	}
	w := &waiting{
		replicas: func(ctx context.Context) ([]replicas.ReplicaObject, error) { return client.Replicas(ctx, config) },
		ready:    func(ctx context.Context) error { return client.Ready(ctx, config) },
		progress: cmd.ErrOrStderr(),
	}
	if o.Quiet {
		w.progress = io.Discard
	}
	if err := w.waitForReplicas(ctx, revision, o.wait); err != nil {
		return err
	}
	if o.Format == "" {
		o.Say(cmd, "All replicas have applied revision %d.", revision)
	}
	return nil
}
