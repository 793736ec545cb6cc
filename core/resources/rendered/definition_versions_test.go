package rendered_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

// twoForms are gadgets whose versions have different schemas; which one is stored is said.
func twoForms(storage string) string {
	text := `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets}
  versions:
  - name: v1
    served: true
    storage: false
    subresources: {scale: {specReplicasPath: .spec.count, statusReplicasPath: .status.count}}
    selectableFields: [{jsonPath: .spec.size}]
    additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, default: 1}, mode: {type: string}, count: {type: integer}}
            x-kubernetes-validations: [{rule: self.size < 5, message: too large for v1}]
          status: {type: object, properties: {count: {type: integer}}}
  - name: v1beta1
    served: true
    storage: false
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties: {size: {type: integer, maximum: 10}, color: {type: string, default: blue}}
`
	return strings.Replace(text, "name: "+storage+"\n    served: true\n    storage: false", "name: "+storage+"\n    served: true\n    storage: true", 1)
}

func newTwoForms(t *testing.T) *planetest.Replica {
	t.Helper()
	p := planetest.NewPlane(t)
	p.PushGadgets(t, twoForms("v1"))
	return p
}

const gadgetsBeta = "/apis/example.com/v1beta1/namespaces/default/gadgets"

func gadgetIn(version, spec string) string {
	return `{"apiVersion": "example.com/` + version + `", "kind": "Gadget", "metadata": {"name": "a"}, "spec": ` + spec + `}`
}

func gadgetSpec(r *planetest.Replica, t *testing.T, path string, want map[string]any) {
	t.Helper()
	if diff := cmp.Diff(want, r.Must(t, 200, "GET", path+"/a", "").Field("spec")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
	list := r.Must(t, 200, "GET", path, "").Field("items").([]any)
	if diff := cmp.Diff(want, list[0].(map[string]any)["spec"]); diff != "" {
		t.Errorf("listed at %s (-want +got):\n%s", path, diff)
	}
}

func TestEachVersionHasItsOwnSchema(t *testing.T) {
	p := newTwoForms(t)
	created := p.Must(t, 201, "POST", planetest.GadgetsPath, gadgetIn("v1", `{"mode": "fast", "color": "red"}`))
	if got, want := created.Header.Get("Warning"), `299 - "unknown field \"spec.color\""`; got != want {
		t.Errorf("it warns %s, want %s", got, want)
	}
	gadgetSpec(p, t, planetest.GadgetsPath, map[string]any{"size": 1.0, "mode": "fast"})
	gadgetSpec(p, t, gadgetsBeta, map[string]any{"size": 1.0})

	// What a version does not know is lost when an object is written in it, as in Kubernetes.
	p.Must(t, 200, "PATCH", gadgetsBeta+"/a", `{"spec": {"size": 7}}`, "Content-Type", "application/merge-patch+json")
	gadgetSpec(p, t, gadgetsBeta, map[string]any{"size": 7.0})
	gadgetSpec(p, t, planetest.GadgetsPath, map[string]any{"size": 7.0})

	// Each version validates what is written in it.
	if a := p.Must(t, 422, "PATCH", planetest.GadgetsPath+"/a", `{"spec": {"mode": "x", "size": 8}}`, "Content-Type", "application/merge-patch+json"); !strings.Contains(a.String(), "too large for v1") {
		t.Errorf("%s", a)
	}
	if a := p.Must(t, 422, "PATCH", gadgetsBeta+"/a", `{"spec": {"size": 11}}`, "Content-Type", "application/merge-patch+json"); !strings.Contains(a.String(), "should be less than or equal to 10") {
		t.Errorf("%s", a)
	}

	// The scale is one of the version that has one.
	p.Must(t, 404, "GET", gadgetsBeta+"/a/scale", "")
	p.Must(t, 200, "PATCH", gadgetsBeta+"/a", `{"spec": {"size": 4}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "PATCH", planetest.GadgetsPath+"/a/scale", `{"spec": {"replicas": 3}}`, "Content-Type", "application/merge-patch+json")
	gadgetSpec(p, t, planetest.GadgetsPath, map[string]any{"size": 4.0, "count": 3.0})
	gadgetSpec(p, t, gadgetsBeta, map[string]any{"size": 4.0})
}

// An update that removes the last finalizer of what is being deleted is answered as it was written. It is never stored and read, so it keeps
// fields that the stored version does not know.
func TestAnUpdateThatEndsAnObjectIsAnsweredAsItWasWritten(t *testing.T) {
	p := newTwoForms(t)
	written := `{"apiVersion": "example.com/v1beta1", "kind": "Gadget", "metadata": {"name": "a", %s}, "spec": {"size": 3, "color": "red"}}`
	p.Must(t, 201, "POST", gadgetsBeta, fmt.Sprintf(written, `"finalizers": ["example.com/x"]`))
	marked := p.Must(t, 200, "DELETE", gadgetsBeta+"/a", "")
	ended := p.Must(t, 200, "PUT", gadgetsBeta+"/a", fmt.Sprintf(written, fmt.Sprintf(`"resourceVersion": %q`, marked.Field("metadata", "resourceVersion"))))
	if diff := cmp.Diff(map[string]any{"size": 3.0, "color": "red"}, ended.Field("spec")); diff != "" || ended.Field("apiVersion") != "example.com/v1beta1" {
		t.Errorf("%s (-want +got):\n%s", ended, diff)
	}
	p.Must(t, 404, "GET", gadgetsBeta+"/a", "")
}

func TestFormsOfVersionsInTablesSelectorsAndOpenAPI(t *testing.T) {
	p := newTwoForms(t)
	p.Must(t, 201, "POST", planetest.GadgetsPath, gadgetIn("v1", `{"size": 2, "mode": "fast"}`))
	for path, want := range map[string]string{planetest.GadgetsPath: `"cells":["a",2]`, gadgetsBeta: `"cells":["a",null]`} {
		if a := p.Must(t, 200, "GET", path, "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"); !strings.Contains(a.String(), want) {
			t.Errorf("%s: %s, want %s", path, a, want)
		}
	}
	p.Must(t, 200, "GET", planetest.GadgetsPath+"?fieldSelector=spec.size%3D2", "")
	p.Must(t, 400, "GET", gadgetsBeta+"?fieldSelector=spec.size%3D2", "")
	for path, want := range map[string]string{"v1": `"mode"`, "v1beta1": `"color"`} {
		if a := p.Must(t, 200, "GET", "/openapi/v3/apis/example.com/"+path, ""); !strings.Contains(a.String(), want) {
			t.Errorf("the document of %s has no %s", path, want)
		}
	}
}

func TestAWatchHasTheFormOfItsVersion(t *testing.T) {
	p := newTwoForms(t)
	w := p.Watch(t, gadgetsBeta+"?watch=1")
	p.Must(t, 201, "POST", planetest.GadgetsPath, gadgetIn("v1", `{"size": 2, "mode": "fast"}`))
	e := w.Next(t)
	if diff := cmp.Diff(map[string]any{"size": 2.0}, e.Object["spec"]); diff != "" || e.Object["apiVersion"] != "example.com/v1beta1" {
		t.Errorf("%v", e.Object)
	}
}

// Another version that is stored, with another form, is what objects are converted to; the
// log still has them as they were written, and a start from it comes to the same.
func TestAnotherFormIsStored(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, planetest.Bundle)
	p.PushGadgets(t, twoForms("v1"))
	p.Must(t, 201, "POST", planetest.GadgetsPath, gadgetIn("v1", `{"mode": "fast"}`))
	before := p.Committer.Tip().Revision()
	next := planetest.WithGadgets(t, twoForms("v1beta1"))
	next.Spec.DropFields = true
	body, err := json.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	p.Push(t, string(body))
	gadgetSpec(p, t, gadgetsBeta, map[string]any{"size": 1.0, "color": "blue"})
	gadgetSpec(p, t, planetest.GadgetsPath, map[string]any{"size": 1.0})
	again := planetest.StartReplica(t, store.Open(nil), 0)
	gadgetSpec(again, t, gadgetsBeta, map[string]any{"size": 1.0, "color": "blue"})
	then := p.Must(t, 200, "GET", fmt.Sprint("/at/", before)+gadgetsBeta+"/a", "")
	if diff := cmp.Diff(map[string]any{"size": 1.0}, then.Field("spec")); diff != "" {
		t.Errorf("before (-want +got):\n%s", diff)
	}
}

// What the schema does not know is told, wherever it is sent, and refused if validation is
// strict: below a status that is not written here, and where there should be something else.
func TestUnknownFieldsAreToldWhereverTheyAre(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, strings.Replace(planetest.Gadgets, "status: {type: object, x-kubernetes-preserve-unknown-fields: true}", "status: {type: object, properties: {count: {type: integer}}}", 1))
	body := func(more string) string {
		return `{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1` + more + `}, "status": {"count": 1, "odd": 1}}`
	}
	const want = `299 - "unknown field \"status.odd\""`
	if a := p.Must(t, 400, "POST", planetest.GadgetsPath+"?fieldValidation=Strict", body("")); !strings.Contains(a.String(), `unknown field \"status.odd\"`) {
		t.Errorf("%s", a)
	}
	elsewhere := p.Must(t, 400, "POST", planetest.GadgetsPath, strings.Replace(body(""), `"name": "a"`, `"name": "a", "namespace": "other"`, 1))
	if got := elsewhere.Header.Get("Warning"); got != want {
		t.Errorf("a create in another namespace warns %s, want %s", got, want)
	}
	a := p.Must(t, 201, "POST", planetest.GadgetsPath, body(""))
	if got := a.Header.Get("Warning"); got != want || a.Field("status") != nil {
		t.Errorf("a create warns %s, want %s; %s", got, want, a)
	}
	a = p.Must(t, 200, "PATCH", planetest.GadgetsPath+"/a", `{"status": {"odd": 1}}`, "Content-Type", "application/merge-patch+json")
	if got := a.Header.Get("Warning"); got != want || a.Field("status") != nil {
		t.Errorf("an update warns %s, want %s; %s", got, want, a)
	}
	a = p.Must(t, 422, "POST", planetest.GadgetsPath, strings.Replace(body(`, "mode": {"a": 1}`), `"name": "a"`, `"name": "b"`, 1))
	if got, want := strings.Join(a.Header["Warning"], " "), `299 - "unknown field \"spec.mode.a\"" `+want; got != want {
		t.Errorf("a struct in the place of a string: it warns %s, want %s", got, want)
	}
}

// A null that is applied is dropped where there must be none, also in what has no type.
func TestANullThatIsAppliedIsDropped(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, strings.Replace(planetest.Gadgets, "mode: {", "free: {x-kubernetes-preserve-unknown-fields: true}\n              mode: {", 1))
	a := p.Must(t, 201, "PATCH", planetest.GadgetsPath+"/a?fieldManager=me", gadgetIn("v1", `{"size": 1, "free": null}`), "Content-Type", "application/apply-patch+yaml")
	if diff := cmp.Diff(map[string]any{"size": 1.0, "mode": "slow"}, a.Field("spec")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// OpenAPI v3 has all that the definition says.
func TestOpenAPIIsTheDefinitions(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, strings.NewReplacer("maximum: 10", "maximum: 10\n                format: int32", "    schema:\n", "    selectableFields: [{jsonPath: .spec.mode}]\n    schema:\n").Replace(planetest.Gadgets))
	a := p.Must(t, 200, "GET", "/openapi/v3/apis/example.com/v1", "")
	gadget := []string{"components", "schemas", "com.example.v1.Gadget"}
	spec := append(gadget[:3:3], "properties", "spec")
	for _, at := range []struct {
		path []string
		want any
	}{
		{append(spec[:5:5], "x-kubernetes-validations"), []any{map[string]any{"rule": "self.size < 5 || self.mode == 'fast'", "message": "large ones must be fast"}}},
		{append(spec[:5:5], "required"), []any{"size"}},
		{append(spec[:5:5], "properties", "size", "format"), "int32"},
		{append(spec[:5:5], "properties", "limits", "additionalProperties", "anyOf"), []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}},
		{append(gadget[:3:3], "x-kubernetes-selectable-fields"), []any{map[string]any{"fieldPath": "spec.mode"}}},
	} {
		if diff := cmp.Diff(at.want, a.Field(at.path...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", at.path, diff)
		}
	}
}
