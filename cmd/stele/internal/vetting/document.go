package vetting

import (
	"cmp"
	"encoding/hex"
	"path"

	"stele.dev/stele/cmd/stele/internal/compiling"
	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/contents"
	"stele.dev/stele/policy/lint"
	"stele.dev/stele/schemas"
)

// document is the JSON of the results of vet.
type document struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Bundles    []*vetted `json:"bundles"`
}

// vetted is the result for a bundle.
type vetted struct {
	Bundle   string    `json:"bundle"`
	Valid    bool      `json:"valid"`
	Policy   string    `json:"policy,omitempty"` // digest
	Kinds    int       `json:"kinds"`
	Contents []count   `json:"contents,omitempty"`
	Errors   []finding `json:"errors,omitempty"`
	Warnings []finding `json:"warnings,omitempty"`
	Notes    []finding `json:"notes,omitempty"`
}

// count is the number of entries of a part of a bundle.
type count struct {
	Part  string `json:"part"`
	Count int    `json:"count"`
}

// finding is an error, a warning or a note about a bundle.
type finding struct {
	ID      string `json:"id,omitempty"` // of the lint
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func findings(diags schemas.Diagnostics) []finding {
	all := make([]finding, len(diags))
	for i, d := range diags {
		all[i] = finding{ID: d.Lint, File: d.Pos.File, Line: d.Pos.Line, Column: d.Pos.Column, Path: d.Path, Message: d.Message, Hint: d.Hint}
	}
	return all
}

// add adds what a lint found.
func (v *vetted) add(f lint.Finding) {
	list := &v.Notes
	switch f.Severity {
	case lint.Error:
		list = &v.Errors
	case lint.Warning:
		list = &v.Warnings
	}
	*list = append(*list, findings(schemas.Diagnostics{f.Diagnostic()})...)
}

func (v *vetted) counts() counts { return counts{len(v.Errors), len(v.Warnings)} }

// describe sets what a valid bundle contains.
func (v *vetted) describe(form *policy.Form) {
	for i := range form.Kinds {
		if !form.Kinds[i].Builtin {
			v.Kinds++
		}
	}
	for _, c := range contents.Of(form, nil) {
		v.Contents = append(v.Contents, count{c.Part, c.Count})
	}
	_, digest := form.Encode()
	v.Valid, v.Policy = true, hex.EncodeToString(digest[:])
}

// ruleOfErrors is the name of errors in reports: they have no lint.
const ruleOfErrors = "BUNDLE_INVALID"

// reports returns the findings for CI systems. Findings in a file that several bundles share are reported once for each.
func (d *document) reports(targets []compiling.Target) []report.Report {
	all := make([]report.Report, len(d.Bundles))
	for i, v := range d.Bundles {
		prefix := prefixOf(targets[i])
		r := &all[i]
		r.Name, r.Folder, r.RuleHelp = v.Bundle, path.Join(prefix, targets[i].Source.Package), ruleHelp
		add := func(severity report.Severity, list []finding) {
			for _, f := range list {
				item := report.Item{Rule: f.ID, Severity: severity, Line: f.Line, Column: f.Column, Title: f.Path, Message: f.Message, Help: f.Hint}
				item.Rule = cmp.Or(item.Rule, ruleOfErrors)
				if f.File != "" {
					item.File = path.Join(prefix, f.File)
				}
				r.Items = append(r.Items, item)
			}
		}
		add(report.Error, v.Errors)
		add(report.Warning, v.Warnings)
		add(report.Note, v.Notes)
	}
	return all
}

func ruleHelp(id string) string {
	if id == ruleOfErrors {
		return "The bundle does not compile."
	}
	if l := lint.Find(id); l != nil {
		return l.Title
	}
	return ""
}
