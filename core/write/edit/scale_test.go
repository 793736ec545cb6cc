package edit_test

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
	"stele.dev/stele/core/run/plane/planetest"
)

func TestScale(t *testing.T) {
	p := planetest.NewScaledPlane(t)
	created := p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status", `{"status":{"replicas":2,"selector":"app=a"}}`, "Content-Type", planetest.MergePatch)
	a := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a/scale", "")
	meta := map[string]any{}
	for _, f := range []string{"name", "namespace", "uid", "creationTimestamp"} {
		meta[f] = created.Field("metadata", f)
	}
	meta["resourceVersion"] = fmt.Sprint(p.Committer.Tip().Revision())
	want := map[string]any{"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta,
		"spec": map[string]any{"replicas": 3.0}, "status": map[string]any{"replicas": 2.0, "selector": "app=a"}}
	if diff := cmp.Diff(want, a.Object()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// What was read can be written back, with other replicas: the object has a new generation.
	body := strings.Replace(string(a.Body), `"replicas":3`, `"replicas":5`, 1)
	a = p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/scale", body)
	if a.Field("kind") != "Scale" || a.Field("spec", "replicas") != 5.0 || a.Field("metadata", "resourceVersion") != fmt.Sprint(p.Committer.Tip().Revision()) {
		t.Errorf("update: %s", a)
	}
	if o := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", ""); o.Field("spec", "replicas") != 5.0 || o.Field("spec", "size") != 1.0 || o.Field("metadata", "generation") != 2.0 || o.Field("status", "replicas") != 2.0 {
		t.Errorf("the object: %s", o)
	}
	p.Must(t, 409, "PUT", planetest.WidgetsPath+"/a/scale", body) // it has an old resourceVersion
	if a := p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/scale", `{"kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":6}}`); a.Field("spec", "replicas") != 6.0 {
		t.Errorf("without a resourceVersion: %s", a)
	}
	if a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `{"spec":{"replicas":7},"status":{"replicas":77},"metadata":{"labels":{"x":"y"}}}`, "Content-Type", planetest.MergePatch); a.Field("spec", "replicas") != 7.0 || a.Field("status", "replicas") != 2.0 || a.Field("metadata", "labels") != nil {
		t.Errorf("merge patch: %s", a)
	}
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `[{"op":"test","path":"/spec/replicas","value":7},{"op":"replace","path":"/spec/replicas","value":8}]`, "Content-Type", "application/json-patch+json")
	before := p.Committer.Tip().Revision()
	if a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale", `{"spec":{"replicas":8}}`, "Content-Type", planetest.MergePatch); a.Field("kind") != "Scale" || p.Committer.Tip().Revision() != before {
		t.Errorf("a patch that changes nothing: %s", a)
	}
	if a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale?dryRun=All", `{"spec":{"replicas":9}}`, "Content-Type", planetest.MergePatch); a.Field("spec", "replicas") != 9.0 || p.Committer.Tip().Revision() != before {
		t.Errorf("dry run: %s", a)
	}
	table := p.Must(t, 200, "GET", planetest.WidgetsPath+"/a/scale", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if cells := fmt.Sprint(table.Field("rows").([]any)[0].(map[string]any)["cells"].([]any)[:3]); cells != "[a 8 2]" {
		t.Errorf("as a table: %s", cells)
	}
}

// Nothing of what is wrong with a scale is written, and the texts are upstream's.
func TestScaleRefuses(t *testing.T) {
	p := planetest.NewScaledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("without", ""))
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("frozen", `,"replicas":3`))
	before := p.Committer.Tip().Revision()
	const json = "application/json"
	for _, tc := range []struct {
		name, method, path, contentType, body string
		code                                  int
		message                               string
	}{
		{"of what is not there", "GET", "none/scale", json, "", 404, `widgets.example.com "none" not found`},
		{"a write to what is not there", "PUT", "none/scale", json, `{"kind":"Scale","metadata":{"name":"none"},"spec":{"replicas":1}}`, 404, "not found"},
		{"of what has no replicas", "GET", "without/scale", json, "", 500, `the spec replicas field ".spec.replicas" does not exist`},
		{"a patch that leaves no replicas", "PATCH", "without/scale", planetest.MergePatch, `{}`, 400, `the spec replicas field ".spec.replicas" cannot be empty`},
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
		{"of a new object: fewer than none", "POST", "", json, planetest.ScaledWidget("b", `,"replicas":-1`), 422, "should be a non-negative integer"},
		{"of a status: fewer than none", "PATCH", "a/status", planetest.MergePatch, `{"status":{"replicas":-1}}`, 422, ".status.replicas"},
	} {
		a := p.Do(tc.method, strings.TrimSuffix(planetest.WidgetsPath+"/"+tc.path, "/"), tc.body, "Content-Type", tc.contentType)
		if a.Code != tc.code || !strings.Contains(fmt.Sprint(a.Field("message")), tc.message) {
			t.Errorf("%s: %s, want %d %s", tc.name, a, tc.code, tc.message)
		}
	}
	if after := p.Committer.Tip().Revision(); after != before {
		t.Errorf("the log went from %d to %d", before, after)
	}
}

// The scale has permissions of its own, and conditions on them are about Scales.
func TestScaleHasPermissionsOfItsOwn(t *testing.T) {
	p := planetest.NewScaledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
	as := func(group string) []string {
		return []string{"Impersonate-User", "sue", "Impersonate-Group", group, "Content-Type", planetest.MergePatch}
	}
	scale := func(group string, replicas int) int {
		return p.Do("PATCH", planetest.WidgetsPath+"/a/scale", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas), as(group)...).Code
	}
	p.Must(t, 200, "GET", planetest.WidgetsPath+"/a/scale", "", as("scalers")...)
	p.Must(t, 403, "GET", planetest.WidgetsPath+"/a", "", as("scalers")...)
	p.Must(t, 403, "PATCH", planetest.WidgetsPath+"/a", `{"spec":{"replicas":4}}`, as("scalers")...)
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
	p := planetest.NewScaledPlane(t)
	list := p.Must(t, 200, "GET", "/apis/example.com/v1", "")
	want := map[string]any{"name": "widgets/scale", "singularName": "", "namespaced": true, "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": []any{"get", "patch", "update"}}
	found := false
	for _, r := range list.Field("resources").([]any) {
		found = found || cmp.Equal(any(want), r)
	}
	if !found {
		t.Errorf("not in %s", list)
	}
	all := p.Must(t, 200, "GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if !strings.Contains(string(all.Body), `{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","patch","update"]}`) {
		t.Errorf("not in %s", all)
	}
	definition := p.Must(t, 200, "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "")
	version := definition.Field("spec", "versions").([]any)[0].(map[string]any)
	if diff := cmp.Diff(map[string]any{"status": map[string]any{}, "scale": map[string]any{
		"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}, version["subresources"]); diff != "" {
		t.Errorf("the definition (-want +got):\n%s", diff)
	}
	doc := p.Must(t, 200, "GET", "/openapi/v3/apis/example.com/v1", "").Object()
	paths := doc["paths"].(map[string]any)
	if paths["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/scale"] == nil || doc["components"].(map[string]any)["schemas"].(map[string]any)["io.k8s.api.autoscaling.v1.Scale"] == nil {
		t.Errorf("OpenAPI does not have it")
	}
}

// Typed clients may send Scales as Protocol Buffers.
func TestScaleAsProtobuf(t *testing.T) {
	p := planetest.NewScaledPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, planetest.ScaledWidget("a", `,"replicas":3`))
	scheme := runtime.NewScheme()
	if err := autoscalingv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var body bytes.Buffer
	scale := &autoscalingv1.Scale{TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: autoscalingv1.ScaleSpec{Replicas: 6}}
	if err := protobuf.NewSerializer(scheme, scheme).Encode(scale, &body); err != nil {
		t.Fatal(err)
	}
	if a := p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/scale", body.String(), "Content-Type", "application/vnd.kubernetes.protobuf"); a.Field("spec", "replicas") != 6.0 {
		t.Errorf("answered with %s", a)
	}
}

// Who sets replicas through the scale has set them in the object, and nobody else has.
func TestScaleSaysWhoSetReplicas(t *testing.T) {
	p := planetest.NewScaledPlane(t)
	apply := func(path, manager, body string) planetest.Answer {
		return p.Do("PATCH", planetest.WidgetsPath+path+"?fieldManager="+manager, body, "Content-Type", "application/apply-patch+yaml")
	}
	const spec, replicas = `{"f:spec":{"f:size":{}}}`, `{"f:spec":{"f:replicas":{}}}`
	both := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"size":1,"replicas":3}}`
	scale := func(n int) string {
		return fmt.Sprintf(`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"a"},"spec":{"replicas":%d}}`, n)
	}
	owners := func() map[string]string { return p.Must(t, 200, "GET", planetest.WidgetsPath+"/a", "").Owners(t) }
	if a := apply("/a", "gitops", both); a.Code != 201 {
		t.Fatal(a)
	}
	if a := p.Do("PATCH", planetest.WidgetsPath+"/a/scale?fieldManager=scaler", `{"spec":{"replicas":5}}`, "Content-Type", planetest.MergePatch); a.Code != 200 {
		t.Fatal(a)
	}
	want := map[string]string{"gitops Apply example.com/v1": spec, "scaler Update example.com/v1 scale": replicas}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("after a patch (-want +got):\n%s", diff)
	}
	if a := apply("/a", "gitops", both); a.Code != 409 || !bytes.Contains(a.Body, []byte(`conflict with \"scaler\" with subresource \"scale\"`)) {
		t.Errorf("applied over the scaler: %s", a)
	}
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/scale?fieldManager=autoscaler", scale(6))
	want = map[string]string{"gitops Apply example.com/v1": spec, "autoscaler Update example.com/v1 scale": replicas}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("after an update (-want +got):\n%s", diff)
	}

	// It can be applied, too.
	if a := apply("/a/scale", "hpa", scale(7)); a.Code != 409 {
		t.Errorf("applied over the autoscaler: %s", a)
	}
	if a := apply("/a/scale", "hpa", scale(7)+"\n"); a.Code != 409 {
		t.Errorf("applied as YAML: %s", a)
	}
	a := apply("/a/scale", "hpa&force=true", scale(7))
	if a.Code != 200 || a.Field("kind") != "Scale" || a.Field("spec", "replicas") != 7.0 || a.Field("metadata", "managedFields") != nil {
		t.Errorf("applied by force: %s", a)
	}
	want = map[string]string{"gitops Apply example.com/v1": spec, "hpa Apply example.com/v1 scale": replicas}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Errorf("after it is applied (-want +got):\n%s", diff)
	}
	revision := p.Committer.Tip().Revision()
	if a := apply("/a/scale", "hpa", scale(7)); a.Code != 200 || p.Committer.Tip().Revision() != revision {
		t.Errorf("applied again: %s, at %d, not %d", a, p.Committer.Tip().Revision(), revision)
	}
	// To set what is so is no change, whoever else manages what.
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a?fieldManager=z", `{"metadata":{"annotations":{"z":"<","a":"b"},"finalizers":["x.io/z","x.io/a"]},"spec":{"ports":[{"name":"b","port":2},{"name":"a","port":1}]}}`, "Content-Type", planetest.MergePatch)
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/status?fieldManager=controller", `{"status":{"replicas":2,"ready":true}}`, "Content-Type", planetest.MergePatch)
	revision = p.Committer.Tip().Revision()
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/a/scale?fieldManager=scaler", `{"spec":{"replicas":7}}`, "Content-Type", planetest.MergePatch)
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/a/scale?fieldManager=scaler", scale(7))
	if after := p.Committer.Tip().Revision(); after != revision {
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
		if a := apply(tc.path, "hpa", tc.body); a.Code != tc.code {
			t.Errorf("%s: %s", name, a)
		}
	}
}
