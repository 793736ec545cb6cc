package fromcue_test

import (
	"fmt"
	"strings"
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/openapi"
	"stele.dev/stele/schemas/program"
)

// TestAttributesWithinForms checks attributes in constructs that the compiler does not see as a plain
// struct or list.
func TestAttributesWithinForms(t *testing.T) {
	for name, spec := range map[string]string{
		"close":               `close({token!: string @stele(sensitive), zone!: string @k8s(immutable), users?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)})`,
		"close by definition": `#closed`,
		"close in a struct":   "{\n\tclose({token!: string @stele(sensitive)})\n\tzone!: string @k8s(immutable)\n\tusers?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)\n}",
		"items":               `{token!: string, tokens?: [string, ...#secret], zone!: string @k8s(immutable), users?: [#user, ...#user] @k8s(listType=map,listMapKeys=name)}`,
		"items by index":      `{token!: string, pair?: [{t?: #secret}, int], zone!: string @k8s(immutable), users?: [_, ...] & [...#user] @k8s(listType=map,listMapKeys=name)}`,
	} {
		t.Run(name, func(t *testing.T) {
			n := mustCompile(t, `
#closed: close({token!: string @stele(sensitive), zone!: string @k8s(immutable), users?: [...{name!: string}] @k8s(listType=map,listMapKeys=name)})
#secret: string @stele(sensitive)
#user: {name!: string}
#schema: spec: `+spec)
			if left := n.Fallbacks(); len(left) > 0 {
				t.Fatalf("left to CUE: %v", left[0].Reason)
			}
			attributesHold(t, n)
		})
	}
}

// attributesHold checks the attributes of token, zone and users in spec.
func attributesHold(t *testing.T, n *schemas.Node) {
	t.Helper()
	p, err := program.New(n)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Sensitive() {
		t.Error("the token is no secret")
	}
	object := func(spec string) map[string]any {
		x, err := jsonvalue.Decode([]byte(`{"spec":` + spec + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return x.(map[string]any)
	}
	old := object(`{"token":"hunter2","zone":"a"}`)
	if errs := p.Validate(old); len(errs) > 0 {
		t.Fatal(errs)
	}
	if errs := p.ValidateUpdate(object(`{"token":"hunter2","zone":"b"}`), old); len(errs) != 1 || !strings.HasPrefix(errs[0].Detail, "field is immutable") {
		t.Errorf("the zone was changed: %v", errs)
	}
	if errs := p.Validate(object(`{"token":"hunter2","zone":"a","users":[{"name":"x"},{"name":"x"}]}`)); len(errs) != 1 {
		t.Errorf("a key is there twice: %v", errs)
	}
}

// TestListsByIndex checks the OpenAPI of lists whose items differ by index.
func TestListsByIndex(t *testing.T) {
	n := mustCompile(t, `
#schema: spec: {
	command: [string, ...string]
	range:   [number, number]
	mixed?:  ["a" | "b", {from!: string}, ...{to!: int, from?: string}]
	none?:   []
}`)
	properties := openapi.Of(n).Properties["spec"].Properties
	for field, want := range map[string]string{
		"command": `{"type":"array","items":{"type":"string"},"minItems":1}`,
		"range":   `{"type":"array","items":{"type":"number"},"maxItems":2,"minItems":2}`,
		"mixed":   `{"type":"array","items":{"x-kubernetes-preserve-unknown-fields":true},"minItems":2}`,
		"none":    `{"type":"array","items":{"nullable":true,"x-kubernetes-preserve-unknown-fields":true},"maxItems":0}`,
	} {
		property := properties[field]
		if got := asJSON(&property); asJSON(decoded(t, got)) != asJSON(decoded(t, want)) {
			t.Errorf("%s: %s", field, got)
		}
	}
	errs := func(spec string) string {
		return fmt.Sprint(mustProgram(t, n).Validate(decoded(t, `{"spec":`+spec+`}`)))
	}
	for spec, want := range map[string]string{
		`{"command":[],"range":[1,2]}`:                               "spec.command: Too few: 0: must have at least 1 item (schema.cue:3)",
		`{"command":["x"],"range":[1,2],"mixed":["a",{}]}`:           "spec.mixed[1].from: Required",
		`{"command":["x"],"range":[1,2],"mixed":["c",{"from":"x"}]}`: "spec.mixed[0]: Unsupported value",
	} {
		if got := errs(spec); !strings.Contains(got, want) {
			t.Errorf("%s: %s", spec, got)
		}
	}
}

func mustProgram(t *testing.T, n *schemas.Node) *program.Program {
	t.Helper()
	p, err := program.New(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
