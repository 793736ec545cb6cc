// Package planning has the command that says what a change of policy means: `stele policy plan`. It prints plans as
// text, as Markdown for a comment, and for CI systems. Push and rollback show plans with it, too.
package planning

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/gitrepo"
	"stele.dev/stele/cmd/stele/internal/progress"
	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy/plan"
)

// The exit codes of plan, besides 0.
const (
	exitUnknown = 1 // it could not be told
	exitChanges = 2 // something changes, with --exit-code
	// ExitRefused is the exit code if there is a finding of the classes of --fail-on that nobody accepted.
	ExitRefused = 3
)

type options struct {
	client.Flags
	show.OutputFlags
	compile             compiling.Options
	from, objects       string
	replay, out, failOn string
	accept, only        []string
	samples             int
	explain             string
	links               string
	exitCode, listRules bool
	verbose             bool
}

// Command returns the command `stele policy plan`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "plan DIR...",
		Short: "Say what a change of policy means, before it is pushed",
		Long: `Plan compares the bundle in a folder with the policy in force, or with what --from names, and says
what the change means: which stored objects break, who gains or loses access, which rules decide
otherwise. It changes nothing. It takes several folders, and patterns: ./clusters/... means all bundles
in the folder and below it.

A finding has a class:

  breaks   something that works now will not            (!!)
  widens   somebody may do more, or a rule refuses less  (+)
  narrows  somebody may do less, or a rule refuses more  (-)
  changes  neither, or it cannot be told                 (~)
  looks    columns, comments, short names                (.), only with -v

A finding of the classes of --fail-on fails the plan, unless it is accepted: by --accept, or by an
entry of the field accept beside the bundle, such as in a file accept.cue. There, untried stands for
findings that stored objects could show to break something, such as a lower maximum, if no objects
were looked at.

--from git:REVISION and --from DIR need no server, and decide no recorded requests again. Stored
objects are then those of a file that --objects names, such as kubectl get -A -o json writes it.
Otherwise the server makes the plan, with the objects that it stores. You need permission to create
plans.policy.stele.dev, which the role policy:planner gives; it does not allow pushing.

Exit codes: 0 if nothing fails the plan; 3 if a finding does; 2 if something changes, with
--exit-code; 1 if it could not be told.

` + client.MomentHelp,
		Example: `  stele policy plan clusters/dev
  stele policy plan clusters/dev --from yesterday --replay 30d
  stele policy plan ./clusters/... --from git:origin/main -o markdown
  kubectl get databases,namespaces -A -o json | stele policy plan clusters/dev --from git:main --objects -
  stele policy plan clusters/dev --out plan.json && stele policy push clusters/dev --plan plan.json
  stele policy plan --explain FIELD_REMOVED`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && o.explain == "" && !o.listRules {
				return unknown(usage.Errorf("missing DIR, the folder of the bundle%s", usage.ForExample(cmd)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return unknown(o.run(cmd, args)) },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return unknown(usage.FlagError(cmd, err)) })
	o.addFlags(cmd)
	checkOutput := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error { return unknown(checkOutput(cmd, args)) }
	return cmd
}

func (o *options) addFlags(cmd *cobra.Command) {
	o.Flags.AddFlags(cmd)
	_ = cmd.Flags().MarkHidden("namespace")
	o.OutputFlags.AddFlags(cmd, append([]string{"markdown", "json", "yaml"}, report.Formats...)...)
	o.compile.AddFlags(cmd.Flags())
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "now", "what the bundle is compared with: now (the policy in force), a `MOMENT`, the digest of a policy, the folder of a bundle, or git:REVISION")
	f.StringVar(&o.objects, "objects", "", "stored objects to try: live, none, or a `FILE` of objects, - for standard input (default: live if the bundle is compared with the policy in force)")
	f.StringVar(&o.replay, "replay", "7d", "`SPAN` of recorded writes to decide again, such as 12h or 30d; 0 for none")
	f.StringVar(&o.out, "out", "", "also write the plan as JSON to this `FILE`, for push --plan")
	f.StringVar(&o.failOn, "fail-on", "breaks", "`CLASSES` of findings that fail the plan: breaks; breaks,widens; breaks,untried; or none")
	f.StringSliceVar(&o.accept, "accept", nil, "`IDs` of findings that are accepted")
	f.StringSliceVar(&o.only, "only", nil, "show only findings about these kinds, teams or files, such as databases, data or teams/data/*.cue")
	f.StringVar(&o.links, "links", linksOfJob(os.Getenv), "`ADDRESS` of the repository's files, to which -o markdown links (default in GitHub Actions and GitLab CI: that of the job's commit)")
	f.IntVar(&o.samples, "samples", 3, "how many objects are named for each finding")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 2 if something changes")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "list findings of class looks, too")
	f.StringVar(&o.explain, "explain", "", "say what a `RULE` of findings means, and make no plan")
	f.BoolVar(&o.listRules, "list-rules", false, "list the rules of findings, and make no plan")
	for flag, values := range map[string][]string{
		"replay": {"0", "1d", "7d", "30d"}, "fail-on": {"breaks", "breaks,widens", "breaks,untried", "none"}, "explain": ruleNames(),
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.RegisterFlagCompletionFunc("objects", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"live", "none"}, cobra.ShellCompDirectiveDefault
	})
	for _, flag := range []string{"accept", "only", "samples"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	_ = cmd.RegisterFlagCompletionFunc("from", client.CompleteMoments)
}

// unknown makes an error that has no exit code of its own one of "it could not be told". A mistake on the command line
// has that code as well, since 2 means that something changes.
func unknown(err error) error {
	if err == nil || errors.Is(err, errChanges) || errors.Is(err, errRefused) {
		return err
	}
	return usage.Exit(exitUnknown, err)
}

var (
	errChanges = usage.Exit(exitChanges, usage.ErrPrinted)
	errRefused = errors.New("refused")
)

// refusal is the error for a plan with findings that nobody accepted.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (refusal) Is(target error) bool { return target == errRefused }

func (o *options) run(cmd *cobra.Command, args []string) error {
	ctx, stop := usage.Interruptible(cmd)
	defer stop()
	if o.explain != "" || o.listRules {
		return o.rules(cmd)
	}
	refusing, err := parseClasses(o.failOn)
	if err != nil {
		return err
	}
	if o.out != "" && len(o.only) > 0 {
		return errors.New("--out writes the whole plan, so it cannot be given together with --only")
	}
	if o.samples < 0 {
		return errors.New("--samples: want a number that is not negative")
	}
	from, err := o.origin(cmd)
	if err != nil {
		return err
	}
	targets, err := compiling.Targets(args)
	if err != nil {
		return err
	}
	parts, err := o.make(ctx, cmd, from, targets)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := o.save(parts); err != nil {
			return err
		}
	}
	if err := o.print(cmd, parts, refusing); err != nil {
		return err
	}
	return o.verdict(parts, refusing)
}

// rules answers --explain and --list-rules.
func (o *options) rules(cmd *cobra.Command) error {
	out, err := o.Open(cmd, false)
	if err != nil {
		return err
	}
	if o.Format != "" && o.Format != "json" && o.Format != "yaml" {
		return errors.New("rules are printed as text, json or yaml")
	}
	if o.listRules {
		err = listRules(out, o.Format)
	} else {
		err = explainRule(out, o.Format, o.explain)
	}
	return cmp.Or(err, out.Close())
}

// parseClasses parses --fail-on.
func parseClasses(text string) ([]plan.Class, error) {
	if text == "none" {
		return nil, nil
	}
	var classes []plan.Class
	for name := range strings.SplitSeq(text, ",") {
		class := plan.Class(strings.TrimSpace(name))
		if !slices.Contains(plan.Classes, class) && class != plan.Untried {
			return nil, fmt.Errorf("--fail-on %s: want none, or some of breaks, widens, narrows, changes, looks and untried", text)
		}
		classes = append(classes, class)
	}
	return classes, nil
}

// origin parses --from, and checks the flags that go with it.
func (o *options) origin(cmd *cobra.Command) (*origin, error) {
	from, err := parseOrigin(o.from)
	if err != nil {
		return nil, err
	}
	switch {
	case o.objects == "live" && !from.inForce():
		return nil, errors.New("--objects live needs --from now: stored objects are those of the policy in force")
	case o.fromFile() && !from.isLocal():
		return nil, fmt.Errorf("--objects %s needs --from git:REVISION or --from DIR: otherwise the server makes the plan, with the objects that it stores", o.objects)
	case from.isLocal() && cmd.Flags().Changed("replay") && o.replay != "0":
		return nil, fmt.Errorf("--replay needs a server, and --from %s needs none; recorded writes can be decided again with --from now, a moment or a digest", o.from)
	}
	return &from, nil
}

// make makes the plans of all bundles. It returns none if one of them cannot be made.
func (o *options) make(ctx context.Context, cmd *cobra.Command, from *origin, targets []compiling.Target) ([]Part, error) {
	var policies *client.Policies
	var wire *plans.From
	if !from.isLocal() {
		var err error
		if policies, err = client.NewPolicies(&o.Flags, quiet{}); err != nil {
			return nil, err
		}
		if wire, err = from.wire(ctx, &o.Flags, policies); err != nil {
			return nil, err
		}
	}
	file, err := o.readObjects(cmd.InOrStdin(), targets)
	if err != nil {
		return nil, err
	}
	var parts []Part
	for i, t := range targets {
		tracked, done := progress.Track(ctx, cmd.ErrOrStderr(), show.IsTerminal(cmd.ErrOrStderr()))
		progress.Doing(tracked, "making the plan of %s (%d of %d)", t.Name, i+1, len(targets))
		p, err := o.part(tracked, cmd, from, wire, policies, file, t)
		done()
		if err != nil {
			if len(targets) > 1 && !errors.Is(err, usage.ErrPrinted) {
				err = fmt.Errorf("%s: %w", t.Name, err)
			}
			return nil, err
		}
		parts = append(parts, *p)
	}
	return parts, nil
}

// noRecords is a note of plans that are made without a server.
const noRecords = "Recorded writes, refusals and reads were not decided again: they are on the server, see --from."

// part makes the plan of a bundle.
func (o *options) part(ctx context.Context, cmd *cobra.Command, from *origin, wire *plans.From, policies *client.Policies, file plans.Source, t compiling.Target) (*Part, error) {
	compiled, err := compileTarget(ctx, cmd, &o.compile, t.Source, t.Name)
	if err != nil {
		return nil, err
	}
	git, err := gitrepo.ReadCheckout(ctx, t.Name, compiled.Source)
	if err != nil {
		return nil, err
	}
	var made *plan.Plan
	if from.isLocal() {
		was, err := o.compileOtherSide(ctx, cmd, from, t)
		if err != nil {
			return nil, err
		}
		will, err := load(compiled)
		if err != nil {
			return nil, err
		}
		to := plan.Side{Commit: git.String(), Changed: git.Changed}
		made, err = plans.Make(ctx, plan.Sides{From: was.policy, To: will.policy}, plans.Options{From: was.side, To: to, Objects: file, Samples: o.samples})
		if err != nil {
			return nil, err
		}
		made.Notes = append(made.Notes, noRecords)
	} else {
		spec := SpecOf(activation.SpecOf(compiled.Source), git.String(), git.Changed)
		objects := from.inForce() && o.objects != "none"
		spec.From, spec.Objects, spec.Replay, spec.Samples = wire, &objects, o.replay, &o.samples
		if made, err = policies.Plan(ctx, spec); err != nil {
			return nil, err
		}
		if encoded, digest := compiled.Form.Encode(); len(encoded) == 0 || made.To.Digest != fmt.Sprintf("%x", digest) {
			made.Notes = append(made.Notes, fmt.Sprintf("This program compiles the bundle to policy %.12s, and the server to %.12s: their versions differ.", fmt.Sprintf("%x", digest), made.To.Digest))
		}
	}
	p := NewPart(ctx, made, t)
	p.Links = o.links
	p.Unused = made.Accept(plan.Acceptances{Entries: compiled.Accept, IDs: o.accept, Today: Today()})
	if len(o.only) > 0 {
		p.Hidden = made.Only(o.wanted)
	}
	return p, nil
}

// SpecOf returns the request for a plan of a bundle. changed are the files that differ from the commit.
func SpecOf(s activation.Spec, commit string, changed []string) plans.Spec {
	return plans.Spec{Package: s.Package, Files: s.Files, Commit: commit, Changed: changed}
}

// Today is the day on which acceptances must count.
func Today() string { return time.Now().UTC().Format(time.DateOnly) }

// NewPart returns the plan of a bundle for output.
func NewPart(ctx context.Context, p *plan.Plan, t compiling.Target) *Part {
	part := &Part{Plan: p, Name: folderText(t.Name, t.Source), Package: t.Source.Package}
	if p.To.Folder == "" {
		p.To.Folder = part.Name
	}
	if root, err := moduleRoot(t); err == nil {
		part.Prefix = gitrepo.Prefix(ctx, root) // without git: paths are those in the module
	}
	return part
}

// quiet drops the server's warnings: those of the bundle are vet's.
type quiet struct{}

func (quiet) HandleWarningHeader(int, string, string) {}

// wanted reports whether --only names a finding's kind, team or file.
func (o *options) wanted(f *plan.Finding) bool {
	return slices.ContainsFunc(o.only, func(what string) bool {
		plural, _, _ := strings.Cut(f.Kind, ".")
		team, _, inTeam := strings.Cut(f.Path, "/")
		if what == f.Kind || what == plural && plural != "" || inTeam && what == team {
			return true
		}
		for _, file := range []string{f.Source.File, f.Was.File} {
			if ok, _ := path.Match(what, file); ok && file != "" || strings.HasSuffix(what, "/") && strings.HasPrefix(file, what) {
				return true
			}
		}
		return false
	})
}

// save writes the plans for push --plan. The file is complete, or as it was.
func (o *options) save(parts []Part) error {
	var text bytes.Buffer
	if err := (&show.Output{Writer: &text}).Document("json", document(parts)); err != nil {
		return err
	}
	if err := renameio.WriteFile(o.out, text.Bytes(), 0o644, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}

// print prints the plans in the format of -o.
func (o *options) print(cmd *cobra.Command, parts []Part, refusing []plan.Class) (err error) {
	out, err := o.Open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	switch {
	case o.Format == "":
		return (&Text{Out: out, Verbose: o.verbose, Refusing: refusing}).Write(parts)
	case o.Format == "markdown":
		return Markdown(out, parts)
	case report.Is(o.Format):
		return report.Write(out, o.Format, reports(parts, refusing)...)
	}
	return out.Document(o.Format, document(parts))
}

// verdict is the error with the exit code of the plans.
func (o *options) verdict(parts []Part, refusing []plan.Class) error {
	refused, changes := 0, 0
	for i := range parts {
		refused += Refused(parts[i].Plan, refusing)
		changes += len(parts[i].Findings) + parts[i].Hidden
	}
	switch {
	case refused > 0:
		return Refusal(refused, refusing)
	case o.exitCode && changes > 0:
		return errChanges
	}
	return nil
}

// Refusal returns the error for a number of changes that nobody accepted.
func Refusal(n int, refusing []plan.Class) error {
	what := "change that breaks something"
	if len(refusing) != 1 || refusing[0] != plan.Breaks {
		var names []string
		for _, c := range refusing {
			names = append(names, string(c))
		}
		what = "change of class " + strings.Join(names, " or ")
	}
	verb := "which nobody has accepted"
	if n > 1 {
		what = strings.Replace(strings.Replace(what, "change that breaks", "changes that break", 1), "change of", "changes of", 1)
	}
	return refusal{usage.Exit(ExitRefused, fmt.Errorf("the plan has %d %s, %s", n, what, verb))}
}
