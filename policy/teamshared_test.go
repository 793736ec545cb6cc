package policy_test

import (
	"strings"
	"testing"
)

// A part of a team may be made of values that stand elsewhere in the bundle: its limits hold for them, too.
func TestATeamReadsNoKindsOfOthersByValuesElsewhere(t *testing.T) {
	for name, bundle := range map[string]string{
		"a view of a hidden field": `{_elsewhere: v: {kind: "databases.b.example.com", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}}
			views: "some-databases": _elsewhere.v}`,
		"a view of a let": `{let v = {kind: "databases.b.example.com", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}}
			views: "some-databases": v}`,
		"all views of a hidden field": `{_elsewhere: "some-databases": {kind: "databases.b.example.com", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}}
			views: _elsewhere}`,
		"objects of a hidden field": `{_elsewhere: others: {kind: "databases.b.example.com", version: "v1"}
			admission: validate: r: {match: {apiGroups: ["a.example.com"], resources: ["things"]}, objects: _elsewhere, validations: v: expression: "objects.others.count() > 0"}}`,
		"paramKind of a hidden field": `{_elsewhere: {apiVersion: "b.example.com/v1", kind: "Database"}
			admission: validate: r: {match: {apiGroups: ["a.example.com"], resources: ["things"], scope: "Namespaced"}, paramKind: _elsewhere, paramRef: {name: "x", parameterNotFoundAction: "Deny"}
			validations: v: expression: "params.metadata.name == 'x'"}}`,
		"a view of a comprehension": `{for n in ["some-databases"] {views: (n): {kind: "databases.b.example.com", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			lines := compileTwoTeams(t, ofTwoTeams(bundle, ""))
			if len(lines) != 1 || !strings.Contains(lines[0], "the team a may not read databases.b.example.com") {
				t.Errorf("said %q", lines)
			}
		})
	}
	t.Run("a whole part of a hidden field", func(t *testing.T) {
		lines := compileTwoTeams(t, `{
teams: b: {kinds: "databases.b.example.com": {group: "b.example.com", names: {kind: "Database", plural: "databases"}, storageVersion: "v1", versions: v1: #schema: {}}}
_part: {views: "some-databases": {kind: "databases.b.example.com", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}}}
teams: a: _part
}`)
		if len(lines) != 1 || !strings.Contains(lines[0], "the team a may not read databases.b.example.com") {
			t.Errorf("said %q", lines)
		}
	})
}
