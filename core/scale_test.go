package core_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"stele.dev/stele/eventlog/memlog"
)

// scaled is the bundle whose widgets have a scale, and rules about it.
var scaled = strings.NewReplacer(
	"	ports?: [...", `	replicas?: int & <=1000
		ports?: [...`,
	"status?: {ready?: bool", "status?: {replicas?: int, selector?: string, ready?: bool",
	"subresources: status: {}", `subresources: {status: {}, scale: {specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas", labelSelectorPath: ".status.selector"}}`,
	"		rbac: {", `		admission: validate: "few": {
			match: {apiGroups: ["example.com"], resources: ["widgets/scale"]}
			validations: max: {
				expression:        "object.spec.replicas <= 100 && oldObject.metadata.name != 'frozen'"
				messageExpression: "request.kind.kind + ' of ' + request.resource.resource + ' to ' + string(object.spec.replicas)"
			}
		}
		rbac: {
			clusterRoles: scalers: rules: r: {apiGroups: ["example.com"], resources: ["widgets/scale"], verbs: ["get", "update", "patch"]}
			bindings: scalers: {clusterRole: "scalers", subjects: [{group: "scalers"}], namespaces: ["default"]}
			clusterRoles: growers: rules: r: {apiGroups: ["example.com"], resources: ["widgets/scale"], verbs: ["update", "patch"]}
			bindings: growers: {clusterRole: "growers", subjects: [{group: "growers"}], namespaces: ["default"], when: "object.spec.replicas > oldObject.spec.replicas"}`,
).Replace(bundle)

func newScaledPlane(t testing.TB) *replica {
	t.Helper()
	var store memlog.Store
	p := start(t, store.Open(nil), 0)
	p.bootstrap(t, scaled)
	return p
}

func scaledWidget(name, replicas string) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q},"spec":{"size":1%s}}`, name, replicas)
}

const mergePatch = "application/merge-patch+json"

func TestScale(t *testing.T) {
	p := newScaledPlane(t)
	created := p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
	p.must(t, 200, "PATCH", widgetsPath+"/a/status", `{"status":{"replicas":2,"selector":"app=a"}}`, "Content-Type", mergePatch)
	a := p.must(t, 200, "GET", widgetsPath+"/a/scale", "")
	meta := map[string]any{}
	for _, f := range []string{"name", "namespace", "uid", "creationTimestamp"} {
		meta[f] = created.field("metadata", f)
	}
	meta["resourceVersion"] = fmt.Sprint(p.committer.Tip().Revision())
	want := map[string]any{"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
		"spec": map[string]any{"replicas": 3.0}, "status": map[string]any{"replicas": 2.0, "selector": "app=a"}}
	if diff := cmp.Diff(want, a.object()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// What was read can be written back, with other replicas: the object has a new generation.
	body := strings.Replace(string(a.body), `"replicas":3`, `"replicas":5`, 1)
	a = p.must(t, 200, "PUT", widgetsPath+"/a/scale", body)
	if a.field("kind") != "Scale" || a.field("spec", "replicas") != 5.0 || a.field("metadata", "resourceVersion") != fmt.Sprint(p.committer.Tip().Revision()) {
		t.Errorf("update: %s", a)
	}
	if o := p.must(t, 200, "GET", widgetsPath+"/a", ""); o.field("spec", "replicas") != 5.0 || o.field("spec", "size") != 1.0 || o.field("metadata", "generation") != 2.0 || o.field("status", "replicas") != 2.0 {
		t.Errorf("the object: %s", o)
	}
	p.must(t, 409, "PUT", widgetsPath+"/a/scale", body) // it has an old resourceVersion
	if a := p.must(t, 200, "PUT", widgetsPath+"/a/scale", `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":6}}`); a.field("spec", "replicas") != 6.0 {
		t.Errorf("without a resourceVersion: %s", a)
	}
	if a := p.must(t, 200, "PATCH", widgetsPath+"/a/scale", `{"spec":{"replicas":7},"status":{"replicas":77},"metadata":{"labels":{"x":"y"}}}`, "Content-Type", mergePatch); a.field("spec", "replicas") != 7.0 || a.field("status", "replicas") != 2.0 || a.field("metadata", "labels") != nil {
		t.Errorf("merge patch: %s", a)
	}
	p.must(t, 200, "PATCH", widgetsPath+"/a/scale", `[{"op":"test","path":"/spec/replicas","value":7},{"op":"replace","path":"/spec/replicas","value":8}]`, "Content-Type", "application/json-patch+json")
	before := p.committer.Tip().Revision()
	if a := p.must(t, 200, "PATCH", widgetsPath+"/a/scale", `{"spec":{"replicas":8}}`, "Content-Type", mergePatch); a.field("kind") != "Scale" || p.committer.Tip().Revision() != before {
		t.Errorf("a patch that changes nothing: %s", a)
	}
	if a := p.must(t, 200, "PATCH", widgetsPath+"/a/scale?dryRun=All", `{"spec":{"replicas":9}}`, "Content-Type", mergePatch); a.field("spec", "replicas") != 9.0 || p.committer.Tip().Revision() != before {
		t.Errorf("dry run: %s", a)
	}
	table := p.must(t, 200, "GET", widgetsPath+"/a/scale", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if cells := fmt.Sprint(table.field("rows").([]any)[0].(map[string]any)["cells"].([]any)[:3]); cells != "[a 8 2]" {
		t.Errorf("as a table: %s", cells)
	}
}

// Nothing of what is wrong with a scale is written, and the texts are upstream's.
func TestScaleRefuses(t *testing.T) {
	p := newScaledPlane(t)
	p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
	p.must(t, 201, "POST", widgetsPath, scaledWidget("without", ""))
	p.must(t, 201, "POST", widgetsPath, scaledWidget("frozen", `,"replicas":3`))
	before := p.committer.Tip().Revision()
	const json = "application/json"
	for _, tc := range []struct {
		name, method, path, contentType, body string
		code                                  int
		message                               string
	}{
		{"of what is not there", "GET", "none/scale", json, "", 404, `widgets.example.com "none" not found`},
		{"a write to what is not there", "PUT", "none/scale", json, `{"kind":"Scale","metadata":{"name":"none"},"spec":{"replicas":1}}`, 404, "not found"},
		{"of what has no replicas", "GET", "without/scale", json, "", 500, `the spec replicas field ".spec.replicas" does not exist`},
		{"a patch that leaves no replicas", "PATCH", "without/scale", mergePatch, `{}`, 400, `the spec replicas field ".spec.replicas" cannot be empty`},
		{"another name", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"b"},"spec":{"replicas":1}}`, 400, "does not match the name on the URL"},
		{"another namespace", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"a","namespace":"b"},"spec":{"replicas":1}}`, 400, "does not match the namespace sent on the request"},
		{"another uid", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"a","uid":"b"},"spec":{"replicas":1}}`, 409, "Precondition failed: UID in precondition: b"},
		{"another kind", "PUT", "a/scale", json, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`, 400, "does not match the expected API version (autoscaling/v1)"},
		{"no number", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":"1"}}`, 400, "cannot unmarshal string"},
		{"fewer than none", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":-1}}`, 422, "should be a non-negative integer"},
		{"more than the schema allows", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":1001}}`, 422, "spec.replicas"},
		{"more than a rule allows", "PUT", "a/scale", json, `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":101}}`, 422, "Scale of widgets to 101"},
		{"a rule about what is there", "PUT", "frozen/scale", json, `{"kind":"Scale","metadata":{"name":"frozen"},"spec":{"replicas":1}}`, 422, "Scale of widgets to 1"},
		{"an unknown field", "PUT", "a/scale?fieldValidation=Strict", json, `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":1,"x":1}}`, 400, `unknown field "spec.x"`},
		{"a strategic merge patch", "PATCH", "a/scale", "application/strategic-merge-patch+json", `{}`, 415, "application/merge-patch+json"},
		{"a create", "POST", "a/scale", json, `{}`, 405, "not supported"},
		{"a delete", "DELETE", "a/scale", json, "", 405, "not supported"},
		{"of an object itself: more than an int32", "PUT", "a", json, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","resourceVersion":"1"},"spec":{"size":1,"replicas":-4}}`, 409, ""},
		{"of a new object: fewer than none", "POST", "", json, scaledWidget("b", `,"replicas":-1`), 422, "should be a non-negative integer"},
		{"of a status: fewer than none", "PATCH", "a/status", mergePatch, `{"status":{"replicas":-1}}`, 422, ".status.replicas"},
	} {
		a := p.do(tc.method, strings.TrimSuffix(widgetsPath+"/"+tc.path, "/"), tc.body, "Content-Type", tc.contentType)
		if a.code != tc.code || !strings.Contains(fmt.Sprint(a.field("message")), tc.message) {
			t.Errorf("%s: %s, want %d %s", tc.name, a, tc.code, tc.message)
		}
	}
	if after := p.committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// The scale has permissions of its own, and conditions on them are about Scales.
func TestScaleHasPermissionsOfItsOwn(t *testing.T) {
	p := newScaledPlane(t)
	p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
	as := func(group string) []string {
		return []string{"Impersonate-User", "sue", "Impersonate-Group", group, "Content-Type", mergePatch}
	}
	scale := func(group string, replicas int) int {
		return p.do("PATCH", widgetsPath+"/a/scale", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), as(group)...).code
	}
	p.must(t, 200, "GET", widgetsPath+"/a/scale", "", as("scalers")...)
	p.must(t, 403, "GET", widgetsPath+"/a", "", as("scalers")...)
	p.must(t, 403, "PATCH", widgetsPath+"/a", `{"spec":{"replicas":4}}`, as("scalers")...)
	for _, tc := range []struct {
		group    string
		replicas int
		code     int
	}{{"scalers", 4, 200}, {"nobodies", 5, 403}, {"growers", 3, 403}, {"growers", 5, 200}, {"scalers", 1, 200}} {
		if code := scale(tc.group, tc.replicas); code != tc.code {
			t.Errorf("%s to %d: %d, want %d", tc.group, tc.replicas, code, tc.code)
		}
	}
}

// Clients find the scale, and the definition says it.
func TestScaleIsFound(t *testing.T) {
	p := newScaledPlane(t)
	list := p.must(t, 200, "GET", "/apis/example.com/v1", "")
	want := map[string]any{"name": "widgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": []any{"get", "patch", "update"}}
	found := false
	for _, r := range list.field("resources").([]any) {
		found = found || cmp.Equal(any(want), r)
	}
	if !found {
		t.Errorf("not in %s", list)
	}
	all := p.must(t, 200, "GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if !strings.Contains(string(all.body), `{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","patch","update"]}`) {
		t.Errorf("not in %s", all)
	}
	definition := p.must(t, 200, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "")
	version := definition.field("spec", "versions").([]any)[0].(map[string]any)
	if diff := cmp.Diff(map[string]any{"status": map[string]any{}, "scale": map[string]any{
		"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}, version["subresources"]); diff != "" {
		t.Errorf("the definition (-want +got):\n%s", diff)
	}
	doc := p.must(t, 200, "GET", "/openapi/v3/apis/example.com/v1", "").object()
	paths := doc["paths"].(map[string]any)
	if paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale"] == nil || doc["components"].(map[string]any)["schemas"].(map[string]any)["io.k8s.api.autoscaling.v1.Scale"] == nil {
		t.Errorf("OpenAPI does not have it")
	}
}

// Typed clients may send Scales as Protocol Buffers.
func TestScaleAsProtobuf(t *testing.T) {
	p := newScaledPlane(t)
	p.must(t, 201, "POST", widgetsPath, scaledWidget("a", `,"replicas":3`))
	scheme := runtime.NewScheme()
	if err := autoscalingv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	scale := &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: autoscalingv1.ScaleSpec{Replicas: 6}}
	if err := protobuf.NewSerializer(scheme, scheme).Encode(scale, &body); err != nil {
		t.Fatal(err)
	}
	if a := p.must(t, 200, "PUT", widgetsPath+"/a/scale", body.String(), "Content-Type", "application/vnd.kubernetes.protobuf"); a.field("spec", "replicas") != 6.0 {
		t.Errorf("answered with %s", a)
	}
}

// Who sets replicas through the scale has set them in the object, and nobody else has.
func TestScaleSaysWhoSetReplicas(t *testing.T) {
	p := newScaledPlane(t)
	apply := func(path, manager, body string) answer {
		return p.do("PATCH", widgetsPath+path+"?fieldManager="+manager, body, "Content-Type", "application/apply-patch+yaml")
	}
	const spec, replicas = `{"f:spec":{"f:size":{}}}`, `{"f:spec":{"f:replicas":{}}}`
	both := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"replicas":3}}`
	scale := func(n int) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":%d}}`, n)
	}
	owners := func() map[string]string { return p.must(t, 200, "GET", widgetsPath+"/a", "").owners(t) }
	if a := apply("/a", "gitops", both); a.code != 201 {
		t.Fatal(a)
	}
	if a := p.do("PATCH", widgetsPath+"/a/scale?fieldManager=scaler", `{"spec":{"replicas":5}}`, "Content-Type", mergePatch); a.code != 200 {
		t.Fatal(a)
	}
	want := map[string]string{"gitops Apply example.com/v1": spec, "scaler Update example.com/v1 scale": replicas}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("after a patch (-want +got):\n%s", diff)
	}
	if a := apply("/a", "gitops", both); a.code != 409 || !bytes.Contains(a.body, []byte(`conflict with \"scaler\" with subresource \"scale\"`)) {
		t.Errorf("applied over the scaler: %s", a)
	}
	p.must(t, 200, "PUT", widgetsPath+"/a/scale?fieldManager=autoscaler", scale(6))
	want = map[string]string{"gitops Apply example.com/v1": spec, "autoscaler Update example.com/v1 scale": replicas}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("after an update (-want +got):\n%s", diff)
	}

	// It can be applied, too.
	if a := apply("/a/scale", "hpa", scale(7)); a.code != 409 {
		t.Errorf("applied over the autoscaler: %s", a)
	}
	if a := apply("/a/scale", "hpa", scale(7)+"\n"); a.code != 409 {
		t.Errorf("applied as YAML: %s", a)
	}
	a := apply("/a/scale", "hpa&force=true", scale(7))
	if a.code != 200 || a.field("kind") != "Scale" || a.field("spec", "replicas") != 7.0 || a.field("metadata", "managedFields") != nil {
		t.Errorf("applied by force: %s", a)
	}
	want = map[string]string{"gitops Apply example.com/v1": spec, "hpa Apply example.com/v1 scale": replicas}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("after it is applied (-want +got):\n%s", diff)
	}
	revision := p.committer.Tip().Revision()
	if a := apply("/a/scale", "hpa", scale(7)); a.code != 200 || p.committer.Tip().Revision() != revision {
		t.Errorf("applied again: %s, at %d, not %d", a, p.committer.Tip().Revision(), revision)
	}
	// To set what is so is no change, whoever else manages what.
	p.must(t, 200, "PATCH", widgetsPath+"/a?fieldManager=z", `{"metadata":{"annotations":{"z":"<","a":"b"},"finalizers":["x.io/z","x.io/a"]},"spec":{"ports":[{"name":"b","port":2},{"name":"a","port":1}]}}`, "Content-Type", mergePatch)
	p.must(t, 200, "PATCH", widgetsPath+"/a/status?fieldManager=controller", `{"status":{"replicas":2,"ready":true}}`, "Content-Type", mergePatch)
	revision = p.committer.Tip().Revision()
	p.must(t, 200, "PATCH", widgetsPath+"/a/scale?fieldManager=scaler", `{"spec":{"replicas":7}}`, "Content-Type", mergePatch)
	p.must(t, 200, "PUT", widgetsPath+"/a/scale?fieldManager=scaler", scale(7))
	if after := p.committer.Tip().Revision(); after != revision {
		t.Errorf("the log went from %d to %d", revision, after)
	}
	for name, tc := range map[string]struct {
		path, body string
		code       int
	}{
		"another kind":  {"/a/scale", both, 400},
		"not there":     {"/none/scale", scale(1), 404},
		"another name":  {"/a/scale", strings.Replace(scale(1), `"a"`, `"b"`, 1), 400},
		"unknown field": {"/a/scale", strings.Replace(scale(1), `"replicas"`, `"replica"`, 1), 400},
		"no number":     {"/a/scale", strings.Replace(scale(1), `1}`, `"x"}`, 1), 400},
		"too large":     {"/a/scale", scale(1<<32 + 1), 400},
		"against rules": {"/a/scale", scale(101), 422},
		"no YAML":       {"/a/scale", "{", 400},
	} {
		if a := apply(tc.path, "hpa", tc.body); a.code != tc.code {
			t.Errorf("%s: %s", name, a)
		}
	}
}
