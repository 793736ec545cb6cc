package policy_test

import (
	"testing"

	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// viewed is a bundle with a kind to make views of. The additions follow.
const viewed = `teams: a: kinds: "disks.a.example.com": {
	names: {kind: "Disk", plural: "disks", shortNames: ["dk"]}
	storageVersion: "v1"
	versions: v1: #schema: spec: {size: int, name?: string, tags?: [...string], speed?: number, since?: string}
}
bundle: `

func TestMistakesInViews(t *testing.T) {
	for name, test := range map[string]struct {
		additions string
		want      []string
	}{
		"of no kind": {`teams: a: views: big: {§kind: "disk.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.kind: there is no kind "disk.a.example.com"; did you mean "disks.a.example.com"?`}},
		"of another group's kind": {`teams: a: views: big: {§kind: "secrets", version: "v1", columns: n: {expression: "object.metadata.name", type: "string"}}`,
			[]string{`bundle.teams.a.views.big.kind: the team a may not read secrets: its groups are "a.example.com" (bundle.cue:8); have the platform allow it beside the teams of the bundle: reads: "a": ["secrets"]`}},
		"of no version": {`teams: a: views: big: {kind: "disks.a.example.com", §version: "v2", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.version: disks.a.example.com has no version "v2" that is served; there are "v1"`}},
		"a filter of an unknown field": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", filter: "object.spec§.sizes > 5", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.filter: in CEL: undefined field 'sizes'; did you mean "size"?`}},
		"a filter that is no condition": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", §filter: "object.spec.size", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.filter: in CEL: its value is of type int, and must be a boolean; its value is an integer`}},
		"a column of another type": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", columns: size: {§expression: "object.spec.size", type: "string"}}`,
			[]string{`bundle.teams.a.views.big.columns.size.expression: in CEL: its value is of type int, and must be a string; its value is an integer`}},
		"a text as a date": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", columns: since: {§expression: "object.spec.since", type: "date"}}`,
			[]string{`bundle.teams.a.views.big.columns.since.expression: in CEL: its value is of type string, and must be a date; timestamp(…) makes one of a text`}},
		"a filter without bounds": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", §filter: "object.spec.tags.all(a, object.spec.tags.all(b, object.spec.tags.all(c, a + b != c)))", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.filter: in CEL: it may cost 30600.7 times what an expression may cost at most; bound what it goes over: list.MaxItems, strings.MaxRunes, struct.MaxFields`}},
		"sorted by an unknown column": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", sort: [§"-sze"], columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.sort.0: there is no column "sze" to sort by; did you mean "size"?`}},
		"sorted twice": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", sort: ["-size", §"size"], columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.sort.1: rows are sorted by "size" already; leave it out`}},
		"two of one name": {`teams: {
				a: views: big: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
				b: views: §big: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
			}`, []string{`bundle.teams.b.views.big: the view "big" is defined twice; the other one is a/views/big (bundle.cue:17)`}},
		"the name of a kind": {`teams: a: views: §disks: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`a/views/disks: the name of the view "disks" is the plural of disks.a.example.com (bundle.cue:11): clients would take either; choose another one`}},
		"a short name": {`teams: a: views: §dk: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`a/views/dk: the name of the view "dk" is the short name of disks.a.example.com (bundle.cue:11): clients would take either; choose another one`}},
		"the name of a built-in kind": {`teams: a: views: §cm: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`a/views/cm: the name of the view "cm" is the short name of configmaps, which is built in: clients would take either; choose another one`}},
		"the name of another resource": {`teams: a: views: §changes: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`a/views/changes: the name of the view "changes" is that of a resource of the API group "log.stele.dev": clients would take either; choose another one`}},
		"kinds that are the same": {`teams: a: views: {
				"a-1": {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
				§a1: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
			}`, []string{`a/views/a1: the views "a-1" and "a1" have the same kind, A1; the other one is a/views/a-1 (bundle.cue:17)`}},
		"an aggregate of a text": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", groupBy: ["size"], columns: size: {expression: "object.spec.size", type: "integer"}
				aggregates: most: {function: "max", §expression: "object.spec.name"}}`,
			[]string{`bundle.teams.a.views.big.aggregates.most.expression: in CEL: its value is of type string, and must be a number; its value is a string`}},
		"an aggregate without a group": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}
				aggregates: §n: function: "count"}`,
			[]string{`bundle.teams.a.views.big.aggregates.n: an aggregate needs groupBy; name the columns whose values make a group`}},
		"an aggregate of nothing": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", groupBy: ["size"], columns: size: {expression: "object.spec.size", type: "integer"}
				aggregates: §n: function: "sum"}`,
			[]string{`bundle.teams.a.views.big.aggregates.n: sum needs an expression; write expression: with a number in CEL`}},
		"an aggregate named as a column": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", groupBy: ["size"], columns: size: {expression: "object.spec.size", type: "integer"}
				aggregates: §size: function: "count"}`,
			[]string{`bundle.teams.a.views.big.aggregates.size: a column is named "size", too; choose another name`}},
		"a group by no column": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", groupBy: ["size", §"x"], columns: size: {expression: "object.spec.size", type: "integer"}}`,
			[]string{`bundle.teams.a.views.big.groupBy.1: there is no column "x"; there are "size"`}},
		"a column of no group": {`teams: a: views: big: {kind: "disks.a.example.com", version: "v1", groupBy: ["size"], columns: {size: {expression: "object.spec.size", type: "integer"}, §name: {expression: "object.spec.name", type: "string"}}}`,
			[]string{`bundle.teams.a.views.big.columns.name: a column that is not in groupBy has no single value for a group; add it to groupBy, or make it an aggregate`}},
		"a rule of an unknown view": {`teams: a: {
				views: big: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
				rbac: clusterRoles: r: rules: x: {verbs: ["get"], apiGroups: ["views.stele.dev"], resources: ["big", §"bigger"]}
			}`, []string{`bundle.teams.a.rbac.clusterRoles.r.rules.x.resources.1: "bigger" is not served in the API group "views.stele.dev"; there are "big"`}},
		"own views in a role of others": {`teams: a: {
				views: big: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
				rbac: clusterRoles: r: {labels: "rbac.authorization.k8s.io/aggregate-to-view": "true", rules: x: {verbs: ["get"], apiGroups: ["views.stele.dev"], resources: ["big"]}}
			}`, nil},
		"all views in a role of others": {`teams: a: {
				views: big: {kind: "disks.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}}
				rbac: clusterRoles: r: {labels: "rbac.authorization.k8s.io/aggregate-to-view": "true", rules: §x: {verbs: ["get"], apiGroups: ["views.stele.dev"], resources: ["*"]}}
			}`, []string{`a/clusterRoles/r/x: the rule joins the role "view", which others bind: its apiGroups must be among a.example.com; take the label off the role, or have the platform add the rule`}},
		"a rule of a view with a mistake": {`teams: a: {
				views: big: {kind: "disks.a.example.com", §version: "v7", columns: size: {expression: "object.spec.size", type: "integer"}}
				rbac: clusterRoles: r: rules: x: {verbs: ["get"], apiGroups: ["views.stele.dev"], resources: ["big"]}
			}`, []string{`bundle.teams.a.views.big.version: disks.a.example.com has no version "v7" that is served; there are "v1"`}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, viewed+test.additions, test.want...) })
	}
}

func TestAViewIsPartOfTheForm(t *testing.T) {
	source, _ := module(t, ".", map[string]string{"bundle.cue": bundleFile(viewed + `teams: a: {
		views: "big-disks": {kind: "disks.a.example.com", version: "v1", filter: "object.spec.size > 5", sort: ["-size"]
			columns: {size: {expression: "object.spec.size", type: "integer"}, made: {expression: "object.metadata.creationTimestamp", type: "date", priority: 1}}}
		views: "disk-sizes": {kind: "disks.a.example.com", version: "v1", groupBy: ["size"]
			columns: size: {expression: "object.spec.size", type: "integer"}
			aggregates: {n: function: "count", speed: {function: "max", expression: "object.spec.speed"}}}
		rbac: clusterRoles: r: rules: x: {verbs: ["get"], apiGroups: ["views.stele.dev"], resources: ["big-disks"]}
	}`)})
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	encoded, _ := compiled.Form.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Views()) != 2 {
		t.Fatalf("the policy has %d views, want 2", len(p.Views()))
	}
	big, sizes := p.Views()[0], p.Views()[1]
	if big.Resource() != "big-disks.views.stele.dev" || big.Kind.Kind != "BigDisks" || !big.Namespaced || big.Reads.Kind.Resource() != "disks.a.example.com" {
		t.Errorf("the kind of the view is %+v", big.Kind)
	}
	if sizes.Namespaced || sizes.View.Aggregates[1].Type != "number" {
		t.Errorf("the kind of the view of groups is %+v", sizes.Kind)
	}
	if p.Version(big.GroupResource().WithVersion("v1")) != big.Versions[0] {
		t.Error("the view is not served")
	}
	for _, k := range p.Kinds() {
		if k.View != nil {
			t.Errorf("%s is among the kinds with objects of their own", k.Resource())
		}
	}
	if !big.View.Same(big.View) || big.View.Same(sizes.View) {
		t.Error("Same does not compare views")
	}
}
