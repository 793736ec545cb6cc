package policytest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"stele.dev/stele/cmd/stele/internal/client"
	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/cmd/stele/internal/usage"
	"stele.dev/stele/core/run/suiterun"
	"stele.dev/stele/schemas"
)

// The results of a test.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
)

// entry is a test or an invariant and its result, as JSON shows it.
type entry struct {
	Name      string   `json:"name"`
	Invariant bool     `json:"invariant,omitempty"`
	Bundle    string   `json:"bundle"`
	Suite     string   `json:"suite"`
	File      string   `json:"file"`
	Line      int      `json:"line"`
	Result    string   `json:"result"`
	Reason    string   `json:"reason,omitempty"` // of an invariant, or why it was skipped
	Code      int      `json:"code,omitempty"`
	Stage     string   `json:"stage,omitempty"`
	Rules     []string `json:"rules,omitempty"`
	Failures  []string `json:"failures,omitempty"`
	// Considered are the rules that were considered, if the test failed.
	Considered []string `json:"considered,omitempty"`
	Outsiders  []string `json:"outsiders,omitempty"`

	source schemas.Position
}

// document is the JSON of a run.
type document struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Passed     int               `json:"passed"`
	Failed     int               `json:"failed"`
	Skipped    int               `json:"skipped"`
	Tests      []*entry          `json:"tests"`
	Coverage   []*suiterun.Point `json:"coverage"`
}

// entries returns all results of a part, by file and line.
func (p *part) entries() (list []*entry) {
	at := func(pos schemas.Position) string { return path.Join(p.prefix, pos.File) }
	for _, t := range p.tests {
		e := &entry{Name: t.Test.Name, Bundle: p.bundle, Suite: p.suite.Package, File: at(t.Test.Source), Line: t.Test.Source.Line, Result: passed, source: t.Test.Source,
			Failures: t.Failures, Considered: t.Why}
		switch {
		case t.Test.Skip != "":
			e.Result, e.Reason = skipped, t.Test.Skip
		case len(t.Failures) > 0:
			e.Result = failed
		}
		if a := t.Answer; a != nil {
			e.Code, e.Stage = a.Code, a.Stage
			for _, r := range a.Rules {
				e.Rules = append(e.Rules, r.ID)
			}
		}
		list = append(list, e)
	}
	for _, i := range p.invariants {
		x := i.Invariant
		e := &entry{Name: x.Name, Invariant: true, Bundle: p.bundle, Suite: p.suite.Package, File: at(x.Source), Line: x.Source.Line, Result: passed, Reason: x.Reason, source: x.Source,
			Failures: i.Failures, Outsiders: i.Outsiders}
		switch {
		case x.Skip != "":
			e.Result, e.Reason = skipped, x.Skip
		case len(i.Failures) > 0:
			e.Result = failed
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.source.File, b.source.File), cmp.Compare(a.source.Line, b.source.Line), cmp.Compare(a.source.Column, b.source.Column))
	})
	return list
}

// title names a test or an invariant.
func (e *entry) title() string {
	if e.Invariant {
		return fmt.Sprintf("invariant %q (%s)", e.Name, e.Reason)
	}
	return e.Name
}

// all returns all results: by file and line, then by bundle.
func (o *outcome) all() (list []*entry) {
	for _, p := range o.parts {
		list = append(list, p.entries()...)
	}
	slices.SortStableFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Bundle, b.Bundle))
	})
	return list
}

func (o *outcome) print(w io.Writer, options *options) error {
	switch options.format {
	case "text":
		return o.text(w, options)
	case "json":
		return o.json(w)
	}
	return report.Write(w, options.format, o.reports()...)
}

// text prints failures first, then a line for each bundle, then counts.
func (o *outcome) text(w io.Writer, options *options) error {
	var b strings.Builder
	all := o.all()
	width := 0
	for _, e := range all {
		width = max(width, len(e.Bundle))
	}
	for _, result := range []string{failed, passed, skipped} {
		for _, e := range all {
			if e.Result != result || result != failed && !options.verbose {
				continue
			}
			word := map[string]string{failed: "FAIL", passed: "ok  ", skipped: "skip"}[result]
			fmt.Fprintf(&b, "%s  %-*s  %s  %s:%d\n", word, width, e.Bundle, e.title(), e.File, e.Line)
			if result == skipped {
				fmt.Fprintf(&b, "      %s\n", e.Reason)
			}
			for _, f := range e.Failures {
				if e.Invariant {
					f = "a counterexample: " + f
				}
				fmt.Fprintf(&b, "      %s\n", indented(f))
			}
			for _, c := range e.Considered {
				fmt.Fprintf(&b, "        %s\n", indented(c))
			}
		}
	}
	fails, skips := o.bundleLines(&b, all, width)
	fmt.Fprintf(&b, "%s", usage.Count(len(all), "test"))
	switch {
	case fails > 0:
		fmt.Fprintf(&b, ", %d failed", fails)
	default:
		b.WriteString(", none failed")
	}
	if skips > 0 {
		fmt.Fprintf(&b, ", %d skipped", skips)
	}
	b.WriteString(".")
	if missing := o.coverage.Summary(); missing != "" && options.run == "" {
		fmt.Fprintf(&b, " Not exercised by any test: %s", missing)
		if !options.coverage {
			b.WriteString(" (--coverage lists them)")
		}
		b.WriteString(".")
	}
	b.WriteString("\n")
	if options.coverage {
		o.missing(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func indented(text string) string { return strings.ReplaceAll(text, "\n", "\n        ") }

// bundleLines prints the counts of each bundle.
func (o *outcome) bundleLines(b *strings.Builder, all []*entry, width int) (fails, skips int) {
	type counts struct{ tests, invariants, fails, skips int }
	of := map[string]*counts{}
	var names []string
	for _, e := range all {
		c := of[e.Bundle]
		if c == nil {
			c = &counts{}
			of[e.Bundle] = c
			names = append(names, e.Bundle)
		}
		switch {
		case e.Result == skipped:
			c.skips++
			skips++
			continue
		case e.Result == failed:
			c.fails++
			fails++
		}
		if e.Invariant {
			c.invariants++
		} else {
			c.tests++
		}
	}
	slices.Sort(names)
	for _, name := range names {
		c := of[name]
		word := "ok  "
		if c.fails > 0 {
			word = "FAIL"
		}
		fmt.Fprintf(b, "%s  %-*s  %s, %s", word, width, name, usage.Count(c.tests, "test"), usage.Count(c.invariants, "invariant"))
		if c.skips > 0 {
			fmt.Fprintf(b, ", %d skipped", c.skips)
		}
		b.WriteString("\n")
	}
	return fails, skips
}

// missing lists what no test exercised.
func (o *outcome) missing(b *strings.Builder) {
	for _, p := range o.coverage.Points() {
		if !p.Exercised() {
			fmt.Fprintf(b, "%s %s: no test for %s", p.Part, p.ID, strings.Join(p.Missing(), ", "))
			if p.Source != "" {
				fmt.Fprintf(b, "  %s", p.Source)
			}
			b.WriteString("\n")
		}
	}
}

func (o *outcome) json(w io.Writer) error {
	d := document{APIVersion: client.DocumentVersion, Kind: "TestReport", Tests: o.all(), Coverage: o.coverage.Points()}
	for _, e := range d.Tests {
		switch e.Result {
		case passed:
			d.Passed++
		case failed:
			d.Failed++
		case skipped:
			d.Skipped++
		}
	}
	for _, p := range d.Coverage {
		slices.Sort(p.Seen)
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(d)
}

// reports returns the results for CI systems, a report for each bundle.
func (o *outcome) reports() (list []report.Report) {
	at := map[string]int{}
	for _, e := range o.all() {
		i, known := at[e.Bundle]
		if !known {
			i, at[e.Bundle] = len(list), len(list)
			list = append(list, report.Report{Name: e.Bundle, Folder: e.Bundle})
		}
		r := &list[i]
		c := report.Case{Name: e.title(), Class: e.Suite, File: e.File, Line: e.Line}
		switch e.Result {
		case skipped:
			c.Skipped = e.Reason
		case failed:
			c.Failure = strings.Join(append(slices.Clone(e.Failures), e.Considered...), "\n")
			r.Items = append(r.Items, report.Item{
				Rule: "TEST_FAILED", Severity: report.Error, File: e.File, Line: e.Line, Column: e.source.Column, Title: e.Bundle + ": " + e.title(), Message: c.Failure,
			})
		}
		r.Cases = append(r.Cases, c)
	}
	slices.SortFunc(list, func(a, b report.Report) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
