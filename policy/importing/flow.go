package importing

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"stele.dev/stele/policy/flows"
)

// watchesAnnotation has the limit of watches of a FlowSchema that was exported from a bundle, or read from a stele server.
const watchesAnnotation = "stele.dev/watches"

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
	levels, schemas := m.objectsOf("PriorityLevelConfiguration"), m.objectsOf("FlowSchema")
	if !m.bundlesOnly("flow control", slices.Concat(levels, schemas)) {
		return nil
	}
	var left []*object
	known := map[string]bool{}
	for name := range builtinLevels() {
		known[name] = true
	}
	var levelFields, schemaFields fields
	for _, o := range levels {
		var l flowcontrolv1.PriorityLevelConfiguration
		if err := o.decode(&l); err != nil {
			return err
		}
		defaultLevel(&l.Spec)
		switch builtin := builtinLevels()[l.Name]; {
		case builtin != nil && equality.Semantic.DeepEqual(builtin, &l.Spec):
			left = append(left, o)
		case flows.Mandatory(l.Name):
			m.mandatory(o)
		default:
			if f := m.level(o, &l); f != nil {
				known[o.name()] = true
				levelFields = append(levelFields, member{o.name(), from(f, o)})
			}
		}
	}
	taken := map[string]bool{}
	for _, o := range schemas {
		var s flowcontrolv1.FlowSchema
		if err := o.decode(&s); err != nil {
			return err
		}
		s.Spec.MatchingPrecedence = cmp.Or(s.Spec.MatchingPrecedence, 1000) // the default of Kubernetes
		switch builtin := builtinSchemas()[s.Name]; {
		case builtin != nil && equality.Semantic.DeepEqual(builtin, &s.Spec):
			left = append(left, o)
			continue
		case flows.Mandatory(s.Name):
			m.mandatory(o)
			continue
		case !known[s.Spec.PriorityLevelConfiguration.Name]:
			m.note(o, []string{"spec", "priorityLevelConfiguration"}, "the flow schema %q is left out: its priority level %q is not in the input", s.Name, s.Spec.PriorityLevelConfiguration.Name)
			continue
		}
		for _, parts := range sameSubjects(s.Spec.Rules) {
			if f := m.flowSchema(o, &s, parts); f != nil {
				schemaFields = append(schemaFields, member{unique(taken, nameFor(s.Name)), from(f, o)})
			}
		}
	}
	if len(left) > 0 {
		m.note(left[0], nil, "%d flow schemas and priority levels that every server has are left out, such as %q: nothing of them was changed", len(left), left[0].name())
	}
	m.counts["priority levels"], m.counts["flow schemas"] = len(levelFields), len(schemaFields)
	var flow fields
	flow.add("priorityLevels", levelFields)
	flow.add("flowSchemas", schemaFields)
	if len(flow) > 0 {
		m.write("flow.cue", []string{"bundle", "flow"}, flow)
	}
	return nil
}

func (m *importer) level(o *object, l *flowcontrolv1.PriorityLevelConfiguration) fields {
	limited := l.Spec.Limited
	if limited == nil || !validName.MatchString(l.Name) {
		m.note(o, []string{"spec"}, "the priority level %q is left out: a bundle has levels of type Limited, with names of lower-case letters, digits, and -.:", l.Name)
		return nil
	}
	f := fields{{"nominalConcurrencyShares", *limited.NominalConcurrencyShares}}
	if p := *limited.LendablePercent; p != 0 {
		f.add("lendablePercent", p)
	}
	if p := limited.BorrowingLimitPercent; p != nil {
		f.add("borrowingLimitPercent", *p)
	}
	if q := limited.LimitResponse.Queuing; q != nil {
		f = append(f, member{"queuing", fields{{"queues", q.Queues}, {"handSize", q.HandSize}, {"queueLengthLimit", q.QueueLengthLimit}}})
	}
	return f
}

// flowSchema returns the parts of a flow schema with the same subjects as a flow schema.
func (m *importer) flowSchema(o *object, s *flowcontrolv1.FlowSchema, parts []int) fields {
	path := []string{"spec", "rules", fmt.Sprint(parts[0])}
	f := fields{{"matchingPrecedence", s.Spec.MatchingPrecedence}, {"priorityLevel", s.Spec.PriorityLevelConfiguration.Name}}
	if s.Spec.DistinguisherMethod != nil {
		f.add("distinguisher", string(s.Spec.DistinguisherMethod.Type))
	}
	if watches, err := strconv.ParseInt(s.Annotations[watchesAnnotation], 10, 32); err == nil && watches > 0 {
		f.add("watches", watches)
	}
	subjects := m.flowSubjects(o, s.Spec.Rules[parts[0]].Subjects, append(path, "subjects")...)
	var rules fields
	taken := map[string]bool{}
	add := func(f fields, path ...string) {
		if f != nil {
			rules = append(rules, member{unique(taken, ruleName(f)), from(f, o, path...)})
		}
	}
	for _, i := range parts {
		r, path := &s.Spec.Rules[i], []string{"spec", "rules", fmt.Sprint(i)}
		for j := range r.ResourceRules {
			x := &r.ResourceRules[j]
			at := append(slices.Clip(path), "resourceRules", fmt.Sprint(j))
			add(m.resourceRule(o, s.Name, x, fmt.Sprintf("resource rule %d in rule %d of the flow schema %q", j+1, i+1, s.Name), at...), at...)
		}
		for j, x := range r.NonResourceRules {
			if slices.Equal(x.NonResourceURLs, []string{"*"}) {
				x.NonResourceURLs = []string{"/*"} // it matches the same
			}
			if verbs := m.flowVerbs(o, s.Name, x.Verbs, pathVerbs, append(path, "nonResourceRules", fmt.Sprint(j), "verbs")...); len(verbs) > 0 {
				add(fields{{"nonResourceURLs", x.NonResourceURLs}, {"verbs", verbs}}, "spec", "rules", fmt.Sprint(i), "nonResourceRules", fmt.Sprint(j))
			}
		}
	}
	if len(subjects) == 0 || len(rules) == 0 {
		m.note(o, path, "a part of the flow schema %q is left out: nothing of it can be carried", s.Name)
		return nil
	}
	return append(f, member{"subjects", subjects}, member{"rules", rules})
}

func (m *importer) flowSubjects(o *object, list []flowcontrolv1.Subject, path ...string) (subjects []fields) {
	for _, x := range list {
		kind, name, namespace := string(x.Kind), "", ""
		switch {
		case x.User != nil:
			name = x.User.Name
		case x.Group != nil:
			name = x.Group.Name
		case x.ServiceAccount != nil:
			name, namespace = x.ServiceAccount.Name, x.ServiceAccount.Namespace
		}
		if subject := m.subject(o, kind, name, namespace, path...); subject != nil {
			subjects = append(subjects, subject)
		}
	}
	return subjects
}

// resourceRule returns a rule of a flow schema; nil if nothing of it can be carried. what names it.
func (m *importer) resourceRule(o *object, schema string, r *flowcontrolv1.ResourcePolicyRule, what string, path ...string) fields {
	if !r.ClusterScope && len(r.Namespaces) == 0 {
		m.note(o, path, "a rule of the flow schema %q is left out: it has neither namespaces nor clusterScope, and matches no request", schema)
		return nil
	}
	verbs := m.flowVerbs(o, schema, r.Verbs, resourceVerbs, append(slices.Clip(path), "verbs")...)
	resources := slices.DeleteFunc(slices.Clone(r.Resources), func(resource string) bool { return strings.HasPrefix(resource, "*/") })
	if len(resources) < len(r.Resources) {
		m.note(o, append(slices.Clip(path), "resources"), "resources such as \"*/status\" of %s are left out: flow schemas have no patterns of resources, so that no request matches", what)
	}
	if len(verbs) == 0 || len(resources) == 0 {
		return nil
	}
	n := m.servedNames(o, what, r.APIGroups, resources, append(slices.Clip(path), "resources")...)
	namespaces := flows.Namespaces(r)
	if len(namespaces) > 0 && !slices.Contains(namespaces, "") {
		n.resources = m.onlyOutside(o, what, n, append(slices.Clip(path), "resources")...)
	}
	if len(n.resources) == 0 {
		return nil
	}
	f := fields{{"apiGroups", n.groups}, {"resources", n.resources}}
	f.add("namespaces", namespaces)
	f.add("verbs", verbs)
	return f
}

// The verbs of requests for resources, and of requests for paths.
var (
	resourceVerbs = []string{"*", "get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	pathVerbs     = []string{"*", "get", "head", "post", "put", "patch", "delete", "options"}
)

// flowVerbs returns the verbs that a bundle admits, and notes the others.
func (m *importer) flowVerbs(o *object, schema string, verbs, admitted []string, path ...string) (list []string) {
	for _, v := range verbs {
		if slices.Contains(admitted, v) {
			list = append(list, v)
		} else {
			m.note(o, path, "the verb %q of the flow schema %q is left out: no such request has it", v, schema)
		}
	}
	return list
}

// sameSubjects groups the rules of a flow schema by their subjects: in a bundle, all rules of a flow schema have the same.
func sameSubjects(rules []flowcontrolv1.PolicyRulesWithSubjects) (groups [][]int) {
	for i := range rules {
		j := slices.IndexFunc(groups, func(g []int) bool { return equality.Semantic.DeepEqual(rules[g[0]].Subjects, rules[i].Subjects) })
		if j < 0 {
			groups = append(groups, []int{i})
		} else {
			groups[j] = append(groups[j], i)
		}
	}
	return groups
}

// mandatory notes that a changed flow schema or priority level is not imported.
func (m *importer) mandatory(o *object) {
	m.note(o, []string{"spec"}, "the changes of the %s %q are left out: a bundle cannot replace it", o.kind(), o.name())
}

// defaultLevel sets the defaults of Kubernetes.
func defaultLevel(spec *flowcontrolv1.PriorityLevelConfigurationSpec) {
	l := spec.Limited
	if l == nil {
		return
	}
	if l.NominalConcurrencyShares == nil {
		l.NominalConcurrencyShares = new(int32(30))
	}
	if l.LendablePercent == nil {
		l.LendablePercent = new(int32)
	}
	if l.LimitResponse.Type != flowcontrolv1.LimitResponseTypeQueue {
		l.LimitResponse.Queuing = nil
		return
	}
	if l.LimitResponse.Queuing == nil {
		l.LimitResponse.Queuing = &flowcontrolv1.QueuingConfiguration{}
	}
	q := l.LimitResponse.Queuing
	q.Queues, q.HandSize, q.QueueLengthLimit = cmp.Or(q.Queues, 64), cmp.Or(q.HandSize, 8), cmp.Or(q.QueueLengthLimit, 50)
}

// builtinLevels returns the specs of the priority levels that kube-apiserver makes, by name.
func builtinLevels() map[string]*flowcontrolv1.PriorityLevelConfigurationSpec {
	specs := map[string]*flowcontrolv1.PriorityLevelConfigurationSpec{}
	for _, l := range slices.Concat(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations) {
		specs[l.Name] = &l.Spec
	}
	return specs
}

// builtinSchemas returns the specs of the flow schemas that kube-apiserver makes, by name.
func builtinSchemas() map[string]*flowcontrolv1.FlowSchemaSpec {
	specs := map[string]*flowcontrolv1.FlowSchemaSpec{}
	for _, s := range slices.Concat(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas) {
		specs[s.Name] = &s.Spec
	}
	return specs
}
