package fromcue_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/limits/packed"
	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/fromcue/kinds"
	"stele.dev/stele/schemas/program"
)

const widgetKind = `package policy

widget: #Kind & {
	group: "example.com"
	names: {kind: "Widget", plural: "widgets", shortNames: ["wd"], categories: ["all"]}
	storageVersion: "v1"
	versions: v1: {
		#schema: #Widget
		subresources: status: {}
		additionalPrinterColumns: [
			{name: "Size", type: "integer", jsonPath: ".spec.size", description: "How big it is.", priority: 1},
			{name: "Age", type: "date", jsonPath: ".metadata.creationTimestamp"},
		]
		selectableFields: [".spec.color"]
		deprecated: "use gadgets"
	}
}
#Widget: {
	spec!: {size!: int & <=1000, color: *"blue" | "red", parts?: [...string]}
	status?: ready?: bool
}
`

// compileKind compiles the field widget of a bundle.
func compileKind(t *testing.T, id, text string) (schemas.Kind, schemas.Diagnostics) {
	t.Helper()
	defs, err := os.ReadFile("testdata/policy.cue")
	if err != nil {
		t.Fatal(err)
	}
	instance := build.NewContext().NewInstance("bundle", nil)
	for name, text := range map[string]string{"policy.cue": string(defs), "widgets.cue": text} {
		file, err := parser.ParseFile(name, text, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if err := instance.AddSyntax(file); err != nil {
			t.Fatal(err)
		}
	}
	v := cuecontext.New().BuildInstance(instance)
	return kinds.FromCUE(id, v.LookupPath(cue.ParsePath("widget")), locateIn("widgets.cue"))
}

func TestKindFromCUE(t *testing.T) {
	k, diags := compileKind(t, "widgets.example.com", widgetKind)
	if diags != nil {
		t.Fatal(diags)
	}
	schema := k.Versions[0].Schema
	k.Versions[0].Schema = nil
	want := schemas.Kind{
		Group: "example.com", Kind: "Widget", ListKind: "WidgetList", Plural: "widgets", Singular: "widget",
		ShortNames: []string{"wd"}, Categories: []string{"all"},
		Namespaced: true, StorageVersion: "v1",
		Versions: []schemas.Version{{
			Name: "v1", Served: true, Deprecated: "example.com/v1 Widget is deprecated: use gadgets", Status: true,
			Columns: []schemas.Column{
				{Name: "Size", Type: "integer", Description: "How big it is.", JSONPath: ".spec.size", Priority: 1},
				{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"},
			},
			SelectableFields: []string{".spec.color"},
		}},
		Source: schemas.Position{File: "widgets.cue", Line: 3, Column: 1},
	}
	if diff := cmp.Diff(want, k, cmp.Comparer(func(a, b packed.JSON) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if got := k.Resource(); got != "widgets.example.com" {
		t.Errorf("Resource() = %s", got)
	}
	if _, ok := k.Version("v1"); !ok {
		t.Error("no version v1")
	}
	if _, ok := k.Version("v2"); ok {
		t.Error("a version v2")
	}

	// The bundle's definition closes the schema, although #Kind unifies it with an open struct. Its
	// rules have positions in the bundle.
	p, err := program.New(schema)
	if err != nil {
		t.Fatal(err)
	}
	errs := p.Validate(objectOf(t, `{"spec": {"size": 1001}, "stattus": {}}`))
	want2 := "[spec.size: Invalid value: 1001: must be at most 1000 (widgets.cue:19), " +
		"stattus: Forbidden: unknown field; known are spec, status (widgets.cue:8)]"
	if got := fmt.Sprint(errs.ToAggregate()); got != want2 {
		t.Errorf("got  %s\nwant %s", got, want2)
	}
}

// The fields of index are selectable in all versions, beside those of the version.
func TestIndexIsForAllVersions(t *testing.T) {
	text := strings.Replace(widgetKind, "\tversions: v1: {", "\tindex: [\".spec.size\", \".status.ready\"]\n\tversions: v2: #schema: #Widget\n\tversions: v1: {", 1)
	k, diags := compileKind(t, "widgets.example.com", text)
	if diags != nil {
		t.Fatal(diags)
	}
	for name, want := range map[string][]string{"v1": {".spec.color", ".spec.size", ".status.ready"}, "v2": {".spec.size", ".status.ready"}} {
		if v, _ := k.Version(name); v == nil || !slices.Equal(v.SelectableFields, want) {
			t.Errorf("%s: %+v, want %v", name, v, want)
		}
	}
}

func TestIndexOfASecret(t *testing.T) {
	text := strings.NewReplacer("\tversions: v1: {", "\tindex: [\".spec.token\"]\n\tversions: v1: {", "spec!: {size", "spec!: {token?: string @stele(sensitive), size").Replace(widgetKind)
	_, diags := compileKind(t, "widgets.example.com", text)
	if len(diags) != 1 || !strings.Contains(diags[0].Message, "a selection by the value of .spec.token would show what is @stele(sensitive)") || diags[0].Pos.Line != 7 {
		t.Error(diags)
	}
}

// TestKindWithoutStatus has a schema that is closed without a field that #Kind itself declares.
func TestKindWithoutStatus(t *testing.T) {
	text := strings.Replace(widgetKind, "\tstatus?: ready?: bool\n", "", 1)
	k, diags := compileKind(t, "widgets.example.com", text)
	if diags != nil {
		t.Fatal(diags)
	}
	p, err := program.New(k.Versions[0].Schema)
	if err != nil {
		t.Fatal(err)
	}
	if errs := p.Validate(objectOf(t, `{"spec": {"size": 1}, "status": {}}`)); len(errs) != 1 || errs[0].Field != "status" {
		t.Error(errs)
	}
}

func TestKindRefused(t *testing.T) {
	for _, test := range []struct {
		name     string
		id       string
		old, new string // a replacement in widgetKind; the line of new is expected
		message  string
	}{
		{"another id", "gadgets.example.com", "", "", "the kind widgets.example.com stands under the key gadgets.example.com"},
		{"two versions that differ", "", "\tversions: v1: {", "\tversions: v2: #schema: spec?: _\n\tversions: v1: { // <-", "the schemas of v2 and v1 differ at spec, and nothing says how objects are converted"},
		{"retention", "", "\tversions: v1: {", "\tretention: ttl: \"5m\" // <-\n\tversions: v1: {", "ttl is not supported yet"},
		{"a reason of rules", "", "\t\tsubresources", "\t\tvalidations: a: {rule: \"true\", reason: \"No\"} // <-\n\t\tsubresources", "the reason \"No\""},
		{"a scale of what is not there", "", "subresources: status: {}", `subresources: scale: {specReplicasPath: ".spec.size", statusReplicasPath: ".status.size"} // <-`, `the schema has no field .status.size`},
		{"a scale of no integer", "", "subresources: status: {}", `subresources: scale: {specReplicasPath: ".spec.color", statusReplicasPath: ".status.ready"} // <-`, `the field .spec.color is not an integer`},
		{"a scale beside the spec", "", "subresources: status: {}", `subresources: scale: {specReplicasPath: ".status.ready", statusReplicasPath: ".status.ready"} // <-`, `the path ".status.ready"`},
		{"a scale with a selector that is no string", "", "subresources: status: {}", `subresources: scale: {specReplicasPath: ".spec.size", statusReplicasPath: ".status.ready", labelSelectorPath: ".spec.parts"} // <-`, `the field .spec.parts is not a string`},
		{"not served", "", "\t\tsubresources", "\t\tserved: false // <-\n\t\tsubresources", "no version is served"},
		{"a bad group", "widgets.Example", `group: "example.com"`, `group: "Example" // <-`, `group "Example"`},
		{"a bad plural", "", `shortNames: ["wd"]`, `shortNames: ["W D"]`, `shortNames "W D"`},
		{"a bad version", "", "storageVersion: \"v1\"\n\tversions: v1: {", "storageVersion: \"one\"\n\tversions: one: { // <-", `the version "one"`},
		{"an unknown column type", "", `type: "integer"`, `type: "int"`, `the column type "int"`},
		{"a column without a field", "", `jsonPath: ".spec.size"`, `jsonPath: ".spec.sise"`, "the schema has no field .spec.sise"},
		{"a bad path", "", `jsonPath: ".spec.size"`, `jsonPath: ".spec[size"`, `the JSON path ".spec[size"`},
		{"an unknown selectable field", "", `[".spec.color"]`, `[".spec.colour"]`, "the schema has no field .spec.colour"},
		{"a selectable list", "", `[".spec.color"]`, `[".spec.parts"]`, "cannot be selected by"},
		{"a field selected twice", "", `[".spec.color"]`, `[".spec.color", ".spec.color"]`, "listed twice"},
		{"an unknown field of index", "", "\tversions: v1: {", "\tindex: [\".spec.colour\"] // <-\n\tversions: v1: {", "the schema has no field .spec.colour"},
		{"a list in index", "", "\tversions: v1: {", "\tindex: [\n\".spec.size\",\n\".spec.parts\", // <-\n]\n\tversions: v1: {", "the field .spec.parts cannot be selected by"},
		{"an object in index", "", "\tversions: v1: {", "\tindex: [\".spec\"] // <-\n\tversions: v1: {", "the field .spec cannot be selected by"},
		{"an item of a list in index", "", "\tversions: v1: {", "\tindex: [\".spec.parts[0]\"] // <-\n\tversions: v1: {", "cannot be selected by"},
		{"a field that is twice in index", "", "\tversions: v1: {", "\tindex: [\".spec.size\", \".spec.size\"] // <-\n\tversions: v1: {", "the field .spec.size is listed twice"},
		{"a field in index and in selectableFields", "", "\tversions: v1: {", "\tindex: [\".spec.color\"] // <-\n\tversions: v1: {", "the field .spec.color is also in selectableFields of v1"},
		{"a schema that is refused", "", "size!: int & <=1000", "size!: float", "the type float"},
		{"a kind that CUE refuses", "", `plural: "widgets"`, `plural: 5`, "conflicting values"},
	} {
		t.Run(test.name, func(t *testing.T) {
			id := test.id
			if id == "" {
				id = "widgets.example.com"
			}
			text := strings.Replace(widgetKind, test.old, test.new, 1)
			if test.old != "" && text == widgetKind {
				t.Fatal("nothing replaced")
			}
			_, diags := compileKind(t, id, text)
			found := false
			for _, d := range diags {
				if !strings.Contains(d.Message, test.message) {
					continue
				}
				found = true
				mark, _, ok := strings.Cut(text, "<-")
				if line := 1 + strings.Count(mark, "\n"); ok && d.Pos.Line != line {
					t.Errorf("at line %d, want %d", d.Pos.Line, line)
				}
				if d.Pos.File != "widgets.cue" {
					t.Errorf("at %v", d.Pos)
				}
			}
			if !found {
				t.Errorf("want %q; got %v", test.message, diags)
			}
		})
	}
}
