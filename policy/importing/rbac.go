package importing

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// builtinRoles are the roles that every bundle has.
var builtinRoles = []string{"cluster-admin", "admin", "edit", "view", "extension-apiserver-authentication-reader", "system:auth-delegator"}

// builtin reports whether a role is one that every bundle has. A Role of a namespace is another one, whatever its name is.
func (o *object) builtin() bool {
	return o.is("ClusterRole") && slices.Contains(builtinRoles, o.name())
}

// knownVerbs are the verbs that a bundle admits.
var knownVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "*", "bind", "escalate", "impersonate", "use", "approve", "sign", "history"}

// bootstrapped reports whether the server makes an object itself.
func (o *object) bootstrapped() bool {
	return textAt(o.content, "metadata", "labels", "kubernetes.io/bootstrapping") != ""
}

// reserved reports whether an object has a name of those that the server makes. Somebody else has made it, if the server has not.
func (o *object) reserved() bool { return strings.HasPrefix(o.name(), "system:") }

// roles are the names in the bundle, by kind, namespace and name in the input.
type roles map[[3]string]string

// rbac imports roles and bindings.
func (m *importer) rbac() error {
	names, taken, left := roles{}, map[string]bool{}, 0
	for _, name := range builtinRoles {
		taken[name] = true
	}
	var roleFields fields
	for _, o := range m.objects {
		if !o.is("ClusterRole") && !o.is("Role") {
			continue
		}
		if o.bootstrapped() || o.builtin() {
			left++
			continue
		}
		if o.reserved() {
			m.noteReserved(o)
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
		if name != o.name() {
			m.note(o, []string{"metadata", "name"}, "the %s %q is called %q: a bundle has roles for all namespaces, with names of lower-case letters, digits, and -.:", o.kind(), o.name(), name)
		}
		roleFields = append(roleFields, member{name, m.role(o, &role)})
	}
	bindings, more, err := m.bindings(names)
	if err != nil {
		return err
	}
	if left += more; left > 0 {
		m.notes = append(m.notes, Note{m.objects[0].File, 0, fmt.Sprintf("%d roles and bindings that every server has are left out: system:*, cluster-admin, admin, edit, view", left)})
	}
	m.counts["roles"], m.counts["bindings"] = len(roleFields), len(bindings)
	var rbac fields
	rbac.add("clusterRoles", roleFields)
	rbac.add("bindings", bindings)
	if len(rbac) > 0 {
		m.parts = append(m.parts, part{file: "rbac.cue", text: m.team("rbac: ") + structText(rbac) + "\n"})
	}
	return nil
}

func (m *importer) noteReserved(o *object) {
	m.note(o, []string{"metadata", "name"}, "the %s %q is left out, and no server makes it: names with system: are those of the server's own roles and bindings; give it another name to import it", o.kind(), o.name())
}

func (m *importer) role(o *object, role *rbacv1.ClusterRole) fields {
	var f fields
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
	rules := role.Rules
	if a := role.AggregationRule; a != nil {
		if len(a.ClusterRoleSelectors) == 1 && len(a.ClusterRoleSelectors[0].MatchExpressions) == 0 && len(a.ClusterRoleSelectors[0].MatchLabels) > 0 {
			f.add("aggregate", a.ClusterRoleSelectors[0].MatchLabels)
			rules = nil // the server fills them in
		} else {
			m.note(o, []string{"aggregationRule"}, "the role %q no more follows the roles that it aggregates: a bundle selects by labels of one selector; it has the rules of now", role.Name)
		}
	}
	var list fields
	taken := map[string]bool{}
	for i, r := range rules {
		if rule := m.rule(o, r, "rules", fmt.Sprint(i)); rule != nil {
			list = append(list, member{unique(taken, ruleName(r)), rule})
		}
	}
	f = append(f, member{"rules", list})
	return f
}

// selected reports whether a role of the input aggregates roles with a label.
func (m *importer) selected(key, value string) bool {
	for _, o := range m.objectsOf("ClusterRole") {
		for _, s := range items(o.part("aggregationRule", "clusterRoleSelectors")) {
			if labels, _ := partOf(s, "matchLabels").(map[string]any); labels[key] == value {
				return true
			}
		}
	}
	return false
}

// ruleName names a rule by what it is about.
func ruleName(r rbacv1.PolicyRule) string {
	switch {
	case slices.Contains(r.Resources, "*"):
		return "all"
	case len(r.Resources) > 0:
		return nameFor(strings.ReplaceAll(r.Resources[0], "/", "-"))
	}
	return "paths"
}

// rule returns a rule; nil if nothing of it can be carried.
func (m *importer) rule(o *object, r rbacv1.PolicyRule, path ...string) fields {
	verbs := slices.DeleteFunc(slices.Clone(r.Verbs), func(v string) bool { return !slices.Contains(knownVerbs, v) })
	for _, v := range r.Verbs {
		if !slices.Contains(knownVerbs, v) {
			m.note(o, append(path, "verbs"), "the verb %q of %s %q is left out: a bundle does not know it", v, o.kind(), o.name())
		}
	}
	urls := m.paths(o, r.NonResourceURLs, append(path, "nonResourceURLs")...)
	if len(verbs) == 0 || len(urls) < len(r.NonResourceURLs) && len(urls)+len(r.Resources) == 0 {
		return nil
	}
	var f fields
	f.add("apiGroups", r.APIGroups)
	f.add("resources", r.Resources)
	f.add("resourceNames", r.ResourceNames)
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
	name       string
	role       string
	subjects   []fields
	namespaces []string
}

func (m *importer) bindings(names roles) (list fields, left int, err error) {
	var all []*binding
	for _, o := range m.objects {
		if !o.is("ClusterRoleBinding") && !o.is("RoleBinding") {
			continue
		}
		if o.bootstrapped() {
			left++
			continue
		}
		if o.reserved() {
			m.noteReserved(o)
			continue
		}
		if o.is("RoleBinding") && o.namespace() == "" {
			m.note(o, []string{"metadata"}, "the binding %q is left out: it names no namespace", o.name())
			continue
		}
		var b rbacv1.RoleBinding
		if err := o.decode(&b); err != nil {
			return nil, 0, err
		}
		if imported := m.binding(o, &b, names); imported != nil {
			all = merge(all, imported)
		}
	}
	taken := map[string]bool{}
	for _, b := range all {
		f := fields{{"clusterRole", b.role}, {"subjects", b.subjects}, {"namespaces", b.namespaces}}
		list = append(list, member{unique(taken, b.name), f})
	}
	return list, left, nil
}

// merge adds a binding. One that has the same name, role and subjects in other namespaces becomes one with it.
func merge(all []*binding, b *binding) []*binding {
	for _, other := range all {
		if other.name == b.name && other.role == b.role && reflect.DeepEqual(other.subjects, b.subjects) && !slices.Contains(other.namespaces, "*") && !slices.Contains(b.namespaces, "*") {
			other.namespaces = append(other.namespaces, b.namespaces...)
			return all
		}
	}
	return append(all, b)
}

func (m *importer) binding(o *object, b *rbacv1.RoleBinding, names roles) *binding {
	result := &binding{name: nameFor(o.name()), namespaces: []string{"*"}}
	key := [3]string{b.RoleRef.Kind, "", b.RoleRef.Name}
	if o.kind() == "RoleBinding" {
		result.namespaces = []string{o.namespace()}
		if b.RoleRef.Kind == "Role" {
			key[1] = o.namespace()
		}
	}
	if result.name != o.name() {
		m.note(o, []string{"metadata", "name"}, "the binding %q is called %q: names are of lower-case letters, digits, and -.:", o.name(), result.name)
	}
	role, ok := names[key]
	switch {
	case ok:
		result.role = role
	case slices.Contains(builtinRoles, b.RoleRef.Name) && b.RoleRef.Kind == "ClusterRole":
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
