package managed_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

const twoVersions = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Gadget, plural: gadgets, singular: gadget, listKind: GadgetList}
  versions:
  - name: v1beta1
    served: true
    storage: false
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {a: {type: string}, list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, old: {type: integer}}}}}}
          status: {type: object, properties: {phase: {type: string}}}
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {a: {type: string}, b: {type: string}, n: {type: object, properties: {x: {type: integer}}}, list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name], properties: {name: {type: string}, old: {type: integer}, new: {type: integer}}}}}}
          status: {type: object, properties: {phase: {type: string}}}
`

// A manager applies in a version whose schema has more than an older one, in which others write. Nothing of it is lost, and nothing is
// refused. kube-apiserver refuses every later apply.
func TestAppliesAfterWritesInAnotherVersion(t *testing.T) {
	p := planetest.NewPlane(t)
	p.PushGadgets(t, twoVersions)
	const v1, old = "/apis/example.com/v1/namespaces/default/gadgets/", "/apis/example.com/v1beta1/namespaces/default/gadgets/"
	apply := func(path, name, manager, version, rest string) planetest.Answer {
		return p.Do("PATCH", path+"?fieldManager="+manager, `{"apiVersion":"example.com/`+version+`","kind":"Gadget","metadata":{"name":"`+name+`"},`+rest+`}`, "Content-Type", "application/apply-patch+yaml")
	}
	for name, write := range map[string]func(name string) planetest.Answer{
		"status-apply": func(name string) planetest.Answer {
			return apply(old+name+"/status", name, "controller", "v1beta1", `"status":{"phase":"Up"}`)
		},
		"status-patch": func(name string) planetest.Answer {
			return p.Do("PATCH", old+name+"/status?fieldManager=controller", `{"status":{"phase":"Up"}}`, "Content-Type", "application/merge-patch+json")
		},
		"label": func(name string) planetest.Answer {
			return p.Do("PATCH", old+name+"?fieldManager=controller", `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", "application/merge-patch+json")
		},
		"apply": func(name string) planetest.Answer {
			return apply(old+name, name, "controller", "v1beta1", `"spec":{"list":[{"name":"three","old":3}]}`)
		},
	} {
		if a := apply(v1+name, name, "gitops", "v1", `"spec":{"a":"x","b":"one","n":{"x":1},"list":[{"name":"one","new":1},{"name":"two","old":2,"new":2}]}`); a.Code != 201 {
			t.Fatal(a)
		}
		if a := write(name); a.Code != 200 {
			t.Fatal(a)
		}
		a := apply(v1+name, name, "gitops", "v1", `"spec":{"a":"x","b":"two","list":[{"name":"one","new":5}]}`)
		if a.Code != 200 || a.Field("spec", "b") != "two" || a.Field("spec", "a") != "x" {
			t.Errorf("%s: %s", name, a)
			continue
		}
		said := string(a.Body)
		if strings.Contains(said, `"n":{`) || strings.Contains(said, `"name":"two"`) || !strings.Contains(said, `"new":5`) || name == "apply" != strings.Contains(said, `"name":"three"`) {
			t.Errorf("%s: %s", name, a)
		}
		if a := apply(v1+name, name, "other", "v1", `"spec":{"b":"three"}`); a.Code != 409 {
			t.Errorf("%s: another manager: %s", name, a)
		}
	}
}
