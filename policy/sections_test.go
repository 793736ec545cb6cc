package policy_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
)

// compiled compiles the additions to a bundle, in which the places of sources are
// marked.
func compiled(t *testing.T, additions string) (*compile.Result, []schemas.Position) {
	t.Helper()
	source, places := module(t, ".", map[string]string{"bundle.cue": bundleFile(additions)})
	c, diags := compile.Bundle(source)
	if diags != nil {
		t.Fatal(diags)
	}
	positions := make([]schemas.Position, len(places))
	for i, p := range places {
		if err := positions[i].UnmarshalText([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	return c, positions
}

func TestFlowIsCompiled(t *testing.T) {
	c, at := compiled(t, `flow: {
	priorityLevels: {
		§queued: {nominalConcurrencyShares: 30, lendablePercent: 50, borrowingLimitPercent: 0, queuing: {queues: 8}}
		§plain: nominalConcurrencyShares: 0
	}
	flowSchemas: {
		§all: {matchingPrecedence: 900, priorityLevel: "workload-low", subjects: [{group: "x"}], rules: {}}
		§first: {
			matchingPrecedence: 800
			priorityLevel:      "plain"
			distinguisher:      "ByUser"
			subjects: [{serviceAccount: "a/b"}, {user: "c"}]
			rules: {
				§b: {apiGroups: [""], resources: ["secrets"], verbs: ["*"]}
				§a: {nonResourceURLs: ["/healthz"], verbs: ["get"]}
			}
		}
		§also: {matchingPrecedence: 800, priorityLevel: "exempt", subjects: [{user: "x"}], rules: {}}
	}
}`)
	none := 0
	want := policy.Flow{
		PriorityLevels: []policy.PriorityLevel{
			{ID: "flow/priorityLevels/plain", Name: "plain", Source: at[1]},
			{ID: "flow/priorityLevels/queued", Name: "queued", NominalConcurrencyShares: 30, LendablePercent: 50, BorrowingLimitPercent: &none,
				Queuing: &policy.Queuing{Queues: 8, HandSize: 6, QueueLengthLimit: 50}, Source: at[0]},
		},
		FlowSchemas: []policy.FlowSchema{
			{ID: "flow/flowSchemas/also", Name: "also", MatchingPrecedence: 800, PriorityLevel: "exempt", Subjects: []policy.Subject{{User: "x"}}, Source: at[6]},
			{ID: "flow/flowSchemas/first", Name: "first", MatchingPrecedence: 800, PriorityLevel: "plain", Distinguisher: "ByUser",
				Subjects: []policy.Subject{{User: "system:serviceaccount:a:b"}, {User: "c"}},
				Rules: []policy.FlowRule{
					{ID: "flow/flowSchemas/first/a", Verbs: list{"get"}, NonResourceURLs: list{"/healthz"}, Source: at[5]},
					{ID: "flow/flowSchemas/first/b", Verbs: list{"*"}, APIGroups: list{""}, Resources: list{"secrets"}, Source: at[4]},
				}, Source: at[3]},
			{ID: "flow/flowSchemas/all", Name: "all", MatchingPrecedence: 900, PriorityLevel: "workload-low", Subjects: []policy.Subject{{Group: "x"}}, Source: at[2]},
		},
	}
	if diff := cmp.Diff(want, c.Form.Flow); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

const sections = `{
	flow: priorityLevels: {one: nominalConcurrencyShares: 1, two: nominalConcurrencyShares: 2}
	audit: rules: {one: {order: 1, level: "None"}, two: {order: 2, level: "None"}}
}`

func TestAFormWithEverythingLoadsAsItWasCompiled(t *testing.T) {
	c, _ := compiled(t, sections)
	encoded, digest := c.Form.Encode()
	loaded, err := policy.DecodeForm(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := loaded.Encode(); !bytes.Equal(encoded, again) {
		t.Error("a form that was loaded encodes differently")
	}
	if p, err := probes.Load(encoded); err != nil || p.Digest() != digest {
		t.Errorf("a policy of it: %v", err)
	}
	if c, _ := compiled(t, "{}"); true {
		if plain, _ := c.Form.Encode(); bytes.Contains(plain, []byte(`"flow"`)) || bytes.Contains(plain, []byte(`"audit"`)) {
			t.Errorf("a form without them has them: %s", plain)
		}
	}
}

func TestDynamicIsCompiled(t *testing.T) {
	c, at := compiled(t, `dynamic: {§rbac: "Match", webhooks: "Refuse"}`)
	if diff := cmp.Diff(map[string]policy.Dynamic{"rbac": {Mode: policy.MatchWrites, Source: at[0]}}, c.Form.Dynamic); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatDynamicAllowsIsCompiled(t *testing.T) {
	c, at := compiled(t, `dynamic: {§rbac: "Allow", §webhooks: "Allow", namespaces: ["team-*"], powers: §r: {apiGroups: [""], resources: ["configmaps"], verbs: ["get"]}}`)
	want := map[string]policy.Dynamic{
		"rbac": {Mode: policy.AllowWrites, Source: at[0], Namespaces: []string{"team-*"}, Powers: []policy.Rule{
			{ID: "dynamic/powers/r", APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}, Source: at[2]},
		}},
		"webhooks": {Mode: policy.AllowWrites, Source: at[1], Namespaces: []string{"team-*"}},
	}
	if diff := cmp.Diff(want, c.Form.Dynamic); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c, _ = compiled(t, `dynamic: {rbac: "Allow", powers: {}}`); c.Form.Dynamic["rbac"].Powers == nil {
		t.Error("no powers are all powers")
	}
}

func TestDynamicThatIsNotSupportedIsRefused(t *testing.T) {
	expect(t, `dynamic: {§admissionPolicies: "Allow", flowControl: "Match"}`,
		"bundle.dynamic.admissionPolicies: Allow is not supported for admissionPolicies; write \"Match\", which accepts what equals the bundle; `stele policy import FILE --team TEAM` brings the rest into the bundle")
}

func TestNamesOfRolesAndBindingsAreThoseOfOneObject(t *testing.T) {
	expect(t, `teams: b: rbac: {
	clusterRoles: {
		early: rules: {}
		§named: {name: "early", rules: {}}
		§slash: {name: "a/b", rules: {}}
		one: {name: "leader", namespace: "one", rules: {}}
		two: {name: "leader", namespace: "two", rules: {}}
	}
	bindings: {
		first: {name: "x", clusterRole: "one", subjects: [{user: "x"}], namespaces: ["one"]}
		other: {name: "x", clusterRole: "two", subjects: [{user: "x"}], namespaces: ["two"]}
		§third: {name: "x", clusterRole: "view", subjects: [{user: "x"}], namespaces: ["two"]}
		all: {name: "x", clusterRole: "view", subjects: [{user: "x"}], namespaces: ["*"]}
		§wide: {name: "y", clusterRole: "one", subjects: [{user: "x"}], namespaces: ["*"]}
	}
}`,
		`b/clusterRoles/named: two roles are shown as "early"; the other one is b/clusterRoles/early (bundle.cue:13)`,
		`b/clusterRoles/slash: no object can have the name "a/b"; may not contain '/'`,
		`b/bindings/third: two bindings are shown as "x"; the other one is b/bindings/other (bundle.cue:21)`,
		`b/bindings/wide: the role "one" is one of the namespace one; write namespaces: ["one"]; or leave out namespace of the role`,
	)
}
