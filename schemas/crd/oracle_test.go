package crd_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/crd"
	"stele.dev/stele/schemas/program"
)

// An oracle treats objects with Kubernetes' own code.
type oracle struct {
	structural *structural.Structural
	validator  validation.SchemaValidator
}

func newOracle(t testing.TB, schema map[string]any) *oracle {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(text, &v1); err != nil {
		t.Fatal(err)
	}
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &props, nil); err != nil {
		t.Fatal(err)
	}
	o := &oracle{}
	if o.structural, err = structural.NewStructural(&props); err != nil {
		t.Fatal(err)
	}
	if err := defaulting.PruneDefaults(o.structural); err != nil {
		t.Fatal(err)
	}
	if o.validator, _, err = validation.NewSchemaValidator(&props); err != nil {
		t.Fatal(err)
	}
	return o
}

// prepare decodes, prunes and defaults an object as the API server does.
func (o *oracle) prepare(object map[string]any) []string {
	unknown := pruning.PruneWithOptions(object, o.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(object, o.structural)
	defaulting.Default(object, o.structural)
	return unknown
}

func (o *oracle) validate(object map[string]any) field.ErrorList {
	errs := validation.ValidateCustomResource(nil, object, o.validator)
	return append(errs, listtype.ValidateListSetsAndMaps(nil, o.structural, object)...)
}

// definition returns a definition with the schema.
func definition(t testing.TB, schema map[string]any) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced",
			"names":    map[string]any{"kind": "Thing", "plural": "things"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func nowhere([]string) schemas.Position { return schemas.Position{} }

// A random generates schemas, and objects that nearly satisfy them.
type random struct {
	*rand.Rand
	logic bool // the schema has logical operators
}

func (r *random) chance(percent int) bool { return r.IntN(100) < percent }

func pick[T any](r *random, of ...T) T { return of[r.IntN(len(of))] }

// object returns a schema of objects.
func (r *random) object(depth int) map[string]any {
	properties := map[string]any{}
	var required []any
	for _, name := range []string{"a", "b", "c", "d.e", "f"}[:1+r.IntN(5)] {
		properties[name] = r.schema(depth - 1)
		if r.chance(25) {
			required = append(required, name)
		}
	}
	s := map[string]any{"type": "object", "properties": properties}
	if r.chance(10) {
		required = append(required, "z")
	}
	if required != nil {
		s["required"] = required
	}
	if r.chance(15) {
		s["x-kubernetes-preserve-unknown-fields"] = true
	}
	if r.chance(10) {
		s["minProperties"] = 1 + r.IntN(3)
	}
	if r.chance(10) {
		s["maxProperties"] = 2 + r.IntN(4)
	}
	if r.chance(15) {
		r.operators(s, func() map[string]any {
			n := map[string]any{"properties": map[string]any{pick(r, slices.Sorted(keysOf(properties))...): map[string]any{"enum": []any{"x", true}}}}
			if r.chance(50) {
				n = map[string]any{"required": []any{pick(r, slices.Sorted(keysOf(properties))...)}}
			}
			return n
		})
	}
	return s
}

func keysOf(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// operators adds logical operators to a schema.
func (r *random) operators(s map[string]any, operand func() map[string]any) {
	r.logic = true
	for _, name := range []string{"allOf", "anyOf", "oneOf"} {
		if r.chance(30) {
			s[name] = []any{operand(), operand()}
		}
	}
	if r.chance(20) {
		s["not"] = operand()
	}
}

func (r *random) schema(depth int) map[string]any {
	kind := r.IntN(10)
	if depth <= 0 {
		kind = r.IntN(6)
	}
	var s map[string]any
	switch kind {
	case 0:
		s = map[string]any{"type": "boolean"}
	case 1:
		s = map[string]any{"type": "integer"}
		r.number(s, false)
		if r.chance(30) {
			s["format"] = pick(r, "int32", "int64", "odd")
		}
	case 2:
		s = map[string]any{"type": "number"}
		r.number(s, true)
		if r.chance(20) {
			s["format"] = pick(r, "float", "double", "int32")
		}
	case 3, 4:
		s = map[string]any{"type": "string"}
		r.text(s)
	case 5:
		s = map[string]any{"x-kubernetes-int-or-string": true}
		if r.chance(50) {
			s["anyOf"] = []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}}
		}
		if r.chance(30) {
			s["pattern"] = "^[0-9]+%$"
		}
		if r.chance(30) {
			s["minimum"] = r.IntN(5)
		}
	case 6:
		s = map[string]any{"x-kubernetes-preserve-unknown-fields": true}
		if r.chance(50) {
			s["type"] = "object"
		}
	case 7:
		s = r.object(depth)
	case 8:
		s = map[string]any{"type": "object", "additionalProperties": r.schema(depth - 1)}
		if r.chance(15) {
			s["additionalProperties"] = true
		}
		if r.chance(20) {
			s["maxProperties"] = 2
		}
	case 9:
		s = r.list(depth)
	}
	if r.chance(20) {
		s["nullable"] = true
	}
	if r.chance(25) {
		// Kubernetes prunes nulls in defaults when it reads the object back.
		if v := r.value(s, 0); !strings.Contains(fmt.Sprint(v), "<nil>") {
			s["default"] = v
		}
	}
	return s
}

func (r *random) number(s map[string]any, fractions bool) {
	if r.chance(30) {
		s["minimum"] = r.IntN(3)
		s["exclusiveMinimum"] = r.chance(40)
	}
	if r.chance(30) {
		s["maximum"] = 3 + r.IntN(3)
		s["exclusiveMaximum"] = r.chance(40)
	}
	if r.chance(15) {
		s["multipleOf"] = 2
	}
	if !fractions && r.chance(10) {
		s["enum"] = []any{1, 2, 4}
	}
}

func (r *random) text(s map[string]any) {
	if r.chance(15) {
		s["minLength"] = r.IntN(3)
	}
	if r.chance(15) {
		s["maxLength"] = 1 + r.IntN(5)
	}
	if r.chance(15) {
		s["pattern"] = pick(r, "^x", "y$", "^[a-z]*$")
	}
	if r.chance(15) {
		s["enum"] = []any{"x", "xy", "é"}
	}
	if r.chance(35) {
		s["format"] = pick(r, "byte", "date-time", "date", "duration", "email", "uuid", "ipv4", "cidr", "uri", "k8s-short-name", "unheard-of", "hostname", "password")
	}
	if r.chance(15) {
		r.operators(s, func() map[string]any {
			return pick(r, map[string]any{"minLength": 2}, map[string]any{"pattern": "^x"}, map[string]any{"enum": []any{"x", "1"}}, map[string]any{"maxLength": 1})
		})
	}
}

func (r *random) list(depth int) map[string]any {
	s := map[string]any{"type": "array"}
	switch r.IntN(4) {
	case 0:
		s["x-kubernetes-list-type"] = "set"
		s["items"] = pick(r, map[string]any{"type": "string"}, map[string]any{"type": "integer"},
			map[string]any{"type": "object", "x-kubernetes-map-type": "atomic", "properties": map[string]any{"a": map[string]any{"type": "integer"}}})
	case 1:
		items := r.object(depth - 1)
		for name := range items["properties"].(map[string]any) {
			items["properties"].(map[string]any)[name].(map[string]any)["nullable"] = false
		}
		items["properties"].(map[string]any)["k"] = pick(r, map[string]any{"type": "string"}, map[string]any{"type": "string", "default": "x"})
		items["properties"].(map[string]any)["l"] = map[string]any{"type": "integer", "default": 1}
		required, _ := items["required"].([]any)
		items["required"] = append(required, "k")
		s["items"], s["x-kubernetes-list-type"] = items, "map"
		s["x-kubernetes-list-map-keys"] = pick(r, []any{"k"}, []any{"k", "l"})
	default:
		s["items"] = r.schema(depth - 1)
	}
	if r.chance(20) {
		s["minItems"] = 1
	}
	if r.chance(20) {
		s["maxItems"] = 2
	}
	if r.chance(20) {
		s["x-kubernetes-preserve-unknown-fields"] = true
	}
	return s
}

// anyValue returns a value of any kind.
func (r *random) anyValue(depth int) any {
	switch r.IntN(9) {
	case 0:
		return nil
	case 1:
		return r.chance(50)
	case 2:
		return int64(r.IntN(6))
	case 3:
		return pick(r, 0.5, 1.25, 2.5)
	case 4:
		return pick(r, "", "x", "xy", "3%", "é")
	case 5:
		if depth > 0 {
			return []any{r.anyValue(depth - 1), r.anyValue(depth - 1)}
		}
		return []any{}
	default:
		if depth > 0 {
			return map[string]any{"a": r.anyValue(depth - 1), "q": r.anyValue(depth - 1)}
		}
		return map[string]any{}
	}
}

// value returns a value that the schema probably admits. wrong is how often it is any other value.
func (r *random) value(s map[string]any, wrong int) any {
	if r.chance(wrong) {
		// Upstream compares characters with their code points, and fractions with their integer
		// part.
		if v := r.anyValue(2); s["enum"] == nil || reflect.TypeOf(v) == reflect.TypeFor[string]() {
			return v
		}
	}
	if s["nullable"] == true && r.chance(10) {
		return nil
	}
	if enum, ok := s["enum"].([]any); ok {
		v := pick(r, enum...)
		if n, ok := v.(int); ok {
			return int64(n)
		}
		return v
	}
	switch s["type"] {
	case "boolean":
		return r.chance(50)
	case "integer":
		if r.chance(3) && s["multipleOf"] == nil {
			return int64(1) << 40
		}
		return int64(r.IntN(7))
	case "number":
		if r.chance(3) && s["multipleOf"] == nil {
			return 1e39
		}
		return pick[any](r, int64(2), int64(4), 0.5, 2.5, 3.25)
	case "string":
		if s["format"] != nil {
			return pick(r, "YWI=", "2024-01-02T03:04:05Z", "2024-01-02", "2024-01-02t03:04:05", "3s", "a@b.c", "01234567-89ab-cdef-0123-456789abcdef", "10.0.0.1", "10.0.0.0/8", "http://a.b/c", "name")
		}
		return pick(r, "x", "xy", "y", "xyz", "é", "")
	case "array":
		items, list := s["items"].(map[string]any), []any{}
		for range r.IntN(4) {
			list = append(list, r.value(items, wrong))
		}
		return list
	case "object":
		object := map[string]any{}
		properties, _ := s["properties"].(map[string]any)
		for _, name := range slices.Sorted(keysOf(properties)) {
			if r.chance(75) {
				object[name] = r.value(properties[name].(map[string]any), wrong)
			}
		}
		if of, ok := s["additionalProperties"].(map[string]any); ok {
			for _, name := range []string{"a", "u", "v.w"}[:r.IntN(4)] {
				object[name] = r.value(of, wrong)
			}
		} else if s["additionalProperties"] == true {
			object["t"] = r.anyValue(2)
		}
		if r.chance(wrong) {
			object["unknown"] = r.anyValue(2)
		}
		return object
	}
	if s["x-kubernetes-int-or-string"] == true {
		return pick[any](r, int64(3), "50%", "x")
	}
	return r.anyValue(2)
}

var index = regexp.MustCompile(`\[([^\]]*[^\]0-9][^\]]*)\]`)

// places returns the fields that errors name, in a common notation.
func places(errs field.ErrorList) (list []string) {
	for _, e := range errs {
		list = append(list, strings.TrimPrefix(index.ReplaceAllString(e.Field, ".$1"), "."))
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func compact(t testing.TB, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// decoded returns a value as decoded from a request.
func decoded(t testing.TB, v any) map[string]any {
	t.Helper()
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(compact(t, v)), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// agree compares the results for random objects of a random schema. It returns how many were compared,
// and how many of them are valid.
func agree(t *testing.T, seed uint64) (compared, valid int) {
	r := &random{Rand: rand.New(rand.NewPCG(seed, 7))}
	schema := map[string]any{"type": "object", "properties": map[string]any{"spec": r.object(3), "status": r.schema(2)}}
	text := definition(t, schema)
	kind, errs, _ := crd.Translate(text, nowhere)
	if len(errs) > 0 {
		for _, e := range errs {
			if strings.Contains(e.Message, "admits nothing") {
				t.Fatalf("seed %d: refused by the program: %v\n%s", seed, errs, text)
			}
		}
		return 0, 0 // upstream rejects it, or no object is valid
	}
	o := newOracle(t, decoded(t, schema))
	program, err := program.New(kind.Versions[0].Schema)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for i := range 20 {
		object, ok := r.value(schema, pick(r, 0, 3, 10)).(map[string]any)
		if !ok {
			continue
		}
		object["apiVersion"], object["kind"], object["metadata"] = "example.com/v1", "Thing", map[string]any{"name": "x"}
		theirs, ours := decoded(t, object), decoded(t, object)
		theirUnknown := o.prepare(theirs)
		unknown, _ := program.Prepare(ours)
		theirErrs, ourErrs := o.validate(theirs), program.Validate(ours)
		about := func() string {
			return fmt.Sprintf("seed %d, object %d\nschema %s\nobject %s\ntheirs %s\nours   %s", seed, i, compact(t, schema), compact(t, object), compact(t, theirs), compact(t, ours))
		}
		if slices.ContainsFunc(ourErrs, func(e *field.Error) bool {
			return strings.HasPrefix(e.Detail, "must be a string") && strings.HasSuffix(e.Detail, "not a list")
		}) {
			continue // upstream takes a list with a format for a string
		}
		compared++
		if len(theirErrs) == 0 != (len(ourErrs) == 0) {
			t.Fatalf("Kubernetes says %v, the program %v\n%s", theirErrs.ToAggregate(), ourErrs.ToAggregate(), about())
		}
		if len(theirErrs) > 0 {
			a, b := places(theirErrs), places(ourErrs)
			// Upstream prunes values of the wrong type, and may name the field only in the
			// message.
			vague := r.logic || slices.Contains(a, "<nil>") || compact(t, theirs) != compact(t, ours)
			if !vague && !slices.Equal(a, b) {
				t.Fatalf("Kubernetes blames %q, the program %q\n%v\n%v\n%s", a, b, theirErrs, ourErrs, about())
			}
			continue
		}
		valid++
		if compact(t, theirs) != compact(t, ours) {
			t.Fatalf("not the same object\n%s", about())
		}
		slices.Sort(unknown)
		if !slices.Equal(theirUnknown, unknown) {
			t.Fatalf("Kubernetes prunes %q, the program %q\n%s", theirUnknown, unknown, about())
		}
		if again, changed := program.Prepare(decoded(t, ours)); changed || len(again) > 0 {
			t.Fatalf("what was prepared is prepared again: %q\n%s", again, about())
		}
	}
	return compared, valid
}

// Objects get the same results as with Kubernetes' own code for custom resources.
func TestVerdictsAreKubernetes(t *testing.T) {
	var compared, valid int
	for seed := range uint64(600) {
		c, v := agree(t, seed)
		compared, valid = compared+c, valid+v
	}
	if compared < 4000 || valid < compared/8 || valid > compared*7/8 {
		t.Errorf("%d objects were compared, %d of them valid: too few to say anything", compared, valid)
	}
}

func FuzzVerdictsAreKubernetes(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { agree(t, seed) })
}
