package importing

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
)

// builtinRoles are the roles that every policy has, by their names.
var builtinRoles = sync.OnceValue(func() map[string]policy.Role {
	roles := compile.BuiltinRoles()
	compile.AggregateRoles(roles)
	byName := map[string]policy.Role{}
	for _, r := range roles {
		byName[r.Name] = r
	}
	return byName
})

// isBuiltin reports whether every policy has a role. A Role of a namespace is another one, with one exception.
func isBuiltin(kind, namespace, name string) bool {
	_, found := builtinRoles()[name]
	return found && (kind == "ClusterRole" || name == authenticationReader && namespace == metav1.NamespaceSystem)
}

// authenticationReader is a Role of kube-system in Kubernetes, and a ClusterRole of every policy.
const authenticationReader = "extension-apiserver-authentication-reader"

// knownVerbs are the verbs that a bundle admits.
var knownVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*", "bind", "escalate", "impersonate", "use", "approve", "sign", "attest", "proxy", "history"}

// bootstrapped reports whether kube-apiserver makes an object itself. Names that begin with system: do not say so: many projects give
// them to roles of their own.
func (o *object) bootstrapped() bool {
	return textAt(o.content, "metadata", "labels", "kubernetes.io/bootstrapping") != ""
}

// roles are the names in the bundle, by kind, namespace and name in the input.
type roles map[[3]string]string

// rbac imports roles and bindings.
func (m *importer) rbac() error {
	names, taken := roles{}, map[string]bool{}
	for name := range builtinRoles() {
		taken[name] = true
	}
	var left []*object // what every server has
	var roleFields fields
	for _, o := range m.objects {
		if !o.is("ClusterRole") && !o.is("Role") {
			continue
		}
		made := isBuiltin(o.kind(), o.namespace(), o.name()) && (o.bootstrapped() || o.is("Role"))
		if made || o.bootstrapped() && !m.isBound(o) {
			left = append(left, o)
			continue
		}
		if isBuiltin(o.kind(), o.namespace(), o.name()) {
			m.note(o, []string{"metadata", "name"}, "the %s %q is left out: every policy has a role of this name, with rules of its own", o.kind(), o.name())
			continue
		}
		if o.is("Role") && o.namespace() == "" {
			m.note(o, []string{"metadata"}, "the Role %q is left out: it names no namespace", o.name())
			continue
		}
		var role rbacv1.ClusterRole
		if err := o.decode(&role); err != nil {
			return err
		}
		name := nameFor(o.name())
		if o.kind() == "Role" {
			name = nameFor(o.namespace() + ":" + o.name())
		}
		name = unique(taken, name)
		names[[3]string{o.kind(), o.namespace(), o.name()}] = name
		if shown := nameFor(o.name()); o.is("ClusterRole") && shown != o.name() {
			m.note(o, []string{"metadata", "name"}, "the %s %q is called %q: names in a bundle are of lower-case letters, digits, and -.:. It is shown as %q", o.kind(), o.name(), name, o.name())
		}
		rules, err := m.role(o, &role, name)
		if err != nil {
			return err
		}
		roleFields = append(roleFields, member{name, from(rules, o)})
	}
	bindings, more, err := m.bindings(names)
	if err != nil {
		return err
	}
	if left = append(left, more...); len(left) > 0 {
		m.note(left[0], nil, "%d roles and bindings are left out, which kube-apiserver makes itself, such as the %s %q", len(left), left[0].kind(), left[0].name())
	}
	m.counts["roles"], m.counts["bindings"] = len(roleFields), len(bindings)
	var rbac fields
	rbac.add("clusterRoles", roleFields)
	rbac.add("bindings", bindings)
	if len(rbac) > 0 {
		m.write("rbac.cue", m.ofTeam("rbac"), rbac)
	}
	return nil
}

// isBound reports whether a binding of the input that kube-apiserver does not make itself is to a role.
func (m *importer) isBound(role *object) bool {
	return slices.ContainsFunc(m.objects, func(b *object) bool {
		return (b.is("ClusterRoleBinding") || b.is("RoleBinding")) && !b.bootstrapped() && textAt(b.content, "roleRef", "kind") == role.kind() && textAt(b.content, "roleRef", "name") == role.name() &&
			(role.is("ClusterRole") || b.namespace() == role.namespace())
	})
}

// role returns what the role of the bundle has, which is called a name.
func (m *importer) role(o *object, role *rbacv1.ClusterRole, called string) (fields, error) {
	var f fields
	if o.is("Role") {
		f.add("namespace", o.namespace())
	}
	if called != o.name() {
		f.add("name", o.name())
	}
	labels := map[string]string{}
	for k, v := range role.Labels {
		if o.is("Role") {
			break // only ClusterRoles are aggregated
		}
		if strings.Contains(k, "aggregate-to-") || m.selected(k, v) {
			labels[k] = v
		}
	}
	f.add("labels", labels)
	rules := []ruleAt{}
	for i, r := range role.Rules {
		rules = append(rules, ruleAt{r, o, i})
	}
	if a := role.AggregationRule; a != nil && o.is("ClusterRole") {
		if aggregate := aggregateOf(a); aggregate != nil {
			f.add("aggregate", aggregate)
			rules = nil // the server fills them in
		} else {
			found, err := m.aggregated(o, a, map[*object]bool{o: true})
			if err != nil {
				return nil, err
			}
			if len(found) > 0 || len(rules) == 0 {
				rules = found
			}
			m.note(o, []string{"aggregationRule"}, "the role %q has the rules that the roles of the input give it now, and no more follows them: a bundle selects by labels of one selector", role.Name)
		}
	}
	list := fields{}
	taken := map[string]bool{}
	for _, r := range rules {
		if rule := m.rule(r.of, r.PolicyRule, r.index); rule != nil && !slices.ContainsFunc(list, func(other member) bool { return reflect.DeepEqual(other.value.(sourced).value, rule) }) {
			list = append(list, member{unique(taken, ruleName(rule)), from(rule, r.of, "rules", fmt.Sprint(r.index))})
		}
	}
	return append(f, member{"rules", list}), nil
}

// ruleAt is a rule of a role of the input.
type ruleAt struct {
	rbacv1.PolicyRule
	of    *object
	index int
}

// aggregateOf returns the labels by which a role of a bundle selects the same roles; nil if it cannot.
func aggregateOf(a *rbacv1.AggregationRule) map[string]string {
	if len(a.ClusterRoleSelectors) == 1 && len(a.ClusterRoleSelectors[0].MatchExpressions) == 0 && len(a.ClusterRoleSelectors[0].MatchLabels) > 0 {
		return a.ClusterRoleSelectors[0].MatchLabels
	}
	return nil
}

// aggregated returns the rules of the roles that an aggregation rule selects: those of the input, and those that every policy has.
// seen are the roles whose rules are already there.
func (m *importer) aggregated(o *object, a *rbacv1.AggregationRule, seen map[*object]bool) (rules []ruleAt, err error) {
	for i := range a.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&a.ClusterRoleSelectors[i])
		if err != nil {
			m.note(o, []string{"aggregationRule", "clusterRoleSelectors", fmt.Sprint(i)}, "a selector of the role %q is left out: %v", o.name(), err)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(builtinRoles())) {
			role := builtinRoles()[name]
			for n, r := range role.Rules {
				rule := ruleAt{rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames, NonResourceURLs: r.NonResourceURLs}, o, n}
				if selector.Matches(labels.Set(role.Labels)) && !slices.ContainsFunc(rules, func(other ruleAt) bool { return reflect.DeepEqual(other.PolicyRule, rule.PolicyRule) }) {
					rules = append(rules, rule)
				}
			}
		}
		for _, x := range m.objectsOf("ClusterRole") {
			var role rbacv1.ClusterRole
			if err := x.decode(&role); err != nil {
				return nil, err
			}
			if seen[x] || isBuiltin(x.kind(), "", x.name()) || !selector.Matches(labels.Set(role.Labels)) {
				continue
			}
			seen[x] = true
			if role.AggregationRule != nil {
				more, err := m.aggregated(x, role.AggregationRule, seen)
				if err != nil {
					return nil, err
				}
				rules = append(rules, more...)
				continue
			}
			for n, r := range role.Rules {
				rules = append(rules, ruleAt{r, x, n})
			}
		}
	}
	return rules, nil
}

// selected reports whether a role of the input aggregates roles with a label.
func (m *importer) selected(key, value string) bool {
	for _, o := range m.objectsOf("ClusterRole") {
		for _, s := range items(o.part("aggregationRule", "clusterRoleSelectors")) {
			if chosen, _ := partOf(s, "matchLabels").(map[string]any); chosen[key] == value {
				return true
			}
		}
	}
	return false
}

// ruleName names a rule by what it is about.
func ruleName(rule fields) string {
	resources, _ := rule.get("resources").([]string)
	switch {
	case slices.Contains(resources, "*"):
		return "all"
	case len(resources) > 0:
		return nameFor(strings.ReplaceAll(resources[0], "/", "-"))
	}
	return "paths"
}

// rule returns a rule; nil if nothing of it can be carried.
func (m *importer) rule(o *object, r rbacv1.PolicyRule, index int) fields {
	path := []string{"rules", fmt.Sprint(index)}
	what := fmt.Sprintf("rule %d of the %s %q", index+1, o.kind(), o.name())
	verbs := slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return !slices.Contains(knownVerbs, v) })
	for _, v := range r.Verbs {
		if !slices.Contains(knownVerbs, v) {
			m.note(o, append(path, "verbs"), "the verb %q of %s %q is left out: a bundle does not know it", v, o.kind(), o.name())
		}
	}
	urls := m.paths(o, r.NonResourceURLs, append(path, "nonResourceURLs")...)
	n := names{r.APIGroups, r.Resources}
	switch {
	case len(n.groups) > 0 && len(n.resources) > 0:
		n = m.servedNames(o, what, n.groups, n.resources, path...)
	case len(n.groups)+len(n.resources) > 0:
		m.note(o, path, "%s is left out: a rule about resources names API groups and resources, or it grants nothing", what)
		n = names{}
	}
	if len(n.resources) > 0 && len(urls) > 0 {
		m.note(o, append(path, "nonResourceURLs"), "the paths of %s are left out: a rule is about resources or about paths", what)
		urls = nil
	}
	if len(verbs) == 0 || len(urls)+len(n.resources) == 0 {
		return nil
	}
	var f fields
	f.add("apiGroups", n.groups)
	f.add("resources", n.resources)
	if len(urls) == 0 {
		f.add("resourceNames", r.ResourceNames)
	}
	f.add("nonResourceURLs", urls)
	f.add("verbs", verbs)
	return f
}

// paths returns the paths of a rule as a bundle has them. They begin with a slash, as those of all requests.
func (m *importer) paths(o *object, urls []string, path ...string) (list []string) {
	for _, u := range urls {
		switch {
		case u == "*":
			list = append(list, "/*")
		case strings.HasPrefix(u, "/"):
			list = append(list, u)
		default:
			m.note(o, path, "the path %q of %s %q is left out: no request has it, as it does not begin with a slash", u, o.kind(), o.name())
		}
	}
	return list
}

// binding is a binding in the bundle, of one or more in the input.
type binding struct {
	of         *object // the first one
	name       string
	role       string
	subjects   []fields
	namespaces []string
}

func (m *importer) bindings(names roles) (list fields, left []*object, err error) {
	var all []*binding
	for _, o := range m.objects {
		if !o.is("ClusterRoleBinding") && !o.is("RoleBinding") {
			continue
		}
		if o.bootstrapped() {
			left = append(left, o)
			continue
		}
		if o.is("RoleBinding") && o.namespace() == "" {
			m.note(o, []string{"metadata"}, "the binding %q is left out: it names no namespace", o.name())
			continue
		}
		var b rbacv1.RoleBinding
		if err := o.decode(&b); err != nil {
			return nil, nil, err
		}
		if imported := m.binding(o, &b, names); imported != nil {
			all = merge(all, imported)
		}
	}
	taken := map[string]bool{}
	for _, b := range all {
		id, f := unique(taken, b.name), fields{}
		if shown := (&policy.Binding{ID: m.Team + "/bindings/" + id}).ShownName(); shown != b.of.name() {
			f.add("name", b.of.name())
		}
		f = append(f, fields{{"clusterRole", b.role}, {"subjects", b.subjects}, {"namespaces", b.namespaces}}...)
		list = append(list, member{id, from(f, b.of)})
	}
	return list, left, nil
}

// merge adds a binding. One that has the same name, role and subjects in other namespaces becomes one with it.
func merge(all []*binding, b *binding) []*binding {
	for _, other := range all {
		if other.of.name() == b.of.name() && other.role == b.role && reflect.DeepEqual(other.subjects, b.subjects) && !slices.Contains(other.namespaces, "*") && !slices.Contains(b.namespaces, "*") {
			other.namespaces = append(other.namespaces, b.namespaces...)
			return all
		}
	}
	return append(all, b)
}

func (m *importer) binding(o *object, b *rbacv1.RoleBinding, names roles) *binding {
	result := &binding{of: o, name: nameFor(o.name()), namespaces: []string{"*"}}
	key := [3]string{b.RoleRef.Kind, "", b.RoleRef.Name}
	if o.kind() == "RoleBinding" {
		result.namespaces = []string{o.namespace()}
		if b.RoleRef.Kind == "Role" {
			key[1] = o.namespace()
		}
	}
	role, ok := names[key]
	switch {
	case ok:
		result.role = role
	case isBuiltin(b.RoleRef.Kind, key[1], b.RoleRef.Name):
		result.role = b.RoleRef.Name
	default:
		m.note(o, []string{"roleRef"}, "the binding %q is left out: its %s %q is not in the input", o.name(), b.RoleRef.Kind, b.RoleRef.Name)
		return nil
	}
	for i, s := range b.Subjects {
		if subject := m.subject(o, s.Kind, s.Name, s.Namespace, "subjects", fmt.Sprint(i)); subject != nil {
			result.subjects = append(result.subjects, subject)
		}
	}
	if len(result.subjects) == 0 {
		m.note(o, nil, "the binding %q is left out: it has no subjects", o.name())
		return nil
	}
	return result
}

// subject returns a subject; nil if it cannot be carried.
func (m *importer) subject(o *object, kind, name, namespace string, path ...string) fields {
	switch {
	case kind == "User" && name != "":
		return fields{{"user", name}}
	case kind == "Group" && name != "":
		return fields{{"group", name}}
	case kind == "ServiceAccount" && name != "" && (namespace != "" || o.namespace() != ""):
		return fields{{"serviceAccount", orElse(namespace, o.namespace()) + "/" + name}}
	}
	m.note(o, path, "the subject %s %q is left out: subjects are users, groups and service accounts with a name", kind, name)
	return nil
}
