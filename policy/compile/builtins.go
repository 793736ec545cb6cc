// This file has the roles and bindings that every policy has, and computes the rules of aggregated roles.

package compile

import (
	"fmt"
	"slices"
	"strings"

	"stele.dev/stele/policy"
)

const aggregateTo = "rbac.authorization.k8s.io/aggregate-to-"

var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"create", "update", "patch", "delete", "deletecollection"}
)

func builtinRole(name string, labels, aggregate map[string]string, rules ...policy.Rule) policy.Role {
	r := policy.Role{ID: policy.BuiltinTeam + "/clusterRoles/" + name, Name: name, Labels: labels, Aggregate: aggregate}
	for _, rule := range rules {
		rule.ID = r.ID + "/" + rule.ID
		r.Rules = append(r.Rules, rule)
	}
	return r
}

func aggregationLabel(role string) map[string]string {
	return map[string]string{aggregateTo + role: "true"}
}

// BuiltinRoles returns the roles of every policy.
func BuiltinRoles() []policy.Role {
	core := []string{""}
	return []policy.Role{
		builtinRole("cluster-admin", nil, nil,
			policy.Rule{ID: "resources", Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
			policy.Rule{ID: "paths", Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}),
		builtinRole("admin", nil, aggregationLabel("admin")),
		builtinRole("edit", aggregationLabel("admin"), aggregationLabel("edit")),
		builtinRole("view", aggregationLabel("edit"), aggregationLabel("view")),
		builtinRole("system:aggregate-to-edit", aggregationLabel("edit"), nil,
			policy.Rule{ID: "core", Verbs: writeVerbs, APIGroups: core, Resources: []string{"configmaps", "events", "secrets", "serviceaccounts"}},
			// Users who edit a namespace can already act as its service accounts.
			policy.Rule{ID: "tokens", Verbs: []string{"create"}, APIGroups: core, Resources: []string{"serviceaccounts/token"}},
			policy.Rule{ID: "secrets", Verbs: readVerbs, APIGroups: core, Resources: []string{"secrets"}},
			policy.Rule{ID: "leases", Verbs: append(readVerbs[:len(readVerbs):len(readVerbs)], writeVerbs...), APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}),
		builtinRole("system:aggregate-to-view", aggregationLabel("view"), nil,
			policy.Rule{ID: "core", Verbs: readVerbs, APIGroups: core, Resources: []string{"configmaps", "events", "namespaces", "resourcequotas", "resourcequotas/status", "serviceaccounts"}},
			// Everybody may read the changes of objects that they may read.
			policy.Rule{ID: "changes", Verbs: readVerbs, APIGroups: []string{"log.stele.dev"}, Resources: []string{"changes"}}),
		// Admins of a namespace may read the history of its secrets. Editors may not, although they
		// read and write the current secrets: a secret is often replaced because somebody must not
		// know it any more.
		builtinRole("system:aggregate-to-admin", aggregationLabel("admin"), nil,
			policy.Rule{ID: "core", Verbs: []string{policy.HistoryVerb}, APIGroups: core, Resources: []string{"configmaps", "events", "resourcequotas", "secrets", "serviceaccounts"}},
			policy.Rule{ID: "leases", Verbs: []string{policy.HistoryVerb}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}),
		builtinRole("system:discovery", nil, nil,
			policy.Rule{ID: "paths", Verbs: []string{"get"}, NonResourceURLs: []string{
				"/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"}}),
		builtinRole("system:basic-user", nil, nil,
			policy.Rule{ID: "access", Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
			policy.Rule{ID: "identity", Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
			// To blame also needs the verb get on the object.
			policy.Rule{ID: "blames", Verbs: []string{"create"}, APIGroups: []string{"log.stele.dev"}, Resources: []string{"blames"}}),
		builtinRole("system:service-account-issuer-discovery", nil, nil,
			policy.Rule{ID: "paths", Verbs: []string{"get"}, NonResourceURLs: []string{
				"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"}}),
		// For servers that ask this server to authenticate and authorize their requests. It has no
		// bindings.
		builtinRole("system:auth-delegator", nil, nil,
			policy.Rule{ID: "identity", Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}},
			policy.Rule{ID: "access", Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}}),
		builtinRole("system:public-info-viewer", nil, nil,
			policy.Rule{ID: "paths", Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/livez", "/readyz", "/version", "/version/"}}),
		// For those who review changes of policy, such as pipelines that check pull requests. It does not include pushing:
		// a name is needed for parts of large policies, which are uploaded before the policy that names them.
		builtinRole("policy:planner", nil, nil,
			policy.Rule{ID: "plans", Verbs: []string{"create"}, APIGroups: []string{"policy.stele.dev"}, Resources: []string{"plans"}},
			policy.Rule{ID: "parts", Verbs: []string{"create"}, APIGroups: []string{"policy.stele.dev"}, Resources: []string{"policies"}, ResourceNames: []string{"parts"}}),
		// In Kubernetes this is a Role in kube-system, bound to its own components, which do not
		// exist here. Bind it in that namespace to an extension API server.
		builtinRole("extension-apiserver-authentication-reader", nil, nil,
			policy.Rule{ID: "trust", Verbs: readVerbs, APIGroups: core, Resources: []string{"configmaps"}, ResourceNames: []string{"extension-apiserver-authentication"}}),
	}
}

// BuiltinBindings returns the bindings of every policy.
func BuiltinBindings() []policy.Binding {
	everywhere := []string{"*"}
	authenticated, unauthenticated := policy.Subject{Group: "system:authenticated"}, policy.Subject{Group: "system:unauthenticated"}
	return []policy.Binding{
		{ID: policy.BuiltinTeam + "/bindings/system:basic-user", Role: "system:basic-user", Subjects: []policy.Subject{authenticated}, Namespaces: everywhere},
		{ID: policy.BuiltinTeam + "/bindings/system:discovery", Role: "system:discovery", Subjects: []policy.Subject{authenticated}, Namespaces: everywhere},
		{ID: policy.BuiltinTeam + "/bindings/system:service-account-issuer-discovery", Role: "system:service-account-issuer-discovery", Subjects: []policy.Subject{{Group: "system:serviceaccounts"}}, Namespaces: everywhere},
		{ID: policy.BuiltinTeam + "/bindings/system:public-info-viewer", Role: "system:public-info-viewer", Subjects: []policy.Subject{authenticated, unauthenticated}, Namespaces: everywhere},
	}
}

// AggregateRoles gives each aggregated role the rules of the roles that it selects by label, as the controller of Kubernetes does
// that also compares them: the roles in the order of their names, an aggregated one with the rules that it has itself got, and of
// rules that say the same the first one. A role's own rules are replaced. A role of a namespace is never a part of another one.
func AggregateRoles(roles []policy.Role) {
	order := make([]int, len(roles))
	for i := range roles {
		if order[i] = i; len(roles[i].Aggregate) > 0 {
			roles[i].Rules = nil
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(roles[a].Name, roles[b].Name) })
	// A role gets all of its rules as soon as all that it selects have theirs. Roles that select each other get theirs, too, after
	// no more rounds than there are roles.
	for round, changed := 0, true; changed && round <= len(roles); round++ {
		changed = false
		for _, i := range order {
			if len(roles[i].Aggregate) == 0 {
				continue
			}
			var joined []policy.Rule
			seen := map[string]bool{}
			for _, j := range order {
				// What a role grants in its namespace must not be granted everywhere.
				if j == i || roles[j].Namespace != "" || !HasLabels(roles[j].Labels, roles[i].Aggregate) {
					continue
				}
				for _, rule := range roles[j].Rules {
					if says := fmt.Sprintf("%q", [][]string{rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs}); !seen[says] {
						seen[says] = true
						joined = append(joined, rule)
					}
				}
			}
			if !slices.EqualFunc(joined, roles[i].Rules, func(a, b policy.Rule) bool { return a.ID == b.ID }) {
				roles[i].Rules, changed = joined, true
			}
		}
	}
}

// HasLabels reports whether labels have all of a selector.
func HasLabels(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}
