package pushing

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/planning"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
)

// planFlags are the flags about the plan of a push.
type planFlags struct {
	file    string
	accept  []string
	skip    bool
	staleOK bool
}

func (o *planFlags) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.file, "plan", "", "push only what `FILE` says, which stele policy plan --out wrote")
	f.BoolVar(&o.staleOK, "stale-ok", false, "with --plan: push although there are findings now that the plan does not have")
	f.StringSliceVar(&o.accept, "accept", nil, "`IDs` of findings that may break something, or the names of their rules")
	f.BoolVar(&o.skip, "skip-plan", false, "push without a plan, whatever breaks")
	cmd.MarkFlagsMutuallyExclusive("plan", "skip-plan")
	cmd.MarkFlagsMutuallyExclusive("accept", "skip-plan")
	_ = cmd.RegisterFlagCompletionFunc("accept", cobra.NoFileCompletions)
}

// refusing are the classes of findings that a push refuses.
var refusing = []plan.Class{plan.Breaks}

// planOf makes the plan of a push and prints it. It returns nil if there is nothing to plan.
func (o *pushOptions) planOf(ctx context.Context, cmd *cobra.Command, policies *client.Policies, dir string, compiled *compile.Result, spec plans.Spec, before *activation.Policy) (*plan.Plan, error) {
	_, sum := compiled.Form.Encode()
	digest := fmt.Sprintf("%x", sum)
	reviewed, err := o.plan.read(digest, before)
	if err != nil || o.plan.skip || digest == before.Name {
		return nil, err
	}
	p, err := policies.Plan(ctx, spec)
	if errors.Is(err, client.ErrMayNotPlan) {
		err = fmt.Errorf("%w; --skip-plan pushes without a plan", err)
	}
	if err != nil {
		return nil, err
	}
	if err := o.plan.sameSides(p, reviewed); err != nil {
		return nil, err
	}
	part := planning.NewPart(ctx, p, compiling.Target{Name: dir, Source: compiled.Source})
	part.Unused = p.Accept(o.acceptances(compiled.Accept, reviewed))
	part.Unused.IDs = slices.DeleteFunc(part.Unused.IDs, func(id string) bool { return plan.RuleNamed(id) != nil })
	if reviewed != nil {
		if err := o.plan.compare(cmd.ErrOrStderr(), reviewed, p); err != nil {
			return nil, err
		}
	}
	return p, o.show(cmd, part)
}

// sameSides checks that the plan is about replacing the same policy as the one that was reviewed: another policy may have
// come in force since that one was read.
func (o *planFlags) sameSides(p, reviewed *plan.Plan) error {
	if reviewed != nil && reviewed.From.Digest != p.From.Digest {
		return o.otherInForce(p.From.Digest, reviewed)
	}
	return nil
}

// acceptances returns what is accepted: by the bundle, by flags, and in the plan that was reviewed.
func (o *pushOptions) acceptances(entries []plan.Accepted, reviewed *plan.Plan) plan.Acceptances {
	a := plan.Acceptances{Entries: entries, IDs: o.plan.accept, Today: planning.Today()}
	for _, name := range o.plan.accept {
		if plan.RuleNamed(name) != nil {
			a.Rules = append(a.Rules, name)
		}
	}
	if o.dropFields {
		a.Rules = append(a.Rules, "FIELD_REMOVED")
	}
	if o.rename {
		a.Rules = append(a.Rules, "CLUSTER_RENAMED")
	}
	if reviewed == nil {
		return a
	}
	for i := range reviewed.Findings {
		if f := &reviewed.Findings[i]; f.Accepted != nil && (f.Accepted.Until == "" || f.Accepted.Until >= a.Today) {
			a.IDs = append(a.IDs, f.ID)
		}
	}
	return a
}

// show prints the plan of a dry run, and that of a push that breaks something. With -q or another format it prints only
// a plan that is refused, on standard error.
func (o *pushOptions) show(cmd *cobra.Command, part *planning.Part) error {
	refused := len(part.Refused(refusing...)) > 0
	out := cmd.OutOrStdout()
	switch {
	case refused && (o.Quiet || o.Format != ""):
		out = cmd.ErrOrStderr()
	case o.Quiet, o.Format != "", part.Summary.Breaks == 0 && !o.dryRun:
		return nil
	}
	if err := (&planning.Text{Out: &show.Output{Writer: out}, Refusing: refusing}).Write([]planning.Part{*part}); err != nil {
		return err
	}
	_, err := io.WriteString(out, "\n")
	return err
}

// read reads the plan that was reviewed, and checks that it is about this push. It returns nil without --plan.
func (o *planFlags) read(digest string, before *activation.Policy) (*plan.Plan, error) {
	if o.file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	var list struct {
		plan.Plan
		Items []*plan.Plan `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("--plan %s is no plan: %w", o.file, err)
	}
	all := list.Items
	if list.Kind == plan.Kind {
		all = []*plan.Plan{&list.Plan}
	}
	if list.APIVersion != plan.APIVersion || len(all) == 0 {
		return nil, fmt.Errorf("--plan %s is no plan: write one by stele policy plan DIR --out %s", o.file, o.file)
	}
	at := slices.IndexFunc(all, func(p *plan.Plan) bool { return p.To.Digest == digest })
	if at < 0 {
		return nil, fmt.Errorf("--plan %s: the bundle is policy %.12s, and the plan is for policy %.12s; what was reviewed is another bundle, so make a plan of this one", o.file, digest, all[0].To.Digest)
	}
	p := all[at]
	if p.From.Digest != before.Name && digest != before.Name {
		return nil, o.otherInForce(before.Name, p)
	}
	return p, nil
}

func (o *planFlags) otherInForce(digest string, reviewed *plan.Plan) error {
	return fmt.Errorf("--plan %s: policy %.12s is in force, and the plan is about replacing policy %.12s; make a plan again", o.file, digest, cmp.Or(reviewed.From.Digest, "none"))
}

// compare prints the findings that the reviewed plan does not have, and refuses them without --stale-ok.
func (o *planFlags) compare(out io.Writer, reviewed, now *plan.Plan) error {
	known := map[string]plan.Class{}
	for _, f := range reviewed.Findings {
		known[f.ID] = f.Class
	}
	added := 0
	for i := range now.Findings {
		f := &now.Findings[i]
		class, ok := known[f.ID]
		if ok && !f.Class.Worse(class) {
			continue
		}
		added++
		was := "is new"
		if ok {
			was = fmt.Sprintf("is of class %s, and was of class %s", f.Class, class)
		}
		fmt.Fprintf(out, "%s %s %s %s since the plan was made\n", f.ID, f.Rule, show.Harmless(f.Path), was)
	}
	if added == 0 || o.staleOK {
		return nil
	}
	return fmt.Errorf("--plan %s: %d findings are not those that were reviewed, since objects have changed; make a plan again, or push with --stale-ok", o.file, added)
}
