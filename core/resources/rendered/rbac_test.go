package rendered_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"stele.dev/stele/core/commit"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// broader is the bundle of these tests with editors in more namespaces, a robot, a role
// that aggregates another, and without the helper's.
var broader = strings.NewReplacer(
	`{group: "editors"}], namespaces: ["default"]`, `{group: "editors"}, {user: "eve"}, {serviceAccount: "robots/r2"}], namespaces: ["default", "team-*"]`,
	`bindings: helpers: {clusterRole: "editors-helper", subjects: [{user: "helper"}], namespaces: ["*"]}`, `clusterRoles: every: aggregate: color: "red"`,
	`clusterRoles: reader: rules:`, `clusterRoles: reader: labels: color: "red"
			clusterRoles: reader: rules:`,
).Replace(planetest.Bundle)

func TestARoleIsAClusterRole(t *testing.T) {
	p := planetest.NewPlane(t)
	bootstrapped := p.Committer.Tip().PolicyRevision()
	p.Push(t, planetest.PolicyBody(t, broader, nil))
	got := planetest.Into[rbacv1.ClusterRole](t, p.Must(t, 200, "GET", planetest.RolesPath+"/editors-helper", ""))
	want := &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{Kind: "ClusterRole", APIVersion: "rbac.authorization.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "editors-helper", UID: got.UID, CreationTimestamp: got.CreationTimestamp, ResourceVersion: fmt.Sprint(bootstrapped),
			Annotations: map[string]string{"stele.dev/rule": "t/clusterRoles/editors-helper", "stele.dev/source": planetest.Line(broader, `clusterRoles: "editors-helper"`)},
		},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"groups"}, ResourceNames: []string{"editors"}},
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{"eddie"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	every := planetest.Into[rbacv1.ClusterRole](t, p.Must(t, 200, "GET", planetest.RolesPath+"/every", ""))
	reader := planetest.Into[rbacv1.ClusterRole](t, p.Must(t, 200, "GET", planetest.RolesPath+"/reader", ""))
	if reader.Labels["color"] != "red" {
		t.Errorf("labels %v", reader.Labels)
	}
	selectors := &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"color": "red"}}}}
	if diff := cmp.Diff(selectors, every.AggregationRule); diff != "" {
		t.Errorf("aggregation (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(reader.Rules, every.Rules); diff != "" {
		t.Errorf("aggregated rules (-want +got):\n%s", diff)
	}

	builtin := planetest.Into[rbacv1.ClusterRole](t, p.Must(t, 200, "GET", planetest.RolesPath+"/cluster-admin", ""))
	if diff := cmp.Diff(map[string]string{"stele.dev/rule": "builtin/clusterRoles/cluster-admin"}, builtin.Annotations); diff != "" {
		t.Errorf("annotations of what is built in (-want +got):\n%s", diff)
	}
	if paths := builtin.Rules[1].NonResourceURLs; !slices.Equal(paths, []string{"*"}) {
		t.Errorf("paths %q", paths)
	}
}

func TestABindingIsWhereItGrants(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Namespace(t, "team-a")
	activated := p.Push(t, planetest.PolicyBody(t, broader, nil))
	later := p.Namespace(t, "team-b")

	if diff := cmp.Diff([]string{"builtin:system:basic-user", "builtin:system:discovery", "builtin:system:public-info-viewer", "builtin:system:service-account-issuer-discovery", "t:readers"}, p.Must(t, 200, "GET", planetest.GrantsPath, "").Names()); diff != "" {
		t.Errorf("everywhere (-want +got):\n%s", diff)
	}
	everywhere := planetest.Into[rbacv1.ClusterRoleBinding](t, p.Must(t, 200, "GET", planetest.GrantsPath+"/t:readers", ""))
	role := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"}
	if everywhere.RoleRef != role || everywhere.Annotations["stele.dev/source"] != planetest.Line(planetest.Bundle, "bindings: readers") {
		t.Errorf("%+v", everywhere)
	}

	list := planetest.Into[rbacv1.RoleBindingList](t, p.Must(t, 200, "GET", planetest.BindingsPath, ""))
	var got []string
	for _, b := range list.Items {
		got = append(got, fmt.Sprintf("%s/%s@%s", b.Namespace, b.Name, b.ResourceVersion))
	}
	want := []string{fmt.Sprintf("default/t:editors@%d", activated), fmt.Sprintf("team-a/t:editors@%d", activated), fmt.Sprintf("team-b/t:editors@%d", later)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in namespaces (-want +got):\n%s", diff)
	}
	subjects := []rbacv1.Subject{
		{APIGroup: "rbac.authorization.k8s.io", Kind: "Group", Name: "editors"},
		{APIGroup: "rbac.authorization.k8s.io", Kind: "User", Name: "eve"},
		{Kind: "ServiceAccount", Namespace: "robots", Name: "r2"},
	}
	if diff := cmp.Diff(subjects, list.Items[0].Subjects); diff != "" {
		t.Errorf("subjects (-want +got):\n%s", diff)
	}
	uids := map[string]bool{}
	for _, b := range list.Items {
		one := planetest.Into[rbacv1.RoleBinding](t, p.Must(t, 200, "GET", planetest.RbacPath+"/namespaces/"+b.Namespace+"/rolebindings/"+b.Name, ""))
		one.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		if diff := cmp.Diff(&b, one); diff != "" {
			t.Errorf("listed, and got by name (-listed +got):\n%s", diff)
		}
		uids[string(b.UID)] = true
	}
	if len(uids) != len(list.Items) {
		t.Errorf("%d objects have the uids %v", len(list.Items), uids)
	}
	if other := planetest.NewPlane(t).Must(t, 200, "GET", planetest.InDefault+"/t:editors", ""); other.Field("metadata", "uid") != string(list.Items[0].UID) {
		t.Errorf("elsewhere the uid is %v, here %s", other.Field("metadata", "uid"), list.Items[0].UID)
	}

	for path, want := range map[string][]string{
		planetest.RbacPath + "/namespaces/kube-system/rolebindings": nil,
		planetest.RbacPath + "/namespaces/none/rolebindings":        nil,
		planetest.RbacPath + "/roles":                               nil,
		planetest.RbacPath + "/namespaces/default/roles":            nil,
	} {
		if got := p.Must(t, 200, "GET", path, ""); got.Names() != nil {
			t.Errorf("%s: %s, want %v", path, got, want)
		}
	}
	p.Must(t, 404, "GET", planetest.RbacPath+"/namespaces/kube-system/rolebindings/t:editors", "")
	p.Must(t, 404, "GET", planetest.GrantsPath+"/t:editors", "")
}

// A deny takes away; RBAC, which only grants, would show it as the opposite.
func TestADenyIsNotShown(t *testing.T) {
	p := planetest.NewPlane(t)
	for _, path := range []string{planetest.RolesPath, planetest.GrantsPath, planetest.BindingsPath} {
		if a := p.Must(t, 200, "GET", path, ""); strings.Contains(string(a.Body), "precious") {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// Names of teams and bindings may have colons, so that the team and the name that are
// joined could be others'.
func TestNamesOfBindingsAreTheirOwn(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, `	teams: t: {`, `	teams: "t:x": {contact: "#t", groups: ["*"], namespaces: ["*"], rbac: bindings: y: {clusterRole: "view", subjects: [{user: "u"}], namespaces: ["default"]}}
	teams: t: rbac: bindings: "x:y": {clusterRole: "edit", subjects: [{user: "u"}], namespaces: ["default"]}
	teams: t: {`, 1), nil))
	for name, role := range map[string]string{"t:x:y": "edit", "t::x:y": "view"} {
		if a := p.Must(t, 200, "GET", planetest.InDefault+"/"+name, ""); a.Field("roleRef", "name") != role {
			t.Errorf("%s, want the role %s", a, role)
		}
	}
}

func TestRBACIsSelected(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Namespace(t, "team-a")
	p.Push(t, planetest.PolicyBody(t, broader, nil))
	for query, want := range map[string][]string{
		planetest.RolesPath + "?labelSelector=color%3Dred":                      {"reader"},
		planetest.RolesPath + "?labelSelector=color,color!%3Dred":               nil,
		planetest.RolesPath + "?fieldSelector=metadata.name%3Dview":             {"view"},
		planetest.RolesPath + "/view?resourceVersion=0":                         nil,
		planetest.BindingsPath + "?fieldSelector=metadata.namespace%3Dteam-a":   {"t:editors"},
		planetest.BindingsPath + "?fieldSelector=metadata.namespace!%3Ddefault": {"t:editors"},
		planetest.InDefault + "?fieldSelector=metadata.name!%3Dt:editors":       nil,
		planetest.InDefault + "?labelSelector=color":                            nil,
		planetest.InDefault + "?limit=1":                                        {"t:editors"},
		planetest.RolesPath + "?fieldSelector=metadata.namespace%3Dx":           nil,
	} {
		if diff := cmp.Diff(want, p.Must(t, 200, "GET", query, "").Names()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for query, code := range map[string]int{
		planetest.RolesPath + "?fieldSelector=roleRef.name%3Dx": 400,
		planetest.RolesPath + "?labelSelector=%3D":              400,
		planetest.RolesPath + "?continue=x":                     400,
	} {
		p.Must(t, code, "GET", query, "")
	}
	if all := p.Must(t, 200, "GET", planetest.RolesPath+"?limit=2", ""); len(all.Names()) < 3 || all.Field("metadata", "continue") != nil {
		t.Errorf("everything comes at once: %s", all)
	}
}

func TestRBACAtRevisions(t *testing.T) {
	p := planetest.NewPlane(t)
	before := p.Committer.Tip().Revision()
	activated := p.Push(t, planetest.PolicyBody(t, broader, nil))
	created := p.Namespace(t, "team-a")
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/team-a", "")
	p.Finalize(t, "team-a")
	now := p.Committer.Tip().Revision()
	list := func(query string, revision uint64) string {
		return fmt.Sprintf("%s?%s&resourceVersion=%d", planetest.BindingsPath, query, revision)
	}
	for path, want := range map[string]struct {
		revision uint64
		items    int
	}{
		planetest.BindingsPath:                            {now, 1},
		planetest.BindingsPath + "?resourceVersion=0":     {now, 1},
		list("resourceVersionMatch=NotOlderThan", before): {now, 1},
		list("limit=500", created):                        {created, 2},
		list("resourceVersionMatch=Exact", created):       {created, 2},
		list("resourceVersionMatch=Exact", activated):     {activated, 1},
		list("resourceVersionMatch=Exact", before):        {before, 1},
		list("resourceVersionMatch=Exact", now):           {now, 1},
	} {
		a := p.Must(t, 200, "GET", path, "")
		if a.Field("metadata", "resourceVersion") != fmt.Sprint(want.revision) || len(a.Names()) != want.items {
			t.Errorf("%s: %s, want %d at %d", path, a, want.items, want.revision)
		}
	}
	p.Must(t, 504, "GET", list("resourceVersionMatch=NotOlderThan", now+1), "")
	p.Must(t, 504, "GET", fmt.Sprintf("%s/view?resourceVersion=%d", planetest.RolesPath, now+1), "")
	p.Must(t, 400, "GET", planetest.RolesPath+"/view?resourceVersion=x", "")
}

var (
	moment  = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	seconds = regexp.MustCompile(` \d+s `)
)

func TestRBACInOtherForms(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, broader, nil))
	const table, partial = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	for path, want := range map[string]string{
		planetest.RolesPath + "/view":                 "[Name Created At] [view TIME]",
		planetest.InDefault:                           "[Name Role Age Users Groups ServiceAccounts] [t:editors ClusterRole/widgets AGE eve editors robots/r2]",
		planetest.GrantsPath + "/t:readers":           "[Name Role Age Users Groups ServiceAccounts] [t:readers ClusterRole/reader AGE reader  ]",
		planetest.RbacPath + "/roles?resourceVersion": "[Name Created At]",
	} {
		a := planetest.Into[metav1.Table](t, p.Must(t, 200, "GET", path, "", "Accept", table))
		var columns []string
		for _, c := range a.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		got := fmt.Sprint(columns)
		for _, r := range a.Rows {
			got += " " + seconds.ReplaceAllString(moment.ReplaceAllString(fmt.Sprint(r.Cells), "TIME"), " AGE ")
		}
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
		}
	}
	a := p.Must(t, 200, "GET", planetest.InDefault, "", "Accept", partial)
	item := a.Field("items").([]any)[0].(map[string]any)
	if a.Field("kind") != "PartialObjectMetadataList" || item["kind"] != "PartialObjectMetadata" || item["roleRef"] != nil {
		t.Errorf("%s", a)
	}
	if a := p.Must(t, 200, "GET", planetest.RolesPath+"/view", "", "Accept", "application/yaml"); !strings.HasPrefix(string(a.Body), "aggregationRule:") {
		t.Errorf("%s", a)
	}
}

// What a request was authorized for in a namespace does not reach out of it.
func TestRBACHasItsPaths(t *testing.T) {
	p := planetest.NewPlane(t)
	for _, tc := range []struct {
		method, path string
		code         int
	}{
		{"GET", planetest.RbacPath + "/namespaces/default/clusterroles", 404},
		{"GET", planetest.RbacPath + "/namespaces/default/clusterroles/view", 404},
		{"GET", planetest.RbacPath + "/namespaces/default/clusterrolebindings", 404},
		{"POST", planetest.RbacPath + "/namespaces/default/clusterroles", 404},
		{"GET", planetest.BindingsPath + "/t:editors", 404},
		{"DELETE", planetest.BindingsPath + "/t:editors", 404},
		{"DELETE", planetest.BindingsPath, 405},
		{"POST", planetest.BindingsPath, 405},
		{"POST", planetest.RolesPath + "/view", 405},
		{"GET", planetest.RolesPath + "/view/status", 404},
		{"GET", planetest.RolesPath + "/none", 404},
		{"GET", "/apis/rbac.authorization.k8s.io/v1beta1/clusterroles", 404},
		{"GET", planetest.RbacPath + "/nothing", 404},
	} {
		if a := p.Do(tc.method, tc.path, ""); a.Code != tc.code {
			t.Errorf("%s %s: %s, want %d", tc.method, tc.path, a, tc.code)
		}
	}
	for _, path := range []string{planetest.RolesPath, planetest.RolesPath + "/view", planetest.BindingsPath, planetest.InDefault, planetest.GrantsPath + "/none"} {
		p.Must(t, 403, "GET", path, "", "Authorization", "Bearer nobody-token")
	}
	p.Must(t, 200, "GET", planetest.RolesPath, "", "Authorization", "Bearer reader-token")
}

func TestRBACIsChangedInThePolicy(t *testing.T) {
	p := planetest.NewPlane(t)
	role, binding := planetest.Line(planetest.Bundle, "clusterRoles: widgets:"), planetest.Line(planetest.Bundle, "bindings: editors:")
	change := func(what string) string {
		return "is forbidden: access is defined by the policy: change " + what + " and push it"
	}
	add := func(part string) string {
		return "is forbidden: access is defined by the policy, not through the API: add it to rbac." + part + " of a team in the bundle (bundle.cue), and push that; `stele policy import FILE --team TEAM` writes it"
	}
	const elsewhere, builtin = "the package of bundle.cue", "is forbidden: access is defined by the policy, and this is a part of every policy"
	named := func(name string) string { return `{"metadata":{"name":"` + name + `"}}` }
	before := p.Committer.Tip().Revision()
	for _, tc := range []struct {
		method, path, body string
		want               string
		header             []string
	}{
		{"POST", planetest.RolesPath, named("other"), `clusterroles.rbac.authorization.k8s.io "other" ` + add("clusterRoles"), nil},
		{"POST", planetest.RolesPath, `{"metadata":{"generateName":"x-"}}`, `clusterroles.rbac.authorization.k8s.io ` + add("clusterRoles"), nil},
		{"PUT", planetest.RolesPath + "/widgets", named("widgets"), change(role), nil},
		{"PUT", planetest.RolesPath + "/view", named("view"), `clusterroles.rbac.authorization.k8s.io "view" ` + builtin, nil},
		{"PATCH", planetest.RolesPath + "/widgets", `{"rules":[]}`, change(role), []string{"Content-Type", "application/merge-patch+json"}},
		{"PATCH", planetest.RolesPath + "/other?fieldManager=x", "{}", add("clusterRoles"), []string{"Content-Type", "application/apply-patch+yaml"}},
		{"PUT", planetest.RolesPath + "/other", named("other"), add("clusterRoles"), nil},
		{"DELETE", planetest.RolesPath + "/widgets", "", change(role), nil},
		{"DELETE", planetest.RolesPath + "/widgets?dryRun=All", "", change(role), nil},
		{"DELETE", planetest.RolesPath, "", change(elsewhere), nil},
		{"DELETE", planetest.GrantsPath + "/builtin:system:discovery", "", builtin, nil},
		{"DELETE", planetest.InDefault + "/t:editors", "", `rolebindings.rbac.authorization.k8s.io "t:editors" ` + change(binding), nil},
		{"DELETE", planetest.InDefault, "", change(elsewhere), nil},
		{"POST", planetest.RbacPath + "/namespaces/kube-system/rolebindings", named("t:editors"), add("bindings"), nil},
		{"POST", planetest.RbacPath + "/namespaces/default/roles", named("widgets"), `roles.rbac.authorization.k8s.io "widgets" ` + add("clusterRoles"), nil},
		{"POST", planetest.RbacPath + "/namespaces/default/rolebindings", named("other"), `rolebindings.rbac.authorization.k8s.io "other" ` + add("bindings"), nil},
		{"POST", planetest.GrantsPath, named("other"), `clusterrolebindings.rbac.authorization.k8s.io "other" ` + add("bindings"), nil},
	} {
		a := p.Must(t, 403, tc.method, tc.path, tc.body, tc.header...)
		if message := fmt.Sprint(a.Field("message")); !strings.HasSuffix(message, tc.want) {
			t.Errorf("%s %s: %s\nwant %s", tc.method, tc.path, message, tc.want)
		}
		if may := p.Must(t, 403, tc.method, tc.path, tc.body, append(tc.header, "Authorization", "Bearer reader-token")...); !strings.Contains(string(may.Body), `User \"reader\" cannot`) {
			t.Errorf("%s %s, by one who may not: %s", tc.method, tc.path, may)
		}
	}
	p.Must(t, 404, "PATCH", planetest.RolesPath+"/other", "{}", "Content-Type", "application/merge-patch+json")
	p.Must(t, 404, "DELETE", planetest.RolesPath+"/other", "")
	p.Must(t, 415, "PATCH", planetest.RolesPath+"/widgets", "{}", "Content-Type", "application/json")
	p.Must(t, 415, "POST", planetest.RolesPath, "{}", "Content-Type", "text/plain")
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// A refusal names the place in the policy that is in force.
func TestTheRefusalIsOfThePolicyInForce(t *testing.T) {
	p := planetest.NewPlane(t)
	moved := strings.Replace(planetest.Bundle, "bundle: policy.#Bundle", "\n\n\nbundle: policy.#Bundle", 1)
	p.Push(t, planetest.PolicyBody(t, moved, nil))
	if a := p.Must(t, 403, "DELETE", planetest.RolesPath+"/widgets", ""); !strings.Contains(string(a.Body), planetest.Line(moved, "clusterRoles: widgets:")+" and push it") {
		t.Errorf("%s", a)
	}
}

// protobufRole is a role as typed clients send it.
func protobufRole(t *testing.T, name string) string {
	t.Helper()
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), rbacv1.SchemeGroupVersion)
	text, err := runtime.Encode(encoder, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// told fails the test unless these are the next events.
func told(w *planetest.Watching, t *testing.T, want ...string) {
	t.Helper()
	for _, x := range want {
		if got := w.Next(t).At(); got != x {
			t.Fatalf("told %s, want %s", got, x)
		}
	}
}

func TestRBACIsWatched(t *testing.T) {
	p := planetest.NewPlane(t)
	first := p.Committer.Tip().Revision()
	roles := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", planetest.RolesPath, first,
		url.QueryEscape("metadata.name!=cluster-admin,metadata.name!=admin,metadata.name!=edit,metadata.name!=view,metadata.name!=reader")))
	red := p.Watch(t, planetest.RolesPath+"?watch=1&labelSelector=color%3Dred")
	grants := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", planetest.GrantsPath, first, url.QueryEscape("metadata.name=t:helpers")))
	bindings := p.Watch(t, planetest.BindingsPath+"?watch=1")
	one := p.Watch(t, planetest.RbacPath+"/namespaces/team-a/rolebindings?watch=1")
	event := func(kind, object string, revision uint64) string {
		return fmt.Sprintf("%s %s@%d", kind, object, revision)
	}

	created := p.Committer.Tip().Objects.Get(commit.Namespaces, "", "default").Revision
	told(bindings, t, event("ADDED", "default/t:editors", created))
	activated := p.Push(t, planetest.PolicyBody(t, strings.Replace(broader, `clusterRoles: "editors-helper"`, `clusterRoles: another`, 1), nil))
	// What is gone was there up to the revision before, as far as this watch knows.
	told(roles, t, event("DELETED", "editors-helper", first), event("ADDED", "another", activated), event("ADDED", "every", activated))
	told(red, t, event("ADDED", "reader", activated))
	told(grants, t, event("DELETED", "t:helpers", first))
	told(bindings, t, event("MODIFIED", "default/t:editors", activated))

	p.Namespace(t, "other")
	created = p.Namespace(t, "team-a")
	told(bindings, t, event("ADDED", "team-a/t:editors", created))
	told(one, t, event("ADDED", "team-a/t:editors", created))
	p.Must(t, 200, "PATCH", "/api/v1/namespaces/team-a", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
	labelled := p.Committer.Tip().Revision()
	told(bindings, t, event("MODIFIED", "team-a/t:editors", labelled))
	told(one, t, event("MODIFIED", "team-a/t:editors", labelled))
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/team-a", "")
	marked := p.Committer.Tip().Revision()
	told(bindings, t, event("MODIFIED", "team-a/t:editors", marked))
	told(one, t, event("MODIFIED", "team-a/t:editors", marked))
	p.Finalize(t, "team-a")
	told(bindings, t, event("DELETED", "team-a/t:editors", marked))
	told(one, t, event("DELETED", "team-a/t:editors", marked))

	back := p.Push(t, planetest.PolicyBody(t, planetest.Bundle, nil))
	if e := red.Next(t); !strings.HasPrefix(e.At(), "DELETED reader@") {
		t.Errorf("what is not selected any more: %s", e.At())
	}
	told(grants, t, event("ADDED", "t:helpers", back))
	told(bindings, t, event("MODIFIED", "default/t:editors", back))
}

func TestAWatchOfRBACBegins(t *testing.T) {
	p := planetest.NewPlane(t)
	old := p.Committer.Tip().Revision()
	activated := p.Push(t, planetest.PolicyBody(t, broader, nil))
	created := p.Namespace(t, "team-a")
	watch := func(query string, revision uint64) *planetest.Watching {
		return p.Watch(t, fmt.Sprintf("%s?watch=1&%s&resourceVersion=%d", planetest.BindingsPath, query, revision))
	}
	modified, added := fmt.Sprintf("MODIFIED team-a/t:editors@%d", created), fmt.Sprintf("ADDED team-a/t:editors@%d", created)
	present := fmt.Sprintf("ADDED default/t:editors@%d", activated)
	next := p.Committer.Tip().Revision() + 1

	// From a revision of the policy before.
	told(watch("", old), t, fmt.Sprintf("MODIFIED default/t:editors@%d", activated), added)
	quiet := []*planetest.Watching{watch("", created), watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", created)}
	told(watch("", activated), t, added)
	// Whoever takes bookmarks may have been cut off between events of one revision.
	told(watch("allowWatchBookmarks=1", activated), t, fmt.Sprintf("MODIFIED default/t:editors@%d", activated), added)
	told(watch("allowWatchBookmarks=1", created), t, modified)

	streamed := watch("sendInitialEvents=true&allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan", old)
	told(streamed, t, present, added)
	end := streamed.Next(t)
	if end.Type != "BOOKMARK" || end.Object["kind"] != "RoleBinding" || !strings.Contains(fmt.Sprint(end.Object["metadata"]), metav1.InitialEventsAnnotationKey) {
		t.Errorf("after the initial events: %v", end)
	}
	tables := p.Watch(t, planetest.RolesPath+"?watch=1&fieldSelector=metadata.name%3Dview", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if e := tables.Next(t); e.Type != "ADDED" || e.Object["kind"] != "Table" {
		t.Errorf("a table: %v", e)
	}

	if at := p.Namespace(t, "team-b"); at != next {
		t.Fatalf("created at revision %d, not %d", at, next)
	}
	for _, w := range append(quiet, streamed) {
		told(w, t, fmt.Sprintf("ADDED team-b/t:editors@%d", next))
	}
	p.Drain()
	if e := streamed.Next(t); e.Type != "BOOKMARK" || e.At() != fmt.Sprintf("BOOKMARK <nil>@%d", next) {
		t.Errorf("at the end: %v", e)
	}
	for _, w := range append(quiet, streamed) {
		<-w.Ended
	}
}

// P3: a watch ends when its permission goes.
func TestAWatchOfRBACEndsWithItsPermission(t *testing.T) {
	p := planetest.NewPlane(t)
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.RolesPath, p.Committer.Tip().Revision()), "Authorization", "Bearer reader-token")
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, `{user: "reader"}`, `{user: "another"}`, 1), nil))
	if e := w.Next(t); e.Type != "ERROR" || e.Object["code"] != 403.0 {
		t.Errorf("%v", e)
	}
}

// What was forgotten of the namespaces, and of the policy before, is in the log.
func TestAWatchOfRBACOutlastsMemory(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 1)
	p.Bootstrap(t, planetest.Bundle)
	from := p.Committer.Tip().Revision()
	activated := p.Push(t, planetest.PolicyBody(t, broader, nil))
	made := p.Namespace(t, "team-a")
	p.Namespace(t, "team-b")
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/team-b", "")
	p.Finalize(t, "team-b")
	w := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", planetest.BindingsPath, from))
	told(w, t, fmt.Sprintf("MODIFIED default/t:editors@%d", activated), fmt.Sprintf("ADDED team-a/t:editors@%d", made))
	if e := p.Watch(t, planetest.BindingsPath+"?watch=1&resourceVersion=1").Next(t); planetest.What([]planetest.WatchEvent{e}) != "ERROR 410" {
		t.Errorf("from before there was a policy: %v", e)
	}
	p.Must(t, 200, "GET", fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d", planetest.BindingsPath, from), "")
}

func TestInformersFollowRBAC(t *testing.T) {
	p := planetest.NewPlane(t)
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, BearerToken: "admin-token"})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	roles, bindings := factory.Rbac().V1().ClusterRoles(), factory.Rbac().V1().RoleBindings()
	heard := make(chan string, 1000)
	for _, informer := range []cache.SharedIndexInformer{roles.Informer(), bindings.Informer()} {
		tell := func(what string, object any) {
			m := object.(metav1.Object)
			heard <- strings.TrimPrefix(fmt.Sprintf("%s %s/%s", what, m.GetNamespace(), m.GetName()), "/")
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { tell("added", o) },
			UpdateFunc: func(_, o any) { tell("updated", o) },
			DeleteFunc: func(o any) { tell("deleted", o) },
		}); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.WaitForCacheSync(stop)

	await := func(want ...string) {
		t.Helper()
		missing := map[string]bool{}
		for _, x := range want {
			missing[x] = true
		}
		for len(missing) > 0 {
			select {
			case x := <-heard:
				delete(missing, x)
			case <-time.After(10 * time.Second):
				t.Fatalf("not heard: %v", missing)
			}
		}
	}
	await("added /view", "added default/t:editors")
	activated := p.Push(t, planetest.PolicyBody(t, strings.Replace(broader, `clusterRoles: "editors-helper"`, `clusterRoles: another`, 1), nil))
	p.Namespace(t, "team-a")
	await("deleted /editors-helper", "added /another", "updated /reader", "updated default/t:editors", "added team-a/t:editors")
	if role, err := roles.Lister().Get("reader"); err != nil || role.ResourceVersion != fmt.Sprint(activated) {
		t.Errorf("%v, %v", role, err)
	}
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/team-a", "")
	await("updated team-a/t:editors")
	p.Finalize(t, "team-a")
	await("deleted team-a/t:editors")

	held, err := roles.Lister().List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(held, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	for i, want := range planetest.Into[rbacv1.ClusterRoleList](t, p.Must(t, 200, "GET", planetest.RolesPath, "")).Items {
		want.TypeMeta = metav1.TypeMeta{}
		got := held[i].DeepCopy()
		got.TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("held and served (-served +held):\n%s", diff)
		}
	}
}

func TestRBACIsDiscovered(t *testing.T) {
	p := planetest.NewPlane(t)
	list := planetest.Into[metav1.APIResourceList](t, p.Must(t, 200, "GET", planetest.RbacPath, ""))
	verbs := metav1.Verbs{"get", "list", "watch"}
	want := []metav1.APIResource{
		{Name: "clusterrolebindings", SingularName: "clusterrolebinding", Kind: "ClusterRoleBinding", Verbs: verbs},
		{Name: "clusterroles", SingularName: "clusterrole", Kind: "ClusterRole", Verbs: verbs},
		{Name: "rolebindings", SingularName: "rolebinding", Namespaced: true, Kind: "RoleBinding", Verbs: verbs},
		{Name: "roles", SingularName: "role", Namespaced: true, Kind: "Role", Verbs: verbs},
	}
	if diff := cmp.Diff(want, list.APIResources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	described := p.Must(t, 200, "GET", "/openapi/v3"+planetest.RbacPath, "")
	schema := func(kind string, path ...string) any {
		return described.Field(append([]string{"components", "schemas", "io.k8s.api.rbac.v1." + kind, "properties"}, path...)...)
	}
	for _, tc := range []struct{ got, want any }{
		{schema("PolicyRule", "verbs", "items", "type"), "string"},
		{described.Field("components", "schemas", "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", "properties", "matchLabels", "additionalProperties", "type"), "string"},
		{schema("RoleRef", "name", "type"), "string"},
		{schema("RoleBinding", "subjects", "description"), "subjects holds references to the objects the role applies to."},
	} {
		if tc.got != tc.want {
			t.Errorf("%v, want %v in %s", tc.got, tc.want, described)
		}
	}
}

// What a policy says first is as old as the policy, by the log's time: on every replica.
func TestWhatThePolicySaysIsAsOldAsItsActivation(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	activated := p.Committer.Tip().PolicyRevision()
	p.Push(t, planetest.PolicyBody(t, broader, nil))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
	at, err := time.Parse(time.RFC3339Nano, p.Must(t, 200, "GET", fmt.Sprintf("%s/%d", planetest.ChangesPath, activated), "").Field("time").(string))
	if err != nil {
		t.Fatal(err)
	}
	other := planetest.StartReplica(t, store.Open(nil), 0)
	for _, path := range []string{planetest.RolesPath + "/view", planetest.DefinitionsPath + "/widgets.example.com"} {
		for _, r := range []*planetest.Replica{p, other} {
			if got := r.Must(t, 200, "GET", path, "").Field("metadata", "creationTimestamp"); got != at.UTC().Format(time.RFC3339) {
				t.Errorf("%s: %v, want %v", path, got, at)
			}
		}
	}
}
