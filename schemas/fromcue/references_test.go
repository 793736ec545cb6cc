package fromcue_test

import (
	"strings"
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/openapi"
)

// references are schemas in which fields get their values from other fields.
var references = []relation{
	{
		name: "a field equal to another", spec: "name!: string\napp: name",
		accept: []string{`{"name": "x"}`, `{"name": "x", "app": "x"}`}, refuse: []string{`{"name": "x", "app": "y"}`, `{"app": "x"}`, `{"name": 1}`},
	},
	{
		name: "a field equal to another with a default", spec: "a: *1 | int\nb: a\nc: b",
		accept: []string{`{}`, `{"b": 2}`, `{"c": 2}`, `{"a": 3}`, `{"a": 3, "c": 3}`}, refuse: []string{`{"a": 1, "b": 2}`, `{"b": 2, "c": 3}`, `{"b": "x"}`},
	},
	{
		name: "a field equal to one in a struct with a default", spec: "image: {tag: *\"latest\" | string, name: *\"x\" | string}\nversion: image.tag",
		accept: []string{`{}`, `{"version": "2"}`, `{"image": {}, "version": "2"}`, `{"image": {"tag": "2"}}`, `{"image": {"name": "y"}, "version": "2"}`},
		refuse: []string{`{"image": {"tag": "1"}, "version": "2"}`},
	},
	{
		name: "fields equal to a default around", spec: "zone: *\"a\" | string\nhosts: [...{zone: Z, again: zone}]\nracks: [string]: {zone: Z}\nlet Z = zone",
		accept: []string{`{"hosts": [{"zone": "b"}, {}], "racks": {"x": {}, "y": {"zone": "b"}}}`, `{"hosts": [{"again": "b"}]}`},
		refuse: []string{`{"zone": "a", "hosts": [{"zone": "b"}]}`},
	},
	{
		name: "a field equal to another, and more", spec: "a: string\nb: a & =~\"^x\"",
		accept: []string{`{"a": "xa"}`}, refuse: []string{`{"a": "a"}`, `{"a": "a", "b": "xa"}`},
	},
	{
		name: "an optional field equal to another", spec: "a: int\nb?: a",
		accept: []string{`{"a": 1}`, `{"a": 1, "b": 1}`}, refuse: []string{`{"a": 1, "b": 2}`, `{"b": 1}`},
	},
	{
		name: "a default from another field", spec: "name: string\nnamespace: *name | string",
		accept: []string{`{"name": "x"}`, `{"name": "x", "namespace": "y"}`}, refuse: []string{`{"namespace": "x"}`, `{"name": "x", "namespace": 1}`},
	},
	{
		name: "a default from another field with a default", spec: "port: *80 | int & >0\ntarget: *port | int | string",
		accept: []string{`{}`, `{"port": 8080}`, `{"target": "http"}`, `{"port": 8080, "target": 0}`}, refuse: []string{`{"port": 0}`, `{"target": true}`},
	},
	{
		name: "defaults from each other", left: "spec", spec: "a: *b | string\nb: *a | string",
		accept: []string{`{"a": "x"}`, `{"b": "x"}`, `{"a": "x", "b": "y"}`}, refuse: []string{`{}`},
	},
	{
		name: "a default from around", spec: "name: string\nservice: {name: *X.name | string, port: *80 | int}\nlabels: {\"app/name\": *name | string, ...}", top: "X=",
		accept: []string{`{"name": "x"}`, `{"name": "x", "service": {"name": "y"}, "labels": {"a": 1}}`}, refuse: []string{`{}`, `{"name": "x", "service": {"name": 1}}`},
	},
	{
		name: "a default from within another field", spec: "image: {tag: *\"latest\" | string}\nversion: *image.tag | string",
		accept: []string{`{}`, `{"image": {"tag": "1"}}`, `{"image": {}, "version": "2"}`}, refuse: []string{`{"image": {"tag": 1}}`},
	},
	{
		name: "fields in a list from around", spec: "zone: string\nhosts: [...{name!: string, zone: Z, rack: *zone | string}]\nlet Z = zone",
		accept: []string{`{"zone": "a", "hosts": [{"name": "x"}, {"name": "y", "zone": "a", "rack": "b"}]}`, `{"zone": "a"}`},
		refuse: []string{`{"zone": "a", "hosts": [{"name": "x", "zone": "b"}]}`},
	},
	{
		name: "the key of a map", spec: "services: [Name=string]: {name: Name, image!: string}",
		accept: []string{`{"services": {"a": {"image": "i"}, "b": {"image": "i", "name": "b"}}}`, `{}`},
		refuse: []string{`{"services": {"a": {"image": "i", "name": "b"}}}`, `{"services": {"a": {}}}`},
	},
	{
		name: "the key of a map, deeper and as a default", spec: "jobs: [ID=string]: {metadata: {name: ID, labels: app: *ID | string}, replicas: *1 | int}",
		accept: []string{`{"jobs": {"a": {}}}`, `{"jobs": {"a": {"metadata": {"labels": {"app": "x"}}}}}`},
		refuse: []string{`{"jobs": {"a": {"metadata": {"name": "b"}}}}`},
	},
	{
		name: "the keys of a map in a map", spec: "m: [A=string]: {b: [B=string]: {from: A, to: B, both: \"\\(A)/\\(B)\"}}",
		accept: []string{`{"m": {"x": {"b": {"y": {}}}}}`, `{"m": {"x": {"b": {"y": {"from": "x", "to": "y", "both": "x/y"}}}}}`},
		refuse: []string{`{"m": {"x": {"b": {"y": {"from": "y"}}}}}`, `{"m": {"x": {"b": {"y": {"both": "y/x"}}}}}`},
	},
	{
		name: "a text made of fields", spec: "owner!: string\nid: *7 | int\nurl: \"https://x/\\(owner)/\\\"\\(id)\\\"\"\nhost: *\"\\(owner).example.com\" | string",
		accept: []string{`{"owner": "a"}`, `{"owner": "a", "id": 8, "url": "https://x/a/\"8\"", "host": "h"}`},
		refuse: []string{`{"owner": "a", "url": "x"}`, `{"owner": "a", "id": 8, "url": "https://x/a/\"7\""}`, `{}`},
	},
	{
		name: "by way of a hidden field and let", spec: "name: string\n_name: name\nlet N = name\na: _name\nb: N\nc: *_name | string",
		accept: []string{`{"name": "x"}`, `{"name": "x", "a": "x", "b": "x", "c": "y"}`}, refuse: []string{`{"name": "x", "a": "y"}`, `{"name": "x", "b": "y"}`},
	},
	{
		name: "a field by its alias", spec: "\"x-name\": string\nN=\"y-name\": string\na: N",
		accept: []string{`{"x-name": "x", "y-name": "y"}`}, refuse: []string{`{"x-name": "x", "y-name": "y", "a": "x"}`},
	},
	{
		name: "a struct that is another", left: "spec", spec: "labels: [string]: string\nselector: labels",
		accept: []string{`{"labels": {"a": "x"}}`, `{"labels": {"a": "x"}, "selector": {"a": "x"}}`}, refuse: []string{`{"labels": {"a": "x"}, "selector": {"a": "y"}}`},
	},
	{
		name: "a default beside which another value is not free", spec: "a: int\nb: *a | >5",
		accept: []string{`{"a": 1}`, `{"a": 1, "b": 6}`, `{"a": 1, "b": 1}`}, refuse: []string{`{"a": 1, "b": 2}`},
	},
	{
		name: "a field that may be missing", left: "spec", spec: "a?: string\nb: *a | string\nc?: string\nif c != _|_ {d: c}",
		accept: []string{`{"a": "x"}`, `{"a": "x", "c": "y"}`, `{"a": "x", "b": "y"}`}, refuse: []string{`{"a": "x", "c": "y", "d": "z"}`},
	},
}

// TestTakenSecrets checks that fields that get their value from a secret are secrets too.
func TestTakenSecrets(t *testing.T) {
	n := mustCompile(t, `
#schema: spec: {
	token!: string @stele(sensitive)
	copy:   token
	header: *"Bearer \(token)" | string
	nested: {again: *token | string}
	pair?: {a: string, b: a} @stele(sensitive)
}`)
	if left := n.Fallbacks(); len(left) > 0 {
		t.Fatal(left[0].Reason)
	}
	spec, _ := schemas.FieldNamed(n.Struct, "spec")
	for _, name := range []string{"copy", "header", "nested"} {
		if f, _ := schemas.FieldNamed(spec.Schema.Struct, name); !f.Schema.HasSensitive() {
			t.Errorf("%s is no secret", name)
		}
	}
	errs := mustProgram(t, n).Validate(decoded(t, `{"spec": {"token": "hunter2", "copy": "hunter3", "pair": {"a": "hunter4", "b": "hunter5"}}}`))
	if len(errs) != 2 || strings.Contains(errs.ToAggregate().Error(), "hunter") {
		t.Errorf("%v", errs)
	}
}

// TestTakenMessages checks that errors name the source of the required value.
func TestTakenMessages(t *testing.T) {
	p := mustProgram(t, mustCompile(t, `
#schema: spec: {
	name!: string
	app:   name
	id:    "x-\(name)"
	m: [K=string]: {key: K}
}`))
	for spec, want := range map[string]string{
		`{"name": "a", "app": "b"}`:               `spec.app: Invalid value: "b": must be name, which is "a" (schema.cue:4)`,
		`{"name": "a", "id": "b"}`:                `spec.id: Invalid value: "b": must be "x-\(name)", which is "x-a" (schema.cue:5)`,
		`{"name": "a", "m": {"k": {"key": "b"}}}`: `spec.m[k].key: Invalid value: "b": must be the key, which is "k" (schema.cue:6)`,
		`{"app": "b", "id": "x-a"}`:               `spec.name: Required value: must be a string (schema.cue:3)`,
	} {
		if errs := p.Validate(decoded(t, `{"spec": `+spec+`}`)); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("%s: %v", spec, errs)
		}
	}
	old, changed := decoded(t, `{"spec": {"name": "a", "app": "b", "id": "x-a", "m": {}}}`), decoded(t, `{"spec": {"name": "c", "app": "b", "id": "x-c", "m": {}}}`)
	if errs := p.ValidateUpdate(jsonvalue.Clone(old).(map[string]any), old); len(errs) > 0 {
		t.Errorf("what was so before: %v", errs)
	}
	if errs := p.ValidateUpdate(changed, old); len(errs) != 1 {
		t.Errorf("the name was changed and the app is still another: %v", errs)
	}
}

// TestMessagesOfThePolicy checks that errors show the text of error(…) and no secret.
func TestMessagesOfThePolicy(t *testing.T) {
	p := mustProgram(t, mustCompile(t, `
#schema: spec: {
	level!: "debug" | "info" | error("level is debug or info")
	pin?:   =~"^[0-9]+$" | error("a pin has digits only") @stele(sensitive)
}`))
	for spec, want := range map[string]string{
		`{"level": "x"}`:                `spec.level: Invalid value: "x": level is debug or info (schema.cue:3)`,
		`{"level": 1}`:                  `spec.level: Invalid value: 1: level is debug or info (schema.cue:3)`,
		`{"level": "info", "pin": "x"}`: `spec.pin: Invalid value: a pin has digits only (schema.cue:4)`,
	} {
		if errs := p.Validate(decoded(t, `{"spec": `+spec+`}`)); len(errs) != 1 || errs[0].Error() != want {
			t.Errorf("%s: %v", spec, errs)
		}
	}
}

// TestTakenInOpenAPI checks that fields with a reference are not required in OpenAPI.
func TestTakenInOpenAPI(t *testing.T) {
	spec := openapi.Of(mustCompile(t, `
#schema: spec: {
	name!: string
	app:   name
	host:  *"\(name).example.com" | string
}`)).Properties["spec"]
	if got := strings.Join(spec.Required, " "); got != "name" {
		t.Errorf("required: %s", got)
	}
}

// TestContradictedDefaults checks that an object that contradicts a default, but that CUE accepts, is
// accepted on create and after it is read and written back.
func TestContradictedDefaults(t *testing.T) {
	for _, test := range []struct{ schema, spec, want string }{
		{`{a: *1 | int, b: a}`, `{"b": 2}`, `{"b": 2}`},
		{`{b: a, a: *1 | int}`, `{"b": 2}`, `{"b": 2}`},
		{`{a: *1 | int, b: a, c: b, d: a}`, `{"c": 2}`, `{"c": 2, "d": 1}`},
		{`{image: {tag: *"latest" | string, name: *"x" | string}, version: image.tag}`, `{"version": "2"}`, `{"image": {"name": "x"}, "version": "2"}`},
		{`{zone: *"a" | string, hosts: [...{zone: Z}]}, let Z = #schema.spec.zone`, `{"hosts": [{}]}`, `{"zone": "a", "hosts": [{"zone": "a"}]}`},
		{`{r: {d: _ | *5}, l: r}`, `{"l": {"d": 7}}`, `{"l": {"d": 7}}`},
		{`{defaults: {cpu: *1 | int}, pools: [string]: defaults & {n!: int}}`, `{"pools": {"a": {"n": 1, "cpu": 3}}}`, `{"pools": {"a": {"n": 1, "cpu": 3}}}`},
	} {
		p := mustProgram(t, mustCompile(t, "#schema: {spec: "+test.schema+"}"))
		object := decoded(t, `{"spec": `+test.spec+`}`)
		p.Prepare(object)
		if errs := p.Validate(object); len(errs) > 0 {
			t.Errorf("%s: create of %s: %v", test.schema, test.spec, errs)
		}
		if got, want := asJSON(object), asJSON(decoded(t, `{"spec": `+test.want+`}`)); got != want {
			t.Errorf("%s: of %s it makes %s, want %s", test.schema, test.spec, got, want)
		}
		again := jsonvalue.Clone(object).(map[string]any)
		if _, changed := p.Prepare(again); changed {
			t.Errorf("%s: written back, %s is changed to %s", test.schema, asJSON(object), asJSON(again))
		}
		if errs := p.ValidateUpdate(again, object); len(errs) > 0 {
			t.Errorf("%s: update of %s: %v", test.schema, asJSON(object), errs)
		}
	}
}
