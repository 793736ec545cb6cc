package edit_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
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
