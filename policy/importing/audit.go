package importing

import (
	"fmt"
	"slices"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// audit imports the rules of an audit policy, in their order.
func (m *importer) audit() error {
	list := slices.DeleteFunc(m.of("Policy"), func(o *object) bool { return o.group() != "audit.k8s.io" })
	if !m.bundlesOnly("the audit policy", list) {
		return nil
	}
	if len(list) > 1 {
		return fmt.Errorf("%s:%d: there is more than one audit policy in the input; import one", list[1].File, list[1].line())
	}
	o := list[0]
	var p auditv1.Policy
	if err := o.decode(&p); err != nil {
		return err
	}
	var rules fields
	for i := range p.Rules {
		for _, f := range m.auditRule(o, &p, i) {
			order := len(rules) + 1
			rules = append(rules, member{fmt.Sprintf("rule-%d", order), append(fields{{"order", order * 10}}, f...)})
		}
	}
	if p.OmitManagedFields {
		m.note(o, []string{"omitManagedFields"}, "omitManagedFields is left out: a bundle has no such setting")
	}
	if len(rules) > 0 {
		m.counts["audit rules"] = len(rules)
		m.parts = append(m.parts, part{file: "audit.cue", text: "bundle: audit: rules: " + structText(rules) + "\n"})
	}
	return nil
}

// auditRule returns a rule as rules for one API group each.
func (m *importer) auditRule(o *object, p *auditv1.Policy, i int) (list []fields) {
	r := &p.Rules[i]
	path := []string{"rules", fmt.Sprint(i)}
	why := ""
	switch {
	case len(r.Users) > 0 && len(r.UserGroups) > 0:
		why = "it matches by users and by groups at the same time"
	case len(r.NonResourceURLs) > 0:
		why = "it is about paths"
	case slices.ContainsFunc(r.Resources, func(g auditv1.GroupResources) bool { return len(g.ResourceNames) > 0 }):
		why = "it is about objects by name"
	case slices.ContainsFunc(r.Verbs, func(v string) bool { return !slices.Contains(knownVerbs, v) }):
		why = "it has verbs that a bundle does not know"
	}
	if why != "" {
		m.note(o, path, "the audit rule %d (level %s) is left out: %s. Later rules decide about its requests", i+1, r.Level, why)
		return nil
	}
	var subjects []fields
	for _, name := range r.Users {
		subjects = append(subjects, fields{{"user", name}})
	}
	for _, name := range r.UserGroups {
		subjects = append(subjects, fields{{"group", name}})
	}
	stages := slices.Clone(r.OmitStages)
	for _, s := range p.OmitStages {
		if !slices.Contains(stages, s) {
			stages = append(stages, s)
		}
	}
	var omit []string
	for _, s := range stages {
		omit = append(omit, string(s))
	}
	groups := r.Resources
	if len(groups) == 0 {
		groups = []auditv1.GroupResources{{}}
	}
	for _, g := range groups {
		f := fields{{"level", string(r.Level)}}
		if len(subjects) > 0 {
			f = append(f, member{"subjects", subjects})
		}
		f.add("verbs", r.Verbs)
		if len(r.Resources) > 0 {
			f = append(f, member{"apiGroups", []string{g.Group}})
		}
		f.add("resources", g.Resources)
		f.add("namespaces", r.Namespaces)
		f.add("omitStages", omit)
		list = append(list, f)
	}
	return list
}
