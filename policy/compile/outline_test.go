package compile_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

// largeDefinition returns a CustomResourceDefinition of about so many bytes, with descriptions, lists and nested objects as in
// published ones. more stands at the end of the schema of spec.
func largeDefinition(i, size int, more string) (name string, text []byte) {
	name = fmt.Sprintf("thing%ds.big.example.com", i)
	var b bytes.Buffer
	fmt.Fprintf(&b, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: big.example.com
  scope: Namespaced
  names: {kind: Thing%d, plural: thing%[2]ds, singular: thing%[2]d, listKind: Thing%[2]dList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
`, name, i)
	for n := 0; b.Len() < size; n++ {
		fmt.Fprintf(&b, `              field%d:
                description: %s
                type: object
                properties:
                  names: {type: array, items: {type: string, maxLength: %d}, x-kubernetes-list-type: set}
                  weight: {type: integer, format: int32, minimum: 0, default: %d}
                  deep: {type: object, properties: {mode: {type: string, enum: [Always, Never]}, on: {type: boolean}}}
`, n, strings.TrimSpace(strings.Repeat("selects the objects of the container ", 5)), n%60+1, n%9)
	}
	b.WriteString(more)
	return name, b.Bytes()
}

// largeBundle returns a bundle that embeds large definitions. text is added at its end.
func largeBundle(more, text string) *bundles.Source {
	cue := "@extern(embed)\n\npackage big\n\nimport \"stele.dev/policy\"\n\nbundle: policy.#Bundle & {\n\tcluster: \"big\"\n\tteams: t: {\n\t\tcontact: \"#t\", groups: [\"big.example.com\"], namespaces: [\"*\"]\n"
	s := &bundles.Source{Package: "."}
	for i := range 6 {
		name, definition := largeDefinition(i, 200<<10, more)
		file := fmt.Sprintf("c%d.yaml", i)
		s.Files = append(s.Files, bundles.File{Path: file, Data: definition})
		cue += fmt.Sprintf("\t\tcrds: %q: _ @embed(file=%s)\n", name, file)
	}
	cue += "\t}\n}\n" + text
	s.Files = append([]bundles.File{{Path: "bundle.cue", Data: []byte(cue)}}, s.Files...)
	s.Files = append(s.Files, bundles.File{Path: bundles.ModuleFile, Data: []byte("module: \"example.com/big\"\nlanguage: version: \"v0.17.0\"\n")})
	return s
}

// asAWhole is a comment by which a bundle is not compiled definition by definition.
const asAWhole = "\n// len(openAPIV3Schema)\n"

// Whether definitions are compiled one by one or together: the policy is the same, with the same positions, and so are mistakes.
func TestLargeDefinitionsCompileToTheSameOneByOne(t *testing.T) {
	for name, tc := range map[string]struct {
		more, text string
		mistakes   bool
	}{
		"as they are":                           {},
		"with a label of the bundle":            {text: `bundle: teams: t: crds: [string]: metadata: labels: team: "t"` + "\n"},
		"with a rule that CEL checks":           {more: "            x-kubernetes-validations: [{rule: \"has(self.field1)\", message: \"field1 is missing\"}]\n"},
		"with a schema that the bundle extends": {text: `bundle: teams: t: crds: "thing1s.big.example.com": spec: versions: [{schema: openAPIV3Schema: description: "of the bundle", ...}]` + "\n"},
		"with a mistake in a schema":            {more: "              wrong: {type: strong}\n", mistakes: true},
		"with a mistake beside the schema":      {text: `bundle: teams: t: crds: "thing1s.big.example.com": spec: scope: "Nowhere"` + "\n", mistakes: true},
	} {
		t.Run(name, func(t *testing.T) {
			together, wantDiags := compile.Bundle(largeBundle(tc.more, tc.text+asAWhole))
			source := largeBundle(tc.more, tc.text)
			if strings.Contains(tc.text, "openAPIV3Schema") == source.Outlinable() {
				t.Fatalf("one by one: %t", source.Outlinable())
			}
			times := 0
			oneByOne, diags := compile.BundleWatched(source, func(kinds, of int) {
				if times++; of != 6 {
					t.Errorf("%d of %d kinds", kinds, of)
				}
			})
			if !tc.mistakes && times != 6 {
				t.Errorf("%d kinds were compiled: the bundle was compiled as a whole, too", times)
			}
			if diff := cmp.Diff(wantDiags, diags); diff != "" {
				t.Fatalf("mistakes (-together +one by one):\n%s", diff)
			}
			if tc.mistakes != (len(diags) > 0) {
				t.Fatalf("mistakes: %v", diags)
			}
			if tc.mistakes {
				return
			}
			want, _ := together.Form.Encode()
			got, _ := oneByOne.Form.Encode()
			if !bytes.Equal(want, got) {
				t.Errorf("another policy: %d bytes, want %d", len(got), len(want))
			}
			if diff := cmp.Diff(together.Warnings, oneByOne.Warnings); diff != "" {
				t.Errorf("warnings (-together +one by one):\n%s", diff)
			}
		})
	}
}
