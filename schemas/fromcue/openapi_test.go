package fromcue_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"stele.dev/stele/schemas/fromcue"
	"stele.dev/stele/schemas/openapi"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

var update = flag.Bool("update", false, "rewrite golden files")

// rich uses every construct that OpenAPI can express, and some that it cannot.
const rich = `
import (
	"list"
	"strings"
)
#schema: {
	// What is wanted.
	spec!: {
		// How many there should be.
		replicas: *1 | (int & >=0 & <=1000)
		color:    *"blue" | "red"
		maybe?:   null | "a" | "b"
		name!:    =~"^a" & =~"z$" & !~"xx" & !="a-z" & strings.MinRunes(2) & strings.MaxRunes(10)
		port!:    int & >0 & <65536
		small?:   int32
		big?:     int64
		byte?:    uint8
		ratio?:   number & >0.5
		either?:  "x" | =~"^y" | =~"^z"
		percent?: int & >=0 | =~"^[0-9]+%$"
		auto?:    "auto" | int
		what?:    string | bool
		on:       bool | *true
		none?:    null
		any?:     _
		open?:    {...}
		half?:    {known?: int, ...}
		some?:    [...string] & list.MinItems(1) & list.MaxItems(5)
		loose?:   [...]
		items?:   [...#item]
		map?:     [string]: int
		keys?:    [=~"^[a-z]+$"]: #item
		both?:    {name?: string, [=~"^x-"]: int}
		opts:     {level: *3 | int, names: [...string]}
		full:     *{a: 1} | {a: int, b?: string}
		maybeStruct?: null | {a!: int}
	}
	status?: ready?: bool
}
// One of them.
#item: {
	// What it is called.
	name!: string
	size:  *1 | int
}
`

func TestOpenAPIGolden(t *testing.T) {
	got, err := json.MarshalIndent(openapi.Of(mustCompile(t, rich)), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	golden := filepath.Join("testdata", "openapi.json")
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

// structuralSchema parses an OpenAPI schema as a CustomResourceDefinition does.
func structuralSchema(t *testing.T, s *spec.Schema) (*structural.Structural, *apiextensions.JSONSchemaProps) {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var external apiextensionsv1.JSONSchemaProps
	if err := json.Unmarshal(text, &external); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&external, &internal, nil); err != nil {
		t.Fatal(err)
	}
	result, err := structural.NewStructural(&internal)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if errs := structural.ValidateStructural(field.NewPath("schema"), result); len(errs) > 0 {
		t.Fatalf("%v\n%s", errs.ToAggregate(), text)
	}
	return result, &internal
}

func TestOpenAPIIsStructural(t *testing.T) {
	for _, text := range []string{rich, widget, benchSchema} {
		structuralSchema(t, openapi.Of(mustCompile(t, text)))
	}
}

// TestOpenAPIAdmitsWhatTheProgramAdmits checks random schemas and objects of the grammar: the published
// schema must accept every object that the program accepts.
func TestOpenAPIAdmitsWhatTheProgramAdmits(t *testing.T) {
	checked := 0
	for seed := range uint64(300) {
		g := &grammar{Maker: samples.Maker{Rand: rand.New(rand.NewPCG(seed, 1)), Unknown: 3, Keys: nil, Full: 0}}
		generated := g.schema()
		text := generated.text
		v := cuecontext.New().CompileString(text, cue.Filename("schema.cue"))
		node, diags := fromcue.Schema(v.LookupPath(cue.ParsePath(generated.path)), generated.locate)
		if diags != nil {
			continue
		}
		p, err := program.New(node)
		if err != nil {
			t.Fatal(err)
		}
		_, internal := structuralSchema(t, openapi.Of(node))
		validator, _, err := validation.NewSchemaValidator(internal)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			object, _ := generated.sample().(map[string]any)
			p.Prepare(object)
			if p.Validate(object) != nil {
				continue
			}
			checked++
			if errs := validation.ValidateCustomResource(nil, object, validator); len(errs) > 0 {
				t.Fatalf("seed %d: %v\nobject: %s\nschema:\n%s", seed, errs.ToAggregate(), asJSON(object), text)
			}
		}
	}
	if checked < 200 {
		t.Errorf("only %d objects were valid", checked)
	}
}
