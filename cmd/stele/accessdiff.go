package main

import (
	"cmp"
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
	"stele.dev/stele/core/access"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/rights"
)

func accessCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Compare what policies allow",
		Args:  noArguments,
	}
	cmd.AddCommand(accessDiffCommand())
	return cmd
}

type accessDiffOptions struct {
	clientOptions
	outputOptions
	from, to string
	subjects []string
	exitCode bool
	compile  compileOptions
}

func accessDiffCommand() *cobra.Command {
	o := &accessDiffOptions{}
	cmd := &cobra.Command{
		Use:   "diff [--from MOMENT|DIR] [--to MOMENT|DIR]",
		Short: "Show who gained or lost what from one policy to another",
		Long: `Diff compares what two policies decide, not how they are written: a binding that was renamed,
or a role that was split, is no difference. Each side is the policy in force at a MOMENT, now if
it is left out, or a bundle in a folder, which is compiled here. It shows who gained (+) or lost (-)
what, whose conditions changed (~), to whom something is denied (!) or not any more (.) whoever
grants it, and how the chain of authorizers changed. "*" is anything, "*" of namespaces also what is
in none.

What subjects gain or lose as members of system:authenticated and the like is shown of these groups
alone, unless --subject names them. Conditions are compared by their text. To ask takes the
permission to create accessdifferences.policy.stele.dev.

` + momentHelp,
		Example: `  stele access diff --to ./policy
  stele access diff --from 1200 --to 1250 --subject group:devs
  stele access diff --from yesterday -n shop -o json
  stele access diff --to ./policy --exit-code`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unexpected argument %q; use --from MOMENT|DIR and --to MOMENT|DIR", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := o.run(cmd)
			if err != nil && o.exitCode && !errors.Is(err, errSaid) && !errors.Is(err, syscall.EPIPE) {
				return exitError{exitUsage, err}
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	o.clientOptions.addFlags(cmd)
	o.compile.addFlags(cmd.Flags())
	o.addIdentity(cmd)
	o.outputOptions.addFlags(cmd, "json", "yaml")
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "now", "`MOMENT` whose policy is compared with, or folder of a bundle")
	f.StringVar(&o.to, "to", "now", "`MOMENT` whose policy is compared, or folder of a bundle")
	f.StringArrayVar(&o.subjects, "subject", nil, "only what matters to user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME; may be repeated")
	f.BoolVar(&o.exitCode, "exit-code", false, "exit with 1 if something differs, and with 2 if it cannot be told")
	f.Lookup("namespace").Usage = "only what matters in this namespace (default: all)"
	_ = cmd.RegisterFlagCompletionFunc("subject", cobra.FixedCompletions([]string{"user:", "group:", "serviceaccount:"}, noFiles|cobra.ShellCompDirectiveNoSpace))
	return cmd
}

func (o *accessDiffOptions) run(cmd *cobra.Command) (err error) {
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.check(); err != nil {
		return err
	}
	if !cmd.Flags().Changed("from") && !cmd.Flags().Changed("to") {
		return missing(cmd, "--from or --to, each a MOMENT or the folder of a bundle")
	}
	d := &access.Difference{TypeMeta: metav1.TypeMeta{APIVersion: access.Group + "/" + access.Version, Kind: access.DifferenceKind}}
	if o.namespace != "" {
		d.Spec.Namespace = &o.namespace
	}
	for _, text := range o.subjects {
		s, err := parseSubject(text)
		if err != nil {
			return err
		}
		d.Spec.Subjects = append(d.Spec.Subjects, s)
	}
	for _, side := range []struct {
		flag, text string
		into       *access.Side
	}{{"from", o.from, &d.Spec.From}, {"to", o.to, &d.Spec.To}} {
		if err := o.side(ctx, cmd, side.text, side.into); err != nil {
			if errors.Is(err, errSaid) {
				return err
			}
			return fmt.Errorf("--%s: %w", side.flag, err)
		}
	}
	text, err := askAccess(ctx, &o.clientOptions, cmd.ErrOrStderr(), access.DifferencePlural, d)
	if err != nil {
		return err
	}
	answer := new(access.Difference)
	if err := json.Unmarshal(text, answer); err != nil {
		return err
	}
	out, err := o.open(cmd, false)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, out.Close()) }()
	if o.format == "" {
		err = o.show(out, answer)
	} else {
		err = out.document(o.format, text)
	}
	if err == nil && o.exitCode && len(answer.Status.Changes)+len(answer.Status.Chain) > 0 {
		return errDiffers
	}
	return err
}

// side reads what a flag says: a folder, or a moment.
func (o *accessDiffOptions) side(ctx context.Context, cmd *cobra.Command, text string, into *access.Side) error {
	if info, err := os.Stat(text); err == nil && info.IsDir() || strings.ContainsRune(text, os.PathSeparator) {
		source, err := bundles.ReadDir(text)
		if err != nil {
			return err
		}
		compiled, diags, err := o.compile.compile(ctx, source)
		if err != nil {
			return err
		}
		if len(diags) > 0 {
			return errDiagnostics(cmd.ErrOrStderr(), source, diags, text)
		}
		into.Access = compiled.Form.Access()
		return nil
	}
	if text == "now" {
		return nil
	}
	config, _, err := o.config()
	if err != nil {
		return err
	}
	m, err := newMoments(config)
	if err != nil {
		return err
	}
	into.Revision, err = m.resolve(ctx, text)
	if unread := new(noMomentError); errors.As(err, &unread) {
		return fmt.Errorf("%q is neither a folder nor a moment; write the folder of a bundle, or %s", text, momentUsage)
	}
	return err
}

func parseSubject(text string) (policy.Subject, error) {
	kind, name, _ := strings.Cut(text, ":")
	switch namespace, account, ok := strings.Cut(name, "/"); {
	case name == "":
	case kind == "user":
		return policy.Subject{User: name}, nil
	case kind == "group":
		return policy.Subject{Group: name}, nil
	case kind == "serviceaccount" && ok && namespace != "" && account != "":
		return policy.Subject{User: "system:serviceaccount:" + namespace + ":" + account}, nil
	}
	return policy.Subject{}, fmt.Errorf("--subject %s: write user:NAME, group:NAME or serviceaccount:NAMESPACE/NAME", text)
}

// changeMarks are how types of changes are shown.
var changeMarks = map[string]struct {
	mark  string
	style style
}{
	rights.Gained: {"+", added}, rights.Lost: {"-", removed}, rights.Changed: {"~", altered}, rights.Denied: {"!", removed}, rights.NotDenied: {".", added},
}

func (o *accessDiffOptions) show(out *output, answer *access.Difference) error {
	st := &answer.Status
	name := func(s *access.State, text string) string {
		if s.Policy == "" {
			return text
		}
		return fmt.Sprintf("policy %.12s of revision %d", s.Policy, s.PolicyRevision)
	}
	from, to := name(&st.From, o.from), name(&st.To, o.to)
	if len(st.Changes)+len(st.Chain) == 0 {
		_, err := fmt.Fprintf(out, "Nobody gains or loses anything from %s to %s.\n", from, to)
		return err
	}
	if _, err := fmt.Fprintf(out, "From %s to %s:\n\n", from, to); err != nil {
		return err
	}
	for _, c := range st.Chain {
		text := fmt.Sprintf("authorizer %s %s: %s", c.Authorizer, strings.ToLower(c.Type), c.Message)
		how := altered
		if c.Weaker {
			text, how = text+" (weaker)", removed
		}
		if _, err := fmt.Fprintln(out, out.paint(how, text)); err != nil {
			return err
		}
	}
	if len(st.Chain) > 0 && len(st.Changes) > 0 {
		fmt.Fprintln(out)
	}
	rows := &columns{out: out}
	if len(st.Changes) > 0 {
		rows.header(" ", "SUBJECT", "VERBS", "ON", "NAMES", "NAMESPACES", "BY")
	}
	for i := range st.Changes {
		c := &st.Changes[i]
		m := changeMarks[c.Type]
		below := ""
		switch {
		case c.Type == rights.Changed:
			below = "   " + out.paint(m.style, "before: "+cmp.Or(c.Before, "always")) + "\n   " + out.paint(m.style, "now:    "+cmp.Or(c.After, "always")) + "\n"
		case c.Before+c.After != "":
			below = "   " + out.paint(m.style, cmp.Or(c.After, c.Before)) + "\n"
		}
		var by []string
		for _, g := range c.By {
			by = append(by, groundText(g))
		}
		names := ""
		if len(c.Names) > 0 {
			names = butText(c.Names, c.ExceptNames)
		}
		rows.add(below, cell{text: m.mark, style: m.style}, cell{text: subjectText(c.Subject), style: m.style}, cell{text: butText(c.Verbs, c.ExceptVerbs)},
			cell{text: scopeText(&c.Scope)}, cell{text: names}, cell{text: butText(c.Namespaces, c.ExceptNamespaces)}, cell{text: strings.Join(by, ", "), style: subtle})
	}
	return rows.flush()
}

// butText is a list without some words.
func butText(words, except []string) string {
	shown := make([]string, len(words))
	for i, w := range words {
		if shown[i] = w; w == "" {
			shown[i] = `""`
		}
	}
	text := strings.Join(shown, ", ")
	if len(except) > 0 {
		text += " but " + butText(except, nil)
	}
	return text
}

// scopeText is the resources, or the paths.
func scopeText(s *rights.Scope) string {
	if len(s.Paths) > 0 {
		return butText(s.Paths, s.ExceptPaths)
	}
	group := ""
	switch {
	case len(s.APIGroups) == 1 && len(s.ExceptAPIGroups) == 0 && s.APIGroups[0] != "":
		group = "." + s.APIGroups[0]
	case len(s.APIGroups) > 1 || len(s.ExceptAPIGroups) > 0:
		group = ".{" + butText(s.APIGroups, s.ExceptAPIGroups) + "}"
	}
	subs := s.Subresources
	if len(subs) == 0 {
		subs = []string{""}
	}
	var words []string
	for _, r := range s.Resources {
		for _, sub := range subs {
			switch {
			case sub == "*" && r == "*" && len(s.ExceptSubresources) == 0:
				words = append(words, "*"+group) // as in rules
			case sub == "*":
				words = append(words, r+"[/"+butText([]string{"*"}, s.ExceptSubresources)+"]"+group)
			case sub == "" && r == "*":
				words = append(words, "*"+group+" without subresources")
			case sub == "":
				words = append(words, r+group)
			default:
				words = append(words, r+"/"+sub+group)
			}
		}
	}
	return butText(words, s.ExceptResources)
}
