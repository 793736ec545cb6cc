package fromcue_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/openapi"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	v, err := jsonvalue.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(map[string]any)
}

func texts(errs field.ErrorList) []string {
	said := []string{}
	for _, e := range errs {
		said = append(said, e.Error())
	}
	return said
}

// services returns a struct with a list of type map, one of type set, and an atomic one.
func services() *schemas.Node {
	port := &schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind, Minimum: &schemas.Bound{Value: "1"}, Maximum: &schemas.Bound{Value: "9"}}}}
	item := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
		{Name: "name", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StringKind}},
		{Name: "port", Presence: schemas.Optional, Schema: port},
		{Name: "note", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StringKind}},
	}}}
	list := func(kind string, keys ...string) *schemas.Node {
		return &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: item, Type: kind, MapKeys: keys}}
	}
	return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
		{Name: "ports", Presence: schemas.Optional, Schema: list(schemas.ListMap, "name")},
		{Name: "more", Presence: schemas.Optional, Schema: list(schemas.ListMap, "name")},
		{Name: "loose", Presence: schemas.Optional, Schema: list("")},
		{Name: "unique", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: port, Unique: true}}},
		{Name: "port", Presence: schemas.Optional, Schema: port},
		{Name: "byName", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{{Key: &schemas.Node{Kinds: schemas.StringKind}, Value: item}}}}},
		{Name: "must", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.BoolKind}},
	}}}
}

func TestWhatWasWrongBeforeMayStay(t *testing.T) {
	p := reloaded(t, services())
	const tooHigh = `ports[0].port: Invalid value: 10: must be at least 1 and at most 9`
	for _, test := range []struct {
		name, old, obj string
		want           []string
	}{
		{"as it was", `{"must":true,"port":10}`, `{"must":true,"port":10}`, nil},
		{"beside something new", `{"must":true,"port":10}`, `{"must":false,"port":10}`, nil},
		{"but not something else that is wrong", `{"must":true,"port":10}`, `{"must":true,"port":11}`, []string{`port: Invalid value: 11: must be at least 1 and at most 9`}},
		{"what is missing, where nothing changes", `{"port":1}`, `{"port":1}`, nil},
		{"what is missing, where something changes", `{"port":1}`, `{"port":2}`, []string{`must: Required value: must be a boolean`}},
		{"in an item found by its key", `{"must":true,"ports":[{"name":"a"},{"name":"b","port":10}]}`, `{"must":true,"ports":[{"name":"b","port":10,"note":"new"},{"name":"c"}]}`, nil},
		{"not in an item with another key", `{"must":true,"ports":[{"name":"b","port":10}]}`, `{"must":true,"ports":[{"name":"c","port":10}]}`, []string{tooHigh}},
		{"in a whole list", `{"must":true,"loose":[{"name":"b","port":10}]}`, `{"must":false,"loose":[{"name":"b","port":10}]}`, nil},
		{"not in a list that changes", `{"must":true,"loose":[{"name":"b","port":10}]}`, `{"must":true,"loose":[{"name":"b","port":10},{"name":"c"}]}`, []string{`loose[0].port: Invalid value: 10: must be at least 1 and at most 9`}},
		{"in an entry of a map", `{"must":true,"byName":{"a":{"name":"a","port":10}}}`, `{"must":true,"byName":{"a":{"name":"b","port":10},"c":{"name":"c"}}}`, nil},
		{"duplicates, where there were others", `{"must":true,"more":[{"name":"a"},{"name":"a"}]}`, `{"must":true,"more":[],"ports":[{"name":"b"},{"name":"b"}]}`, nil},
		{"no duplicates, where there were none", `{"must":true}`, `{"must":true,"ports":[{"name":"b"},{"name":"b"}]}`, []string{`ports[1]: Duplicate value: {"name":"b"}: the items must differ in name`}},
		{"no duplicates of what is unique, where there were others", `{"must":true,"more":[{"name":"a"},{"name":"a"}]}`, `{"must":true,"unique":[1,1]}`, []string{`unique[1]: Duplicate value: 1: items must be unique`}},
		{"an unknown field", `{"must":true,"foreign":1}`, `{"must":false,"foreign":1}`, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := decoded(t, test.old)
			if got := texts(p.ValidateUpdate(decoded(t, test.obj), old)); !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// An unchanged value is excused only if the value on which its rules depend is unchanged too.
func TestWhatIsWrongAnewBesideWhatStaysDoesNotStay(t *testing.T) {
	number := func() *schemas.Node { return &schemas.Node{Kinds: schemas.IntegerKind} }
	only := func(value string) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Enum: []json.RawMessage{json.RawMessage(value)}}}}
	}
	small := &schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind, Maximum: &schemas.Bound{Value: "5"}}}}
	arm := func(value string, n *schemas.Node) schemas.Arm {
		return schemas.Arm{Values: []json.RawMessage{json.RawMessage(value)}, Struct: &schemas.Struct{Fields: []schemas.Field{
			{Name: "type", Presence: schemas.Required, Schema: only(value)}, {Name: "size", Presence: schemas.Optional, Schema: n}, {Name: "note", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StringKind}}}}}
	}
	p := reloaded(t, &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
		{Name: "range", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{
			Fields:      []schemas.Field{{Name: "low", Presence: schemas.Optional, Schema: number()}, {Name: "high", Presence: schemas.Optional, Schema: number()}},
			Comparisons: []schemas.Comparison{{Field: "low", Op: "<=", Other: "high"}}}}},
		{Name: "union", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StructKind,
			Union: &schemas.Union{Discriminator: "type", Arms: []schemas.Arm{arm(`"a"`, number()), arm(`"b"`, small)}},
			Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "type", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StringKind}},
				{Name: "size", Presence: schemas.Optional, Schema: number()}, {Name: "note", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StringKind}}}}}},
	}}})
	for _, test := range []struct {
		name, old, obj string
		refused        bool
	}{
		{"the other bound moves", `{"range":{"low":5,"high":9}}`, `{"range":{"low":5,"high":3}}`, true},
		{"neither bound moves", `{"range":{"low":5,"high":3}}`, `{"range":{"low":5,"high":3},"union":{"type":"a"}}`, false},
		{"another alternative", `{"union":{"type":"a","size":9}}`, `{"union":{"type":"b","size":9}}`, true},
		{"the same alternative", `{"union":{"type":"b","size":9}}`, `{"union":{"type":"b","size":9},"range":{}}`, false},
	} {
		if errs := p.ValidateUpdate(decoded(t, test.obj), decoded(t, test.old)); (len(errs) > 0) != test.refused {
			t.Errorf("%s: %v", test.name, errs.ToAggregate())
		}
	}
}

// plainForm returns a form that OpenAPI can express completely.
func (g *grammar) plainForm(depth int) *schemas.Node {
	if depth == 0 || g.Chance(30) {
		switch g.IntN(3) {
		case 0:
			return &schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind, Maximum: &schemas.Bound{Value: "5"}}}}
		case 1:
			return &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, MaxRunes: &schemas.Limit{Count: 2}}}}
		}
		return &schemas.Node{Kinds: schemas.BoolKind}
	}
	if g.Chance(20) {
		return &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{{Key: &schemas.Node{Kinds: schemas.StringKind}, Value: g.plainForm(depth - 1)}}}}
	}
	if g.Chance(40) {
		n := &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Items: g.plainForm(depth - 1), MaxItems: &schemas.Limit{Count: 2}}}
		if g.Chance(60) {
			n.List.Type, n.List.MapKeys = schemas.ListMap, []string{"a"}
			n.List.Items = &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
				{Name: "a", Presence: schemas.Required, Schema: &schemas.Node{Kinds: schemas.StringKind}},
				{Name: "b", Presence: schemas.Optional, Schema: g.plainForm(depth - 1)},
				{Name: "c", Presence: schemas.Optional, Schema: g.plainForm(depth - 1)},
			}}}
		}
		return n
	}
	s := &schemas.Struct{}
	for _, name := range []string{"a", "b", "c"} {
		s.Fields = append(s.Fields, schemas.Field{Name: name, Presence: []schemas.Presence{schemas.Required, schemas.Optional}[g.IntN(2)], Schema: g.plainForm(depth - 1)})
	}
	return &schemas.Node{Kinds: schemas.StructKind, Struct: s}
}

// misplaced reports whether x has a struct where the schema admits none, or an item without its key.
func misplaced(n *schemas.Node, x any) bool {
	switch x := x.(type) {
	case map[string]any:
		if n.Struct == nil {
			return true
		}
		for k, v := range x {
			f, ok := schemas.FieldNamed(n.Struct, k)
			if !ok && len(n.Struct.Patterns) > 0 {
				f.Schema, ok = n.Struct.Patterns[0].Value, true
			}
			if !ok || misplaced(f.Schema, v) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(x, func(item any) bool {
			m, is := item.(map[string]any)
			if n.List == nil {
				return is
			}
			if n.List.Type == schemas.ListMap && slices.ContainsFunc(n.List.MapKeys, func(key string) bool { return !isKey(m[key]) }) {
				return true
			}
			return misplaced(n.List.Items, item)
		})
	}
	return false
}

// isKey reports whether x can be the key of an item.
func isKey(x any) bool {
	switch x.(type) {
	case nil, []any, map[string]any:
		return false
	}
	return true
}

// Updates are accepted exactly where Kubernetes accepts them.
func TestRatchetingIsKubernetes(t *testing.T) {
	verdicts := map[string]int{}
	for seed := range uint64(400) {
		g := &grammar{Maker: samples.Maker{Rand: rand.New(rand.NewPCG(seed, 11)), Unknown: 3, Keys: nil, Full: 0}}
		n := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
			{Name: "spec", Presence: schemas.Required, Schema: g.plainForm(4)}, {Name: "status", Presence: schemas.Optional, Schema: g.plainForm(2)}}}}
		p := reloaded(t, n)
		ss, internal := structuralSchema(t, openapi.Of(n))
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			old := g.Witness(n)
			obj := jsonvalue.Clone(old)
			for range 1 + g.IntN(3) {
				old, obj = g.Mutate(old), g.Mutate(obj)
				if g.Chance(50) {
					obj = jsonvalue.Clone(old)
				}
			}
			obj = g.Mutate(obj)
			was, ok1 := old.(map[string]any)
			is, ok2 := obj.(map[string]any)
			if !ok1 || !ok2 {
				continue
			}
			p.Prepare(was)
			p.Prepare(is)
			if len(listtype.ValidateListSetsAndMaps(nil, ss, is)) > 0 {
				continue // upstream does not excuse it and checks it elsewhere
			}
			ours := p.ValidateUpdate(is, was)
			theirs := validation.ValidateCustomResourceUpdate(nil, is, was, validator, validation.WithRatcheting(nil))
			// Upstream never finds two structs equal if it knows no fields of them, nor two
			// lists if an item lacks its key. KEP-4008 does not require that.
			if len(ours) == 0 && misplaced(n, is) {
				continue
			}
			if (len(ours) == 0) != (len(theirs) == 0) {
				t.Fatalf("seed %d: %v; Kubernetes says %v\nold: %s\nnew: %s\nform: %s", seed, ours.ToAggregate(), theirs.ToAggregate(), asJSON(was), asJSON(is), asJSON(n))
			}
			switch {
			case len(ours) > 0:
				verdicts["refused"]++
			case len(p.Validate(is)) > 0:
				verdicts["excused"]++
			default:
				verdicts["valid"]++
			}
		}
	}
	if verdicts["refused"] < 500 || verdicts["excused"] < 500 || verdicts["valid"] < 500 {
		t.Errorf("%v: the test asks too little", verdicts)
	}
}

func TestWhatIsImmutableDoesNotChange(t *testing.T) {
	fixed := func(n schemas.Node) *schemas.Node {
		n.Immutable = &schemas.Position{File: "kinds.cue", Line: 7}
		return &n
	}
	str := schemas.Node{Kinds: schemas.StringKind}
	item := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{
		{Name: "name", Presence: schemas.Required, Schema: &str}, {Name: "class", Presence: schemas.Optional, Schema: fixed(str)}, {Name: "size", Presence: schemas.Optional, Schema: &str}}}}
	p := reloaded(t, &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{
		Fields: []schemas.Field{
			{Name: "class", Presence: schemas.Optional, Schema: fixed(str)},
			{Name: "whole", Presence: schemas.Optional, Schema: fixed(*item)},
			{Name: "part", Presence: schemas.Optional, Schema: item},
			{Name: "items", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListMap, MapKeys: []string{"name"}, Items: item}}},
			{Name: "labels", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Patterns: []schemas.KeyPattern{{Key: &str, Value: fixed(str)}}}}},
			{Name: "mode", Presence: schemas.Optional, Schema: &str},
		},
		Conditions: []schemas.Condition{{When: &schemas.Guard{Op: "present", Field: "mode"}, Fields: []schemas.Field{{Name: "extra", Presence: schemas.Optional, Schema: fixed(str)}}}},
	}})
	immutable := func(path, value string) []string {
		return []string{path + ": Invalid value: " + value + ": field is immutable (kinds.cue:7)"}
	}
	for _, test := range []struct {
		name, old, obj string
		want           []string
	}{
		{"the same", `{"class":"a","mode":"x"}`, `{"class":"a","mode":"y"}`, nil},
		{"changed", `{"class":"a"}`, `{"class":"b"}`, immutable("class", `"b"`)},
		{"set", `{}`, `{"class":"b"}`, immutable("class", `"b"`)},
		{"unset", `{"class":"a"}`, `{}`, immutable("class", `null`)},
		{"with a struct that comes", `{}`, `{"part":{"name":"n","class":"a"}}`, nil},
		{"with a struct that goes", `{"part":{"name":"n","class":"a"}}`, `{}`, nil},
		{"in a struct that stays", `{"part":{"name":"n","class":"a"}}`, `{"part":{"name":"n"}}`, immutable("part.class", `null`)},
		{"beside it", `{"part":{"name":"n","class":"a"}}`, `{"part":{"name":"m","class":"a","size":"1"}}`, nil},
		{"a whole struct", `{"whole":{"name":"n"}}`, `{"whole":{"name":"n","size":"1"}}`, []string{"whole: Invalid value: field is immutable (kinds.cue:7)"}},
		{"in an item that stays", `{"items":[{"name":"n","class":"a"},{"name":"m","class":"b"}]}`, `{"items":[{"name":"m","class":"c"},{"name":"n","class":"a"}]}`, immutable("items[0].class", `"c"`)},
		{"with an item that comes or goes", `{"items":[{"name":"n","class":"a"}]}`, `{"items":[{"name":"m","class":"a"}]}`, nil},
		{"an entry that stays", `{"labels":{"a":"1"}}`, `{"labels":{"a":"2"}}`, immutable("labels[a]", `"2"`)},
		{"entries that come or go", `{"labels":{"a":"1"}}`, `{"labels":{"b":"2"}}`, nil},
		{"of a condition", `{"mode":"m","extra":"a"}`, `{"mode":"m","extra":"b"}`, immutable("extra", `"b"`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := texts(p.ValidateUpdate(decoded(t, test.obj), decoded(t, test.old)))
			got = slices.DeleteFunc(got, func(said string) bool { return !strings.Contains(said, "immutable") })
			if !slices.Equal(got, test.want) && len(got)+len(test.want) > 0 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Embedded objects are checked by Kubernetes' rules.
func TestEmbeddedObjectsAreKubernetes(t *testing.T) {
	p := reloaded(t, &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "template", Presence: schemas.Optional, Schema: &schemas.Node{
		Kinds: schemas.StructKind, Embedded: true, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "spec", Presence: schemas.Optional, Schema: &schemas.Node{Kinds: schemas.StructKind}}}}}}}}})
	ss := &structural.Structural{Generic: structural.Generic{Type: "object"}, Properties: map[string]structural.Structural{"template": {
		Generic: structural.Generic{Type: "object"}, Extensions: structural.Extensions{XEmbeddedResource: true}}}}
	for _, test := range []struct {
		name, template string
		errs           int
		unknown        []string
	}{
		{"an object", `{"apiVersion":"v1","kind":"Pod","spec":{}}`, 0, nil},
		{"with metadata", `{"apiVersion":"apps/v1","kind":"Pod","metadata":{"name":"a","labels":{"b":"c"}}}`, 0, nil},
		{"without its type", `{"spec":{}}`, 2, nil},
		{"of no type", `{"apiVersion":"a/b/c","kind":"no kind","spec":{}}`, 2, nil},
		{"of another kind", `{"apiVersion":1,"kind":[]}`, 2, nil},
		{"with a bad label", `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"-":"c"}}}`, 1, nil},
		{"with metadata that is none", `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":1}}`, 1, nil},
		{"with unknown metadata", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","foreign":1,"creationTimestamp":null}}`, 0, []string{"template.metadata.foreign"}},
		{"with an unknown field", `{"apiVersion":"v1","kind":"Pod","foreign":1}`, 0, []string{"template.foreign"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			obj := decoded(t, `{"template":`+test.template+`}`)
			unknown, _ := p.Prepare(obj)
			if !slices.Equal(unknown, test.unknown) {
				t.Errorf("unknown fields %q, want %q", unknown, test.unknown)
			}
			theirs := decoded(t, `{"template":`+test.template+`}`)
			if err := objectmeta.Coerce(nil, theirs, ss, false, false); err == nil {
				delete(theirs["template"].(map[string]any), "foreign")
				if !reflect.DeepEqual(obj, theirs) {
					t.Errorf("prepared: %s; by Kubernetes: %s", asJSON(obj), asJSON(theirs))
				}
			}
			got, want := texts(p.Validate(obj)), texts(objectmeta.Validate(context.Background(), nil, theirs, ss, false))
			slices.Sort(got)
			slices.Sort(want)
			if len(want) != test.errs || !slices.Equal(got, want) {
				t.Errorf("%q; Kubernetes says %q", got, want)
			}
		})
	}
}

func BenchmarkValidateUpdateOfManyErrors(b *testing.B) {
	p, err := program.New(services())
	if err != nil {
		b.Fatal(err)
	}
	items := []any{}
	for i := range 10_000 {
		items = append(items, map[string]any{"name": json.Number(string(rune('a'+i%26))).String() + asJSON(i), "port": int64(10)})
	}
	obj := map[string]any{"must": true, "ports": items}
	old := map[string]any{"must": true, "ports": slices.Clone(items[1:])}
	for b.Loop() {
		if errs := p.ValidateUpdate(obj, old); len(errs) != 1 {
			b.Fatal(len(errs))
		}
	}
}
