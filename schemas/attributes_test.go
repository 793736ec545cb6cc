package schemas

import (
	"strings"
	"testing"
)

func TestAttributesNarrow(t *testing.T) {
	n := mustCompile(t, `
#schema: spec: {
	id?: string @k8s(format=uuid)
	since?: string @k8s(format="date-time")
	size?: int | string @k8s(intOrString,format=quantity)
	tags?: [...string] @k8s(listType=set)
	ports?: [...{name!: string, port: *80 | int}] @k8s(listType=map,listMapKeys=name)
	labels?: {[string]: string} @k8s(mapType=atomic)
	anything?: {...} @k8s(preserveUnknownFields)
	maybe?: null | int @k8s(nullable)
	template?: {...} @k8s(embeddedResource)
}`)
	p, err := NewProgram(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ spec, want string }{
		{`{"id": "8f14e45f-ceea-467f-a8a4-7c2b6f0e1d3c"}`, ""},
		{`{"id": "x"}`, "spec.id"},
		{`{"since": "2026-01-02T03:04:05Z"}`, ""},
		{`{"since": "yesterday"}`, "spec.since"},
		{`{"size": 5}`, ""},
		{`{"size": "1500m"}`, ""},
		{`{"size": "much"}`, "spec.size"},
		{`{"tags": ["a", "b"]}`, ""},
		{`{"tags": ["a", "a"]}`, "spec.tags[1]"},
		{`{"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 1}]}`, ""},
		{`{"ports": [{"name": "a", "port": 1}, {"name": "a", "port": 2}]}`, "spec.ports[1]"},
		{`{"anything": {"a": [1]}}`, ""},
		{`{"maybe": null}`, ""},
		{`{"template": {"apiVersion": "v1", "kind": "ConfigMap"}}`, ""},
		{`{"template": {"kind": "ConfigMap"}}`, "spec.template.apiVersion"},
	} {
		object := decoded(t, `{"spec": `+test.spec+`}`)
		p.Prepare(object)
		var fields []string
		for _, e := range p.Validate(object) {
			fields = append(fields, e.Field)
		}
		if got := strings.Join(fields, " "); got != test.want {
			t.Errorf("%s: refused %q, want %q", test.spec, got, test.want)
		}
	}
}

// An attribute holds wherever the definition that has it is referred to.
func TestAttributesOfDefinitions(t *testing.T) {
	n := mustCompile(t, `
#ID: string @k8s(format=uuid)
#Other: #ID
#Token: string @stele(sensitive)
#Map: {
	@k8s(mapType=atomic)
	a?: int
}
#schema: spec: {
	id?: #ID
	long?: #Other & !=""
	maybe?: null | #ID
	list?: [...#ID]
	map?: [string]: #ID
	token?: #Token
	either?: int | #Token
	whole?: #Map
	twice?: {#Map, b?: int}
}`)
	field := func(name string) *Node {
		f, ok := fieldNamed(n.Struct.Fields[0].Schema.Struct, name)
		if !ok {
			t.Fatal(name)
		}
		return f.Schema
	}
	for name, node := range map[string]*Node{"id": field("id"), "long": field("long"), "maybe": field("maybe"),
		"list": field("list").List.Items, "map": field("map").Struct.Patterns[0].Value} {
		if node.Format != "uuid" {
			t.Errorf("%s has no format", name)
		}
	}
	for _, name := range []string{"token", "either"} {
		if !field(name).Sensitive {
			t.Errorf("%s is not sensitive", name)
		}
	}
	for _, name := range []string{"whole", "twice"} {
		if field(name).Struct.Type != MapAtomic {
			t.Errorf("%s is not atomic", name)
		}
	}
	_, diags := compileText(t, "#ID: string @k8s(format=uuid)\n#schema: spec: a?: #ID | \"none\"")
	if diags == nil || diags[0].Message != "the attribute @k8s(format=uuid) on one of several alternatives" {
		t.Error(diags)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	n := mustCompile(t, `
#schema: spec: {
	password!: string & =~"^[a-z]{8,}$" @stele(sensitive)
	keys?: [...string & !=""] @stele(sensitive)
	pair?: {a: string, b: a} @stele(sensitive)
	from?: {a!: {key!: int}} | {b!: {key!: int}} @stele(sensitive)
	plain?: int
}`)
	p, err := NewProgram(n)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Sensitive() {
		t.Error("a kind with secrets is not sensitive")
	}
	errs := p.Validate(decoded(t, `{"spec": {"password": "S3CRET", "keys": [5, "S3CRET", ["S3CRET"]], "pair": {"a": "S3CRET", "b": "S3CRET2"}, "from": {"a": {"key": "S3CRET"}, "b": "S3CRET"}, "plain": "shown"}}`))
	if len(errs) < 5 {
		t.Errorf("only %v", errs)
	}
	if text := errs.ToAggregate().Error(); strings.Contains(text, "S3CRET") || !strings.Contains(text, "shown") {
		t.Error(text)
	}
}
