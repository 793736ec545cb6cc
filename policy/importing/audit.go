package importing

import (
	"fmt"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/audits"
)

// audit imports the rules of an audit policy, in their order.
func (m *importer) audit() error {
	list := slices.DeleteFunc(m.objectsOf("Policy"), func(o *object) bool { return o.group() != "audit.k8s.io" })
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
	all := fields{}
	all.add("omitStages", audits.StageTexts(p.OmitStages))
	if p.OmitManagedFields {
		all = append(all, member{"omitManagedFields", true})
	}
	var rules fields
	for i := range p.Rules {
		for _, f := range m.auditRule(o, &p, i) {
			order := len(rules) + 1
			rules = append(rules, member{fmt.Sprintf("rule-%d", order), from(append(fields{{"order", order * 10}}, f...), o, "rules", fmt.Sprint(i))})
		}
	}
	if len(rules) > 0 {
		m.counts["audit rules"] = len(rules)
		m.write("audit.cue", []string{"bundle", "audit"}, append(all, member{"rules", rules}))
	}
	return nil
}

// auditVerbs are the verbs of requests: Kubernetes has no others to match.
var auditVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "post", "put", "head", "options"}

// auditRule returns a rule as rules with one list of resources each.
func (m *importer) auditRule(o *object, p *auditv1.Policy, i int) (list []fields) {
	r := p.Rules[i].DeepCopy()
	path := []string{"rules", fmt.Sprint(i)}
	for _, v := range r.Verbs {
		if !slices.Contains(auditVerbs, v) {
			m.note(o, path, "the verb %q of the audit rule %d is left out: no request has it", v, i+1)
		}
	}
	if verbs := slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return !slices.Contains(auditVerbs, v) }); len(verbs) < len(r.Verbs) {
		if r.Verbs = verbs; len(verbs) == 0 {
			m.note(o, path, "the audit rule %d (level %s) is left out: it matches no request", i+1, r.Level)
			return nil
		}
	}
	if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
		m.note(o, path, "the nonResourceURLs of the audit rule %d are left out: it is about resources, so that kube-apiserver ignores them", i+1)
		r.NonResourceURLs = nil
	}
	omitted := audits.StagesOf(audits.StageTexts(append(slices.Clone(p.OmitStages), r.OmitStages...)))
	if omitted == audits.All && r.Level != auditv1.LevelNone {
		m.note(o, path, "the audit rule %d has the level None instead of %s: it omits all stages", i+1, r.Level)
	}
	if omitted == audits.All {
		r.Level, r.OmitStages = auditv1.LevelNone, nil
	}
	for _, one := range audits.RulesFromKubernetes(r) {
		if len(one.Resources) == 0 && len(one.Names) > 0 {
			m.note(o, path, "the resourceNames of the audit rule %d are left out: without resources they mean nothing", i+1)
			one.Names = nil
		}
		if !m.auditedHere(o, &one, i, path...) {
			continue
		}
		f := fields{{"level", one.Level}}
		if len(one.Subjects) > 0 {
			f = append(f, member{"subjects", auditSubjects(one.Subjects)})
		}
		f.add("memberOf", one.MemberOf)
		f.add("verbs", one.Verbs)
		if !(len(one.APIGroups) == 1 && one.APIGroups[0] == "*" && len(one.Resources) > 0) { // without groups, all are meant
			f.add("apiGroups", one.APIGroups)
		}
		f.add("resources", one.Resources)
		f.add("names", one.Names)
		f.add("namespaces", one.Namespaces)
		f.add("nonResourceURLs", one.NonResourceURLs)
		f.add("omitStages", one.OmitStages)
		if one.OmitManagedFields != nil {
			f = append(f, member{"omitManagedFields", *one.OmitManagedFields})
		}
		list = append(list, f)
	}
	return list
}

// auditedHere takes from an audit rule what nothing serves. It reports whether the rule is about anything else; a list of which nothing
// is left would match everything.
func (m *importer) auditedHere(o *object, r *policy.AuditRule, i int, path ...string) bool {
	what := fmt.Sprintf("a part of the audit rule %d (level %s)", i+1, r.Level)
	if len(r.Resources) == 0 {
		for _, g := range r.APIGroups {
			if g != "*" && m.served.resources[g] == nil && m.served.closed(g) {
				m.note(o, path, "%s is left out: nothing is served in the API group %q%s", what, g, m.perhaps(g))
				return false
			}
		}
		return true
	}
	groups := r.APIGroups
	if len(groups) == 0 {
		groups = []string{"*"}
	}
	n := m.audited(o, what, names{groups, r.Resources}, path...)
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, "") {
		n.resources = m.onlyOutside(o, what, n, path...)
	}
	if len(r.APIGroups) > 0 {
		r.APIGroups = n.groups
	}
	r.Resources = n.resources
	return len(n.resources) > 0
}

// auditSubjects returns subjects as a bundle has them.
func auditSubjects(subjects []policy.Subject) (list []fields) {
	for _, s := range subjects {
		namespace, name, isAccount := strings.Cut(strings.TrimPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix), ":")
		switch {
		case s.Group != "":
			list = append(list, fields{{"group", s.Group}})
		case isAccount && strings.HasPrefix(s.User, serviceaccount.ServiceAccountUsernamePrefix):
			list = append(list, fields{{"serviceAccount", namespace + "/" + name}})
		default:
			list = append(list, fields{{"user", s.User}})
		}
	}
	return list
}
