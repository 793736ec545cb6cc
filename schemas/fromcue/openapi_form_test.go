package fromcue_test

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
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/openapi"
)

// definitionOf returns a CustomResourceDefinition with the schema.
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

// refusedAsDefinition returns Kubernetes' errors for a CustomResourceDefinition with the schema.
func refusedAsDefinition(t *testing.T, n *schemas.Node) field.ErrorList {
	t.Helper()
	_, internal := structuralSchema(t, openapi.Of(n))
	return crdvalidation.ValidateCustomResourceDefinition(context.Background(), definitionOf(internal))
}

func TestOpenAPIOfEveryFormIsOneOfACustomResourceDefinition(t *testing.T) {
	for seed := range uint64(400) {
		n, _ := formed(seed)
		if errs := refusedAsDefinition(t, n); len(errs) > 0 {
			t.Fatalf("seed %d: %v\n%s", seed, errs.ToAggregate(), asJSON(openapi.Of(n)))
		}
	}
}

// The OpenAPI schema must accept every value that the form admits.
func TestOpenAPIOfEveryFormAdmitsWhatTheFormAdmits(t *testing.T) {
	checked, refused := 0, 0
	for seed := range uint64(600) {
		n, g := formed(seed)
		_, internal := structuralSchema(t, openapi.Of(n))
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			object := g.Witness(n)
			errs := validation.ValidateCustomResource(nil, object, validator)
			switch admitted := formAdmits(n, object); {
			case !admitted && len(errs) > 0:
				refused++
			case admitted && len(errs) > 0:
				t.Fatalf("seed %d: %v\nobject: %s\nform: %s\nschema: %s", seed, errs.ToAggregate(), asJSON(object), asJSON(n), asJSON(openapi.Of(n)))
			case admitted:
				checked++
			}
		}
	}
	if checked < 1000 || refused < 1000 {
		t.Errorf("only %d objects were valid, and %d invalid", checked, refused)
	}
}

// whole returns a form with all parts that the CUE of TestOpenAPIGolden does not use.
func whole() *schemas.Node {
	str := func() *schemas.Node { return &schemas.Node{Kinds: schemas.StringKind} }
	raw := func(text string) json.RawMessage { return json.RawMessage(text) }
	optional := func(name string, n *schemas.Node) schemas.Field {
		return schemas.Field{Name: name, Presence: schemas.Optional, Schema: n}
	}
	required := func(name string, n *schemas.Node) schemas.Field {
		return schemas.Field{Name: name, Presence: schemas.Required, Schema: n}
	}
	structOf := func(fields ...schemas.Field) *schemas.Struct { return &schemas.Struct{Fields: fields} }
	only := func(text string) *schemas.Node {
		return &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Enum: []json.RawMessage{raw(text)}}}}
	}
	open := func(fields ...schemas.Field) *schemas.Node {
		return &schemas.Node{Kinds: schemas.AnyKind, Struct: &schemas.Struct{Open: true, Fields: fields}}
	}
	anything := &schemas.Node{Kinds: schemas.AnyKind}
	union := func(arms ...schemas.Arm) *schemas.Union { return &schemas.Union{Arms: arms} }
	s3 := structOf(required("type", only(`"s3"`)), required("bucket", str()))
	disk := structOf(required("type", only(`"disk"`)), optional("path", str()))
	discriminated := union(schemas.Arm{Values: []json.RawMessage{raw(`"s3"`)}, Struct: s3}, schemas.Arm{Values: []json.RawMessage{raw(`"disk"`)}, Struct: disk})
	discriminated.Discriminator = "type"
	port := &schemas.Node{Kinds: schemas.IntegerKind, Scalars: []schemas.Scalar{{Kinds: schemas.IntegerKind, MultipleOf: &schemas.Bound{Value: "2"}}}, Default: raw("80"), Plain: true}
	conditional := structOf(optional("tls", &schemas.Node{Kinds: schemas.BoolKind}), optional("low", &schemas.Node{Kinds: schemas.IntegerKind}), optional("high", &schemas.Node{Kinds: schemas.IntegerKind}))
	conditional.Conditions = []schemas.Condition{{When: &schemas.Guard{Op: "==", Field: "tls", Value: raw("true")}, Fields: []schemas.Field{required("secret", str())}}}
	conditional.Comparisons = []schemas.Comparison{{Field: "low", Op: "<=", Other: "high"}}
	return &schemas.Node{Kinds: schemas.StructKind, Struct: structOf(
		optional("storage", &schemas.Node{Kinds: schemas.StructKind, Union: discriminated,
			Struct: structOf(required("type", str()), optional("bucket", str()), optional("path", str()))}),
		optional("source", &schemas.Node{Kinds: schemas.StructKind,
			Union:  union(schemas.Arm{Struct: structOf(required("git", str()))}, schemas.Arm{Struct: structOf(required("image", str()))}),
			Struct: structOf(optional("git", str()), optional("image", str()))}),
		optional("loose", &schemas.Node{Kinds: schemas.StructKind,
			Union:  union(schemas.Arm{Struct: &schemas.Struct{Open: true, Fields: []schemas.Field{required("a", str())}}}, schemas.Arm{Struct: structOf(required("b", str()))}),
			Struct: &schemas.Struct{Open: true, Fields: []schemas.Field{optional("a", str()), optional("b", str())}}}),
		optional("endpoint", &schemas.Node{Kinds: schemas.StructKind, Struct: conditional, Fallback: &schemas.Fallback{CUE: "#expression: v: _"}}),
		optional("logic", &schemas.Node{Kinds: schemas.StructKind, Struct: structOf(optional("a", str()), optional("b", str()), optional("c", str())),
			Logic: &schemas.Logic{AllOf: []*schemas.Node{open(optional("a", only(`"x"`)))}, AnyOf: []*schemas.Node{open(required("a", anything)), open(required("b", anything))},
				OneOf: []*schemas.Node{open(required("b", anything)), open(required("c", anything))}, Not: open(required("a", anything), required("c", anything))}}),
		optional("ports", &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListMap, MapKeys: []string{"name", "port"}, Items: &schemas.Node{Kinds: schemas.StructKind,
			Struct: structOf(required("name", str()), schemas.Field{Name: "port", Presence: schemas.Regular, Schema: port})}}}),
		optional("tags", &schemas.Node{Kinds: schemas.ListKind, List: &schemas.List{Type: schemas.ListSet, Items: str()}}),
		optional("selector", &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Type: schemas.MapAtomic, MinFields: &schemas.Limit{Count: 1}, MaxFields: &schemas.Limit{Count: 9},
			Patterns: []schemas.KeyPattern{{Key: str(), Value: str()}}}}),
		optional("template", &schemas.Node{Kinds: schemas.StructKind, Embedded: true, Struct: structOf(optional("spec", &schemas.Node{Kinds: schemas.StructKind}))}),
		optional("object", &schemas.Node{Kinds: schemas.StructKind, Embedded: true}),
		optional("password", &schemas.Node{Kinds: schemas.StringKind, Sensitive: true}),
		optional("key", &schemas.Node{Kinds: schemas.StringKind, Sensitive: true, Format: schemas.FormatByte}),
		optional("id", &schemas.Node{Kinds: schemas.StringKind, Format: "uuid", Doc: "Names it.", Immutable: &schemas.Position{File: "kinds.cue", Line: 1}}),
		optional("ip", &schemas.Node{Kinds: schemas.StringKind, Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Forms: []schemas.Form{{Name: "net.IPv4"}}}}}),
	)}
}

func TestOpenAPIOfEveryPartIsGolden(t *testing.T) {
	if errs := refusedAsDefinition(t, whole()); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	got, err := json.MarshalIndent(openapi.Of(whole()), "", "  ")
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

// A rule for strings does not apply to numbers.
func TestOpenAPIOfMixedValuesKeepsToTheirTypes(t *testing.T) {
	n := &schemas.Node{Kinds: schemas.StructKind, Struct: &schemas.Struct{Fields: []schemas.Field{{Name: "a", Presence: schemas.Optional, Schema: &schemas.Node{
		Kinds:   schemas.IntegerKind | schemas.StringKind,
		Scalars: []schemas.Scalar{{Kinds: schemas.StringKind, Patterns: []schemas.Pattern{{Regexp: "x", Negated: true}, {Regexp: "^y"}}}},
	}}}}}
	_, internal := structuralSchema(t, openapi.Of(n))
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
