package edit_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
)

const gadgetsWithNames = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          metadata: {type: object, properties: {name: {type: string, maxLength: 5}}}
          spec: {type: object, properties: {steps: {type: array, items: {type: string}}, size: {type: integer RULES}}}
`

// What a definition says of an object's name is a part of its schema: it is reported beside other mistakes of the schema, and no
// rule is skipped because of them if there is none.
func TestConstraintsOfNamesBesideOtherMistakes(t *testing.T) {
	for rules, skipped := range map[string]bool{"": false, ", x-kubernetes-validations: [{rule: self < 9}]": true} {
		p := planetest.NewPlane(t)
		p.PushGadgets(t, strings.Replace(gadgetsWithNames, " RULES", rules, 1))
		for name, long := range map[string]bool{"a": false, "too-long": true} {
			a := p.Do("POST", "/apis/example.com/v1/namespaces/default/gadgets", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"`+name+`"},"spec":{"steps":{}}}`)
			body := string(a.Body)
			if a.Code != 422 || !strings.Contains(body, `"field":"spec.steps"`) || strings.Contains(body, `"field":"metadata.name"`) != long || strings.Contains(body, "rules were not checked") != skipped {
				t.Errorf("rules %q: %s", rules, a)
			}
		}
		if a := p.Do("POST", "/apis/example.com/v1/namespaces/default/gadgets", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"too-long"}}`); a.Code != 422 || !strings.Contains(string(a.Body), `"field":"metadata.name"`) {
			t.Error(a)
		}
	}
}

// A default that CUE refuses once it is written out is left out, and the client is told so.
func TestDefaultsThatAreLeftOutAreNamed(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, strings.Replace(planetest.Bundle, "#Widget: {", `#Probe: {every?: int, path?: string}
#Unit: {
	version: string | *"v1"
	units: [string]: {ready?: #Probe, live?: #Probe, args?: [...string]}
	units: main: {ready: {path: "/", every: _ | *3}, live: ready, args: ["serve", "\(version)"]}
}
bundle: teams: t: kinds: "units.example.com": {group: "example.com", names: {kind: "Unit", plural: "units"}, storageVersion: "v1", versions: v1: #schema: spec!: #Unit}
#Widget: {`, 1))
	a := p.Do("POST", "/apis/example.com/v1/namespaces/default/units", `{"apiVersion":"example.com/v1","kind":"Unit","metadata":{"name":"a"},"spec":{"units":{"main":{"live":{"every":5}}}}}`)
	if warned := strings.Join(a.Header.Values("Warning"), "\n"); a.Code != 201 || !strings.Contains(warned, "the default of spec.units.main.ready.every is left out") || strings.Count(warned, "left out") != 1 ||
		!strings.Contains(string(a.Body), `"args":["serve","v1"]`) || !strings.Contains(string(a.Body), `"live":{"every":5,"path":"/"}`) {
		t.Errorf("%s\n%s", a, warned)
	}
	a = p.Do("POST", "/apis/example.com/v1/namespaces/default/units", `{"apiVersion":"example.com/v1","kind":"Unit","metadata":{"name":"b"},"spec":{}}`)
	if a.Code != 201 || len(a.Header.Values("Warning")) > 0 {
		t.Error(a)
	}
}
