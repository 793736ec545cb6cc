package policy_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	upstreamcel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/policy"
)

// ruled is a schema of specs with rules in all the places where they can stand.
const ruled = `
            properties:
              num: {type: integer}
              f: {type: number}
              s: {type: string, maxLength: 20}
              maybe: {type: object, nullable: true, properties: {with-dash: {type: integer}}}
              at: {type: string, format: date-time}
              day: {type: string, format: date}
              for: {type: string, format: duration, nullable: true}
              raw: {type: string, format: byte}
              either: {x-kubernetes-int-or-string: true}
              any: {x-kubernetes-preserve-unknown-fields: true}
              map:
                type: object
                maxProperties: 5
                additionalProperties: {type: integer, x-kubernetes-validations: [{rule: self < 3, message: of a map}]}
              list:
                type: array
                maxItems: 5
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [k]
                items:
                  type: object
                  required: [k]
                  properties: {k: {type: string, maxLength: 5}, v: {type: integer}}
                  x-kubernetes-validations: [{rule: "!has(self.v) || !has(oldSelf.v) || self.v >= oldSelf.v", message: of items, fieldPath: .v, reason: FieldValueForbidden}]
              set: {type: array, maxItems: 5, items: {type: string, maxLength: 5}, x-kubernetes-list-type: set}
            x-kubernetes-validations:
            - {rule: "!has(self.num) || self.num < 3", message: number}
            - {rule: "!has(self.f) || self.f < 2.5", message: f, fieldPath: .f}
            - {rule: "!has(self.s) || self.s.size() > 1", messageExpression: "'s is ' + self.s"}
            - {rule: "!has(self.maybe) || self.maybe == null || !has(self.maybe.with__dash__dash) || self.maybe.with__dash__dash < 3", message: maybe}
            - {rule: "!has(self.at) || self.at.getFullYear() > 2020", message: at}
            - {rule: "!has(self.day) || self.day.getMonth() > 5", message: 'on'}
            - {rule: "!has(self.__for__) || self.__for__ == null || self.__for__ < duration('1h')", message: for}
            - {rule: "!has(self.raw) || self.raw.size() > 1", message: raw}
            - {rule: "!has(self.either) || (type(self.either) == int ? self.either < 3 : self.either.startsWith('x'))", message: either}
            - {rule: "!has(self.map) || self.map.all(k, k != 'c')", message: map}
            - {rule: "!has(self.list) || self.list.exists(x, x.k == 'a')", message: list}
            - {rule: "!has(self.set) || self.set == ['a', 'b'] || self.set.size() < 2", message: set}
            - {rule: "!has(self.set) || self.set + ['a', 'c'] != ['a', 'b', 'c'] || !has(self.num)", message: sum}
            - {rule: "!has(self.list) || !has(oldSelf.list) || self.list != oldSelf.list", message: other list}
            - {rule: "!has(self.list) || !has(oldSelf.list) || (self.list + oldSelf.list).size() < 3", message: more lists}
            - {rule: "!has(self.list) || !has(oldSelf.list) || self.list + oldSelf.list != oldSelf.list", message: less lists}
            - {rule: "!has(oldSelf.num) || has(self.num)", message: num stays}
            - {rule: "!oldSelf.hasValue() || oldSelf.value() != self", optionalOldSelf: true, message: must change}
            - {rule: "has(self.s) || oldSelf.hasValue()", optionalOldSelf: true, message: s at first, reason: FieldValueRequired, fieldPath: .s}
`

// Rules of a definition say of objects what Kubernetes' own code says.
func TestRulesOfDefinitionsAreKubernetes(t *testing.T) {
	v := compileThing(t, ruled)
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(thing(ruled)), &definition); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	schema, err := structural.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	validator := upstreamcel.NewValidator(schema, true, celconfig.PerCallLimit)

	r := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...any) any { return of[r.IntN(len(of))] }
	object := func() map[string]any {
		spec := map[string]any{}
		for name, of := range map[string]func() any{
			"num": func() any { return int64(r.IntN(5)) }, "f": func() any { return pick(int64(2), 2.25, 2.75) }, "s": func() any { return pick("", "x", "xyz") },
			"maybe": func() any { return pick(nil, map[string]any{}, map[string]any{"with-dash": int64(r.IntN(5))}) },
			"at":    func() any { return pick("2020-01-01T00:00:00Z", "2024-01-01T00:00:00.5+02:00") }, "day": func() any { return pick("2024-02-01", "2024-11-01") },
			"for": func() any { return pick(nil, "3s", "2h") }, "raw": func() any { return pick("", "YQ==", "YWI=") }, "either": func() any { return pick(int64(1), int64(7), "x", "y") },
			"any": func() any { return pick("x", int64(1), map[string]any{"a": true}) },
			"map": func() any {
				return pick(map[string]any{"a": int64(1)}, map[string]any{"c": int64(r.IntN(5))}, map[string]any{})
			},
			"list": func() any {
				list := []any{}
				for _, i := range r.Perm(3)[r.IntN(3):] {
					k := []string{"a", "b", "c"}[i]
					list = append(list, map[string]any{"k": k, "v": int64(r.IntN(3))})
				}
				return list
			},
			"set": func() any { return pick([]any{"a", "b"}, []any{"b", "a"}, []any{"c"}, []any{"c", "d"}) },
		} {
			if r.IntN(3) > 0 {
				spec[name] = of()
			}
		}
		return map[string]any{"apiVersion": "a.example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}, "spec": spec}
	}
	said := func(errs field.ErrorList) (all []string) {
		for _, e := range errs {
			detail, _, _ := strings.Cut(e.Detail, " (teams/")
			all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Field, detail))
		}
		slices.Sort(all)
		return all
	}
	ratcheting := func(content map[string]any, old any) []upstreamcel.Option {
		if old == nil {
			return nil
		}
		return []upstreamcel.Option{upstreamcel.WithRatcheting(common.NewCorrelatedObject(content, old, &model.Structural{Structural: schema}))}
	}
	refused := 0
	for range 2000 {
		content := object()
		var before, old any
		var was *policy.Object
		if r.IntN(2) == 0 {
			o := object()
			before, old = o, runtime.DeepCopyJSONValue(o)
			was = &policy.Object{Meta: &metav1.ObjectMeta{Name: "x"}, Content: o}
		}
		theirs, _ := validator.Validate(t.Context(), nil, schema, content, old, celconfig.RuntimeCELCostBudget, ratcheting(content, old)...)
		ours, _ := v.ValidateRules(t.Context(), &policy.Object{Meta: &metav1.ObjectMeta{Name: "x"}, Content: content}, was)
		if a, b := said(theirs), said(ours); !slices.Equal(a, b) {
			shown, _ := json.Marshal([]any{content, before})
			t.Fatalf("Kubernetes says %q\nand the policy %q\nof %s", a, b, shown)
		}
		if len(theirs) > 0 {
			refused++
		}
	}
	if refused < 500 || refused == 2000 {
		t.Errorf("%d of 2000 objects were refused: too few, or too many, to say anything", refused)
	}
}
