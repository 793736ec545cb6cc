package rendered_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const (
	clusterRolesPath        = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	clusterRoleBindingsPath = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	rolesPath               = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles"
	roleBindingsPath        = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
)

// granting is the bundle of these tests, with more fields of its section dynamic. The delegates may write RBAC and read widgets.
func granting(more string) string {
	return planetest.Bundle + `
bundle: dynamic: {rbac: "Allow"` + more + `}
bundle: teams: t: rbac: {
	clusterRoles: delegate: rules: {
		rbac: {apiGroups: ["rbac.authorization.k8s.io"], resources: ["*"], verbs: ["get", "list", "watch", "create", "update", "patch", "delete"]}
		widgets: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get", "list"]}
	}
	clusterRoles: looker: rules: all: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get"]}
	clusterRoles: collected: {aggregate: collect: "yes", rules: {}}
	bindings: delegates: {clusterRole: "delegate", subjects: [{group: "delegates"}], namespaces: ["*"]}
	bindings: collectors: {clusterRole: "collected", subjects: [{user: "carl"}], namespaces: ["*"]}
	denies: secrets: {subjects: [{group: "delegates"}], reason: "not theirs", rules: r: {apiGroups: ["example.com"], resources: ["plains"], verbs: ["get"]}}
}
`
}

func newGranting(t *testing.T, more string) *planetest.Replica {
	t.Helper()
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	p.Bootstrap(t, granting(more))
	return p
}

func roleOf(kind, name, more, rules string) string {
	return fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": %q, "metadata": {"name": %q%s}, "rules": [%s]}`, kind, name, more, rules)
}

func bindingOf(kind, name, refKind, ref, subjects string) string {
	return fmt.Sprintf(`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": %q, "metadata": {"name": %q}, "roleRef": {"kind": %q, "name": %q}, "subjects": [%s]}`, kind, name, refKind, ref, subjects)
}

const (
	readsWidgets  = `{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list"]}`
	writesWidgets = `{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get", "list", "create"]}`
	readsPlains   = `{"apiGroups": ["example.com"], "resources": ["plains"], "verbs": ["get", "list"]}`
)

func userNamed(name string) string { return fmt.Sprintf(`{"kind": "User", "name": %q}`, name) }

func impersonating(user string, groups ...string) []string {
	header := []string{"Impersonate-User", user}
	for _, g := range groups {
		header = append(header, "Impersonate-Group", g)
	}
	return header
}

// code returns the status of a request of a user.
func code(p *planetest.Replica, method, path, body, user string, groups ...string) int {
	return p.Do(method, path, body, impersonating(user, groups...)...).Code
}

func TestABindingThatTheAPIBringsGrantsAtOnce(t *testing.T) {
	p := newGranting(t, "")
	if got := code(p, "GET", planetest.WidgetsPath, "", "rita"); got != 403 {
		t.Fatalf("before it is %d", got)
	}
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "watcher", "", readsWidgets))
	made := p.Must(t, 201, "POST", roleBindingsPath, bindingOf("RoleBinding", "rita", "Role", "watcher", userNamed("rita")))
	if got := fmt.Sprint(made.Field("roleRef", "apiGroup"), " ", made.Field("subjects").([]any)[0].(map[string]any)["apiGroup"]); got != "rbac.authorization.k8s.io rbac.authorization.k8s.io" {
		t.Errorf("its defaults are %s", got)
	}
	if got := code(p, "GET", planetest.WidgetsPath, "", "rita"); got != 200 {
		t.Errorf("after it is %d", got)
	}
	if got := code(p, "GET", strings.Replace(planetest.WidgetsPath, "default", "kube-system", 1), "", "rita"); got != 403 {
		t.Errorf("elsewhere it is %d", got)
	}
	names := fmt.Sprint(p.Must(t, 200, "GET", roleBindingsPath, "").Names())
	if !strings.Contains(names, "rita") || !strings.Contains(fmt.Sprint(p.Must(t, 200, "GET", "/apis/rbac.authorization.k8s.io/v1/rolebindings", "").Names()), "rita") {
		t.Errorf("there are %s", names)
	}
	p.Must(t, 409, "POST", roleBindingsPath, bindingOf("RoleBinding", "rita", "Role", "watcher", userNamed("rita")))
	p.Must(t, 200, "DELETE", roleBindingsPath+"/rita", "")
	if got := code(p, "GET", planetest.WidgetsPath, "", "rita"); got != 403 {
		t.Errorf("after the delete it is %d", got)
	}
}

func TestAClusterRoleBindingOfARoleOfTheBundle(t *testing.T) {
	p := newGranting(t, "")
	p.Must(t, 201, "POST", clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "sa", "ClusterRole", "looker", `{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}`))
	if got := code(p, "GET", planetest.WidgetsPath+"/none", "", "system:serviceaccount:default:robot"); got != 404 {
		t.Errorf("it is %d", got)
	}
	// A binding whose role comes later grants nothing before that.
	p.Must(t, 201, "POST", clusterRolesPath, roleOf("ClusterRole", "later", "", readsWidgets))
	p.Must(t, 201, "POST", clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "l", "ClusterRole", "later", userNamed("lara")))
	p.Must(t, 200, "DELETE", clusterRolesPath+"/later", "")
	if got := code(p, "GET", planetest.WidgetsPath, "", "lara"); got != 403 {
		t.Errorf("without its role it is %d", got)
	}
	p.Must(t, 201, "POST", clusterRolesPath, roleOf("ClusterRole", "later", "", readsWidgets))
	if got := code(p, "GET", planetest.WidgetsPath, "", "lara"); got != 200 {
		t.Errorf("with its role it is %d", got)
	}
}

func TestNobodyGrantsMoreThanTheyMayDo(t *testing.T) {
	p := newGranting(t, "")
	who := impersonating("dora", "delegates")
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "readers", "", readsWidgets), who...)
	a := p.Must(t, 403, "POST", rolesPath, roleOf("Role", "writers", "", writesWidgets), who...)
	const want = `user \"dora\" (groups=[\"delegates\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"example.com\"], Resources:[\"widgets\"], Verbs:[\"create\"]}`
	if !strings.Contains(a.String(), want) {
		t.Errorf("%s", a)
	}
	p.Must(t, 403, "PUT", rolesPath+"/readers", roleOf("Role", "readers", "", writesWidgets), who...)
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "writers", "", writesWidgets))
	p.Must(t, 403, "POST", roleBindingsPath, bindingOf("RoleBinding", "w", "Role", "writers", userNamed("walt")), who...)
	p.Must(t, 201, "POST", roleBindingsPath, bindingOf("RoleBinding", "r", "Role", "readers", userNamed("walt")), who...)
	p.Must(t, 404, "POST", roleBindingsPath, bindingOf("RoleBinding", "n", "Role", "none", userNamed("walt")), who...)
	// An aggregated role may come to have any rule.
	aggregated := `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}`
	p.Must(t, 403, "POST", clusterRolesPath, aggregated, who...)
	p.Must(t, 201, "POST", clusterRolesPath, aggregated)
	// Who may bind a role, or escalate roles, may do so without its rights.
	p.Must(t, 201, "POST", clusterRolesPath, roleOf("ClusterRole", "binder", "", `{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "resourceNames": ["writers"], "verbs": ["bind", "escalate"]}`))
	p.Must(t, 201, "POST", clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "binder", "ClusterRole", "binder", userNamed("dora")))
	p.Must(t, 201, "POST", roleBindingsPath, bindingOf("RoleBinding", "w", "Role", "writers", userNamed("walt")), who...)
	p.Must(t, 200, "PUT", rolesPath+"/writers", roleOf("Role", "writers", "", `{"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["*"]}`), who...)
}

// What kind of metadata a role comes with does not matter: what it grants is compared.
func TestNoMetadataHidesWhatIsGranted(t *testing.T) {
	p := newGranting(t, "")
	who := impersonating("dora", "delegates")
	for name, metadata := range map[string]string{
		"another case": `"Labels": 5`, "finalizers": `"Finalizers": {"a": 1}`, "a large number": `"generation": 1e30`, "a time": `"creationTimestamp": 5`, "twice": `"labels": {}, "labels": 7`,
	} {
		role := strings.Replace(roleOf("ClusterRole", "x", "", writesWidgets), `"name"`, metadata+`, "name"`, 1)
		binding := strings.Replace(bindingOf("ClusterRoleBinding", "x", "ClusterRole", "cluster-admin", userNamed("dora")), `"name": "x"`, metadata+`, "name": "x"`, 1)
		for path, body := range map[string]string{clusterRolesPath: role, clusterRoleBindingsPath: binding} {
			for _, query := range []string{"", "?fieldValidation=Ignore"} {
				if a := p.Do("POST", path+query, body, who...); a.Code != 403 && a.Code != 400 && a.Code != 422 {
					t.Errorf("%s: %d %s", name, a.Code, a)
				}
			}
		}
	}
	if got := code(p, "GET", "/api/v1/secrets", "", "dora", "delegates"); got != 403 {
		t.Errorf("dora reads secrets: %d", got)
	}
}

// What a binding grants is not asked about when it only loses its finalizers: others must be able to end it.
func TestFinalizersLeaveWhatNobodyMayGrant(t *testing.T) {
	p := newGranting(t, "")
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "writers", "", writesWidgets))
	p.Must(t, 201, "POST", roleBindingsPath, strings.Replace(bindingOf("RoleBinding", "w", "Role", "writers", userNamed("walt")), `"name": "w"`, `"name": "w", "finalizers": ["example.com/x"]`, 1))
	p.Push(t, planetest.PolicyBody(t, granting(`, powers: w: {apiGroups: ["example.com"], resources: ["plains"], verbs: ["get"]}`), nil))
	p.Must(t, 200, "DELETE", roleBindingsPath+"/w", "")
	p.Must(t, 200, "PATCH", roleBindingsPath+"/w", `{"metadata": {"finalizers": null}}`, append(impersonating("dora", "delegates"), merge...)...)
	p.Must(t, 404, "GET", roleBindingsPath+"/w", "")
}

// An annotation does not say what is granted, so that a write of one changes no policy.
func TestAnnotationsOfRolesAreNoChangeOfPolicy(t *testing.T) {
	p := newGranting(t, "")
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "readers", "", readsWidgets))
	before := p.Committer.Tip().PolicyRevision()
	p.Must(t, 200, "PATCH", rolesPath+"/readers", `{"metadata": {"annotations": {"a": "b"}}}`, merge...)
	if got := p.Committer.Tip().PolicyRevision(); got != before {
		t.Errorf("the policy is of revision %d, was %d", got, before)
	}
	p.Must(t, 200, "PATCH", rolesPath+"/readers", `{"rules": []}`, merge...)
	if got := p.Committer.Tip().PolicyRevision(); got == before {
		t.Error("other rules are no change of the policy")
	}
}

// Rules are broken down to be compared. A role of a few kilobytes that has millions of single rights must not take memory for each.
func TestARoleWithTooManyRightsIsNotCompared(t *testing.T) {
	p := newGranting(t, "")
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("%q", fmt.Sprint("n", i)))
	}
	list := "[" + strings.Join(names, ",") + "]"
	role := roleOf("Role", "large", "", fmt.Sprintf(`{"apiGroups": %s, "resources": %s, "resourceNames": %s, "verbs": ["get"]}`, list, list, list))
	if a := p.Must(t, 403, "POST", rolesPath, role, impersonating("dora", "delegates")...); !strings.Contains(a.String(), "too many to compare") {
		t.Errorf("%.300s", a)
	}
	p.Must(t, 201, "POST", rolesPath, role) // who may escalate is not compared
}

// What is denied to somebody they cannot give to others, although they hold it.
func TestWhatIsDeniedCannotBeGranted(t *testing.T) {
	p := newGranting(t, "")
	p.Must(t, 201, "POST", clusterRolesPath, roleOf("ClusterRole", "plains", "", readsPlains))
	p.Must(t, 201, "POST", clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "plains", "ClusterRole", "plains", userNamed("dora")))
	if a := p.Must(t, 403, "POST", clusterRolesPath, roleOf("ClusterRole", "other", "", readsPlains), impersonating("dora", "delegates")...); !strings.Contains(a.String(), "t/denies/secrets (") {
		t.Errorf("%s", a)
	}
	if got := code(p, "GET", "/apis/example.com/v1/plains/x", "", "dora", "delegates"); got != 403 {
		t.Errorf("the deny is weaker than what the API brought: %d", got)
	}
}

func TestAggregationAcrossBundleAndAPI(t *testing.T) {
	p := newGranting(t, "")
	if got := code(p, "GET", planetest.WidgetsPath, "", "carl"); got != 403 {
		t.Fatalf("before it is %d", got)
	}
	p.Must(t, 201, "POST", clusterRolesPath, roleOf("ClusterRole", "part", `, "labels": {"collect": "yes"}`, readsWidgets))
	if got := code(p, "GET", planetest.WidgetsPath, "", "carl"); got != 200 {
		t.Errorf("the bundle's aggregated role does not have the rule: %d", got)
	}
	p.Must(t, 201, "POST", clusterRolesPath, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all", "labels": {"more": "yes"}}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"collect": "yes"}}]}}`)
	p.Must(t, 201, "POST", clusterRolesPath, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "above"}, "aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"key": "more", "operator": "Exists"}]}]}}`)
	p.Must(t, 201, "POST", clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "all", "ClusterRole", "above", userNamed("anna")))
	if got := code(p, "GET", planetest.WidgetsPath, "", "anna"); got != 200 {
		t.Errorf("an aggregated role that the API brought does not have the rule: %d", got)
	}
	p.Must(t, 200, "PATCH", clusterRolesPath+"/part", `{"metadata": {"labels": null}}`, merge...)
	for _, user := range []string{"carl", "anna"} {
		if got := code(p, "GET", planetest.WidgetsPath, "", user); got != 403 {
			t.Errorf("without its label %s gets %d", user, got)
		}
	}
}

func TestTheBundleLimitsWhatTheAPIBrings(t *testing.T) {
	p := newGranting(t, `, namespaces: ["default", "team-*"], powers: w: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get", "list"]}`)
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "readers", "", readsWidgets))
	for name, c := range map[string]struct{ path, body, want string }{
		"a cluster role":    {clusterRolesPath, roleOf("ClusterRole", "x", "", readsWidgets), "does not allow clusterroles through the API (it allows the namespaces default, team-* at "},
		"another namespace": {strings.Replace(rolesPath, "default", "kube-system", 1), roleOf("Role", "x", "", readsWidgets), `does not allow roles in the namespace \"kube-system\"`},
		"other powers":      {rolesPath, roleOf("Role", "x", "", writesWidgets), "the policy does not allow clients to grant (dynamic.powers, by "},
		"a larger role":     {roleBindingsPath, bindingOf("RoleBinding", "x", "ClusterRole", "widgets", userNamed("x")), "dynamic.powers"},
	} {
		if a := p.Must(t, 403, "POST", c.path, c.body); !strings.Contains(a.String(), c.want) {
			t.Errorf("%s: %s", name, a)
		}
	}
	p.Must(t, 409, "POST", clusterRolesPath, roleOf("ClusterRole", "looker", "", readsWidgets))
}

// Another bundle with other limits takes rights away without a write of the objects, and they can still be deleted.
func TestALaterBundleLimitsWhatIsThere(t *testing.T) {
	p := newGranting(t, "")
	p.Must(t, 201, "POST", rolesPath, roleOf("Role", "writers", "", writesWidgets))
	p.Must(t, 201, "POST", roleBindingsPath, bindingOf("RoleBinding", "w", "Role", "writers", userNamed("walt")))
	body := `{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": %q}, "spec": {"size": 1}}`
	if got := code(p, "POST", planetest.WidgetsPath, fmt.Sprintf(body, "a"), "walt"); got != 201 {
		t.Fatalf("it is %d", got)
	}
	before := p.Committer.Tip().Revision()
	p.Push(t, planetest.PolicyBody(t, granting(`, powers: w: {apiGroups: ["example.com"], resources: ["plains"], verbs: ["get"]}`), nil))
	if got := code(p, "POST", planetest.WidgetsPath, fmt.Sprintf(body, "b"), "walt"); got != 403 {
		t.Errorf("beyond the powers it is %d", got)
	}
	p.Push(t, planetest.PolicyBody(t, strings.Replace(granting(""), `rbac: "Allow"`, `rbac: "Match"`, 1), nil))
	if got := code(p, "GET", planetest.WidgetsPath, "", "walt"); got != 403 {
		t.Errorf("without Allow it is %d", got)
	}
	p.Must(t, 403, "PATCH", rolesPath+"/writers", `{"metadata": {"labels": {"a": "b"}}}`, merge...)
	p.Must(t, 200, "DELETE", rolesPath+"/writers", "")
	// The past has what was in force then.
	then := p.Must(t, 200, "GET", fmt.Sprint("/at/", before, rolesPath, "/writers"), "")
	if then.Field("metadata", "name") != "writers" {
		t.Errorf("%s", then)
	}
}

func TestBadRolesAndBindingsAreRefusedAsUpstream(t *testing.T) {
	p := newGranting(t, "")
	for name, c := range map[string]struct{ path, body, want string }{
		"no verbs":           {rolesPath, roleOf("Role", "x", "", `{"apiGroups": [""], "resources": ["x"]}`), `rules[0].verbs: Required value: verbs must contain at least one value`},
		"paths":              {rolesPath, roleOf("Role", "x", "", `{"nonResourceURLs": ["/x"], "verbs": ["get"]}`), "namespaced rules cannot apply to non-resource URLs"},
		"both":               {clusterRolesPath, roleOf("ClusterRole", "x", "", `{"nonResourceURLs": ["/x"], "apiGroups": [""], "resources": ["x"], "verbs": ["get"]}`), "rules cannot apply to both regular resources and non-resource URLs"},
		"no group":           {clusterRolesPath, roleOf("ClusterRole", "x", "", `{"resources": ["x"], "verbs": ["get"]}`), "resource rules must supply at least one api group"},
		"a kind of subject":  {roleBindingsPath, bindingOf("RoleBinding", "x", "ClusterRole", "looker", `{"kind": "Robot", "name": "x"}`), `subjects[0].kind: Unsupported value: \"Robot\"`},
		"no namespace":       {clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "x", "ClusterRole", "looker", `{"kind": "ServiceAccount", "name": "x"}`), "subjects[0].namespace: Required value"},
		"a role":             {clusterRoleBindingsPath, bindingOf("ClusterRoleBinding", "x", "Role", "reader", userNamed("x")), `roleRef.kind: Unsupported value: \"Role\"`},
		"no selector":        {clusterRolesPath, `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x"}, "aggregationRule": {}}`, "at least one clusterRoleSelector required"},
		"the server's notes": {rolesPath, roleOf("Role", "x", `, "annotations": {"stele.dev/rule": "x"}`, readsWidgets), "only objects of the policy have it"},
		"a path as its name": {rolesPath, roleOf("Role", "a%b", "", readsWidgets), `may not contain '%'`},
	} {
		a := p.Do("POST", c.path, c.body)
		if a.Code != 422 && a.Code != 404 || !strings.Contains(a.String(), c.want) {
			t.Errorf("%s: %d %s", name, a.Code, a)
		}
	}
	p.Must(t, 201, "POST", roleBindingsPath, bindingOf("RoleBinding", "x", "ClusterRole", "looker", userNamed("x")))
	if a := p.Must(t, 422, "PUT", roleBindingsPath+"/x", bindingOf("RoleBinding", "x", "ClusterRole", "delegate", userNamed("x"))); !strings.Contains(a.String(), "cannot change roleRef") {
		t.Errorf("%s", a)
	}
	if a := p.Must(t, 201, "POST", rolesPath, roleOf("Role", "odd", `, "labels": {"a": "b"}`, `{"apiGroups": [""], "resources": ["x"], "verbs": ["get"], "odd": 1}`)); !strings.Contains(a.Header.Get("Warning"), `unknown field \"rules[0].odd\"`) {
		t.Errorf("%s", a.Header.Get("Warning"))
	}
}

func TestRolesOfTheAPIGoWithTheirNamespace(t *testing.T) {
	p := newGranting(t, "")
	p.Must(t, 201, "POST", "/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}`)
	in := strings.Replace(roleBindingsPath, "default", "team", 1)
	p.Must(t, 201, "POST", in, bindingOf("RoleBinding", "r", "ClusterRole", "looker", userNamed("rita")))
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/team", "")
	// Whoever finalizes it, it is not gone while a binding is left: that would grant in the next namespace of the name.
	p.Must(t, 200, "PUT", "/api/v1/namespaces/team/finalize", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}, "spec": {"finalizers": []}}`)
	p.Must(t, 200, "GET", "/api/v1/namespaces/team", "")
	p.Must(t, 200, "DELETE", in+"/r", "")
	p.Do("DELETE", "/api/v1/namespaces/team", "")
	p.Must(t, 404, "GET", "/api/v1/namespaces/team", "")
}

func TestAWatchOfBindingsSeesWhatTheAPIBrings(t *testing.T) {
	p := newGranting(t, "")
	rv := p.Must(t, 200, "GET", roleBindingsPath, "").Field("metadata", "resourceVersion")
	w := p.Watch(t, fmt.Sprint(roleBindingsPath, "?watch=1&resourceVersion=", rv))
	var got []string
	seen := func() {
		e := w.Next(t)
		got = append(got, fmt.Sprint(e.Type, " ", e.Object["metadata"].(map[string]any)["name"]))
	}
	p.Must(t, 201, "POST", roleBindingsPath, bindingOf("RoleBinding", "r", "ClusterRole", "looker", userNamed("rita")))
	seen()
	p.Must(t, 200, "PATCH", roleBindingsPath+"/r", `{"metadata": {"labels": {"a": "b"}}}`, merge...)
	seen()
	p.Must(t, 200, "DELETE", roleBindingsPath+"/r", "")
	seen()
	if diff := cmp.Diff([]string{"ADDED r", "MODIFIED r", "DELETED r"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
