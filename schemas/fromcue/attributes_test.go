package fromcue_test

import (
	"strings"
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
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
	p, err := program.New(n)
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

// An attribute of a definition holds wherever the definition is referred to.
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
	field := func(name string) *schemas.Node {
		f, ok := schemas.FieldNamed(n.Struct.Fields[0].Schema.Struct, name)
		if !ok {
			t.Fatal(name)
		}
		return f.Schema
	}
	for name, node := range map[string]*schemas.Node{"id": field("id"), "long": field("long"), "maybe": field("maybe"),
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
		if field(name).Struct.Type != schemas.MapAtomic {
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
	users?: [...{token!: string @stele(sensitive)}] @k8s(listType=map,listMapKeys=token)
	pin:    *7311 | int @stele(sensitive)
	over:   (*9000 | int) & >pin
	under?: int & <over @stele(sensitive)
	login?: {token?: string @stele(sensitive)}
	fixed?: string @stele(sensitive) @k8s(immutable)
	all?: {key?: string @k8s(immutable)} @stele(sensitive)
}`)
	p, err := program.New(n)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Sensitive() {
		t.Error("a kind with secrets is not sensitive")
	}
	errs := p.Validate(decoded(t, `{"spec": {"password": "S3CRET", "keys": [5, "S3CRET", ["S3CRET"]], "pair": {"a": "S3CRET", "b": "S3CRET2"}, "from": {"a": {"key": "S3CRET"}, "b": "S3CRET"}, "plain": "shown",
		"users": [{"token": "S3CRET"}, {"token": "S3CRET"}], "over": 5, "under": 7312, "login": "S3CRET"}}`))
	changed := p.ValidateUpdate(decoded(t, `{"spec": {"password": "abcdefgh", "fixed": "S3CRET", "all": {"key": "S3CRET"}}}`),
		decoded(t, `{"spec": {"password": "abcdefgh", "fixed": "S3CRET2", "all": {"key": "S3CRET2"}}}`))
	if errs = append(errs, changed...); len(errs) < 12 {
		t.Errorf("only %v", errs)
	}
	if text := errs.ToAggregate().Error(); strings.Contains(text, "S3CRET") || strings.Contains(text, "731") || !strings.Contains(text, "shown") {
		t.Error(text)
	}
}

// The attributes of a field hold in every construct.
func TestAttributesOfFieldsThatDependOnOthersCount(t *testing.T) {
	for name, spec := range map[string]string{
		"a bound that is a field":  `min: int, x: int & >=min @k8s(immutable)`,
		"a default beside such":    `min: *1 | int, x: (*2 | int) & >=min @k8s(immutable)`,
		"a condition":              `on: *true | bool, if on {x: int @k8s(immutable)}`,
		"a condition on the field": `on: *true | bool, x: int @k8s(immutable), if on {x: >0}`,
		"a bound in a condition":   `on: *true | bool, x: int @k8s(immutable), y?: int & >x`,
		"an alternative":           `{kind: "a", x: int @k8s(immutable)} | {kind: "b", y: int}`,
		"what CUE checks":          `y?: string, z?: "\(y)-", x: int @k8s(immutable)`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := program.New(mustCompile(t, "#schema: spec: {"+spec+"}"))
			if err != nil {
				t.Fatal(err)
			}
			object := func(x string) map[string]any {
				return decoded(t, `{"spec": {"kind": "a", "on": true, "min": 1, "x": `+x+`}}`)
			}
			is, was := object("3"), object("2")
			p.Prepare(is)
			p.Prepare(was)
			if errs := p.ValidateUpdate(is, was); len(errs) != 1 || !strings.Contains(errs[0].Detail, "field is immutable") {
				t.Errorf("an update that changes it: %v", errs)
			}
		})
	}
}
