package policy_test

import (
	"strings"
	"testing"

	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

const scaledBundle = `
package test
import "stele.dev/policy"
bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["example.com"], namespaces: ["*"]
		kinds: "widgets.example.com": {
			group: "example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
			versions: v1: {
				#schema: {spec?: {replicas?: int, size?: int}, status?: {replicas?: int}}
				subresources: scale: {specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas"}
			}
		}
		kinds: "plains.example.com": {
			group: "example.com", names: {kind: "Plain", plural: "plains"}, storageVersion: "v1"
			versions: v1: #schema: {spec?: {size?: int}}
		}
		PART
	}
}
`

// compileScaled compiles the bundle with a part of the team's.
func compileScaled(t *testing.T, part string) schemas.Diagnostics {
	t.Helper()
	source, _ := module(t, ".", map[string]string{"bundle.cue": strings.Replace(scaledBundle, "PART", part, 1)})
	_, diags := compile.Bundle(source)
	return diags
}

// What rules and conditions name of a scale is checked when a bundle is compiled.
func TestRulesAboutScales(t *testing.T) {
	rule := func(resource, expression string) string {
		return `admission: validate: x: {match: {apiGroups: ["example.com"], resources: ["` + resource + `"]}, validations: v: expression: "` + expression + `"}`
	}
	grant := func(resource, when string) string {
		return `rbac: {clusterRoles: r: rules: r: {apiGroups: ["example.com"], resources: ["` + resource + `"], verbs: ["update"]}
			bindings: b: {clusterRole: "r", subjects: [{group: "g"}], namespaces: ["*"], when: "` + when + `"}}`
	}
	for _, tc := range []struct{ name, part, refused string }{
		{"a rule about a Scale", rule("widgets/scale", "object.spec.replicas < 5 && object.status.replicas < 5"), ""},
		{"a rule about a Scale that takes it for the object", rule("widgets/scale", "object.spec.size < 5"), "undefined field 'size'"},
		{"a rule about both that fits both", rule("widgets/*", "object.spec.replicas < 5"), ""},
		{"a rule about both that fits one", rule("widgets/*", "object.spec.size < 5"), "objects may be autoscaling/v1, Kind=Scale"},
		{"a rule about the object, in which Scales have no part", rule("widgets", "object.spec.size < 5"), ""},
		{"a rule about the scale of what has none", rule("plains/scale", "true"), `no kind is matched`},
		{"a condition on a Scale", grant("widgets/scale", "object.spec.replicas < 5"), ""},
		{"a condition on a Scale that takes it for the object", grant("widgets/scale", "object.spec.size < 5"), "undefined field 'size'"},
	} {
		diags := compileScaled(t, tc.part)
		text := diags.Error()
		if tc.refused == "" && len(diags) > 0 || !strings.Contains(text, tc.refused) {
			t.Errorf("%s: %s, want %q", tc.name, text, tc.refused)
		}
	}
}

// A grant to delete collections may depend on the objects, as long as it can be decided for
// what is deleted.
func TestConditionsOnCollections(t *testing.T) {
	for when, refused := range map[string]string{"oldObject.spec.size < 5": "", "object.spec.size < 5": "object is null on deletecollection"} {
		part := `rbac: {clusterRoles: r: rules: r: {apiGroups: ["example.com"], resources: ["widgets"], verbs: ["deletecollection"]}
			bindings: b: {clusterRole: "r", subjects: [{group: "g"}], namespaces: ["*"], when: "` + when + `"}}`
		diags := compileScaled(t, part)
		if refused == "" && len(diags) > 0 || !strings.Contains(diags.Error(), refused) {
			t.Errorf("%s: %v, want %q", when, diags, refused)
		}
	}
}
