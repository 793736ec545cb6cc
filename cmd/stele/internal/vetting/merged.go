package vetting

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/show"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/policy/lint"
	"stele.dev/stele/schemas"
)

// result is what was found in one bundle, as text prints it.
type result struct {
	target compiling.Target
	found  []lint.Finding
	diags  schemas.Diagnostics // if the bundle does not compile
	costs  schemas.Diagnostics // with -v
	valid  string              // what the bundle has, if it is valid
}

// print prints the results of several bundles. A finding in several of them is printed once, with the bundles that have it if
// others do not. It returns how many errors and warnings there are.
func (o *options) print(cmd *cobra.Command, results []*result) (n counts) {
	stderr := cmd.ErrOrStderr()
	if o.Quiet {
		stderr = io.Discard
	}
	have := map[string][]string{} // the bundles with a finding
	for _, r := range results {
		for i := range r.found {
			addName(have, textOf(&r.found[i]), r.target.Name)
		}
		for _, d := range r.diags {
			addName(have, d.String(), r.target.Name)
		}
	}
	in := func(text string) string {
		if len(have[text]) == len(results) {
			return ""
		}
		return " [" + strings.Join(have[text], ", ") + "]"
	}
	printed := map[string]bool{}
	var changed []string
	for _, r := range results {
		for i := range r.found {
			f, text := &r.found[i], textOf(&r.found[i])
			switch {
			case printed[text]:
				continue
			case f.Severity == lint.Error:
				n.errors++
			case f.Severity == lint.Warning:
				n.warnings++
			case f.Lint == "FILE_UNCOMMITTED":
				changed = append(changed, f.Pos.File)
				printed[text] = true
				continue
			}
			printed[text] = true
			fmt.Fprintln(stderr, text+in(text))
		}
		for _, d := range r.costs {
			fmt.Fprintln(stderr, d)
		}
		var diags schemas.Diagnostics
		for _, d := range r.diags {
			if text := d.String(); !printed[text] {
				printed[text] = true
				d.Message += in(text)
				diags = append(diags, d)
				n.errors++
			}
		}
		if len(diags) > 0 {
			_ = show.ErrDiagnostics(cmd.ErrOrStderr(), r.target.Source, diags, r.target.Name) // which prints them
		}
	}
	if len(changed) > 0 {
		slices.Sort(changed)
		fmt.Fprintf(stderr, "note: %s not as in the commit that is checked out: %s (FILE_UNCOMMITTED)\n", areFiles(len(changed)), firstFew(changed))
	}
	for _, r := range results {
		if r.valid != "" {
			o.Say(cmd, "%s", r.valid)
		}
	}
	return n
}

func textOf(f *lint.Finding) string {
	return fmt.Sprintf("%s: %s (%s)", f.Severity, f.Diagnostic(), f.Lint)
}

func addName(have map[string][]string, text, name string) {
	if !slices.Contains(have[text], name) {
		have[text] = append(have[text], name)
	}
}

func areFiles(n int) string {
	if n == 1 {
		return "1 file is"
	}
	return usage.Count(n, "file") + " are"
}

func firstFew(files []string) string {
	const most = 4
	if len(files) <= most {
		return strings.Join(files, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(files[:most], ", "), len(files)-most)
}
