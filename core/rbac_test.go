package core_test

import (
	"encoding/json"
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
	"stele.dev/stele/eventlog/memlog"
)

const (
	rbacPath     = "/apis/rbac.authorization.k8s.io/v1"
	rolesPath    = rbacPath + "/clusterroles"
	grantsPath   = rbacPath + "/clusterrolebindings"
	bindingsPath = rbacPath + "/rolebindings"
	inDefault    = rbacPath + "/namespaces/default/rolebindings"
)

// broader is the bundle of these tests with editors in more namespaces, a robot, a role
// that aggregates another, and without the helper's.
var broader = strings.NewReplacer(
	`{group: "editors"}], namespaces: ["default"]`, `{group: "editors"}, {user: "eve"}, {serviceAccount: "robots/r2"}], namespaces: ["default", "team-*"]`,
	`bindings: helpers: {clusterRole: "editors-helper", subjects: [{user: "helper"}], namespaces: ["*"]}`, `clusterRoles: every: aggregate: color: "red"`,
	`clusterRoles: reader: rules:`, `clusterRoles: reader: labels: color: "red"
			clusterRoles: reader: rules:`,
).Replace(bundle)

// push puts a bundle in force, and returns the revision.
func (r *replica) push(t testing.TB, body string) uint64 {
	t.Helper()
	r.must(t, 201, "POST", policiesPath, body)
	return r.committer.Tip().PolicyRevision()
}

func (r *replica) namespace(t testing.TB, name string) uint64 {
	t.Helper()
	r.must(t, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
	return r.committer.Tip().Revision()
}

// into decodes the body.
func into[T any](t testing.TB, a answer) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal(a.body, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// line is the line of a bundle at which a text stands first.
func line(bundle, text string) string {
	before, _, found := strings.Cut(bundle, text)
	if !found {
		panic(text)
	}
	return fmt.Sprintf("bundle.cue:%d", strings.Count(before, "\n")+1)
}

func TestARoleIsAClusterRole(t *testing.T) {
	p := newPlane(t)
	activated := p.push(t, policyBody(t, broader, nil))
	got := into[rbacv1.ClusterRole](t, p.must(t, 200, "GET", rolesPath+"/editors-helper", ""))
	want := &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{Kind: "ClusterRole", APIVersion: "rbac.authorization.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "editors-helper", UID: got.UID, CreationTimestamp: got.CreationTimestamp, ResourceVersion: fmt.Sprint(activated),
			Annotations: map[string]string{"stele.dev/rule": "t/clusterRoles/editors-helper", "stele.dev/source": line(broader, `clusterRoles: "editors-helper"`)},
		},
		Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"groups"}, ResourceNames: []string{"editors"}},
			{Verbs: []string{"impersonate"}, APIGroups: []string{""}, Resources: []string{"users"}, ResourceNames: []string{"eddie"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	every := into[rbacv1.ClusterRole](t, p.must(t, 200, "GET", rolesPath+"/every", ""))
	reader := into[rbacv1.ClusterRole](t, p.must(t, 200, "GET", rolesPath+"/reader", ""))
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

	builtin := into[rbacv1.ClusterRole](t, p.must(t, 200, "GET", rolesPath+"/cluster-admin", ""))
	if diff := cmp.Diff(map[string]string{"stele.dev/rule": "builtin/clusterRoles/cluster-admin"}, builtin.Annotations); diff != "" {
		t.Errorf("annotations of what is built in (-want +got):\n%s", diff)
	}
	if paths := builtin.Rules[1].NonResourceURLs; !slices.Equal(paths, []string{"*"}) {
		t.Errorf("paths %q", paths)
	}
}

func TestABindingIsWhereItGrants(t *testing.T) {
	p := newPlane(t)
	p.namespace(t, "team-a")
	activated := p.push(t, policyBody(t, broader, nil))
	later := p.namespace(t, "team-b")

	if diff := cmp.Diff([]string{"builtin:system:basic-user", "builtin:system:discovery", "builtin:system:public-info-viewer", "builtin:system:service-account-issuer-discovery", "t:readers"}, p.must(t, 200, "GET", grantsPath, "").names()); diff != "" {
		t.Errorf("everywhere (-want +got):\n%s", diff)
	}
	everywhere := into[rbacv1.ClusterRoleBinding](t, p.must(t, 200, "GET", grantsPath+"/t:readers", ""))
	role := rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reader"}
	if everywhere.RoleRef != role || everywhere.Annotations["stele.dev/source"] != line(broader, "bindings: readers") {
		t.Errorf("%+v", everywhere)
	}

	list := into[rbacv1.RoleBindingList](t, p.must(t, 200, "GET", bindingsPath, ""))
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
		one := into[rbacv1.RoleBinding](t, p.must(t, 200, "GET", rbacPath+"/namespaces/"+b.Namespace+"/rolebindings/"+b.Name, ""))
		one.TypeMeta, b.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		if diff := cmp.Diff(&b, one); diff != "" {
			t.Errorf("listed, and got by name (-listed +got):\n%s", diff)
		}
		uids[string(b.UID)] = true
	}
	if len(uids) != len(list.Items) {
		t.Errorf("%d objects have the uids %v", len(list.Items), uids)
	}
	if other := newPlane(t).must(t, 200, "GET", inDefault+"/t:editors", ""); other.field("metadata", "uid") != string(list.Items[0].UID) {
		t.Errorf("elsewhere the uid is %v, here %s", other.field("metadata", "uid"), list.Items[0].UID)
	}

	for path, want := range map[string][]string{
		rbacPath + "/namespaces/kube-system/rolebindings": nil,
		rbacPath + "/namespaces/none/rolebindings":        nil,
		rbacPath + "/roles":                               nil,
		rbacPath + "/namespaces/default/roles":            nil,
	} {
		if got := p.must(t, 200, "GET", path, ""); got.names() != nil {
			t.Errorf("%s: %s, want %v", path, got, want)
		}
	}
	p.must(t, 404, "GET", rbacPath+"/namespaces/kube-system/rolebindings/t:editors", "")
	p.must(t, 404, "GET", grantsPath+"/t:editors", "")
}

// A deny takes away; RBAC, which only grants, would show it as the opposite.
func TestADenyIsNotShown(t *testing.T) {
	p := newPlane(t)
	for _, path := range []string{rolesPath, grantsPath, bindingsPath} {
		if a := p.must(t, 200, "GET", path, ""); strings.Contains(string(a.body), "precious") {
			t.Errorf("%s: %s", path, a)
		}
	}
}

// Names of teams and bindings may have colons, so that the team and the name that are
// joined could be others'.
func TestNamesOfBindingsAreTheirOwn(t *testing.T) {
	p := newPlane(t)
	p.push(t, policyBody(t, strings.Replace(bundle, `	teams: t: {`, `	teams: "t:x": {contact: "#t", groups: ["*"], namespaces: ["*"], rbac: bindings: y: {clusterRole: "view", subjects: [{user: "u"}], namespaces: ["default"]}}
	teams: t: rbac: bindings: "x:y": {clusterRole: "edit", subjects: [{user: "u"}], namespaces: ["default"]}
	teams: t: {`, 1), nil))
	for name, role := range map[string]string{"t:x:y": "edit", "t::x:y": "view"} {
		if a := p.must(t, 200, "GET", inDefault+"/"+name, ""); a.field("roleRef", "name") != role {
			t.Errorf("%s, want the role %s", a, role)
		}
	}
}

func TestRBACIsSelected(t *testing.T) {
	p := newPlane(t)
	p.namespace(t, "team-a")
	p.push(t, policyBody(t, broader, nil))
	for query, want := range map[string][]string{
		rolesPath + "?labelSelector=color%3Dred":                      {"reader"},
		rolesPath + "?labelSelector=color,color!%3Dred":               nil,
		rolesPath + "?fieldSelector=metadata.name%3Dview":             {"view"},
		rolesPath + "/view?resourceVersion=0":                         nil,
		bindingsPath + "?fieldSelector=metadata.namespace%3Dteam-a":   {"t:editors"},
		bindingsPath + "?fieldSelector=metadata.namespace!%3Ddefault": {"t:editors"},
		inDefault + "?fieldSelector=metadata.name!%3Dt:editors":       nil,
		inDefault + "?labelSelector=color":                            nil,
		inDefault + "?limit=1":                                        {"t:editors"},
		rolesPath + "?fieldSelector=metadata.namespace%3Dx":           nil,
	} {
		if diff := cmp.Diff(want, p.must(t, 200, "GET", query, "").names()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	for query, code := range map[string]int{
		rolesPath + "?fieldSelector=roleRef.name%3Dx": 400,
		rolesPath + "?labelSelector=%3D":              400,
		rolesPath + "?continue=x":                     400,
	} {
		p.must(t, code, "GET", query, "")
	}
	if all := p.must(t, 200, "GET", rolesPath+"?limit=2", ""); len(all.names()) < 3 || all.field("metadata", "continue") != nil {
		t.Errorf("everything comes at once: %s", all)
	}
}

func TestRBACAtRevisions(t *testing.T) {
	p := newPlane(t)
	before := p.committer.Tip().Revision()
	activated := p.push(t, policyBody(t, broader, nil))
	created := p.namespace(t, "team-a")
	p.must(t, 200, "DELETE", "/api/v1/namespaces/team-a", "")
	p.finalize(t, "team-a")
	now := p.committer.Tip().Revision()
	list := func(query string, revision uint64) string {
		return fmt.Sprintf("%s?%s&resourceVersion=%d", bindingsPath, query, revision)
	}
	for path, want := range map[string]struct {
		revision uint64
		items    int
	}{
		bindingsPath:                                      {now, 1},
		bindingsPath + "?resourceVersion=0":               {now, 1},
		list("resourceVersionMatch=NotOlderThan", before): {now, 1},
		list("limit=500", created):                        {created, 2},
		list("resourceVersionMatch=Exact", created):       {created, 2},
		list("resourceVersionMatch=Exact", activated):     {activated, 1},
		list("resourceVersionMatch=Exact", before):        {before, 1},
		list("resourceVersionMatch=Exact", now):           {now, 1},
	} {
		a := p.must(t, 200, "GET", path, "")
		if a.field("metadata", "resourceVersion") != fmt.Sprint(want.revision) || len(a.names()) != want.items {
			t.Errorf("%s: %s, want %d at %d", path, a, want.items, want.revision)
		}
	}
	p.must(t, 504, "GET", list("resourceVersionMatch=NotOlderThan", now+1), "")
	p.must(t, 504, "GET", fmt.Sprintf("%s/view?resourceVersion=%d", rolesPath, now+1), "")
	p.must(t, 400, "GET", rolesPath+"/view?resourceVersion=x", "")
}

var (
	moment  = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	seconds = regexp.MustCompile(` \d+s `)
)

func TestRBACInOtherForms(t *testing.T) {
	p := newPlane(t)
	p.push(t, policyBody(t, broader, nil))
	const table, partial = "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	for path, want := range map[string]string{
		rolesPath + "/view":                 "[Name Created At] [view TIME]",
		inDefault:                           "[Name Role Age Users Groups ServiceAccounts] [t:editors ClusterRole/widgets AGE eve editors robots/r2]",
		grantsPath + "/t:readers":           "[Name Role Age Users Groups ServiceAccounts] [t:readers ClusterRole/reader AGE reader  ]",
		rbacPath + "/roles?resourceVersion": "[Name Created At]",
	} {
		a := into[metav1.Table](t, p.must(t, 200, "GET", path, "", "Accept", table))
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
	a := p.must(t, 200, "GET", inDefault, "", "Accept", partial)
	item := a.field("items").([]any)[0].(map[string]any)
	if a.field("kind") != "PartialObjectMetadataList" || item["kind"] != "PartialObjectMetadata" || item["roleRef"] != nil {
		t.Errorf("%s", a)
	}
	if a := p.must(t, 200, "GET", rolesPath+"/view", "", "Accept", "application/yaml"); !strings.HasPrefix(string(a.body), "aggregationRule:") {
		t.Errorf("%s", a)
	}
}

// What a request was authorized for in a namespace does not reach out of it.
func TestRBACHasItsPaths(t *testing.T) {
	p := newPlane(t)
	for _, tc := range []struct {
		method, path string
		code         int
	}{
		{"GET", rbacPath + "/namespaces/default/clusterroles", 404},
		{"GET", rbacPath + "/namespaces/default/clusterroles/view", 404},
		{"GET", rbacPath + "/namespaces/default/clusterrolebindings", 404},
		{"POST", rbacPath + "/namespaces/default/clusterroles", 404},
		{"GET", bindingsPath + "/t:editors", 404},
		{"DELETE", bindingsPath + "/t:editors", 404},
		{"DELETE", bindingsPath, 405},
		{"POST", bindingsPath, 405},
		{"POST", rolesPath + "/view", 405},
		{"GET", rolesPath + "/view/status", 404},
		{"GET", rolesPath + "/none", 404},
		{"GET", "/apis/rbac.authorization.k8s.io/v1beta1/clusterroles", 404},
		{"GET", rbacPath + "/nothing", 404},
	} {
		if a := p.do(tc.method, tc.path, ""); a.code != tc.code {
			t.Errorf("%s %s: %s, want %d", tc.method, tc.path, a, tc.code)
		}
	}
	for _, path := range []string{rolesPath, rolesPath + "/view", bindingsPath, inDefault, grantsPath + "/none"} {
		p.must(t, 403, "GET", path, "", "Authorization", "Bearer nobody-token")
	}
	p.must(t, 200, "GET", rolesPath, "", "Authorization", "Bearer reader-token")
}

func TestRBACIsChangedInThePolicy(t *testing.T) {
	p := newPlane(t)
	role, binding := line(bundle, "clusterRoles: widgets:"), line(bundle, "bindings: editors:")
	change := func(what string) string {
		return "is forbidden: access is defined by the policy: change " + what + " and push it"
	}
	add := func(part string) string {
		return "is forbidden: access is defined by the policy, not through the API: add it to rbac." + part + " of a team in the bundle, and push that"
	}
	const elsewhere, builtin = "the package of bundle.cue", "is forbidden: access is defined by the policy, and this is a part of every policy"
	named := func(name string) string { return `{"metadata":{"name":"` + name + `"}}` }
	before := p.committer.Tip().Revision()
	for _, tc := range []struct {
		method, path, body string
		want               string
		header             []string
	}{
		{"POST", rolesPath, named("widgets"), `clusterroles.rbac.authorization.k8s.io "widgets" ` + change(role), nil},
		{"POST", rolesPath, "metadata:\n  name: widgets\n", change(role), []string{"Content-Type", "application/yaml"}},
		{"POST", rolesPath, protobufRole(t, "widgets"), change(role), []string{"Content-Type", "application/vnd.kubernetes.protobuf"}},
		{"POST", rolesPath + "?dryRun=All", named("widgets"), change(role), nil},
		{"POST", rolesPath, named("other"), `clusterroles.rbac.authorization.k8s.io "other" ` + add("clusterRoles"), nil},
		{"POST", rolesPath, `{"metadata":{"generateName":"x-"}}`, `clusterroles.rbac.authorization.k8s.io ` + add("clusterRoles"), nil},
		{"POST", rolesPath, named("view"), `clusterroles.rbac.authorization.k8s.io "view" ` + builtin, nil},
		{"PUT", rolesPath + "/widgets", named("widgets"), change(role), nil},
		{"PATCH", rolesPath + "/widgets", "{}", change(role), []string{"Content-Type", "application/merge-patch+json"}},
		{"PATCH", rolesPath + "/widgets?fieldManager=x", "{}", change(role), []string{"Content-Type", "application/apply-patch+yaml"}},
		{"PATCH", rolesPath + "/other?fieldManager=x", "{}", add("clusterRoles"), []string{"Content-Type", "application/apply-patch+yaml"}},
		{"PUT", rolesPath + "/other", named("other"), add("clusterRoles"), nil},
		{"DELETE", rolesPath + "/widgets", "", change(role), nil},
		{"DELETE", rolesPath + "/widgets?dryRun=All", "", change(role), nil},
		{"DELETE", rolesPath, "", change(elsewhere), nil},
		{"DELETE", grantsPath + "/builtin:system:discovery", "", builtin, nil},
		{"DELETE", inDefault + "/t:editors", "", `rolebindings.rbac.authorization.k8s.io "t:editors" ` + change(binding), nil},
		{"DELETE", inDefault, "", change(elsewhere), nil},
		{"POST", rbacPath + "/namespaces/kube-system/rolebindings", named("t:editors"), change(binding), nil},
		{"POST", rbacPath + "/namespaces/default/roles", named("widgets"), `roles.rbac.authorization.k8s.io "widgets" ` + add("clusterRoles"), nil},
		{"POST", rbacPath + "/namespaces/default/rolebindings", named("other"), `rolebindings.rbac.authorization.k8s.io "other" ` + add("bindings"), nil},
		{"POST", grantsPath, named("other"), `clusterrolebindings.rbac.authorization.k8s.io "other" ` + add("bindings"), nil},
	} {
		a := p.must(t, 403, tc.method, tc.path, tc.body, tc.header...)
		if message := fmt.Sprint(a.field("message")); !strings.HasSuffix(message, tc.want) {
			t.Errorf("%s %s: %s\nwant %s", tc.method, tc.path, message, tc.want)
		}
		if may := p.must(t, 403, tc.method, tc.path, tc.body, append(tc.header, "Authorization", "Bearer reader-token")...); !strings.Contains(string(may.body), `User \"reader\" cannot`) {
			t.Errorf("%s %s, by one who may not: %s", tc.method, tc.path, may)
		}
	}
	p.must(t, 404, "PATCH", rolesPath+"/other", "{}", "Content-Type", "application/merge-patch+json")
	p.must(t, 404, "DELETE", rolesPath+"/other", "")
	p.must(t, 415, "PATCH", rolesPath+"/widgets", "{}", "Content-Type", "application/json")
	p.must(t, 415, "POST", rolesPath, "{}", "Content-Type", "text/plain")
	if after := p.committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// A refusal names the place in the policy that is in force.
func TestTheRefusalIsOfThePolicyInForce(t *testing.T) {
	p := newPlane(t)
	moved := strings.Replace(bundle, "bundle: policy.#Bundle", "\n\n\nbundle: policy.#Bundle", 1)
	p.push(t, policyBody(t, moved, nil))
	if a := p.must(t, 403, "DELETE", rolesPath+"/widgets", ""); !strings.Contains(string(a.body), line(moved, "clusterRoles: widgets:")+" and push it") {
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

// at tells what a watch was told, with the namespace and the revision.
func (e watchEvent) at() string {
	meta, _ := e.Object["metadata"].(map[string]any)
	if namespace, ok := meta["namespace"]; ok {
		return fmt.Sprintf("%s %v/%v@%v", e.Type, namespace, meta["name"], meta["resourceVersion"])
	}
	return e.String()
}

// told fails the test unless these are the next events.
func (w *watching) told(t *testing.T, want ...string) {
	t.Helper()
	for _, x := range want {
		if got := w.next(t).at(); got != x {
			t.Fatalf("told %s, want %s", got, x)
		}
	}
}

func TestRBACIsWatched(t *testing.T) {
	p := newPlane(t)
	first := p.committer.Tip().Revision()
	roles := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", rolesPath, first,
		url.QueryEscape("metadata.name!=cluster-admin,metadata.name!=admin,metadata.name!=edit,metadata.name!=view,metadata.name!=reader")))
	red := p.watch(t, rolesPath+"?watch=1&labelSelector=color%3Dred")
	grants := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d&fieldSelector=%s", grantsPath, first, url.QueryEscape("metadata.name=t:helpers")))
	bindings := p.watch(t, bindingsPath+"?watch=1")
	one := p.watch(t, rbacPath+"/namespaces/team-a/rolebindings?watch=1")
	event := func(kind, object string, revision uint64) string {
		return fmt.Sprintf("%s %s@%d", kind, object, revision)
	}

	created := p.committer.Tip().Objects.Get(commit.Namespaces, "", "default").Revision
	bindings.told(t, event("ADDED", "default/t:editors", created))
	activated := p.push(t, policyBody(t, strings.Replace(broader, `clusterRoles: "editors-helper"`, `clusterRoles: another`, 1), nil))
	// What is gone was there up to the revision before, as far as this watch knows.
	roles.told(t, event("DELETED", "editors-helper", first), event("ADDED", "another", activated), event("ADDED", "every", activated),
		event("MODIFIED", "extension-apiserver-authentication-reader", activated), event("MODIFIED", "policy:planner", activated), event("MODIFIED", "system:aggregate-to-admin", activated), event("MODIFIED", "system:aggregate-to-edit", activated), event("MODIFIED", "system:aggregate-to-view", activated), event("MODIFIED", "system:auth-delegator", activated), event("MODIFIED", "system:basic-user", activated),
		event("MODIFIED", "system:discovery", activated), event("MODIFIED", "system:public-info-viewer", activated), event("MODIFIED", "system:service-account-issuer-discovery", activated), event("MODIFIED", "widgets", activated))
	red.told(t, event("ADDED", "reader", activated))
	grants.told(t, event("DELETED", "t:helpers", first))
	bindings.told(t, event("MODIFIED", "default/t:editors", activated))

	p.namespace(t, "other")
	created = p.namespace(t, "team-a")
	bindings.told(t, event("ADDED", "team-a/t:editors", created))
	one.told(t, event("ADDED", "team-a/t:editors", created))
	p.must(t, 200, "PATCH", "/api/v1/namespaces/team-a", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
	labelled := p.committer.Tip().Revision()
	bindings.told(t, event("MODIFIED", "team-a/t:editors", labelled))
	one.told(t, event("MODIFIED", "team-a/t:editors", labelled))
	p.must(t, 200, "DELETE", "/api/v1/namespaces/team-a", "")
	marked := p.committer.Tip().Revision()
	bindings.told(t, event("MODIFIED", "team-a/t:editors", marked))
	one.told(t, event("MODIFIED", "team-a/t:editors", marked))
	p.finalize(t, "team-a")
	bindings.told(t, event("DELETED", "team-a/t:editors", marked))
	one.told(t, event("DELETED", "team-a/t:editors", marked))

	back := p.push(t, policyBody(t, bundle, nil))
	if e := red.next(t); !strings.HasPrefix(e.at(), "DELETED reader@") {
		t.Errorf("what is not selected any more: %s", e.at())
	}
	grants.told(t, event("ADDED", "t:helpers", back))
	bindings.told(t, event("MODIFIED", "default/t:editors", back))
}

func TestAWatchOfRBACBegins(t *testing.T) {
	p := newPlane(t)
	old := p.committer.Tip().Revision()
	activated := p.push(t, policyBody(t, broader, nil))
	created := p.namespace(t, "team-a")
	watch := func(query string, revision uint64) *watching {
		return p.watch(t, fmt.Sprintf("%s?watch=1&%s&resourceVersion=%d", bindingsPath, query, revision))
	}
	modified, added := fmt.Sprintf("MODIFIED team-a/t:editors@%d", created), fmt.Sprintf("ADDED team-a/t:editors@%d", created)
	present := fmt.Sprintf("ADDED default/t:editors@%d", activated)
	next := p.committer.Tip().Revision() + 1

	// From a revision of the policy before.
	watch("", old).told(t, fmt.Sprintf("MODIFIED default/t:editors@%d", activated), added)
	quiet := []*watching{watch("", created), watch("sendInitialEvents=false&resourceVersionMatch=NotOlderThan", created)}
	watch("", activated).told(t, added)
	// Whoever takes bookmarks may have been cut off between events of one revision.
	watch("allowWatchBookmarks=1", activated).told(t, fmt.Sprintf("MODIFIED default/t:editors@%d", activated), added)
	watch("allowWatchBookmarks=1", created).told(t, modified)

	streamed := watch("sendInitialEvents=true&allowWatchBookmarks=1&resourceVersionMatch=NotOlderThan", old)
	streamed.told(t, present, added)
	end := streamed.next(t)
	if end.Type != "BOOKMARK" || end.Object["kind"] != "RoleBinding" || !strings.Contains(fmt.Sprint(end.Object["metadata"]), metav1.InitialEventsAnnotationKey) {
		t.Errorf("after the initial events: %v", end)
	}
	tables := p.watch(t, rolesPath+"?watch=1&fieldSelector=metadata.name%3Dview", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if e := tables.next(t); e.Type != "ADDED" || e.Object["kind"] != "Table" {
		t.Errorf("a table: %v", e)
	}

	if at := p.namespace(t, "team-b"); at != next {
		t.Fatalf("created at revision %d, not %d", at, next)
	}
	for _, w := range append(quiet, streamed) {
		w.told(t, fmt.Sprintf("ADDED team-b/t:editors@%d", next))
	}
	p.Drain()
	if e := streamed.next(t); e.Type != "BOOKMARK" || e.at() != fmt.Sprintf("BOOKMARK <nil>@%d", next) {
		t.Errorf("at the end: %v", e)
	}
	for _, w := range append(quiet, streamed) {
		<-w.ended
	}
}

// P3: a watch ends when its permission goes.
func TestAWatchOfRBACEndsWithItsPermission(t *testing.T) {
	p := newPlane(t)
	w := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", rolesPath, p.committer.Tip().Revision()), "Authorization", "Bearer reader-token")
	p.push(t, policyBody(t, strings.Replace(bundle, `{user: "reader"}`, `{user: "another"}`, 1), nil))
	if e := w.next(t); e.Type != "ERROR" || e.Object["code"] != 403.0 {
		t.Errorf("%v", e)
	}
}

// What was forgotten of the namespaces, and of the policy before, is in the log.
func TestAWatchOfRBACOutlastsMemory(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 1)
	p.bootstrap(t, bundle)
	from := p.committer.Tip().Revision()
	activated := p.push(t, policyBody(t, broader, nil))
	made := p.namespace(t, "team-a")
	p.namespace(t, "team-b")
	p.must(t, 200, "DELETE", "/api/v1/namespaces/team-b", "")
	p.finalize(t, "team-b")
	w := p.watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", bindingsPath, from))
	w.told(t, fmt.Sprintf("MODIFIED default/t:editors@%d", activated), fmt.Sprintf("ADDED team-a/t:editors@%d", made))
	if e := p.watch(t, bindingsPath+"?watch=1&resourceVersion=1").next(t); what([]watchEvent{e}) != "ERROR 410" {
		t.Errorf("from before there was a policy: %v", e)
	}
	p.must(t, 200, "GET", fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d", bindingsPath, from), "")
}

func TestInformersFollowRBAC(t *testing.T) {
	p := newPlane(t)
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
	activated := p.push(t, policyBody(t, strings.Replace(broader, `clusterRoles: "editors-helper"`, `clusterRoles: another`, 1), nil))
	p.namespace(t, "team-a")
	await("deleted /editors-helper", "added /another", "updated /widgets", "updated default/t:editors", "added team-a/t:editors")
	if role, err := roles.Lister().Get("widgets"); err != nil || role.ResourceVersion != fmt.Sprint(activated) {
		t.Errorf("%v, %v", role, err)
	}
	p.must(t, 200, "DELETE", "/api/v1/namespaces/team-a", "")
	await("updated team-a/t:editors")
	p.finalize(t, "team-a")
	await("deleted team-a/t:editors")

	held, err := roles.Lister().List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(held, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	for i, want := range into[rbacv1.ClusterRoleList](t, p.must(t, 200, "GET", rolesPath, "")).Items {
		want.TypeMeta = metav1.TypeMeta{}
		got := held[i].DeepCopy()
		got.TypeMeta = metav1.TypeMeta{}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("held and served (-served +held):\n%s", diff)
		}
	}
}

func TestRBACIsDiscovered(t *testing.T) {
	p := newPlane(t)
	list := into[metav1.APIResourceList](t, p.must(t, 200, "GET", rbacPath, ""))
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
	described := p.must(t, 200, "GET", "/openapi/v3"+rbacPath, "")
	schema := func(kind string, path ...string) any {
		return described.field(append([]string{"components", "schemas", "io.k8s.api.rbac.v1." + kind, "properties"}, path...)...)
	}
	for _, tc := range []struct{ got, want any }{
		{schema("PolicyRule", "verbs", "items", "type"), "string"},
		{described.field("components", "schemas", "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector", "properties", "matchLabels", "additionalProperties", "type"), "string"},
		{schema("RoleRef", "name", "type"), "string"},
		{schema("RoleBinding", "subjects", "description"), "subjects holds references to the objects the role applies to."},
	} {
		if tc.got != tc.want {
			t.Errorf("%v, want %v in %s", tc.got, tc.want, described)
		}
	}
}

// What the policy says is as old as the policy, by the log's time: on every replica.
func TestWhatThePolicySaysIsAsOldAsItsActivation(t *testing.T) {
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, bundle)
	activated := p.push(t, policyBody(t, broader, nil))
	p.must(t, 201, "POST", widgetsPath, widget("a", 1))
	at, err := time.Parse(time.RFC3339Nano, p.must(t, 200, "GET", fmt.Sprintf("%s/%d", changesPath, activated), "").field("time").(string))
	if err != nil {
		t.Fatal(err)
	}
	other := start(t, store.Open(nil), 0)
	for _, path := range []string{rolesPath + "/view", definitionsPath + "/widgets.example.com"} {
		for _, r := range []*replica{p, other} {
			if got := r.must(t, 200, "GET", path, "").field("metadata", "creationTimestamp"); got != at.UTC().Format(time.RFC3339) {
				t.Errorf("%s: %v, want %v", path, got, at)
			}
		}
	}
}
