package importing

import (
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// builtinLevels are the priority levels that every bundle has.
var builtinLevels = []string{"exempt", "leader-election", "node-high", "system", "workload-high", "workload-low", "global-default", "catch-all"}

// builtinFlows are the flow schemas that kube-apiserver makes.
var builtinFlows = []string{"exempt", "probes", "system-leader-election", "endpoint-controller", "workload-leader-election", "system-node-high", "system-nodes",
	"kube-controller-manager", "kube-scheduler", "kube-system-service-accounts", "service-accounts", "global-default", "catch-all"}

// bundlesOnly reports whether a section can be written: flow and audit belong to the control plane, and not to a team.
func (m *importer) bundlesOnly(section string, objects []*object) bool {
	if len(objects) == 0 || m.Whole {
		return len(objects) > 0
	}
	m.note(objects[0], nil, "%s is left out: it belongs to the control plane and not to a team; import it with --package and the name of a package of the platform", section)
	return false
}

// flow imports priority levels and flow schemas.
func (m *importer) flow() error {
	levels, schemas := m.of("PriorityLevelConfiguration"), m.of("FlowSchema")
	if !m.bundlesOnly("flow control", slices.Concat(levels, schemas)) {
		return nil
	}
	left := 0
	known := map[string]bool{}
	for _, name := range builtinLevels {
		known[name] = true
	}
	var levelFields, schemaFields fields
	for _, o := range levels {
		if slices.Contains(builtinLevels, o.name()) {
			left++
			continue
		}
		var l flowcontrolv1.PriorityLevelConfiguration
		if err := o.decode(&l); err != nil {
			return err
		}
		if f := m.level(o, &l); f != nil {
			known[o.name()] = true
			levelFields = append(levelFields, member{o.name(), f})
		}
	}
	taken := map[string]bool{}
	for _, o := range schemas {
		if slices.Contains(builtinFlows, o.name()) {
			left++
			continue
		}
		var s flowcontrolv1.FlowSchema
		if err := o.decode(&s); err != nil {
			return err
		}
		if !known[s.Spec.PriorityLevelConfiguration.Name] {
			m.note(o, []string{"spec", "priorityLevelConfiguration"}, "the flow schema %q is left out: its priority level %q is not in the input", s.Name, s.Spec.PriorityLevelConfiguration.Name)
			continue
		}
		for i := range s.Spec.Rules {
			if f := m.flowSchema(o, &s, i); f != nil {
				schemaFields = append(schemaFields, member{unique(taken, nameFor(s.Name)), f})
			}
		}
	}
	if left > 0 {
		m.notes = append(m.notes, Note{m.objects[0].File, 0, fmt.Sprintf("%d flow schemas and priority levels that every server has are left out", left)})
	}
	m.counts["priority levels"], m.counts["flow schemas"] = len(levelFields), len(schemaFields)
	var flow fields
	flow.add("priorityLevels", levelFields)
	flow.add("flowSchemas", schemaFields)
	if len(flow) > 0 {
		m.parts = append(m.parts, part{file: "flow.cue", text: "bundle: flow: " + structText(flow) + "\n"})
	}
	return nil
}

func (m *importer) level(o *object, l *flowcontrolv1.PriorityLevelConfiguration) fields {
	limited := l.Spec.Limited
	if limited == nil || !validName.MatchString(l.Name) {
		m.note(o, []string{"spec"}, "the priority level %q is left out: a bundle has levels of type Limited, with names of lower-case letters, digits, and -.:", l.Name)
		return nil
	}
	shares := int32(30) // the default of Kubernetes
	if limited.NominalConcurrencyShares != nil {
		shares = *limited.NominalConcurrencyShares
	}
	f := fields{{"nominalConcurrencyShares", shares}}
	if p := limited.LendablePercent; p != nil && *p != 0 {
		f.add("lendablePercent", *p)
	}
	if p := limited.BorrowingLimitPercent; p != nil {
		f.add("borrowingLimitPercent", *p)
	}
	if limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue {
		queuing := fields{}
		if q := limited.LimitResponse.Queuing; q != nil {
			for _, x := range []struct {
				name  string
				value int32
			}{{"queues", q.Queues}, {"handSize", q.HandSize}, {"queueLengthLimit", q.QueueLengthLimit}} {
				if x.value != 0 {
					queuing.add(x.name, x.value)
				}
			}
		}
		f = append(f, member{"queuing", queuing})
	}
	return f
}

// flowSchema returns one rule of a flow schema as a flow schema of its own: in a bundle, all rules have the same subjects.
func (m *importer) flowSchema(o *object, s *flowcontrolv1.FlowSchema, i int) fields {
	r := &s.Spec.Rules[i]
	path := []string{"spec", "rules", fmt.Sprint(i)}
	precedence := s.Spec.MatchingPrecedence
	if precedence == 0 {
		precedence = 1000 // the default of Kubernetes
	}
	f := fields{{"matchingPrecedence", precedence}, {"priorityLevel", s.Spec.PriorityLevelConfiguration.Name}}
	if s.Spec.DistinguisherMethod != nil {
		f.add("distinguisher", string(s.Spec.DistinguisherMethod.Type))
	}
	var subjects []fields
	for _, x := range r.Subjects {
		kind, name, namespace := string(x.Kind), "", ""
		switch {
		case x.User != nil:
			name = x.User.Name
		case x.Group != nil:
			name = x.Group.Name
		case x.ServiceAccount != nil:
			name, namespace = x.ServiceAccount.Name, x.ServiceAccount.Namespace
		}
		if name == "*" {
			m.note(o, append(path, "subjects"), "the subject %s \"*\" of the flow schema %q is left out: name users and groups; system:authenticated and system:unauthenticated together are everybody", kind, s.Name)
			continue
		}
		if subject := m.subject(o, kind, name, namespace, append(path, "subjects")...); subject != nil {
			subjects = append(subjects, subject)
		}
	}
	var rules fields
	taken := map[string]bool{}
	for j, x := range r.ResourceRules {
		if !slices.Equal(x.Namespaces, []string{"*"}) || !x.ClusterScope {
			m.note(o, append(path, "resourceRules", fmt.Sprint(j)), "a rule of the flow schema %q is left out: it is for some namespaces only, or without objects outside of namespaces", s.Name)
			continue
		}
		rule := rbacv1.PolicyRule{Verbs: x.Verbs, APIGroups: x.APIGroups, Resources: x.Resources}
		if f := m.rule(o, rule, path...); f != nil {
			rules = append(rules, member{unique(taken, ruleName(rule)), f})
		}
	}
	for _, x := range r.NonResourceRules {
		rule := rbacv1.PolicyRule{Verbs: x.Verbs, NonResourceURLs: x.NonResourceURLs}
		if slices.Equal(x.NonResourceURLs, []string{"*"}) {
			rule.NonResourceURLs = []string{"/*"}
		}
		if f := m.rule(o, rule, path...); f != nil {
			rules = append(rules, member{unique(taken, "paths"), f})
		}
	}
	if len(subjects) == 0 || len(rules) == 0 {
		m.note(o, path, "a part of the flow schema %q is left out: nothing of it can be carried", s.Name)
		return nil
	}
	return append(f, member{"subjects", subjects}, member{"rules", rules})
}
