package schemas

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// definitionOf is a CustomResourceDefinition with the schema.
func definitionOf(schema *apiextensions.JSONSchemaProps) *apiextensions.CustomResourceDefinition {
	crd := &apiextensions.CustomResourceDefinition{Spec: apiextensions.CustomResourceDefinitionSpec{
		Group:                 "example.org",
		Scope:                 apiextensions.ClusterScoped,
		Names:                 apiextensions.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
		Versions:              []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
		Validation:            &apiextensions.CustomResourceValidation{OpenAPIV3Schema: schema},
		Conversion:            &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter},
		PreserveUnknownFields: new(bool),
	}, Status: apiextensions.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}}}
	crd.Name = "things.example.org"
	return crd
}

// refusedAsDefinition is what Kubernetes would say to a CustomResourceDefinition with the
// schema.
func refusedAsDefinition(t *testing.T, n *Node) field.ErrorList {
	t.Helper()
	_, internal := structuralSchema(t, n.OpenAPI())
	return crdvalidation.ValidateCustomResourceDefinition(context.Background(), definitionOf(internal))
}

func TestOpenAPIOfEveryFormIsOneOfACustomResourceDefinition(t *testing.T) {
	for seed := range uint64(400) {
		n, _ := formed(seed)
		if errs := refusedAsDefinition(t, n); len(errs) > 0 {
			t.Fatalf("seed %d: %v\n%s", seed, errs.ToAggregate(), asJSON(n.OpenAPI()))
		}
	}
}

// What the form admits, its OpenAPI must not refuse.
func TestOpenAPIOfEveryFormAdmitsWhatTheFormAdmits(t *testing.T) {
	checked, refused := 0, 0
	for seed := range uint64(600) {
		n, g := formed(seed)
		_, internal := structuralSchema(t, n.OpenAPI())
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			object := g.witness(n)
			errs := validation.ValidateCustomResource(nil, object, validator)
			switch admitted := formAdmits(n, object); {
			case !admitted && len(errs) > 0:
				refused++
			case admitted && len(errs) > 0:
				t.Fatalf("seed %d: %v\nobject: %s\nform: %s\nschema: %s", seed, errs.ToAggregate(), asJSON(object), asJSON(n), asJSON(n.OpenAPI()))
			case admitted:
				checked++
			}
		}
	}
	if checked < 1000 || refused < 1000 {
		t.Errorf("only %d objects were valid, and %d invalid", checked, refused)
	}
}

// whole is a form with a use of each part that the CUE of TestOpenAPIGolden does not make.
func whole() *Node {
	str := func() *Node { return &Node{Kinds: StringKind} }
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	optional := func(name string, n *Node) Field { return Field{Name: name, Presence: Optional, Schema: n} }
	required := func(name string, n *Node) Field { return Field{Name: name, Presence: Required, Schema: n} }
	structOf := func(fields ...Field) *Struct { return &Struct{Fields: fields} }
	only := func(text string) *Node {
		return &Node{Kinds: StringKind, Scalars: []Scalar{{Kinds: StringKind, Enum: []json.RawMessage{raw(text)}}}}
	}
	open := func(fields ...Field) *Node {
		return &Node{Kinds: AnyKind, Struct: &Struct{Open: true, Fields: fields}}
	}
	anything := &Node{Kinds: AnyKind}
	union := func(arms ...Arm) *Union { return &Union{Arms: arms} }
	s3 := structOf(required("type", only(`"s3"`)), required("bucket", str()))
	disk := structOf(required("type", only(`"disk"`)), optional("path", str()))
	discriminated := union(Arm{Values: []json.RawMessage{raw(`"s3"`)}, Struct: s3}, Arm{Values: []json.RawMessage{raw(`"disk"`)}, Struct: disk})
	discriminated.Discriminator = "type"
	port := &Node{Kinds: IntegerKind, Scalars: []Scalar{{Kinds: IntegerKind, MultipleOf: &Bound{Value: "2"}}}, Default: raw("80"), Plain: true}
	conditional := structOf(optional("tls", &Node{Kinds: BoolKind}), optional("low", &Node{Kinds: IntegerKind}), optional("high", &Node{Kinds: IntegerKind}))
	conditional.Conditions = []Condition{{When: &Guard{Op: "==", Field: "tls", Value: raw("true")}, Fields: []Field{required("secret", str())}}}
	conditional.Comparisons = []Comparison{{Field: "low", Op: "<=", Other: "high"}}
	return &Node{Kinds: StructKind, Struct: structOf(
		optional("storage", &Node{Kinds: StructKind, Union: discriminated,
			Struct: structOf(required("type", str()), optional("bucket", str()), optional("path", str()))}),
		optional("source", &Node{Kinds: StructKind,
			Union:  union(Arm{Struct: structOf(required("git", str()))}, Arm{Struct: structOf(required("image", str()))}),
			Struct: structOf(optional("git", str()), optional("image", str()))}),
		optional("loose", &Node{Kinds: StructKind,
			Union:  union(Arm{Struct: &Struct{Open: true, Fields: []Field{required("a", str())}}}, Arm{Struct: structOf(required("b", str()))}),
			Struct: &Struct{Open: true, Fields: []Field{optional("a", str()), optional("b", str())}}}),
		optional("endpoint", &Node{Kinds: StructKind, Struct: conditional, Fallback: &Fallback{CUE: "#expression: v: _"}}),
		optional("logic", &Node{Kinds: StructKind, Struct: structOf(optional("a", str()), optional("b", str()), optional("c", str())),
			Logic: &Logic{AllOf: []*Node{open(optional("a", only(`"x"`)))}, AnyOf: []*Node{open(required("a", anything)), open(required("b", anything))},
				OneOf: []*Node{open(required("b", anything)), open(required("c", anything))}, Not: open(required("a", anything), required("c", anything))}}),
		optional("ports", &Node{Kinds: ListKind, List: &List{Type: ListMap, MapKeys: []string{"name", "port"}, Items: &Node{Kinds: StructKind,
			Struct: structOf(required("name", str()), Field{Name: "port", Presence: Regular, Schema: port})}}}),
		optional("tags", &Node{Kinds: ListKind, List: &List{Type: ListSet, Items: str()}}),
		optional("selector", &Node{Kinds: StructKind, Struct: &Struct{Type: MapAtomic, MinFields: &Limit{Count: 1}, MaxFields: &Limit{Count: 9},
			Patterns: []KeyPattern{{Key: str(), Value: str()}}}}),
		optional("template", &Node{Kinds: StructKind, Embedded: true, Struct: structOf(optional("spec", &Node{Kinds: StructKind}))}),
		optional("object", &Node{Kinds: StructKind, Embedded: true}),
		optional("password", &Node{Kinds: StringKind, Sensitive: true}),
		optional("key", &Node{Kinds: StringKind, Sensitive: true, Format: FormatByte}),
		optional("id", &Node{Kinds: StringKind, Format: "uuid", Doc: "Names it.", Immutable: &Position{File: "kinds.cue", Line: 1}}),
		optional("ip", &Node{Kinds: StringKind, Scalars: []Scalar{{Kinds: StringKind, Forms: []Form{{Name: "net.IPv4"}}}}}),
	)}
}

func TestOpenAPIOfEveryPartIsGolden(t *testing.T) {
	if errs := refusedAsDefinition(t, whole()); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	got, err := json.MarshalIndent(whole().OpenAPI(), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden := filepath.Join("testdata", "openapi-form.json")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("-want +got (run with -update to accept):\n%s", cmp.Diff(string(want), string(got)))
	}
}

// A rule for strings says nothing of numbers beside them.
func TestOpenAPIOfMixedValuesKeepsToTheirTypes(t *testing.T) {
	n := &Node{Kinds: StructKind, Struct: &Struct{Fields: []Field{{Name: "a", Presence: Optional, Schema: &Node{
		Kinds:   IntegerKind | StringKind,
		Scalars: []Scalar{{Kinds: StringKind, Patterns: []Pattern{{Regexp: "x", Negated: true}, {Regexp: "^y"}}}},
	}}}}}
	_, internal := structuralSchema(t, n.OpenAPI())
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	for value, valid := range map[any]bool{int64(7): true, "y": true, "z": false} {
		if errs := validation.ValidateCustomResource(nil, map[string]any{"a": value}, validator); (len(errs) == 0) != valid {
			t.Errorf("%v: %v", value, errs.ToAggregate())
		}
	}
}
