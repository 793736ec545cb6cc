// Package vetting has the command that checks bundles without a server: `stele policy vet`.
package vetting

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/progress"
	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/lint"
)

type options struct {
	show.FormatFlags
	pluginDir, failOn, changed, explain string
	allow                               []string
	compile                             compiling.Options
	verbose, clean                      bool
}

// Command returns the command `vet`.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "vet DIR...",
		Short: "Check bundles: whether they compile, and what is probably wrong in them",
		Long: `Vet compiles the bundle in a folder as the server does, and prints each error with its line. Then
it looks for likely mistakes and dangerous grants; --explain ID says what one means. A comment in
the bundle allows one: // stele:allow ID reason

It needs no server. It takes several folders, and patterns: ./clusters/... means all bundles in the
folder and below it. --changed REF leaves out the bundles whose files are as in a revision of git.

A folder that is only a part of other bundles of the module, such as a team's folder, is checked as
part of each of them.

--plugin-dir also checks the configurations of plugins: vet starts the programs that have the
checksums of the bundle, and checks the configurations against their schemas.

Exit codes: 0 nothing, 1 a finding of --fail-on or an error in a bundle, 2 a mistake in the
arguments.`,
		Example: `  stele policy vet .
  stele policy vet ./clusters/... --changed origin/main
  stele policy vet teams/data -o github --fail-on warning
  stele policy vet --explain GRANT_WILDCARD`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && o.explain == "" {
				return usage.Errorf("missing DIR, the folder of the bundle%s", usage.ForExample(cmd))
			}
			return nil
		},
		RunE: o.run,
	}
	o.AddFlags(cmd, append([]string{"json", "yaml"}, report.Formats...)...)
	f := cmd.Flags()
	f.StringVar(&o.pluginDir, "plugin-dir", "", "folder with the programs of plugins")
	_ = cmd.MarkFlagDirname("plugin-dir")
	f.StringVar(&o.failOn, "fail-on", string(lint.Error), "fail with findings of this `SEVERITY` or a higher one: error, warning")
	f.StringSliceVar(&o.allow, "allow", nil, "`IDs` of findings that are not reported")
	f.StringVar(&o.changed, "changed", "", "check only the bundles that use files which differ from a `REVISION` of git")
	f.StringVar(&o.explain, "explain", "", "print what the findings with an `ID` mean, and check nothing")
	f.BoolVar(&o.clean, "require-clean", false, "files that differ from the commit are errors")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print how long CUE takes for the constraints that only CUE can check")
	o.compile.AddFlags(f)
	return cmd
}

func (o *options) run(cmd *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.explain != "" {
		return explain(cmd, o.explain)
	}
	targets, err := compiling.Targets(args)
	if err == nil && o.changed != "" {
		targets, err = changedSince(cmd.Context(), o.changed, targets)
	}
	if err != nil {
		return err
	}
	document := document{APIVersion: client.DocumentVersion, Kind: "BundleReport", Bundles: []*vetted{}}
	var worst counts
	var results []*result
	failed := 0
	for _, t := range targets {
		v, r, err := o.vet(cmd, t)
		if err != nil {
			return err
		}
		document.Bundles, results = append(document.Bundles, v), append(results, r)
		n := v.counts()
		if o.fails(n) {
			failed++
		}
		worst.add(n)
	}
	if o.Format == "" {
		worst = o.print(cmd, results)
	}
	switch {
	case report.Is(o.Format):
		err = report.Write(cmd.OutOrStdout(), o.Format, document.reports(targets)...)
	case o.Format != "":
		err = o.Document(cmd, document)
	case len(targets) == 0:
		o.Say(cmd, "no bundle has changed since %s", o.changed)
	}
	if err != nil || failed == 0 {
		return err
	}
	found := usage.Count(worst.errors, "error")
	if worst.errors == 0 {
		found = usage.Count(worst.warnings, "warning")
	}
	if len(targets) == 1 {
		return errors.New(found + " in " + targets[0].Name)
	}
	return fmt.Errorf("%s in %d of %s", found, failed, usage.Count(len(targets), "bundle"))
}

// check checks the flags.
func (o *options) check() error {
	if o.failOn != string(lint.Error) && o.failOn != string(lint.Warning) {
		return usage.Errorf("--fail-on is %q; use error or warning", o.failOn)
	}
	for i, id := range o.allow {
		l := lint.Find(id)
		if l == nil {
			return usage.Errorf("--allow: there is no lint %q", id)
		}
		o.allow[i] = l.ID
	}
	return nil
}

// explain prints what a lint means.
func explain(cmd *cobra.Command, id string) error {
	l := lint.Find(id)
	if l == nil {
		return usage.Errorf("there is no lint %q; there are %s", id, strings.Join(lint.IDs(), ", "))
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s (%s)\n%s\n\n%s\n\nWrite: %s\nAllow it: // stele:allow %s reason\n", l.ID, l.Severity, l.Title, l.Long, strings.ReplaceAll(l.Write, `\|`, "|"), l.ID)
	return err
}

// counts are numbers of findings.
type counts struct{ errors, warnings int }

func (c *counts) add(n counts) { c.errors, c.warnings = c.errors+n.errors, c.warnings+n.warnings }

// fails reports whether findings make the command fail.
func (o *options) fails(n counts) bool {
	return n.errors > 0 || o.failOn == string(lint.Warning) && n.warnings > 0
}

// vet checks a bundle.
func (o *options) vet(cmd *cobra.Command, t compiling.Target) (*vetted, *result, error) {
	v, r := &vetted{Bundle: t.Name}, &result{target: t}
	ctx := cmd.Context()
	if !o.Quiet {
		tracked, done := progress.Track(ctx, cmd.ErrOrStderr(), show.IsTerminal(cmd.ErrOrStderr()))
		defer done()
		ctx = tracked
	}
	compiled, found, diags, err := o.compile.Lint(ctx, t.Source)
	if err != nil {
		return nil, nil, err
	}
	stderr := cmd.ErrOrStderr()
	if o.Quiet {
		stderr = io.Discard
	}
	if len(diags) == 0 {
		around, err := o.surroundings(cmd.Context(), t, compiled)
		if err != nil {
			return nil, nil, err
		}
		found = slices.DeleteFunc(append(found, around...), func(f lint.Finding) bool { return slices.Contains(o.allow, f.Lint) })
		lint.Sort(found)
		for _, f := range found {
			v.add(f)
		}
		r.found = found
		if o.verbose {
			r.costs = compiled.Costs
		}
		if diags, err = checkPlugins(cmd.Context(), stderr, compiled, t.Source, o.pluginDir); err != nil {
			return nil, nil, err
		}
	}
	if len(diags) > 0 {
		v.Errors, r.diags = append(v.Errors, findings(diags)...), diags
		return v, r, nil
	}
	if len(v.Errors) > 0 {
		return v, r, nil
	}
	v.describe(compiled.Form)
	r.valid = fmt.Sprintf("%s is valid: %s, policy %.12s", t.Name, show.ContentsText(compiled.Form), v.Policy)
	return v, r, nil
}
