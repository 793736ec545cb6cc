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

func TestSecretsAreNotShown(t *testing.T) {
	n := mustCompile(t, `
#schema: spec: {
	password!: string & =~"^[a-z]{8,}$" @stele(sensitive)
	keys?: [...string & !=""] @stele(sensitive)
	pair?: {a: string, b: a} @stele(sensitive)
	plain?: int
}`)
	p, err := NewProgram(n)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Sensitive() {
		t.Error("a kind with secrets is not sensitive")
	}
	errs := p.Validate(decoded(t, `{"spec": {"password": "S3CRET", "keys": [5, "S3CRET", ["S3CRET"]], "pair": {"a": "S3CRET", "b": "S3CRET2"}, "plain": "shown"}}`))
	if len(errs) < 5 {
		t.Errorf("only %v", errs)
	}
	if text := errs.ToAggregate().Error(); strings.Contains(text, "S3CRET") || !strings.Contains(text, "shown") {
		t.Error(text)
	}
}
