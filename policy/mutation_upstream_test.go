package policy_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/compile"
)

// deployments is a kind with the parts of a Deployment that the cases of Kubernetes use, and rules in place of RULES.
const deployments = `{
	teams: b: {
		kinds: "deployments.b.example.com": {
			group: "b.example.com", names: {kind: "Deployment", plural: "deployments"}, storageVersion: "v1"
			versions: v1: #schema: spec?: {
				replicas?: int, paused?: bool, progressDeadlineSeconds?: int
				byName?: [string]: {size?: int, tags?: [string]: string}, lists?: [...{[string]: int}]
				selector?: {matchLabels?: [string]: string} @k8s(mapType=atomic)
				template?: {metadata?: labels?: [string]: string, spec?: {
					volumes?: [...{name!: string, hostPath?: path!: string}] @k8s(listType=map,listMapKeys=name)
					containers?: [...#Container] @k8s(listType=map,listMapKeys=name)
					initContainers?: [...#Container] @k8s(listType=map,listMapKeys=name)
					hostNetwork?: bool
				}}
			}
			#Container: {
				name!: string, image?: string, command?: [...string], args?: [...string]
				env?: [...{name!: string, value?: string}] @k8s(listType=map,listMapKeys=name)
				ports?: [...{containerPort!: int}] @k8s(listType=map,listMapKeys=containerPort)
				resources?: {limits?: [string]: string, requests?: [string]: string}
			}
		}
		RULES
	}
}`

// upstreamCase is a case of k8s.io/apiserver/pkg/admission/plugin/policy/mutating.
type upstreamCase struct {
	name        string
	expressions []string // "Object…" is an ApplyConfiguration, all others are a JSONPatch
	more        string   // further fields of the rule
	// object is the content of the object, and old that of the stored one; want is the result, "" for the object itself.
	object, old, want string
	err               string // part of the error, at compile time or at run time
	differs           string // how the expression differs from upstream's, and why
}

func patchCase(name, expression, object, want string) upstreamCase {
	return upstreamCase{name: name, expressions: []string{expression}, object: object, want: want}
}

func podCase(name, expression, pod, want string) upstreamCase {
	in := func(pod string) string {
		return `{"spec":{"template":{"spec":` + pod + `}}}`
	}
	return upstreamCase{name: name, expressions: []string{expression}, object: in(pod), want: in(want)}
}

const typedLists = "the lists have different types for CEL, which upstream does not know; dyn() makes them one"

// upstreamCases are those of patch/smd_test.go, patch/json_patch_test.go, compilation_test.go and dispatcher_test.go.
var upstreamCases = []upstreamCase{
	// smd_test.go
	podCase("apply configuration add to listType=map", `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{volumes: [Object.spec.template.spec.volumes{name: "y"}]}}}}`,
		`{"volumes":[{"name":"x"}]}`, `{"volumes":[{"name":"x"},{"name":"y"}]}`),
	podCase("apply configuration update listType=map entry", `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{volumes: [Object.spec.template.spec.volumes{name: "y", hostPath: Object.spec.template.spec.volumes.hostPath{path: "a"}}]}}}}`,
		`{"volumes":[{"name":"x"},{"name":"y"}]}`, `{"volumes":[{"name":"x"},{"name":"y","hostPath":{"path":"a"}}]}`),
	patchCase("apply configuration with conditionals", `Object{spec: Object.spec{replicas: object.spec.replicas % 2 == 0?object.spec.replicas + 1:object.spec.replicas}}`, `{"spec":{"replicas":2}}`, `{"spec":{"replicas":3}}`),
	{name: "apply configuration with old object", expressions: []string{`Object{spec: Object.spec{replicas: oldObject.spec.replicas % 2 == 0?oldObject.spec.replicas + 1:oldObject.spec.replicas}}`}, object: `{"spec":{"replicas":1}}`, old: `{"spec":{"replicas":2}}`, want: `{"spec":{"replicas":3}}`},
	patchCase("complex apply configuration initialization", `Object{spec: Object.spec{replicas: 1, template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {"app": "nginx"}}, spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "nginx", image: "nginx:1.14.2", ports: [Object.spec.template.spec.containers.ports{containerPort: 80}], resources: Object.spec.template.spec.containers.resources{limits: {"cpu": "128M"}}}]}}}}`,
		`{"spec":{}}`, `{"spec":{"replicas":1,"template":{"metadata":{"labels":{"app":"nginx"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1.14.2","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"128M"}}}]}}}}`),
	// A type of the name of a field that is a map.
	patchCase("a map as a type", `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{app: "nginx", a__dot__b: "x"}}}}}`,
		`{"spec":{}}`, `{"spec":{"template":{"metadata":{"labels":{"app":"nginx","a.b":"x"}}}}}`),
	patchCase("a map as a type, merged", `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{b: "2"}}}}}`,
		`{"spec":{"template":{"metadata":{"labels":{"a":"1"}}}}}`, `{"spec":{"template":{"metadata":{"labels":{"a":"1","b":"2"}}}}}`),
	patchCase("a map as a type, with an optional field", `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{?b: optional.none(), c: "3"}}}}}`,
		`{"spec":{}}`, `{"spec":{"template":{"metadata":{"labels":{"c":"3"}}}}}`),
	patchCase("a map of objects as a type", `Object{spec: Object.spec{byName: Object.spec.byName{first: Object.spec.byName{size: 1, tags: Object.spec.byName.tags{x: "y"}}}}}`, `{"spec":{}}`, `{"spec":{"byName":{"first":{"size":1,"tags":{"x":"y"}}}}}`),
	patchCase("a map of objects as a literal", `Object{spec: Object.spec{byName: {"first": Object.spec.byName{size: 1}}}}`, `{"spec":{}}`, `{"spec":{"byName":{"first":{"size":1}}}}`),
	patchCase("maps in a list as a type", `[JSONPatch{op: "add", path: "/spec/lists", value: [Object.spec.lists{a: 1}, {"b": 2}]}]`, `{"spec":{}}`, `{"spec":{"lists":[{"a":1},{"b":2}]}}`),
	{name: "a map as a type, with a value of another type", expressions: []string{`Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: Object.spec.template.metadata.labels{app: 1}}}}}`}, err: "expected type of field 'labels'"},
	{name: "apply configuration with change to atomic", expressions: []string{`Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"l": "v"}}}}`}, err: "spec.selector is atomic"},
	{name: "apply configuration with invalid type name", expressions: []string{`Object{spec: Object.specx{replicas: 1}}`}, err: "undeclared reference to 'Object.specx'"},
	{name: "apply configuration with invalid field name", expressions: []string{`Object{spec: Object.spec{replicasx: 1}}`}, err: "undefined field 'replicasx'; did you mean \"replicas\"?"},
	{name: "apply configuration with invalid return type", expressions: []string{`Object{} == Object{} ? "I'm a teapot!" : ""`}, err: "must be of type Object"},
	{name: "apply configuration with invalid initializer return type", expressions: []string{`Object.spec.template{}`}, err: "must be of type Object"},
	patchCase("apply configuration with duplicate env vars in original object", `Object{spec: Object.spec{replicas: 3}}`,
		`{"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"test","value":"a"},{"name":"test","value":"b"}]}]}}}}`,
		`{"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"nginx","env":[{"name":"test","value":"a"},{"name":"test","value":"b"}]}]}}}}`),
	podCase("apply configuration modify existing env variable", `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "nginx", env: [Object.spec.template.spec.containers.env{name: "test", value: "c"}]}]}}}}`,
		`{"containers":[{"name":"nginx","env":[{"name":"test","value":"a"},{"name":"test","value":"b"},{"name":"foo","value":"bar"}]}]}`, `{"containers":[{"name":"nginx","env":[{"name":"test","value":"c"},{"name":"foo","value":"bar"}]}]}`),

	// json_patch_test.go
	patchCase("jsonPatch with false test operation", `[JSONPatch{op: "test", path: "/spec/replicas", value: 100}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]`, `{"spec":{"replicas":1}}`, ``),
	patchCase("jsonPatch with true test operation", `[JSONPatch{op: "test", path: "/spec/replicas", value: 1}, JSONPatch{op: "replace", path: "/spec/replicas", value: 3}]`, `{"spec":{"replicas":1}}`, `{"spec":{"replicas":3}}`),
	patchCase("jsonPatch remove to unset field", `[JSONPatch{op: "remove", path: "/spec/replicas"}]`, `{"spec":{"replicas":1}}`, `{"spec":{}}`),
	patchCase("jsonPatch remove map entry by key", `[JSONPatch{op: "remove", path: "/metadata/labels/y"}]`, `{"metadata":{"labels":{"x":"1","y":"1"}}}`, `{"metadata":{"labels":{"x":"1"}}}`),
	podCase("jsonPatch remove element in list", `[JSONPatch{op: "remove", path: "/spec/template/spec/containers/1"}]`, `{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, `{"containers":[{"name":"a"},{"name":"c"}]}`),
	patchCase("jsonPatch copy map entry by key", `[JSONPatch{op: "copy", from: "/metadata/labels/x", path: "/metadata/labels/y"}]`, `{"metadata":{"labels":{"x":"1"}}}`, `{"metadata":{"labels":{"x":"1","y":"1"}}}`),
	podCase("jsonPatch copy first element to end of list", `[JSONPatch{op: "copy", from: "/spec/template/spec/containers/0", path: "/spec/template/spec/containers/-"}]`, `{"containers":[{"name":"a"},{"name":"b"}]}`, `{"containers":[{"name":"a"},{"name":"b"},{"name":"a"}]}`),
	patchCase("jsonPatch move map entry by key", `[JSONPatch{op: "move", from: "/metadata/labels/x", path: "/metadata/labels/y"}]`, `{"metadata":{"labels":{"x":"1"}}}`, `{"metadata":{"labels":{"y":"1"}}}`),
	podCase("jsonPatch move first element to end of list", `[JSONPatch{op: "move", from: "/spec/template/spec/containers/0", path: "/spec/template/spec/containers/-"}]`, `{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, `{"containers":[{"name":"b"},{"name":"c"},{"name":"a"}]}`),
	patchCase("jsonPatch add map entry by key and value", `[JSONPatch{op: "add", path: "/metadata/labels/x", value: "2"}]`, `{"metadata":{"labels":{"y":"1"}}}`, `{"metadata":{"labels":{"x":"2","y":"1"}}}`),
	patchCase("jsonPatch add map value to field", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"y": "2"}}]`, `{}`, `{"metadata":{"labels":{"y":"2"}}}`),
	patchCase("jsonPatch add map to existing map", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"y": "2"}}]`, `{"metadata":{"labels":{"x":"1"}}}`, `{"metadata":{"labels":{"y":"2"}}}`),
	podCase("jsonPatch add to start of list", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0", value: {"name": "x"}}]`, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"x"},{"name":"a"}]}`),
	podCase("jsonPatch add to end of list", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: {"name": "x"}}]`, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"a"},{"name":"x"}]}`),
	patchCase("jsonPatch replace key in map", `[JSONPatch{op: "replace", path: "/metadata/labels/x", value: "2"}]`, `{"metadata":{"labels":{"y":"1"}}}`, `{"metadata":{"labels":{"x":"2","y":"1"}}}`),
	patchCase("jsonPatch replace map value of unset field", `[JSONPatch{op: "replace", path: "/metadata/labels", value: {"y": "2"}}]`, `{}`, `{"metadata":{"labels":{"y":"2"}}}`),
	patchCase("jsonPatch replace map value of set field", `[JSONPatch{op: "replace", path: "/metadata/labels", value: {"y": "2"}}]`, `{"metadata":{"labels":{"x":"1"}}}`, `{"metadata":{"labels":{"y":"2"}}}`),
	podCase("jsonPatch replace first element in list", `[JSONPatch{op: "replace", path: "/spec/template/spec/containers/0", value: {"name": "x"}}]`, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"x"}]}`),
	patchCase("jsonPatch add an Object", `[JSONPatch{op: "add", path: "/spec", value: Object.spec{selector: Object.spec.selector{}, replicas: 10}}]`, `{}`, `{"spec":{"selector":{},"replicas":10}}`),
	patchCase("JSONPatch patch type has field access", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"op": JSONPatch{op: "opValue"}.op, "path": JSONPatch{path: "pathValue"}.path, "from": JSONPatch{from: "fromValue"}.from, "value": string(JSONPatch{value: "valueValue"}.value)}}]`, `{}`,
		`{"metadata":{"labels":{"op":"opValue","path":"pathValue","from":"fromValue","value":"valueValue"}}}`),
	patchCase("JSONPatch patch type has field testing", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"op": string(has(JSONPatch{op: "x"}.op)), "value": string(has(JSONPatch{value: "x"}.value)), "op-unset": string(has(JSONPatch{}.op)), "value-unset": string(has(JSONPatch{}.value))}}]`, `{}`,
		`{"metadata":{"labels":{"op":"true","value":"true","op-unset":"false","value-unset":"false"}}}`),
	patchCase("JSONPatch patch type equality", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"empty": string(JSONPatch{} == JSONPatch{}), "same": string(JSONPatch{op: "add", path: "p", from: "f", value: 1} == JSONPatch{op: "add", path: "p", from: "f", value: 1}), "different-op": string(JSONPatch{op: "add"} == JSONPatch{op: "remove"}), "different-value": string(JSONPatch{value: "1"} == JSONPatch{value: 1})}}]`, `{}`,
		`{"metadata":{"labels":{"empty":"true","same":"true","different-op":"false","different-value":"false"}}}`),
	patchCase("JSONPatch key escaping", `[JSONPatch{op: "add", path: "/metadata/labels", value: {}}, JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("k8s.io/x~y"), value: "true"}]`, `{}`, `{"metadata":{"labels":{"k8s.io/x~y":"true"}}}`),
	podCase("jsonPatch with CEL initializer", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "x", ports: [Object.spec.template.spec.containers.ports{containerPort: 8080}]}}]`, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"a"},{"name":"x","ports":[{"containerPort":8080}]}]}`),
	{name: "jsonPatch invalid CEL initializer field", expressions: []string{`[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "x", ports: [Object.spec.template.spec.containers.ports{containerPortZ: 8080}]}}]`}, err: "undefined field 'containerPortZ'"},
	{name: "jsonPatch invalid CEL initializer type", expressions: []string{`[JSONPatch{op: "add", path: "/spec/template/spec/containers/-", value: Object.spec.template.spec.containers{name: "x", ports: [Object.spec.template.spec.containers.portsZ{containerPort: 8080}]}}]`}, err: "undeclared reference to 'Object.spec.template.spec.containers.portsZ'"},
	{name: "jsonPatch replace end of list with - not allowed", expressions: []string{`[JSONPatch{op: "replace", path: "/spec/template/spec/containers/-", value: {"name": "x"}}]`}, object: `{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}`, err: "replace operation does not apply: doc is missing key: /spec/template/spec/containers/-: missing value"},
	podCase("jsonPatch with complex struct as value", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/1", value: object.spec.template.spec.containers[0]}]`, `{"containers":[{"name":"a"}]}`, `{"containers":[{"name":"a"},{"name":"a"}]}`),
	podCase("jsonPatch with large complex struct as value", `[JSONPatch{op: "replace", path: "/spec/template/spec", value: object.spec.template.spec}]`, `{"containers":[{"name":"a","image":"nginx"}],"hostNetwork":true}`, `{"containers":[{"name":"a","image":"nginx"}],"hostNetwork":true}`),
	podCase("jsonPatch with slice of complex struct as value", `[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: object.spec.template.spec.containers}]`, `{"containers":[{"name":"a","image":"nginx"}]}`, `{"containers":[{"name":"a","image":"nginx"}],"initContainers":[{"name":"a","image":"nginx"}]}`),
	{name: "jsonPatch with list concatenation operator", expressions: []string{`[JSONPatch{op: "add", path: "/spec/template/spec/containers", value: object.spec.template.spec.containers + [object.spec.template.spec.containers[0]]}]`}, object: `{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}`, want: `{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}`,
		differs: "the result has one item, not two: the list is of type map, and adding one with the same key replaces the item (KEP-2876)"},
	podCase("jsonPatch with list concatenation using constant value", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/args", value: object.spec.template.spec.containers[0].command + ["--debug", "-v"]}]`, `{"containers":[{"name":"c","command":["server","start"]}]}`, `{"containers":[{"name":"c","command":["server","start"],"args":["server","start","--debug","-v"]}]}`),
	{name: "jsonPatch with list concatenation (typed + unstructured)", expressions: []string{`[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: dyn(object.spec.template.spec.containers) + dyn([{"name": "i", "image": "alpine"}])}]`}, differs: typedLists,
		object: `{"spec":{"template":{"spec":{"containers":[{"name":"m"}]}}}}`, want: `{"spec":{"template":{"spec":{"containers":[{"name":"m"}],"initContainers":[{"name":"m"},{"name":"i","image":"alpine"}]}}}}`},
	{name: "jsonPatch with list concatenation (unstructured + typed)", expressions: []string{`[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: dyn([{"name": "i", "image": "alpine"}]) + dyn(object.spec.template.spec.containers)}]`}, differs: typedLists,
		object: `{"spec":{"template":{"spec":{"containers":[{"name":"m"}]}}}}`, want: `{"spec":{"template":{"spec":{"containers":[{"name":"m"}],"initContainers":[{"name":"i","image":"alpine"},{"name":"m"}]}}}}`},
	{name: "jsonPatch with list concatenation (typed + structured)", expressions: []string{`[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: dyn(object.spec.template.spec.containers) + dyn([Object.spec.template.spec.initContainers{name: "i", command: ["echo"]}])}]`}, differs: typedLists,
		object: `{"spec":{"template":{"spec":{"containers":[{"name":"m"}]}}}}`, want: `{"spec":{"template":{"spec":{"containers":[{"name":"m"}],"initContainers":[{"name":"m"},{"name":"i","command":["echo"]}]}}}}`},
	podCase("jsonPatch with list concatenation (structured + structured)", `[JSONPatch{op: "add", path: "/spec/template/spec/initContainers", value: [Object.spec.template.spec.initContainers{name: "i"}] + [Object.spec.template.spec.initContainers{name: "j"}]}]`, `{}`, `{"initContainers":[{"name":"i"},{"name":"j"}]}`),
	patchCase("jsonPatch with map key comprehension all predicate", `[JSONPatch{op: "add", path: "/metadata/labels/added", value: object.metadata.labels.all(k, k != "invalid") ? "true" : "false"}]`, `{"metadata":{"labels":{"env":"prod"}}}`, `{"metadata":{"labels":{"env":"prod","added":"true"}}}`),
	patchCase("jsonPatch with scalar int and bool as values", `[JSONPatch{op: "add", path: "/spec/progressDeadlineSeconds", value: object.spec.replicas}, JSONPatch{op: "add", path: "/spec/template/spec/hostNetwork", value: object.spec.paused}]`, `{"spec":{"replicas":3,"paused":true,"template":{"spec":{}}}}`, `{"spec":{"replicas":3,"paused":true,"progressDeadlineSeconds":3,"template":{"spec":{"hostNetwork":true}}}}`),
	podCase("jsonPatch with map of resource quantities as value", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources/limits", value: {"cpu": object.spec.template.spec.containers[0].resources.requests["cpu"]}}]`, `{"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"}}}]}`, `{"containers":[{"name":"c","resources":{"requests":{"cpu":"100m"},"limits":{"cpu":"100m"}}}]}`),
	podCase("jsonPatch with slice of scalars as value", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/args", value: object.spec.template.spec.containers[0].command}]`, `{"containers":[{"name":"c","command":["sh","-c"]}]}`, `{"containers":[{"name":"c","command":["sh","-c"],"args":["sh","-c"]}]}`),
	patchCase("jsonPatch with map of scalars as value", `[JSONPatch{op: "add", path: "/metadata/annotations", value: object.metadata.labels}]`, `{"metadata":{"labels":{"env":"prod"}}}`, `{"metadata":{"labels":{"env":"prod"},"annotations":{"env":"prod"}}}`),
	podCase("jsonPatch with map of struct as value", `[JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources/limits", value: object.spec.template.spec.containers[0].resources.requests}]`, `{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m"}}}]}`, `{"containers":[{"name":"c","resources":{"requests":{"cpu":"250m"},"limits":{"cpu":"250m"}}}]}`),

	// compilation_test.go
	{name: "applyConfiguration then jsonPatch", expressions: []string{`Object{spec: Object.spec{replicas: object.spec.replicas + 100}}`, `[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 10}]`}, object: `{"spec":{"replicas":1}}`, want: `{"spec":{"replicas":111}}`},
	{name: "jsonPatch then applyConfiguration", expressions: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 10}]`, `Object{spec: Object.spec{replicas: object.spec.replicas + 100}}`}, object: `{"spec":{"replicas":1}}`, want: `{"spec":{"replicas":111}}`},
	{name: "jsonPatch with variable", expressions: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: variables.desired + 1}]`}, more: `variables: desired: "10"`, object: `{"spec":{"replicas":1}}`, want: `{"spec":{"replicas":11}}`},
	{name: "apply configuration with variable", expressions: []string{`Object{spec: Object.spec{replicas: variables.desired + 1}}`}, more: `variables: desired: "10"`, object: `{"spec":{"replicas":1}}`, want: `{"spec":{"replicas":11}}`},
	{name: "apply configuration with params", expressions: []string{`Object{spec: Object.spec{replicas: int(params.data.k1)}}`}, more: `params: data: k1: "100"`, object: `{"spec":{"replicas":1}}`, want: `{"spec":{"replicas":100}}`, differs: "the params are a constant of the rule, with known fields"},
	{name: "jsonPatch with excessive cost", expressions: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: variables.list.all(x1, variables.list.all(x2, variables.list.all(x3, variables.list.all(x4, variables.list.all(x5, variables.list.all(x5, "0123456789" == "0123456789"))))))? 1 : 0}]`}, more: `variables: list: "[0,1,2,3,4,5,6,7,8,9]"`, err: "times what an expression may cost at most"},
	{name: "request variable", expressions: []string{`[JSONPatch{op: "replace", path: "/spec/replicas", value: request.kind.group == 'b.example.com' && request.kind.version == 'v1' && request.kind.kind == 'Deployment' ? 10 : 0}]`}, object: `{"spec":{"replicas":1}}`, want: `{"spec":{"replicas":10}}`, differs: "the group is another one"},
	patchCase("namespace request variable", `[JSONPatch{op: "replace", path: "/spec/replicas", value: namespaceObject.metadata.name == 'ns1' ? 10 : 0}]`, `{"spec":{"replicas":1}}`, `{"spec":{"replicas":10}}`),
	patchCase("authorizer check", `[JSONPatch{op: "replace", path: "/spec/replicas", value: authorizer.group('').resource('endpoints').check('create').allowed() ? 10 : 0}]`, `{"spec":{"replicas":1}}`, `{"spec":{"replicas":10}}`),
	patchCase("object type has field access", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"value": Object{kind: "fieldValue"}.kind}}]`, `{}`, `{"metadata":{"labels":{"value":"fieldValue"}}}`),
	patchCase("object type has field testing", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"field": string(has(Object{kind: "x"}.kind)), "field-unset": string(has(Object{}.kind))}}]`, `{}`, `{"metadata":{"labels":{"field":"true","field-unset":"false"}}}`),
	patchCase("object type equality", `[JSONPatch{op: "add", path: "/metadata/labels", value: {"empty": string(Object{} == Object{}), "same": string(Object{kind: "x"} == Object{kind: "x"}), "different": string(Object{kind: "x"} == Object{kind: "y"})}}]`, `{}`, `{"metadata":{"labels":{"empty":"true","same":"true","different":"false"}}}`),
	{name: "object types are not fully type checked", expressions: []string{`[JSONPatch{op: "add", path: "/spec", value: Object.invalid{replicas: 1}}]`}, err: "undeclared reference to 'Object.invalid'"},
}

// ruleOf returns the rule of a case.
func (c *upstreamCase) rule(i int) string {
	var steps strings.Builder
	for j, e := range c.expressions {
		patchType := policy.JSONPatch
		if strings.HasPrefix(e, "Object") {
			patchType = policy.ApplyConfiguration
		}
		fmt.Fprintf(&steps, "mutations: s%d: {order: %d, patchType: %q, expression: %q}\n", j, j, patchType, e)
	}
	return fmt.Sprintf("admission: mutate: c%03d: {order: %d, match: {apiGroups: [\"b.example.com\"], resources: [\"deployments\"]}\n%s\n%s}\n", i, i, steps.String(), c.more)
}

func (c *upstreamCase) read(t *testing.T, text string) *policy.Object {
	if text == "" {
		return nil
	}
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &content); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	meta := &metav1.ObjectMeta{}
	if m, ok := content["metadata"]; ok {
		encoded, _ := json.Marshal(m)
		if err := json.Unmarshal(encoded, meta); err != nil {
			t.Fatal(err)
		}
		delete(content, "metadata")
	}
	meta.Name, meta.Namespace = "d", "ns1"
	return &policy.Object{Meta: meta, Content: content}
}

// The cases of Kubernetes' own tests have the results that they have there. Where Kubernetes reports a mistake when a rule
// runs, it is reported here when the bundle is compiled, as far as types show it.
func TestMutationsAreKubernetes(t *testing.T) {
	var rules strings.Builder
	for i := range upstreamCases {
		if c := &upstreamCases[i]; c.err == "" || c.object != "" {
			rules.WriteString(c.rule(i))
		}
	}
	p := loaded(t, strings.Replace(deployments, "RULES", rules.String(), 1))
	v := p.Version(schema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "deployments"})
	loadedRules := admission.MustOf(p)
	all := loadedRules.Mutations(v, "", policy.Create)
	for i := range upstreamCases {
		c := &upstreamCases[i]
		t.Run(c.name, func(t *testing.T) {
			if c.err != "" && c.object == "" {
				source, _ := module(t, ".", map[string]string{"bundle.cue": bundleFile(strings.Replace(deployments, "RULES", c.rule(0), 1))})
				if _, diags := compile.Bundle(source); len(diags) != 1 || !strings.Contains(diags[0].String(), c.err) || diags[0].Pos.Line == 0 {
					t.Errorf("%v, want %q", diags, c.err)
				}
				return
			}
			object := c.read(t, c.object)
			a := &admission.Attributes{
				Request:   &policy.Request{User: "u", Groups: []string{"system:masters"}, Verb: "create", IsResource: true, Group: "b.example.com", Version: "v1", Resource: "deployments", Namespace: "ns1"},
				Operation: policy.Create, Object: object, Old: c.read(t, c.old),
				Namespace: func() *policy.Object { return &policy.Object{Meta: &metav1.ObjectMeta{Name: "ns1"}} },
			}
			m := loadedRules.Mutate(t.Context(), v, a, nil)
			for j := range all {
				if all[j].ID != fmt.Sprintf("b/mutate/c%03d", i) {
					continue
				}
				_, asked, err := m.Run(&all[j])
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("%v, want %q", err, c.err)
					}
					return
				}
				if err != nil || !asked {
					t.Fatal(asked, err)
				}
			}
			got, err := m.Object()
			if err != nil {
				t.Fatal(err)
			}
			if got == nil {
				got = object
			}
			want := c.read(t, c.want)
			if want == nil {
				want = c.read(t, c.object)
			}
			delete(got.Content, "apiVersion")
			delete(got.Content, "kind")
			if !reflect.DeepEqual(got, want) {
				x, _ := json.Marshal(got)
				y, _ := json.Marshal(want)
				t.Errorf("%s, want %s", x, y)
			}
		})
	}
}
