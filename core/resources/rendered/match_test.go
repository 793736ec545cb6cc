package rendered_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"stele.dev/stele/core/resources/rendered"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/projections/checkpoint"
	"stele.dev/stele/projections/objects"
)

// matching is the bundle of these tests, which accepts writes that agree with it.
const matching = planetest.Bundle + `
bundle: dynamic: {customresourcedefinitions: "Match", rbac: "Match", flowControl: "Match"}
bundle: teams: t: rbac: bindings: pairs: {clusterRole: "pair", subjects: [{group: "x"}], namespaces: ["one*"]}
bundle: teams: t: rbac: clusterRoles: pair: rules: {
	a: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["get", "list"]}
	b: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}
}
`

func newMatching(t *testing.T) *planetest.Replica {
	t.Helper()
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	p.Bootstrap(t, matching)
	return p
}

const (
	pairPath = planetest.RolesPath + "/pair"
	// pair is the role as a chart has it: what it grants is that of the bundle, in other words.
	pair = `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "pair", "labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {"meta.helm.sh/release-name": "one"}},
		"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}, {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list", "get"]}]}`
)

var (
	merge = []string{"Content-Type", "application/merge-patch+json"}
	apply = []string{"Content-Type", "application/apply-patch+yaml"}
)

// metadata returns labels, and annotations without those of the policy.
func metadata(a planetest.Answer) map[string]any {
	all := map[string]any{}
	for _, of := range []string{"labels", "annotations"} {
		texts, _ := a.Field("metadata", of).(map[string]any)
		for key, value := range texts {
			if !strings.HasPrefix(key, "stele.dev/") {
				all[key] = value
			}
		}
	}
	return all
}

func TestWhatAgreesWithThePolicyIsCreatedOnce(t *testing.T) {
	p := newMatching(t)
	p.Must(t, 201, "POST", planetest.RolesPath+"?dryRun=All", pair)
	before := p.Committer.Tip().Revision()
	a := p.Must(t, 201, "POST", planetest.RolesPath, pair)
	want := map[string]any{"app.kubernetes.io/managed-by": "Helm", "meta.helm.sh/release-name": "one"}
	if diff := cmp.Diff(want, metadata(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := planetest.Revision(t, a); got != before+1 {
		t.Errorf("it is at revision %d, want %d", got, before+1)
	}
	shown := p.Must(t, 200, "GET", pairPath, "")
	if diff := cmp.Diff(a.Object(), shown.Object()); diff != "" {
		t.Errorf("(-answered +shown):\n%s", diff)
	}
	if shown.Field("metadata", "annotations", "stele.dev/rule") != "t/clusterRoles/pair" {
		t.Errorf("its rule is not shown: %s", shown)
	}
	p.Must(t, 409, "POST", planetest.RolesPath, pair)
	list := p.Must(t, 200, "GET", planetest.RolesPath+"?labelSelector=app.kubernetes.io/managed-by=Helm", "")
	if diff := cmp.Diff([]string{"pair"}, list.Names()); diff != "" {
		t.Errorf("those of Helm (-want +got):\n%s", diff)
	}
}

func TestEachSortOfObjectIsCreatedDeletedAndCreatedAgain(t *testing.T) {
	p := newMatching(t)
	for _, path := range []string{
		planetest.DefinitionsPath + "/widgets.example.com", planetest.RolesPath + "/view", planetest.GrantsPath + "/builtin:system:discovery", planetest.InDefault + "/t:editors",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/probes", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/exempt",
	} {
		collection := path[:strings.LastIndex(path, "/")]
		body := as(t, p.Must(t, 200, "GET", path, "").Object(), func(o, meta map[string]any) {
			delete(o, "status")
			for name := range meta {
				if name != "name" && name != "labels" {
					delete(meta, name)
				}
			}
			meta["annotations"] = map[string]any{"by": "a test"}
		})
		p.Must(t, 201, "POST", collection, body)
		p.Must(t, 409, "POST", collection, body)
		uid := p.Must(t, 200, "GET", path, "").Field("metadata", "uid")
		gone := p.Must(t, 200, "DELETE", path, "")
		if gone.Field("status") != "Success" || gone.Field("details", "uid") != uid || !strings.Contains(gone.Header.Get("Warning"), "stays in force") {
			t.Errorf("a delete: %s, warning %s", gone, gone.Header.Get("Warning"))
		}
		p.Must(t, 404, "GET", path, "")
		again := p.Must(t, 201, "POST", collection, body)
		if again.Field("metadata", "uid") == uid || metadata(again)["by"] != "a test" {
			t.Errorf("created after the delete of uid %v: %s", uid, again)
		}
		p.Must(t, 409, "DELETE", path, fmt.Sprintf(`{"preconditions": {"uid": %q}}`, uid))
		p.Must(t, 200, "GET", path, "")
	}
}

func TestWhatDiffersIsRefusedWithFieldAndLine(t *testing.T) {
	p := newMatching(t)
	line := planetest.Line(matching, "clusterRoles: pair:")
	other := strings.Replace(pair, `"verbs": ["get"]`, `"verbs": ["get", "delete"]`, 1)
	owned := strings.Replace(pair, `"name": "pair"`, `"name": "pair", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}]`, 1)
	aggregated := strings.Replace(pair, `"labels": {`, `"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true", `, 1)
	before := p.Committer.Tip().Revision()
	for _, tc := range []struct {
		what, method, path, body, want string
		code                           int
		header                         []string
	}{
		{"a create", "POST", planetest.RolesPath, other, line + ", and differs: rules[0]", 409, nil},
		{"an update", "PUT", pairPath, other, "differs in rules[0]", 403, nil},
		{"an apply", "PATCH", pairPath + "?fieldManager=x&force=true", other, "differs in rules", 403, apply},
		{"a patch", "PATCH", pairPath, `{"rules": []}`, "differs in rules[0]: change " + line + " and push it", 403, merge},
		{"owners", "PUT", pairPath, owned, "differs in metadata.ownerReferences", 403, nil},
		{"a label that grants", "PUT", pairPath, aggregated, `differs in metadata.labels["rbac.authorization.k8s.io/aggregate-to-view"]`, 403, nil},
		{"a label that grants, in a create", "POST", planetest.RolesPath, aggregated, "aggregate-to-view", 403, nil},
		{"all of them", "DELETE", planetest.RolesPath, "", "change the package of bundle.cue", 403, nil},
		{"another object", "POST", planetest.RolesPath, strings.Replace(pair, `"pair"`, `"other"`, 1), "`stele policy import FILE --team TEAM` writes it", 403, nil},
		{"a binding in a namespace that is not there", "POST", planetest.RbacPath + "/namespaces/one/rolebindings", strings.Replace(pair, `"ClusterRole", "metadata": {"name": "pair"`, `"RoleBinding", "metadata": {"name": "t:pairs"`, 1), `namespaces "one" not found`, 404, nil},
		{"a bad label", "PATCH", pairPath, `{"metadata": {"labels": {"a b": "c"}}}`, "metadata.labels", 422, merge},
		{"the version of another", "PUT", pairPath, strings.Replace(pair, `"name": "pair"`, `"name": "pair", "resourceVersion": "1"`, 1), "has been modified", 409, nil},
	} {
		a := p.Do(tc.method, tc.path, tc.body, tc.header...)
		if a.Code != tc.code || !strings.Contains(fmt.Sprint(a.Field("message")), tc.want) {
			t.Errorf("%s: %s\nwant %d %s", tc.what, a, tc.code, tc.want)
		}
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

func TestManagersOfLabelsConflict(t *testing.T) {
	p := newMatching(t)
	with := func(version string) string {
		return `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"labels": {"version": "` + version + `"}}}`
	}
	p.Must(t, 200, "PATCH", pairPath+"?fieldManager=flux", with("1"), apply...)
	revision := p.Committer.Tip().Revision()
	p.Must(t, 200, "PATCH", pairPath+"?fieldManager=flux", with("1"), apply...)
	if after := p.Committer.Tip().Revision(); after != revision {
		t.Errorf("an apply of the same went from revision %d to %d", revision, after)
	}
	p.Must(t, 409, "PATCH", pairPath+"?fieldManager=argocd", with("2"), apply...)
	p.Must(t, 200, "PATCH", pairPath+"?fieldManager=argocd&force=true", with("2"), apply...)
	a := p.Must(t, 200, "PATCH", pairPath+"?fieldManager=argocd", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}`, apply...)
	if len(metadata(a)) > 0 || a.Field("metadata", "managedFields") != nil {
		t.Errorf("after its manager applied it no more: %s", a)
	}
}

// What Helm does for `helm upgrade`, and kubectl for `apply`: a patch of what they wrote before, what is there, and what they want.
func TestPatchesOfMetadataAreKept(t *testing.T) {
	p := newMatching(t)
	p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"labels": {"chart": "1"}, "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}`, merge...)
	p.Must(t, 200, "PATCH", pairPath, `[{"op": "replace", "path": "/metadata/labels/chart", "value": "2"}]`, "Content-Type", "application/json-patch+json")
	a := p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": null, "a": "b"}}}`, "Content-Type", "application/strategic-merge-patch+json")
	if diff := cmp.Diff(map[string]any{"chart": "2", "a": "b"}, metadata(a)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a = p.Must(t, 200, "PUT", pairPath, pair)
	if got := metadata(a); len(got) != 2 || got["chart"] != nil {
		t.Errorf("after an update with other ones: %v", got)
	}
}

// What the bundle says of labels stays, and another value of a label is shown.
func TestLabelsOfTheBundleStay(t *testing.T) {
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	p.Bootstrap(t, matching+"bundle: teams: t: rbac: clusterRoles: pair: labels: {tier: \"one\"}\n")
	a := p.Must(t, 200, "PUT", pairPath, pair)
	if metadata(a)["tier"] != "one" || !strings.Contains(a.Header.Get("Warning"), `metadata.labels[\"tier\"] stays`) {
		t.Errorf("after an update without it: %s, warning %s", a, a.Header.Get("Warning"))
	}
	p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"labels": {"tier": "two"}}}`, merge...)
	if a := p.Must(t, 200, "GET", pairPath, ""); metadata(a)["tier"] != "two" {
		t.Errorf("after another value: %s", a)
	}
	p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"labels": {"tier": null}}}`, merge...)
	if a := p.Must(t, 200, "GET", pairPath, ""); metadata(a)["tier"] != "one" {
		t.Errorf("after the other value was removed: %s", a)
	}
}

func TestOverlaysInThePast(t *testing.T) {
	planetest.EveryMemory(t, matching, func(t *testing.T, p *planetest.Replica) {
		before := p.Committer.Tip().Revision()
		first := planetest.Revision(t, p.Must(t, 201, "POST", planetest.RolesPath, pair))
		p.Must(t, 200, "DELETE", pairPath, "")
		p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.Widget("a", 1))
		p.Must(t, 404, "GET", fmt.Sprintf("/at/%d%s", first+1, pairPath), "")
		for at, labels := range map[uint64]int{before: 0, first: 2} {
			for _, a := range []planetest.Answer{
				p.Must(t, 200, "GET", fmt.Sprintf("/at/%d%s", at, pairPath), ""),
				p.Must(t, 200, "GET", fmt.Sprintf("%s?resourceVersion=%d&resourceVersionMatch=Exact&fieldSelector=metadata.name=pair", planetest.RolesPath, at), ""),
			} {
				if items, ok := a.Field("items").([]any); ok {
					a = planetest.Answer{Code: a.Code, Body: []byte(as(t, items[0].(map[string]any), func(_, _ map[string]any) {}))}
				}
				if got := metadata(a); len(got) != labels {
					t.Errorf("at %d: %v, want %d", at, got, labels)
				}
			}
		}
	})
}

func TestAWatchSeesOverlays(t *testing.T) {
	p := newMatching(t)
	w := p.Watch(t, planetest.RolesPath+"?watch=1&fieldSelector=metadata.name=pair")
	labeled := p.Watch(t, planetest.RolesPath+"?watch=1&labelSelector=app.kubernetes.io/managed-by")
	was := w.Next(t)
	p.Must(t, 201, "POST", planetest.RolesPath, pair)
	uid := func(e planetest.WatchEvent) any { return e.Object["metadata"].(map[string]any)["uid"] }
	if e := w.Next(t); e.Type != "MODIFIED" || uid(e) != uid(was) {
		t.Errorf("a create: %v", e)
	}
	if e := labeled.Next(t); e.Type != "ADDED" || uid(e) != uid(was) {
		t.Errorf("a create that has the label: %v", e)
	}
	p.Must(t, 200, "DELETE", pairPath, "")
	if e := w.Next(t); e.Type != "DELETED" || uid(e) != uid(was) {
		t.Errorf("a delete: %v", e)
	}
	if e := labeled.Next(t); e.Type != "DELETED" {
		t.Errorf("a delete of what had the label: %v", e)
	}
	p.Must(t, 201, "POST", planetest.RolesPath, pair)
	for _, w := range []*planetest.Watching{w, labeled} {
		if e := w.Next(t); e.Type != "ADDED" || uid(e) == uid(was) {
			t.Errorf("a create after the delete: %v", e)
		}
	}
}

func TestAnOverlayStaysWithItsObject(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, matching)
	p.Must(t, 201, "POST", planetest.RolesPath, pair)
	p.Activate(t, strings.Replace(matching, `resources: ["configmaps"], verbs: ["get"]`, `resources: ["configmaps"], verbs: ["list"]`, 1))
	for _, replica := range []*planetest.Replica{p, planetest.StartReplica(t, store.Open(nil), 0)} {
		if a := replica.Must(t, 200, "GET", pairPath, ""); len(metadata(a)) != 2 || !strings.Contains(a.String(), `"verbs":["list"]`) {
			t.Errorf("after the policy changed the role: %s", a)
		}
	}
	p.Activate(t, planetest.Bundle)
	p.Must(t, 404, "GET", pairPath, "")
	p.Activate(t, matching)
	if a := p.Must(t, 200, "GET", pairPath, ""); len(metadata(a)) > 0 {
		t.Errorf("after the role was gone: %s", a)
	}
	p.Must(t, 201, "POST", planetest.RolesPath, pair)
	p.Must(t, 200, "GET", pairPath, "")
}

func TestOverlaysInANamespaceGoWithIt(t *testing.T) {
	p := newMatching(t)
	const namespaces, name = "/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/namespaces/one/rolebindings/t:pairs"
	for range 2 {
		p.Must(t, 201, "POST", namespaces, `{"metadata": {"name": "one"}}`)
		if a := p.Do("GET", name, ""); a.Code != 200 || len(metadata(a)) > 0 {
			t.Fatalf("in a new namespace: %s", a)
		}
		p.Must(t, 200, "PATCH", name, `{"metadata": {"labels": {"a": "b"}}}`, merge...)
		p.Must(t, 200, "DELETE", namespaces+"/one", "")
		p.Finalize(t, "one")
		p.Must(t, 404, "GET", namespaces+"/one", "")
	}
}

func TestTheLogSaysWhoWroteAnOverlay(t *testing.T) {
	p := newMatching(t)
	p.Must(t, 201, "POST", planetest.RolesPath, pair)
	e := p.LastEvent(t).Meta
	if e.GetActor().GetUser() == "" || e.GetObject().GetResource() != "clusterroles" || e.GetObject().GetName() != "pair" || e.GetRequest().GetVerb() != "create" || e.GetDecisions().GetAuthorizer() == "" {
		t.Errorf("%v", e)
	}
	changes := p.Must(t, 200, "GET", "/apis/log.stele.dev/v1/changes?fieldSelector=object.resource=clusterroles", "")
	if items, _ := changes.Field("items").([]any); len(items) != 1 {
		t.Errorf("changes of clusterroles: %s", changes)
	}
}

func TestWithoutMatchNothingIsKept(t *testing.T) {
	p := newMatching(t)
	p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"labels": {"a": "b"}}}`, merge...)
	p.Activate(t, strings.Replace(matching, `rbac: "Match"`, `rbac: "Refuse"`, 1))
	if a := p.Must(t, 200, "GET", pairPath, ""); metadata(a)["a"] != "b" {
		t.Errorf("what was kept is not shown: %s", a)
	}
	p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"labels": {"a": "b"}}}`, merge...)
	p.Must(t, 403, "PATCH", pairPath, `{"metadata": {"labels": {"a": "c"}}}`, merge...)
	if a := p.Must(t, 403, "DELETE", pairPath, ""); !strings.Contains(a.String(), `what clients have written beside it can be removed while dynamic.rbac of the bundle is \"Match\"`) {
		t.Errorf("a delete: %s", a)
	}
	p.Must(t, 409, "POST", planetest.RolesPath, pair)
}

// Who may write roles only under a condition about objects writes none that the policy shows.
func TestAConditionalGrantKeepsNothing(t *testing.T) {
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	p.Bootstrap(t, matching+`
bundle: teams: t: rbac: clusterRoles: labels: rules: a: {apiGroups: ["rbac.authorization.k8s.io"], resources: ["clusterroles"], verbs: ["create", "patch", "delete"]}
bundle: teams: t: rbac: bindings: labels: {clusterRole: "labels", subjects: [{user: "nobody"}], namespaces: ["*"], when: "object == null || has(object.metadata.labels)"}
`)
	before := p.Committer.Tip().Revision()
	token := []string{"Authorization", "Bearer nobody-token"}
	p.Must(t, 403, "POST", planetest.RolesPath, pair, token...)
	p.Must(t, 403, "PATCH", pairPath, `{"metadata": {"labels": {"a": "b"}}}`, append(token, merge...)...)
	p.Must(t, 403, "DELETE", pairPath, "", token...)
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// The objects of a chart have names of their own, and Roles.
func TestRolesAndBindingsAreShownUnderTheirOwnNames(t *testing.T) {
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	const named = `
bundle: teams: t: rbac: clusterRoles: {
	"one:leader": {name: "leader_Role", namespace: "one", rules: a: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}}
	"two:leader": {name: "leader_Role", namespace: "two", rules: a: {apiGroups: [""], resources: ["configmaps"], verbs: ["list"]}}
	manager: {name: "Manager", rules: a: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}}
}
bundle: teams: t: rbac: bindings: {
	one: {name: "leader", clusterRole: "one:leader", subjects: [{user: "x"}], namespaces: ["one"]}
	two: {name: "leader", clusterRole: "two:leader", subjects: [{user: "x"}], namespaces: ["two"]}
	all: {name: "manager", clusterRole: "manager", subjects: [{user: "x"}], namespaces: ["*"]}
}
`
	p.Bootstrap(t, matching+named)
	const rbac, namespaces = "/apis/rbac.authorization.k8s.io/v1/namespaces/", "/api/v1/namespaces"
	for namespace, verb := range map[string]string{"one": "get", "two": "list"} {
		p.Must(t, 201, "POST", namespaces, `{"metadata": {"name": "`+namespace+`"}}`)
		role := p.Must(t, 200, "GET", rbac+namespace+"/roles/leader_Role", "")
		if !strings.Contains(role.String(), `"rules":[{"verbs":["`+verb+`"]`) || role.Field("kind") != "Role" {
			t.Errorf("the role of %s: %s", namespace, role)
		}
		binding := p.Must(t, 200, "GET", rbac+namespace+"/rolebindings/leader", "")
		want := map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leader_Role"}
		if diff := cmp.Diff(want, binding.Field("roleRef")); diff != "" {
			t.Errorf("the binding of %s (-want +got):\n%s", namespace, diff)
		}
		p.Must(t, 201, "POST", rbac+namespace+"/roles", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "leader_Role"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["`+verb+`"]}]}`)
		p.Must(t, 201, "POST", rbac+namespace+"/rolebindings", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "leader"}, "subjects": [{"kind": "User", "name": "x"}], "roleRef": {"kind": "Role", "name": "leader_Role"}}`)
	}
	if a := p.Must(t, 200, "GET", planetest.GrantsPath+"/manager", ""); fmt.Sprint(a.Field("roleRef", "name")) != "Manager" {
		t.Errorf("%s", a)
	}
	p.Must(t, 404, "GET", planetest.RolesPath+"/one:leader", "")
	p.Must(t, 404, "GET", planetest.RolesPath+"/manager", "")
	p.Must(t, 200, "GET", planetest.RolesPath+"/Manager", "")
	// A change of one of two with the same name is a change of that one.
	revision := planetest.Revision(t, p.Must(t, 200, "GET", rbac+"two/roles/leader_Role", ""))
	p.Activate(t, matching+strings.Replace(named, `"one", rules: a: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}`, `"one", rules: a: {apiGroups: [""], resources: ["configmaps"], verbs: ["watch"]}`, 1))
	if got := planetest.Revision(t, p.Must(t, 200, "GET", rbac+"two/roles/leader_Role", "")); got != revision {
		t.Errorf("the role of two went from %d to %d", revision, got)
	}
	if a := p.Must(t, 200, "GET", rbac+"one/roles/leader_Role", ""); planetest.Revision(t, a) <= revision {
		t.Errorf("the role of one: %s", a)
	}
}

// A rule that is shown under another name is another object: it does not take over what clients have written beside the one that had the name.
func TestARuleWithAnotherNameIsAnotherObject(t *testing.T) {
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	named := func(a, b string) string {
		binding := func(id, name string) string {
			return `bundle: teams: t: rbac: bindings: ` + id + `: {name: "` + name + `", clusterRole: "pair", subjects: [{user: "` + id + `"}], namespaces: ["default"]}` + "\n"
		}
		return matching + binding("a", a) + binding("b", b)
	}
	p.Bootstrap(t, named("first", "second"))
	for _, name := range []string{"first", "second"} {
		p.Must(t, 200, "PATCH", planetest.InDefault+"/"+name, `{"metadata": {"labels": {"by": "`+name+`"}}}`, merge...)
	}
	p.Activate(t, named("third", "second"))
	p.Activate(t, named("third", "first"))
	p.Activate(t, named("second", "first"))
	for _, name := range []string{"first", "second"} {
		if a := p.Must(t, 200, "GET", planetest.InDefault+"/"+name, ""); len(metadata(a)) > 0 {
			t.Errorf("after renames: %s", a)
		}
	}
}

// A chart has one configuration for several webhooks, and leaves it to others to fill in the authority.
func TestWebhooksOfOneConfiguration(t *testing.T) {
	p := planetest.StartReplica(t, new(memlog.Store).Open(nil), 0)
	const hook = `{configuration: "chart", rules: r: {apiGroups: [""], resources: ["configmaps"], operations: ["CREATE", "UPDATE"]}, sideEffects: "None", failurePolicy: "Ignore", clientConfig: url: "https://127.0.0.1:1/x"}`
	p.Bootstrap(t, matching+`
bundle: dynamic: webhooks: "Match"
bundle: teams: t: admission: webhooks: validating: {"a.example.com": `+hook+`, "b.example.com": `+hook+`}
bundle: teams: t: admission: webhooks: mutating: {"m.example.com": `+hook+` & {order: 1}}
`)
	const path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	webhook := func(name, more string) string {
		return `{"name": "` + name + `", "rules": [{"apiGroups": [""], "apiVersions": ["*"], "resources": ["configmaps"], "operations": ["UPDATE", "CREATE"]}], "sideEffects": "None", "failurePolicy": "Ignore",
			"clientConfig": {"url": "https://127.0.0.1:1/x"}, "admissionReviewVersions": ["v1", "v1beta1"]` + more + `}`
	}
	chart := func(webhooks ...string) string {
		return `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "chart"}, "webhooks": [` + strings.Join(webhooks, ", ") + `]}`
	}
	a, b := webhook("a.example.com", ""), webhook("b.example.com", "")
	p.Must(t, 201, "POST", path, chart(b, a))
	if a := p.Must(t, 200, "GET", path+"/chart", ""); !strings.Contains(a.String(), `"stele.dev/rule":"t/webhooks/validating/a.example.com,t/webhooks/validating/b.example.com"`) {
		t.Errorf("%s", a)
	}
	p.Must(t, 200, "PUT", path+"/chart", chart(a, b))
	refused := p.Must(t, 403, "PUT", path+"/chart", chart(webhook("b.example.com", `, "timeoutSeconds": 3`), a))
	if want := `differs in webhooks[name=\"b.example.com\"].timeoutSeconds`; !strings.Contains(refused.String(), want) {
		t.Errorf("%s, want %s", refused, want)
	}
	p.Must(t, 403, "PUT", path+"/chart", chart(a))
	p.Must(t, 404, "GET", path+"/t.a.example.com", "")
}

// Overlays are the same live, in the past, after a start from a checkpoint, and on a replica that has read the whole log.
func TestOverlaysAreTheSameEverywhere(t *testing.T) {
	l := newLineages(t)
	l.push(matching)
	seen := map[uint64]map[string]string{}
	for i, write := range []func(){
		func() { l.Must(t, 201, "POST", planetest.RolesPath, pair) },
		func() {
			l.Must(t, 200, "PATCH", planetest.InDefault+"/t:editors", `{"metadata": {"labels": {"a": "b"}}}`, merge...)
		},
		func() { l.push(matching + gizmos) },
		func() { l.Must(t, 200, "DELETE", pairPath, "") },
		func() { l.push(planetest.Bundle) },
		func() { l.push(matching) },
		func() { l.Must(t, 201, "POST", planetest.RolesPath, pair) },
	} {
		write()
		l.Namespace(t, fmt.Sprint("one-", i))
		seen[l.Committer.Tip().Revision()] = l.lists("")
	}
	check := func(who string) {
		t.Helper()
		for revision, want := range seen {
			if diff := cmp.Diff(want, l.lists(fmt.Sprint("/at/", revision))); diff != "" {
				t.Errorf("%s, at %d (-live +at):\n%s", who, revision, diff)
			}
		}
		if diff := cmp.Diff(seen[l.Committer.Tip().Revision()], l.lists("")); diff != "" {
			t.Errorf("%s, now (-before +now):\n%s", who, diff)
		}
	}
	check("the server itself")
	folder, err := checkpoint.Open(filepath.Join(l.dir, "checkpoints"), nil, nil)
	if err == nil {
		tip := l.Committer.Tip()
		_, err = folder.Write(t.Context(), tip.Revision(), 0, tip.Save)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	l.start(l.dir)
	if l.Committer.Restored().Revision == 0 {
		t.Fatal("the start did not use the checkpoint")
	}
	check("after a start from a checkpoint")
	l.start(t.TempDir())
	check("a replica that has read the whole log")
}

// What is kept for objects that are gone does not stay in memory, and the past still has it.
func TestOverlaysOfWhatIsGoneAreRemoved(t *testing.T) {
	p := newMatching(t)
	roles, bindings := schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}
	sweeper := rendered.Sweeper{Committer: p.Committer}
	kept := func() [2]int {
		t.Helper()
		if err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		o := p.Committer.Tip().Objects
		return [2]int{o.Len(roles), o.Len(bindings)}
	}
	const namespace, label = "/apis/rbac.authorization.k8s.io/v1/namespaces/", `{"metadata": {"labels": {"a": "b"}}}`
	p.Must(t, 200, "PATCH", pairPath, label, merge...)
	for _, name := range []string{"one", "one-2"} {
		p.Namespace(t, name)
		p.Must(t, 200, "PATCH", namespace+name+"/rolebindings/t:pairs", label, merge...)
	}
	if got := kept(); got != [2]int{1, 2} {
		t.Errorf("of what is there: %d of roles and bindings", got)
	}
	before := p.Committer.Tip().Revision()
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/one", "")
	p.Finalize(t, "one")
	if got := kept(); got != [2]int{1, 1} {
		t.Errorf("after the deletion of a namespace: %d of roles and bindings", got)
	}
	if e := p.LastEvent(t).Meta; e.GetActor().GetUser() != rendered.SweepActor || e.GetBulk().GetObjects()[0].GetObject().GetNamespace() != "one" {
		t.Errorf("the log says %v", e)
	}
	p.Activate(t, planetest.Bundle)
	if got := kept(); got != [2]int{} {
		t.Errorf("after a push without the role and the binding: %d of roles and bindings", got)
	}
	p.Activate(t, matching)
	if a := p.Must(t, 200, "PATCH", pairPath, label, merge...); metadata(a)["a"] != "b" {
		t.Errorf("after it came back: %s", a)
	}
	for _, path := range []string{pairPath, namespace + "one/rolebindings/t:pairs"} {
		if a := p.Must(t, 200, "GET", fmt.Sprint("/at/", before, path), ""); metadata(a)["a"] != "b" {
			t.Errorf("%s at %d: %s", path, before, a)
		}
	}
}

// A watch that nobody wakes for a long time keeps one kind in memory, not all objects as they were.
func TestAnIdleWatchDoesNotKeepAllObjects(t *testing.T) {
	p := newMatching(t)
	then := p.Committer.Tip()
	state := weak.Make(then.Objects)
	w, err := rendered.Watch(t.Context(), p.Committer, then, rendered.RBAC[0], objects.Selection{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	then = nil
	planetest.WaitFor(t, func() bool {
		p.Fill(t, 0, 1)
		p.Must(t, 200, "DELETE", planetest.WidgetsPath+"/b0", "")
		runtime.GC()
		return state.Value() == nil
	})
	runtime.KeepAlive(w)
}

// What is kept has the limit of stored objects, however many writes make it large.
func TestWhatIsKeptHasALimit(t *testing.T) {
	p := newMatching(t)
	labels := func(write, n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`"%s-%d-%d": "%s"`, strings.Repeat("x", 50), write, i, strings.Repeat("y", 60)))
		}
		return `{"metadata": {"labels": {` + strings.Join(list, ",") + `}}}`
	}
	for i := range 4 {
		p.Must(t, 200, "PATCH", pairPath, labels(i, 8_000), merge...)
	}
	before := p.Committer.Tip().Revision()
	for _, query := range []string{"?dryRun=All", ""} {
		a := p.Must(t, 413, "PATCH", pairPath+query, labels(9, 8_000), merge...)
		if a.Field("reason") != "RequestEntityTooLarge" || !strings.Contains(a.String(), "limit is 4194304") {
			t.Errorf("%s", a)
		}
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// A client that deletes an object waits until it is gone. The rule stays in force, and a client that creates the object gets it back.
func TestWhatIsDeletedIsNotShown(t *testing.T) {
	for what, create := range map[string]func(*testing.T, *planetest.Replica) planetest.Answer{
		"a create": func(t *testing.T, p *planetest.Replica) planetest.Answer {
			return p.Must(t, 201, "POST", planetest.RolesPath, pair)
		},
		"an update": func(t *testing.T, p *planetest.Replica) planetest.Answer {
			return p.Must(t, 201, "PUT", pairPath, pair)
		},
		"an apply": func(t *testing.T, p *planetest.Replica) planetest.Answer {
			return p.Must(t, 201, "PATCH", pairPath+"?fieldManager=x", pair, apply...)
		},
	} {
		p := newMatching(t)
		uid := p.Must(t, 200, "GET", pairPath, "").Field("metadata", "uid")
		p.Must(t, 200, "DELETE", pairPath, "")
		p.Must(t, 404, "GET", pairPath, "")
		if list := p.Must(t, 200, "GET", planetest.RolesPath, ""); slices.Contains(list.Names(), "pair") {
			t.Errorf("a list has it: %s", list)
		}
		p.Must(t, 404, "DELETE", pairPath, "")
		p.Must(t, 404, "PATCH", pairPath, `{}`, merge...)
		other := strings.Replace(pair, `"verbs": ["get"]`, `"verbs": ["get", "delete"]`, 1)
		p.Must(t, 409, "POST", planetest.RolesPath, other)
		p.Must(t, 403, "PUT", pairPath, other)
		p.Must(t, 404, "GET", pairPath, "")
		if a := create(t, p); a.Field("metadata", "uid") == uid || metadata(a)["app.kubernetes.io/managed-by"] != "Helm" {
			t.Errorf("%s: %s", what, a)
		}
		p.Must(t, 200, "GET", pairPath, "")
		p.Must(t, 409, "POST", planetest.RolesPath, pair)
	}
}

// Nobody must forget what is in force: what a client has deleted comes back after the next push.
func TestWhatIsDeletedComesBackAfterAPush(t *testing.T) {
	p := newMatching(t)
	sweeper := rendered.Sweeper{Committer: p.Committer}
	sweep := func() {
		t.Helper()
		if err := sweeper.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	before := p.Must(t, 201, "POST", planetest.RolesPath, pair)
	w := p.Watch(t, planetest.RolesPath+"?watch=1&fieldSelector=metadata.name=pair")
	w.Next(t)
	p.Must(t, 200, "DELETE", pairPath, "")
	w.Next(t)
	sweep()
	p.Must(t, 404, "GET", pairPath, "")
	p.Activate(t, matching+gizmos)
	sweep()
	after := p.Must(t, 200, "GET", pairPath, "")
	if len(metadata(after)) > 0 || after.Field("metadata", "uid") == before.Field("metadata", "uid") {
		t.Errorf("before the delete %s\nafter a push %s", before, after)
	}
	if e := w.Next(t); e.Type != "ADDED" || fmt.Sprint(e.Object["metadata"].(map[string]any)["resourceVersion"]) != fmt.Sprint(planetest.Revision(t, after)) {
		t.Errorf("a watch: %v, and it is %s", e, after)
	}
	revision := p.Committer.Tip().Revision()
	if sweep(); p.Committer.Tip().Revision() != revision {
		t.Error("a second time, there was something to do")
	}
}

// An object never has a uid that another one had which clients have deleted.
func TestUIDsDoNotRepeat(t *testing.T) {
	p := newMatching(t)
	seen := map[string]bool{}
	for range 2 {
		for range 2 {
			p.Must(t, 200, "DELETE", pairPath, "")
			uid := fmt.Sprint(p.Must(t, 201, "POST", planetest.RolesPath, pair).Field("metadata", "uid"))
			if seen[uid] {
				t.Errorf("two objects have the uid %s", uid)
			}
			seen[uid] = true
		}
		p.Activate(t, planetest.Bundle)
		p.Activate(t, matching)
	}
}

func TestACreateIsThatOfANewObject(t *testing.T) {
	p := newMatching(t)
	// The uid of what was read elsewhere does not count.
	p.Must(t, 201, "POST", planetest.RolesPath, strings.Replace(pair, `"name": "pair"`, `"name": "pair", "uid": "of-another-cluster"`, 1))
	p.Namespace(t, "one")
	p.Must(t, 200, "DELETE", "/api/v1/namespaces/one", "")
	const bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/one/rolebindings"
	body := `{"metadata": {"name": "t:pairs"}, "subjects": [{"kind": "Group", "name": "x"}], "roleRef": {"kind": "ClusterRole", "name": "pair"}}`
	if a := p.Must(t, 403, "POST", bindings, body); !strings.Contains(a.String(), "NamespaceTerminating") {
		t.Errorf("in a namespace that is being deleted: %s", a)
	}
}

// The server fills in the rules of an aggregated role. A write may have none, or those, and no others.
func TestRulesOfAnAggregatedRole(t *testing.T) {
	p := newMatching(t)
	const view = planetest.RolesPath + "/view"
	there := p.Must(t, 200, "GET", view, "").Object()
	with := func(rules any) string {
		return as(t, there, func(o, meta map[string]any) { o["rules"] = rules })
	}
	p.Must(t, 200, "PUT", view, with([]any{}))
	p.Must(t, 200, "PUT", view, with(there["rules"]))
	more := append([]any{map[string]any{"apiGroups": []string{""}, "resources": []string{"secrets"}, "verbs": []string{"get"}}}, there["rules"].([]any)...)
	if a := p.Must(t, 403, "PUT", view, with(more)); !strings.Contains(a.String(), "part of every policy") {
		t.Errorf("with one more: %s", a)
	}
}

// Only annotations are the policy's own, by their names. A client that applies what it has read does not manage them.
func TestNamesOfThePolicy(t *testing.T) {
	p := newMatching(t)
	if a := p.Must(t, 200, "PATCH", pairPath, `{"metadata": {"labels": {"stele.dev/tier": "one"}}}`, merge...); a.Field("metadata", "labels", "stele.dev/tier") != "one" {
		t.Errorf("a label: %s", a)
	}
	a := p.Must(t, 200, "PATCH", pairPath+"?fieldManager=x", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"annotations": {"stele.dev/rule": "another", "a": "b"}}}`, apply...)
	if a.Field("metadata", "annotations", "stele.dev/rule") != "t/clusterRoles/pair" || a.Field("metadata", "annotations", "a") != "b" || strings.Contains(fmt.Sprint(a.Field("metadata", "managedFields")), "stele.dev/rule") {
		t.Errorf("an apply of an annotation: %s", a)
	}
}

// Argo CD and `kubectl apply --prune` delete only what discovery says that they may delete.
func TestDiscoverySaysThatObjectsCanBeWritten(t *testing.T) {
	p := newMatching(t)
	read, all := "[get list watch]", "[create delete get list patch update watch]"
	check := func(rbac, webhooks string) {
		t.Helper()
		for path, want := range map[string]string{planetest.RbacPath: rbac, "/apis/admissionregistration.k8s.io/v1": webhooks} {
			for _, r := range planetest.Into[metav1.APIResourceList](t, p.Must(t, 200, "GET", path, "")).APIResources {
				if got := fmt.Sprint(r.Verbs); got != want {
					t.Errorf("%s: %s, want %s", r.Name, got, want)
				}
			}
		}
	}
	check(all, read)
	p.Activate(t, planetest.Bundle)
	check(read, read)
}

// Writers that race are sent back, and none of what they write is lost, also on several replicas.
func TestRacingWritesOfOverlays(t *testing.T) {
	var store memlog.Store
	var replicas []*planetest.Replica
	for range 3 {
		replicas = append(replicas, planetest.StartReplica(t, store.Open(nil), 0))
	}
	replicas[0].Bootstrap(t, matching)
	for _, r := range replicas {
		planetest.WaitFor(t, func() bool { return r.Do("GET", pairPath, "").Code == 200 })
	}
	var group sync.WaitGroup
	for i := range 9 {
		group.Go(func() {
			label := fmt.Sprintf(`{"metadata": {"labels": {"l%d": "x"}}}`, i)
			if a := replicas[i%3].Do("PATCH", pairPath, label, merge...); a.Code != 200 {
				t.Errorf("%s: %s", label, a)
			}
		})
	}
	group.Wait()
	for i, r := range replicas {
		if got := metadata(r.Must(t, 200, "GET", pairPath, "")); len(got) != 9 {
			t.Errorf("replica %d: %v", i, got)
		}
	}
}

// Typed clients write Protocol Buffers, and what they have read.
func TestTypedClientsFindWhatAgrees(t *testing.T) {
	s := planetest.NewSite(t, 0)
	s.Activate(t, matching)
	ctx, roles := s.Context(), s.Typed().RbacV1().ClusterRoles()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "pair", Labels: map[string]string{"by": "operator"}}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get"}}, {APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"list"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
	}}
	must := planetest.Must[*rbacv1.ClusterRole](t)
	created := must(roles.Create(ctx, role, metav1.CreateOptions{}))
	if _, err := roles.Create(ctx, role, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a second create: %v", err)
	}
	stale := created.DeepCopy()
	created.Labels["by"] = "another"
	updated := must(roles.Update(ctx, created, metav1.UpdateOptions{}))
	if updated.Labels["by"] != "another" || updated.UID != created.UID || len(updated.ManagedFields) == 0 {
		t.Errorf("an update: %v", updated)
	}
	if _, err := roles.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update of what was read before: %v", err)
	}
	applied := rbacv1ac.ClusterRole("pair").WithLabels(map[string]string{"by": "flux"}).WithRules(rbacv1ac.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithVerbs("get"),
		rbacv1ac.PolicyRule().WithAPIGroups("example.com").WithResources("widgets").WithVerbs("get", "list"))
	if _, err := roles.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "flux"}); !apierrors.IsConflict(err) {
		t.Errorf("an apply of the label of another: %v", err)
	}
	live := must(roles.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "flux", Force: true}))
	// Flux applies as a dry run, and compares with what is there.
	dry := must(roles.Apply(ctx, applied, metav1.ApplyOptions{FieldManager: "flux", Force: true, DryRun: []string{"All"}}))
	if diff := cmp.Diff(live, dry); diff != "" {
		t.Errorf("a dry run of what is there (-live +dry):\n%s", diff)
	}
	if err := roles.Delete(ctx, "pair", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &live.UID}}); err != nil {
		t.Error(err)
	}
	if _, err := roles.Get(ctx, "pair", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
	if again := must(roles.Create(ctx, role, metav1.CreateOptions{})); again.UID == live.UID || again.Labels["by"] != "operator" {
		t.Errorf("after the delete: %v", again)
	}
}
