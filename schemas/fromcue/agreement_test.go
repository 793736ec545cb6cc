package fromcue_test

import (
	"encoding/json"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"stele.dev/stele/schemas/jsonvalue"
)

// agreements are schemas in which several parts constrain one field, and objects, one per line. A
// program and CUE must treat the objects alike.
var agreements = []struct{ name, schema, objects string }{
	{
		name: "a default beside a bound that is a field",
		schema: `spec: threshold: {
	warn: *50 | int & <crit
	crit: *80 | int & >warn
}`,
		objects: `{"spec": {}}
{"spec": {"threshold": {"warn": 90, "crit": 95}}}
{"spec": {"threshold": {"warn": 90}}}
{"spec": {"threshold": {"crit": 40}}}`,
	},
	{
		name: "a bound that is a field with a default, within what CUE evaluates",
		schema: `spec: {
	level:  *1 | int
	double: level * 2
	threshold: {
		warn: *50 | int & <crit
		crit: *80 | int
	}
}`,
		objects: `{"spec": {"threshold": {"warn": 90, "crit": 95}}}
{"spec": {"threshold": {"warn": 90}}}`,
	},
	{
		name: "conditions that say different things of a field, within what CUE evaluates",
		schema: `spec: {
	type!: "a" | "b"
	if type == "a" {config!: int}
	if type == "b" {config!: string}
	count: *1 | int
	next:  count + 1
}`,
		objects: `{"spec": {"type": "a", "config": 1}}
{"spec": {"type": "b", "config": "x"}}
{"spec": {"type": "b", "config": 1}}`,
	},
	{
		name: "conditions of which a default decides one",
		schema: `spec: {
	type: *"bool" | "string"
	values!: [string]: bool | string
	if type == "bool" {values: [string]: bool}
	if type == "string" {values: [string]: string}
	default!: string
	_known: [for k, _ in values {k}]
	_ok: list.Contains(_known, default) & true
}`,
		objects: `{"spec": {"values": {"on": true}, "default": "on"}}
{"spec": {"values": {"on": true}, "default": "off"}}
{"spec": {"type": "string", "values": {"on": "x"}, "default": "on"}}
{"spec": {"type": "string", "values": {"on": true}, "default": "on"}}`,
	},
	{
		name: "matchN beside fields",
		schema: `spec: {
	matchN(1, [{inline!: string}, {secret!: string}])
	inline?: string
	secret?: string
	ports?: [...int]
}`,
		objects: `{"spec": {"inline": "x", "ports": [1]}}
{"spec": {"inline": "x", "ports": ["a"]}}
{"spec": {"inline": "x", "secret": "y"}}
{"spec": {"inline": "x", "unknown": 1}}`,
	},
	{
		name: "a condition that forbids a field",
		schema: `spec: {
	before?:  string
	percent?: int
	if before != _|_ {percent?: _|_}
	type: *"internal" | "external"
	port?: int
	if type == "internal" {port?: _|_}
}`,
		objects: `{"spec": {"before": "1h"}}
{"spec": {"percent": 1}}
{"spec": {"before": "1h", "percent": 1}}
{"spec": {"port": 1}}
{"spec": {"type": "external", "port": 1}}`,
	},
	{
		name:   "a map that knows its keys",
		schema: `spec: [K=string]: {name: K, host: "\(K).svc", port: *80 | int}`,
		objects: `{"spec": {"a": {}}}
{"spec": {"a": {"name": "a", "port": 1}}}
{"spec": {"a": {"name": "b"}}}
{"spec": {"a": {"unknown": 1}}}`,
	},
	{
		name: "an alternative that needs what it is an alternative of",
		schema: `spec: #Expr
#Expr: {op!: "and", of!: [...#Expr]} | {op!: "not", arg!: #Expr} | {op!: "eq", field!: string}`,
		objects: `{"spec": {"op": "eq", "field": "a"}}
{"spec": {"op": "not", "arg": {"op": "eq", "field": "a"}}}
{"spec": {"op": "and", "of": [{"op": "not", "arg": {"op": "eq", "field": "a"}}]}}
{"spec": {"op": "and", "of": [{"op": "not", "arg": {"op": "no"}}]}}`,
	},
	{
		name: "one of the names in a list",
		schema: `spec: {
	pools!: [...{name!: string}]
	primary!: or([for p in pools {p.name}])
}`,
		objects: `{"spec": {"pools": [{"name": "a"}, {"name": "b"}], "primary": "b"}}
{"spec": {"pools": [{"name": "a"}], "primary": "b"}}
{"spec": {"pools": [], "primary": "b"}}`,
	},
}

func TestPrograms_AgreeWithCUE(t *testing.T) {
	for _, test := range agreements {
		t.Run(test.name, func(t *testing.T) {
			text := "import \"list\"\n_use: list.MinItems(0)\n#schema: " + test.schema
			ctx := cuecontext.New()
			schema := ctx.CompileString(text, cue.Filename("schema.cue")).LookupPath(cue.ParsePath("#schema"))
			program := reloaded(t, mustCompile(t, text))
			for object := range strings.Lines(test.objects) {
				var x map[string]any
				if err := json.Unmarshal([]byte(object), &x); err != nil {
					t.Fatal(err)
				}
				if problem := compare(program, ctx, schema, jsonvalue.PlainNumbers(x).(map[string]any)); problem != "" {
					t.Errorf("%s: %s", strings.TrimSpace(object), problem)
				}
			}
		})
	}
}
