package exporting_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"stele.dev/stele/cmd/stele/internal/exporting"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
)

func TestExportOfTheExample(t *testing.T) {
	source, err := bundles.ReadFS(os.DirFS("../../../../examples/platform"), "clusters/dev")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	objects, notes := exporting.Objects(compiled.Form)
	kinds := map[string]int{}
	names := ""
	for _, o := range objects {
		content := o.(map[string]any)
		kinds[content["kind"].(string)]++
		names += content["kind"].(string) + " " + content["metadata"].(map[string]any)["name"].(string) + "\n"
		if content["status"] != nil {
			t.Errorf("a status: %v", content)
		}
	}
	for kind, want := range map[string]int{"CustomResourceDefinition": 2, "ClusterRole": 6, "ClusterRoleBinding": 4, "RoleBinding": 1, "ValidatingAdmissionPolicy": 2, "ValidatingAdmissionPolicyBinding": 2} {
		if kinds[kind] != want {
			t.Errorf("%d of kind %s, want %d\n%s", kinds[kind], kind, want, names)
		}
	}
	said := strings.Join(notes, "\n")
	for _, want := range []string{
		"widgets/bindings/trainees-make is not exported: RBAC has no conditions", `widgets/bindings/developers is not exported for "widgets-*"`,
		"widgets/denies/keep-widgets is not exported",
	} {
		if !strings.Contains(said, want) {
			t.Errorf("no note %q in\n%s", want, said)
		}
	}
	first, _ := json.Marshal(objects)
	for range 20 {
		again, _ := exporting.Objects(compiled.Form)
		if text, _ := json.Marshal(again); string(text) != string(first) {
			t.Fatal("the export differs from run to run")
		}
	}
}
