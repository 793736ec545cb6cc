package planning

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"stele.dev/stele/cmd/stele/internal/report"
	"stele.dev/stele/policy/plan"
)

// reports are plans as findings for CI systems. Findings of the refusing classes that nobody accepted are errors.
func reports(parts []Part, refusing []plan.Class) []report.Report {
	var all []report.Report
	for i := range parts {
		p := &parts[i]
		r := report.Report{Name: p.Name, Folder: p.Prefix + filepath.ToSlash(p.Name), RuleHelp: func(rule string) string {
			if r := plan.RuleNamed(rule); r != nil {
				return r.Short
			}
			return ""
		}}
		if p.Package != "" {
			r.Folder = p.Prefix + p.Package
		}
		for j := range p.Findings {
			r.Items = append(r.Items, p.item(&p.Findings[j], refusing))
		}
		all = append(all, r)
	}
	return all
}

func (p *Part) item(f *plan.Finding, refusing []plan.Class) report.Item {
	i := report.Item{ID: f.ID, Rule: f.Rule, Severity: severity(f, refusing)}
	if at := f.Source; at.File != "" {
		i.File, i.Line, i.Column = path.Join(p.Prefix, at.File), at.Line, at.Column
	}
	i.Title = strings.Join(slices.DeleteFunc([]string{f.Kind, f.Path, versionText(f), f.Subject}, func(s string) bool { return s == "" }), " ")
	lines := []string{sidesText(f), f.Message}
	lines = slices.Concat(lines, objectTexts(f), f.Details)
	if f.Source.File == "" && f.Was.File != "" {
		lines = append(lines, whereText(f))
	}
	if f.Accepted != nil {
		lines = append(lines, acceptedText(f.Accepted))
	}
	lines = slices.DeleteFunc(lines, func(s string) bool { return s == "" })
	if len(lines) == 0 {
		if r := plan.RuleNamed(f.Rule); r != nil {
			lines = []string{r.Short}
		}
	}
	i.Message, i.Help = strings.Join(lines, "\n"), strings.Join(f.Fix, "\n")
	return i
}

func severity(f *plan.Finding, refusing []plan.Class) report.Severity {
	switch {
	case f.Accepted == nil && f.Among(refusing):
		return report.Error
	case f.Class == plan.Breaks, f.Class == plan.Widens:
		return report.Warning
	}
	return report.Note
}
