package fromcue_test

import (
	"encoding/json"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/interpreter"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/openapi"
	"stele.dev/stele/schemas/program"
)

// BenchmarkPeers measures other libraries on the work that Prepare and Validate do for benchObject.
func BenchmarkPeers(b *testing.B) {
	node, object := benchSetup(b)
	program, err := program.New(node)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("stele", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			program.Prepare(object)
			program.Validate(object)
		}
	})
	b.Run("CUE", func(b *testing.B) {
		schema := cuecontext.New().CompileString(benchSchema).LookupPath(cue.ParsePath("#schema"))
		text, err := json.Marshal(map[string]any{"spec": object["spec"], "status": object["status"]})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if v := interpreter.Ask(schema, text); !v.Valid() {
				b.Fatal(v)
			}
		}
	})
	// Only the validation of apiextensions, without pruning and defaulting.
	b.Run("OpenAPI validator", func(b *testing.B) {
		v := validate.NewSchemaValidator(openapi.Of(node), nil, "", strfmt.Default)
		b.ReportAllocs()
		for b.Loop() {
			if r := v.Validate(object); !r.IsValid() {
				b.Fatal(r.AsError())
			}
		}
	})
}

// BenchmarkRelations measures rules between parts of an object.
func BenchmarkRelations(b *testing.B) {
	for _, of := range []struct{ name, schema, object string }{
		{"union by constant", `#schema: spec: u!: {t: "a", x: int} | {t: "b", y: *3 | int} | {t: "c", z: string}`, `{"spec": {"u": {"t": "b"}}}`},
		{"union by fields", `#schema: spec: u!: {a!: {name!: string}} | {b!: string} | {c!: int}`, `{"spec": {"u": {"b": "x"}}}`},
		{"conditions", "#schema: spec: {k: *\"a\" | \"b\"\nif k == \"a\" {z: string}\nif k == \"b\" {y?: int}}", `{"spec": {"z": "s"}}`},
		{"bound by a field", `#schema: spec: {min: int, max: int & >min}`, `{"spec": {"min": 1, "max": 2}}`},
		{"CUE itself", `#schema: spec: {cpus: int & >0, memory: *(cpus * 2) | int}`, `{"spec": {"cpus": 2}}`},
	} {
		b.Run(of.name, func(b *testing.B) {
			program, err := program.New(mustCompile(b, of.schema))
			if err != nil {
				b.Fatal(err)
			}
			object, err := jsonvalue.Decode([]byte(of.object))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				o := jsonvalue.Clone(object).(map[string]any)
				program.Prepare(o)
				if errs := program.Validate(o); errs != nil {
					b.Fatal(errs)
				}
			}
		})
	}
}

// BenchmarkLoad loads a hundred schemas of about forty fields from their form.
func BenchmarkLoad(b *testing.B) {
	node, _ := benchSetup(b)
	text, err := json.Marshal(node)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		for range 100 {
			var n schemas.Node
			if err := json.Unmarshal(text, &n); err != nil {
				b.Fatal(err)
			}
			if _, err := program.New(&n); err != nil {
				b.Fatal(err)
			}
		}
	}
}
