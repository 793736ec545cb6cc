package policy_test

import "testing"

func TestMistakesInAdmissionPlugins(t *testing.T) {
	asked := func(plugins string) string {
		return "{\nplugins: warden: {" + checksum + "}\nteams: wards: {contact: \"#x\", groups: [\"*\"], namespaces: [\"*\"], admission: plugins: {\n" + plugins + "\n}}\n}"
	}
	const match = `match: {apiGroups: [""], resources: ["configmaps"]}`
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"a plugin that is not declared": {asked(`validating: x: {§plugin: "wardn", ` + match + `}
			validating: y: {plugin: "warden", ` + match + `}`),
			[]string{`bundle.teams.wards.admission.plugins.validating.x.plugin: the bundle has no plugin "wardn"; did you mean "warden"?`}},
		"a kind that does not exist": {asked(`validating: x: {plugin: "warden", match: {apiGroups: [""], resources: [§"configmap"]}}`),
			[]string{`bundle.teams.wards.admission.plugins.validating.x.match.resources.0: no kind is matched: "configmap" is not served in these apiGroups; did you mean "configmaps"?`}},
		"too much time": {asked("validating: x: {plugin: \"warden\", " + match + "\n§timeout: \"11s\"}"),
			[]string{`bundle.teams.wards.admission.plugins.validating.x.timeout: a plugin has more than 0s and at most 10s for a review, not 11s`}},
		"a condition that does not type-check": {asked("validating: x: {plugin: \"warden\", match: {apiGroups: [\"\"], resources: [\"configmaps\"]\nconditions: c: \"object§.dat == null\"}}"),
			[]string{`bundle.teams.wards.admission.plugins.validating.x.match.conditions.c: in CEL: undefined field 'dat'; did you mean "data"?`}},
		"the order of another one": {asked("mutating: x: {plugin: \"warden\", order: 7, " + match + "}\nmutating: y: {plugin: \"warden\", " + match + ", §order: 7}"),
			[]string{`bundle.teams.wards.admission.plugins.mutating.y.order: the order 7 is that of wards/plugins/mutating/x (bundle.cue:14), too: which one is first is not known; give it another number`}},
		"no order": {asked("mutating: §x: {plugin: \"warden\", " + match + "}"), []string{`bundle.teams.wards.admission.plugins.mutating.x.order: "order" is required`}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}
