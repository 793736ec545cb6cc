package plan

import (
	"slices"

	"stele.dev/stele/schemas"
)

// Accepted is an entry of the field `accept` beside a bundle: a finding that a reviewer wants.
type Accepted struct {
	// Rule, Kind, Path and Subject are those of the finding. What the entry leaves out is empty in the finding, too.
	Rule    string `json:"rule"`
	Kind    string `json:"kind,omitempty"`
	Path    string `json:"path,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Until is the last day on which the entry counts, in UTC, as YYYY-MM-DD.
	Until string `json:"until"`
	// Reason says why the finding is wanted.
	Reason string `json:"reason"`
	// Source is the line of the entry.
	Source schemas.Position `json:"source,omitzero"`
}

// matches reports whether an entry is about a finding. The versions of a kind are not told apart.
func (a *Accepted) matches(f *Finding) bool {
	return a.Rule == f.Rule && a.Kind == f.Kind && a.Path == f.Path && a.Subject == f.Subject
}

// Acceptances are what has been accepted beforehand.
type Acceptances struct {
	// Entries are those beside the bundle.
	Entries []Accepted
	// IDs are the IDs of findings.
	IDs []string
	// Rules are the names of rules of which all findings are accepted.
	Rules []string
	// Today is the day on which entries must still count, as YYYY-MM-DD.
	Today string
}

// Unused are the acceptances that did not count.
type Unused struct {
	Expired []Accepted // they would match, but their day has passed
	Entries []Accepted // no finding is as they say
	IDs     []string   // no finding has them
}

// Accept marks the findings that are accepted, and counts the findings again. It returns the acceptances that did not
// count. Findings that have been accepted before stay so.
func (p *Plan) Accept(a Acceptances) Unused {
	var unused Unused
	for i := range p.Findings {
		f := &p.Findings[i]
		if f.Accepted == nil && (slices.Contains(a.IDs, f.ID) || slices.Contains(a.Rules, f.Rule)) {
			f.Accepted = &Acceptance{}
		}
	}
	for i := range a.Entries {
		e := &a.Entries[i]
		found := false
		for j := range p.Findings {
			f := &p.Findings[j]
			if !e.matches(f) {
				continue
			}
			found = true
			if e.Until >= a.Today && f.Accepted == nil {
				f.Accepted = &Acceptance{Reason: e.Reason, Until: e.Until, Source: e.Source}
			}
		}
		switch {
		case !found:
			unused.Entries = append(unused.Entries, *e)
		case e.Until < a.Today:
			unused.Expired = append(unused.Expired, *e)
		}
	}
	for _, id := range a.IDs {
		if !slices.ContainsFunc(p.Findings, func(f Finding) bool { return f.ID == id }) {
			unused.IDs = append(unused.IDs, id)
		}
	}
	p.count()
	return unused
}

// count counts the findings.
func (p *Plan) count() {
	p.Summary = Summary{}
	for i := range p.Findings {
		p.Summary.add(&p.Findings[i])
	}
}

// Refused returns the findings of some classes that nobody has accepted.
func (p *Plan) Refused(classes ...Class) []*Finding {
	var all []*Finding
	for i := range p.Findings {
		if f := &p.Findings[i]; f.Accepted == nil && f.Among(classes) {
			all = append(all, f)
		}
	}
	return all
}

// Only keeps the findings that keep returns true for, and returns how many it dropped.
func (p *Plan) Only(keep func(*Finding) bool) int {
	before := len(p.Findings)
	p.Findings = slices.DeleteFunc(p.Findings, func(f Finding) bool { return !keep(&f) })
	p.count()
	return before - len(p.Findings)
}
