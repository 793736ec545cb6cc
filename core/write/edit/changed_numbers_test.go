package edit_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"stele.dev/stele/core/run/plane/planetest"
)

const widgetWith = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"free":{"share":%}}}`

// Numbers that would be stored as others are refused, however they are sent. What a float keeps is not.
func TestNumbersAreStoredAsTheyWereSent(t *testing.T) {
	p := planetest.NewPlane(t)
	object := func(n string) string { return strings.Replace(widgetWith, "%", n, 1) }
	for sent, want := range map[string]string{
		"0.30000000000000001":  "spec.free.share: Invalid value: 0.30000000000000001: would be stored as 0.3: ",
		"9007199254740993.5":   "spec.free.share: Invalid value: 9007199254740993.5: would be stored as 9007199254740994: ",
		"18446744073709551617": "spec.free.share: Invalid value: 18446744073709551617: would be stored as 18446744073709552000: ",
		"[1, 1e-400]":          "spec.free.share[1]: Invalid value: 1e-400: would be stored as 0: ",
	} {
		if a := p.Must(t, 422, "POST", planetest.WidgetsPath, object(sent)); !strings.Contains(a.String(), want) {
			t.Errorf("%s: %s", sent, a)
		}
		yaml := strings.Replace("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec:\n  size: 1\n  free:\n    share: %\n", "%", sent, 1)
		if a := p.Must(t, 422, "POST", planetest.WidgetsPath, yaml, "Content-Type", "application/yaml"); !strings.Contains(a.String(), want) {
			t.Errorf("YAML: %s: %s", sent, a)
		}
		p.Must(t, 422, "POST", planetest.WidgetsPath, strings.Replace(yaml, "share", "n", 1), "Content-Type", "application/yaml") // n is false
		for _, body := range []string{object(sent), yaml} {
			if a := p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/w?fieldManager=m", body, "Content-Type", "application/apply-patch+yaml"); !strings.Contains(a.String(), want) {
				t.Errorf("apply: %s: %s", sent, a)
			}
		}
	}
	if a := p.Must(t, 422, "POST", planetest.WidgetsPath, strings.Replace(object("1"), `"size":1`, `"size":9007199254740993.5`, 1)); !strings.Contains(a.String(), "9007199254740993.5") {
		t.Errorf("%s", a)
	}
	kept := `[1e3,0.1,12.0,9223372036854775807,0.30000000000000004,1.7976931348623157e308]`
	p.Must(t, 201, "POST", planetest.WidgetsPath, object(kept))
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/w", string(p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", "").Body))
	cbor, err := direct.Marshal(map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "c"}, "spec": map[string]any{"size": 1, "free": map[string]any{"share": 0.1 + 0.2}}})
	if err != nil {
		t.Fatal(err)
	}
	p.Must(t, 201, "POST", planetest.WidgetsPath, string(cbor), "Content-Type", "application/cbor")
	p.Must(t, 400, "POST", planetest.WidgetsPath, object("1e400"))
	// What is not stored is not refused.
	p.Must(t, 201, "POST", planetest.WidgetsPath, strings.NewReplacer(`"w"`, `"x"`, `"size"`, `"unknown":0.30000000000000001,"size"`).Replace(object("1")))
}

func TestPatchedNumbersAreStoredAsTheyWereSent(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Must(t, 201, "POST", planetest.WidgetsPath, strings.Replace(widgetWith, "%", "[1]", 1))
	const want = "Invalid value: 0.30000000000000001: would be stored as 0.3: "
	for patch, field := range map[string]string{
		`{"spec":{"free":{"share":0.30000000000000001}}}`:                                    "spec.free.share: ",
		`[{"op":"replace","path":"/spec/free/share","value":0.30000000000000001}]`:           "spec.free.share: ",
		`[{"op":"add","path":"/spec/free/share/-","value":0.30000000000000001}]`:             "spec.free.share[1]: ",
		`[{"op":"replace","path":"/spec/free/share/0","value":{"a":[0.30000000000000001]}}]`: "spec.free.share[0].a[0]: ",
	} {
		mediaType := "application/json-patch+json"
		if patch[0] == '{' {
			mediaType = "application/merge-patch+json"
		}
		if a := p.Must(t, http.StatusUnprocessableEntity, "PATCH", planetest.WidgetsPath+"/w", patch, "Content-Type", mediaType); !strings.Contains(a.String(), field+want) {
			t.Errorf("%s: %s", patch, a)
		}
	}
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"spec":{"free":{"share":0.1}}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `[{"op":"test","path":"/spec/free/share","value":0.1},{"op":"replace","path":"/spec/free/share","value":1e2}]`, "Content-Type", "application/json-patch+json")
}

// Numbers of secrets are not shown.
func TestChangedNumbersOfSecrets(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "free?: {...}", "free?: {...} @stele(sensitive)", 1), nil))
	a := p.Must(t, 422, "POST", planetest.WidgetsPath, strings.Replace(widgetWith, "%", "0.30000000000000001", 1))
	if text := a.String(); strings.Contains(text, "0.3") || !strings.Contains(text, "spec.free.share: Invalid value: would be stored as another number") {
		t.Error(text)
	}
}

// Kinds of a CustomResourceDefinition round numbers, as upstream does.
func TestDefinitionsRoundNumbers(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, strings.Replace(planetest.Gadgets, "mode: {", "share: {type: number}\n              mode: {", 1))
	a := p.Must(t, 201, "POST", planetest.GadgetsPath, `{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "a"}, "spec": {"size": 1, "share": 0.30000000000000001}}`)
	if a.Field("spec", "share") != 0.3 {
		t.Errorf("it became %s", a)
	}
}
