package policy_test

import (
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/evaluation"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// shapes is a bundle with a kind whose schema stands in a package of its own.
func shapes(schema string) *bundles.Source {
	return &bundles.Source{Package: ".", Files: []bundles.File{
		{Path: bundles.ModuleFile, Data: []byte("module: \"field.example/case\"\nlanguage: version: \"v0.17.0\"\n")},
		{Path: "bundle.cue", Data: []byte(`package main

import (
	"stele.dev/policy"
	"field.example/case/shape"
)

bundle: policy.#Bundle & {cluster: "a", teams: t: {
	contact: "#t", groups: ["field.example"], namespaces: ["*"]
	kinds: "shapes.field.example": {group: "field.example", names: {kind: "Shape", plural: "shapes"}, storageVersion: "v1", versions: v1: #schema: spec!: shape.#Spec}
}}
`)},
		{Path: "shape/schema.cue", Data: []byte("package shape\n\n" + schema)},
	}}
}

// What a schema needs of its package is written out with the parts that only CUE can check, also if it is recursive.
func TestSchemasInPackages(t *testing.T) {
	for name, c := range map[string]struct {
		schema         string
		accept, refuse []string
	}{
		"recursion through a union": {`note: {text?: string}
#Spec: #attribute
#attribute: note & _options & {optional: bool | *false}
_options: {type!: string} | {inner!: #block}
#block: note & {fields: [=~"^[a-z]+$"]: #attribute}`,
			[]string{`{"type": "a"}`, `{"inner": {"fields": {"x": {"type": "b"}}}}`}, []string{`{}`, `{"inner": {"fields": {"x": {}}}}`}},
		"a schema of schemas": {`#Spec: {type!: "object", properties?: [string]: #Spec} | {type!: "array", items!: #Spec} | {type!: "string"} | {oneOf!: [#Spec, ...#Spec]}`,
			[]string{`{"oneOf": [{"type": "array", "items": {"type": "string"}}]}`}, []string{`{"type": "array"}`, `{"oneOf": []}`, `{"type": "object", "properties": {"a": {}}}`}},
		"blocks in blocks": {`#Spec: blocks?: [string]: #Block
#Block: {#Attr, nested?: [string]: #Nested}
#Nested: {mode!: "single" | "list", block!: #Block} | {attributes!: [string]: #Attr}
#Attr: {type!: string, optional: bool | *false} | {computed!: true}`,
			[]string{`{"blocks": {"a": {"type": "x", "nested": {"b": {"mode": "list", "block": {"computed": true}}}}}}`}, []string{`{"blocks": {"a": {"type": "x", "nested": {"b": {"mode": "list", "block": {}}}}}}`}},
		"an index from the end": {`import "strings"
#Spec: {
	path!: string
	let parts = strings.Split(path, "-")
	stem: *"x-\(parts[len(parts)-2])" | string
}`, []string{`{"path": "a-b"}`, `{"path": "a", "stem": "z"}`}, []string{`{"path": "a"}`}},
		"a first item with a part for CUE": {`import "time"
#Entry: {title: string, at: time.Format("2006-01-02T15:04:05Z07:00")}
#Spec: entries: [#Entry, ...#Entry]`, []string{`{"entries": [{"title": "a", "at": "2026-01-02T03:04:05Z"}]}`}, []string{`{"entries": []}`, `{"entries": [{"title": "a", "at": "yesterday"}]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			result, diags := compile.Bundle(shapes(c.schema))
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			k := result.Form.Kinds[slices.IndexFunc(result.Form.Kinds, func(k schemas.Kind) bool { return k.Plural == "shapes" })]
			p, err := program.New(k.Versions[0].Schema)
			if err != nil {
				t.Fatal(err)
			}
			for valid, specs := range map[bool][]string{true: c.accept, false: c.refuse} {
				for _, spec := range specs {
					object, err := jsonvalue.Decode([]byte(`{"spec": ` + spec + `}`))
					if err != nil {
						t.Fatal(err)
					}
					p.Prepare(object.(map[string]any))
					if errs := p.Validate(object.(map[string]any)); (len(errs) == 0) != valid {
						t.Errorf("%s: %v", spec, errs)
					}
				}
			}
		})
	}
}

// A part that cannot be checked as it was compiled is refused at its own line, not at that of the kind.
func TestRefusedPartsOfPackages(t *testing.T) {
	_, diags := compile.Bundle(shapes("#Spec: {\n\ta: string\n\tb: string & int\n}"))
	if len(diags) == 0 || diags[0].Pos.File != "shape/schema.cue" || diags[0].Pos.Line != 5 {
		t.Errorf("got %v", diags)
	}
}

// A panic is an error at the value that was being compiled.
func TestPanicsHaveALine(t *testing.T) {
	source := shapes("#Spec: a: string")
	instance, _, err := bundles.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	e := evaluation.New(source)
	e.Build(instance)
	for range e.Fields(e.Root, "bundle.teams.t.kinds") {
		break
	}
	e.Panicked("no such thing")
	if diags := e.Done(); len(diags) != 1 || diags[0].Pos.File != "bundle.cue" || diags[0].Pos.Line != 10 || !strings.Contains(diags[0].String(), "no such thing") {
		t.Errorf("got %v", diags)
	}
	e = evaluation.New(source)
	e.Build(instance)
	e.Panicked("no such thing")
	if diags := e.Done(); len(diags) != 1 || diags[0].Pos.Line == 0 {
		t.Errorf("got %v", diags)
	}
}
