package importing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/importing"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/crd"
	"stele.dev/stele/schemas/program"
	"stele.dev/stele/schemas/samples"
)

func compileSource(s *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	result, diags := compile.Bundle(s)
	return result, diags, nil
}

// options import into the package of a team, as one file.
func options() importing.Options {
	return importing.Options{Package: "web", Team: "web", Compile: compileSource}
}

// bundleOf compiles what was imported, as the part of a team that rules over everything.
func bundleOf(t *testing.T, r *importing.Result, whole bool) *policy.Form {
	t.Helper()
	main := "package main\n\nimport \"stele.dev/policy\"\nimport w \"example.com/a/web\"\n\nbundle: policy.#Bundle & {cluster: \"a\", teams: web: {contact: \"#web\", groups: [\"*\"], namespaces: [\"*\"]}}\n"
	if whole {
		main += "bundle: w.bundle\n"
	} else {
		main += "bundle: teams: web: w.team\n"
	}
	s := &bundles.Source{Package: ".", Files: []bundles.File{
		{Path: bundles.ModuleFile, Data: []byte("module: \"example.com/a\"\nlanguage: version: \"v0.17.0\"\n")}, {Path: "main.cue", Data: []byte(main)},
	}}
	for _, f := range r.Files {
		s.Files = append(s.Files, bundles.File{Path: "web/" + f.Path, Data: f.Data})
	}
	result, diags := compile.Bundle(s)
	if len(diags) > 0 {
		for _, f := range r.Files {
			t.Logf("%s\n%s", f.Path, f.Data)
		}
		t.Fatal(diags)
	}
	return result.Form
}

// realDefinitions returns the files with definitions in this repository and in the sources of modules that it depends on.
func realDefinitions(t *testing.T) (paths []string) {
	t.Helper()
	own, err := filepath.Glob("../../core/conformance/testdata/crds/*.yaml")
	if err != nil || len(own) == 0 {
		t.Fatal("no definitions in the repository", err)
	}
	paths = append(own, "../../examples/platform/teams/widgets/crds/gauges.yaml")
	for _, module := range []string{"k8s.io/apiextensions-apiserver", "sigs.k8s.io/structured-merge-diff/v6", "sigs.k8s.io/controller-runtime"} {
		out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(strings.TrimSpace(string(out)), func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(p) != ".yaml" || strings.Contains(p, "/apis/testdata/") {
				return err
			}
			text, err := os.ReadFile(p)
			if strings.Contains(string(text), "kind: CustomResourceDefinition") && strings.Contains(string(text), "apiextensions.k8s.io/v1\n") {
				paths = append(paths, p)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// oracle gives the verdicts of Kubernetes' own code.
type oracle struct {
	structural *structural.Structural
	validator  validation.SchemaValidator
}

func newOracle(t *testing.T, schema *apiextensionsv1.JSONSchemaProps) *oracle {
	t.Helper()
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &props, nil); err != nil {
		t.Fatal(err)
	}
	o := &oracle{}
	var err error
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

func (o *oracle) valid(object map[string]any) bool {
	pruning.PruneWithOptions(object, o.structural, true, structural.UnknownFieldPathOptions{})
	defaulting.PruneNonNullableNullsWithoutDefaults(object, o.structural)
	defaulting.Default(object, o.structural)
	return len(validation.ValidateCustomResource(nil, object, o.validator)) == 0 && len(objectmeta.Validate(context.Background(), nil, object, o.structural, false)) == 0 && len(listtype.ValidateListSetsAndMaps(nil, o.structural, object)) == 0
}

func decoded(t *testing.T, v any) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// Imported kinds accept what Kubernetes' own code accepts of their definitions, and get the same defaults. Definitions that do not become
// kinds are kept, and named.
func TestImportedKindsHaveTheVerdictsOfKubernetes(t *testing.T) {
	carried, kept, compared, valid := 0, 0, 0, 0
	for _, p := range realDefinitions(t) {
		text, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(p) == "widgets.yaml" { // everything in it but multipleOf can be carried
			text = []byte(strings.Replace(string(text), "              step: {type: integer, multipleOf: 3}\n", "", 1))
		}
		result, err := importing.Convert([]importing.Document{{Name: filepath.Base(p), Data: text}}, options())
		if err != nil {
			t.Logf("%s: %v", filepath.Base(p), err)
			continue
		}
		for _, n := range result.Notes {
			t.Log(n)
		}
		carried, kept = carried+len(result.Carried), kept+len(result.Kept)
		form := bundleOf(t, result, false)
		for _, name := range result.Carried {
			c, v := compareKind(t, form, definitionIn(t, text, name))
			compared, valid = compared+c, valid+v
		}
	}
	t.Logf("%d definitions became kinds, %d were kept; %d objects compared, %d of them valid", carried, kept, compared, valid)
	if carried < 6 || compared < 1500 || valid < compared/20 {
		t.Error("too few to say anything")
	}
}

func definitionIn(t *testing.T, text []byte, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	for doc := range strings.SplitSeq("\n"+string(text), "\n---") {
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal([]byte(doc), &d); err == nil && d.Name == name {
			return &d
		}
	}
	t.Fatal("no definition", name)
	return nil
}

// compareKind returns how many objects were compared, and how many of them were valid.
func compareKind(t *testing.T, form *policy.Form, d *apiextensionsv1.CustomResourceDefinition) (compared, valid int) {
	t.Helper()
	i := slices.IndexFunc(form.Kinds, func(k schemas.Kind) bool { return k.Resource() == d.Name })
	kind := &form.Kinds[i]
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	origin, errs, _ := crd.Translate(text, func([]string) schemas.Position { return schemas.Position{} })
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, v := range d.Spec.Versions {
		o := newOracle(t, v.Schema.OpenAPIV3Schema)
		version, _ := kind.Version(v.Name)
		from, _ := origin.Version(v.Name)
		ours, err := program.New(version.Schema)
		if err != nil {
			t.Fatal(err)
		}
		g := samples.Maker{Rand: rand.New(rand.NewPCG(7, uint64(len(d.Name))))}
		for i := range 200 {
			value := g.Near(from.Schema)
			switch i % 4 {
			case 0:
				value = g.Witness(from.Schema)
			case 1:
				value = g.Mutate(g.Witness(from.Schema))
			}
			object, ok := value.(map[string]any)
			if !ok || importing.Excused(object) {
				continue
			}
			for _, name := range []string{"apiVersion", "kind", "metadata"} {
				delete(object, name)
			}
			object["apiVersion"], object["kind"], object["metadata"] = d.Spec.Group+"/"+v.Name, d.Spec.Names.Kind, map[string]any{"name": "x"}
			a, b := decoded(t, object), decoded(t, object)
			theirs := o.valid(a)
			ours.Prepare(b)
			errs := ours.Validate(b)
			compared++
			if theirs != (len(errs) == 0) {
				t.Fatalf("%s %s: Kubernetes says %v, the kind says %v of %v", d.Name, v.Name, theirs, errs.ToAggregate(), fmt.Sprint(object))
			}
			if theirs {
				valid++
				if !reflect.DeepEqual(a, b) {
					t.Fatalf("%s %s: not the same object:\n%v\n%v", d.Name, v.Name, a, b)
				}
			}
		}
	}
	return compared, valid
}

// Fields may be named like what the CUE of a schema uses, and a default may be the only value of a field.
func TestDefinitionsWithNamesOfCUEBecomeKinds(t *testing.T) {
	const input = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.shop.example}
spec:
  group: shop.example
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              string: {type: string}
              int: {type: integer}
              bool: {type: boolean}
              number: {type: number}
              list: {type: array, maxItems: 3, items: {type: string}}
              strings: {type: string, maxLength: 5}
              struct: {type: object, maxProperties: 2, additionalProperties: {type: integer}}
              map: {type: object, additionalProperties: {type: string}}
              group: {type: string, enum: [shop.example], default: shop.example}
`
	r, err := importing.Convert([]importing.Document{{Name: "in.yaml", Data: []byte(input)}}, options())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Notes) > 0 {
		t.Fatalf("%v\n%s", r.Notes, r.Files[0].Data)
	}
	kinds := bundleOf(t, r, false).Kinds
	at := slices.IndexFunc(kinds, func(k schemas.Kind) bool { return k.Resource() == "things.shop.example" })
	checker, err := program.NewChecker(kinds[at].Versions[0].Schema)
	if err != nil {
		t.Fatal(err)
	}
	object := map[string]any{"spec": map[string]any{"string": "a", "int": int64(1), "bool": true, "number": 1.5, "list": []any{"x"}, "strings": "abc", "struct": map[string]any{"a": int64(1)}, "map": map[string]any{"k": "v"}}}
	prepared, unknown := checker.Prepare(object)
	if errs := checker.Validate(prepared); len(errs)+len(unknown) > 0 {
		t.Error(errs, unknown)
	}
}
