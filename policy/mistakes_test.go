package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/probes"
)

// here marks in a source where a diagnostic has to point.
const here = "§"

// module makes a source of files in which the places of diagnostics are marked, and
// returns those in order.
func module(t *testing.T, pkg string, files map[string]string) (*bundles.Source, []string) {
	t.Helper()
	fsys := fstest.MapFS{"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")}}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(text, here, ""))}
	}
	source, err := bundles.ReadFS(fsys, pkg)
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for _, f := range source.Files {
		for i, line := range strings.Split(files[f.Path], "\n") {
			for at := strings.Index(line, here); at >= 0; at = strings.Index(line, here) {
				places = append(places, fmt.Sprintf("%s:%d:%d", f.Path, i+1, at+1))
				line = strings.Replace(line, here, "", 1)
			}
		}
	}
	return source, places
}

// bundleFile is a bundle of two teams, with these additions from line 11 on.
func bundleFile(additions string) string {
	return `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: [_]: contact: "#x"
	teams: a: {groups: ["a.example.com"], namespaces: ["a-*"]}
	teams: b: {groups: ["b.example.com", "a.example.com"], namespaces: ["*"]}
}
bundle: ` + additions
}

// expect compiles the additions to a bundle, in which the places of what is wrong are
// marked, and compares what is said: path, message and hint.
func expect(t *testing.T, additions string, want ...string) {
	t.Helper()
	source, places := module(t, ".", map[string]string{"bundle.cue": bundleFile(additions)})
	expectAt(t, source, places, want...)
}

func expectAt(t *testing.T, source *bundles.Source, places []string, want ...string) {
	t.Helper()
	if len(places) != len(want) {
		t.Fatalf("the source has %d marks for %d diagnostics", len(places), len(want))
	}
	for i := range want {
		want[i] = places[i] + " " + want[i]
	}
	_, diags := compile.Bundle(source)
	var got []string
	for _, d := range diags {
		at, err := d.Pos.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(d.String(), ": ")
		got = append(got, string(at)+" "+text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +said):\n%s", diff)
	}
}

// A kind of team a, with what is written beside its group.
func widgets(rest string) string {
	return `teams: a: kinds: "widgets.a.example.com": {group: "a.example.com", ` + rest + `}`
}

const (
	widgetNames  = `names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"`
	widgetPath   = `bundle.teams.a.kinds."widgets.a.example.com"`
	widgetSchema = `versions: v1: {#schema: {spec: size: int}, subresources: status: {}}`
)

func role(rule string) string { return `teams: a: rbac: clusterRoles: r: rules: x: {` + rule + `}` }

func binding(b string) string { return `teams: a: rbac: bindings: b: {` + b + `}` }

func TestAMistakeIsSaidOnceWhereItWasMade(t *testing.T) {
	const (
		rulePath    = "bundle.teams.a.rbac.clusterRoles.r.rules.x"
		bindingPath = "bundle.teams.a.rbac.bindings.b"
		teamFields  = `"admission", "contact", "crds", "groups", "kinds", "name", "namespaces", "rbac", "views"`
		verbs       = `"*", "approve", "attest", "bind", "create", "delete", "deletecollection", "escalate" and 10 more`
		view        = `clusterRole: "view", `
		somebody    = `subjects: [{user: "x"}], `
		somewhere   = `namespaces: ["a-1"]`
	)
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		// What does not exist.
		"a role": {
			"{\n\tteams: b: rbac: clusterRoles: \"b:editor\": rules: {}\n\t" + binding("\n\t\tclusterRole: §\"b:editr\"\n\t\t"+somebody+somewhere) + "\n}",
			[]string{bindingPath + `.clusterRole: "b:editr" is not one of "admin", "b:editor", "cluster-admin", "edit", "view"; did you mean "b:editor"?`},
		},
		"a role, used by two teams": {
			"{\n" + `teams: a: rbac: bindings: b: #b` + "\n" + `teams: b: rbac: bindings: b: #b` + "\n}\n" + `#b: {clusterRole: §"veiw", ` + somebody + somewhere + `}`,
			[]string{bindingPath + `.clusterRole: "veiw" is not one of "admin", "cluster-admin", "edit", "view"; did you mean "view"?`},
		},
		"a verb":               {role(`apiGroups: [""], resources: ["secrets"], verbs: ["get", §"wach"]`), []string{rulePath + `.verbs.1: "wach" is not one of ` + verbs + `; did you mean "watch"?`}},
		"a verb, far from all": {role(`apiGroups: [""], resources: ["secrets"], verbs: [§"frobnicate"]`), []string{rulePath + `.verbs.0: "frobnicate" is not one of ` + verbs}},
		"a priority level": {
			"{\nflow: priorityLevels: own: {nominalConcurrencyShares: 5}\nflow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: §\"onw\", " + somebody + "rules: {}}\n}",
			[]string{`bundle.flow.flowSchemas.s.priorityLevel: "onw" is not one of "catch-all", "exempt", "global-default", "leader-election", "node-high", "own", "system", "workload-high", "workload-low"; did you mean "own"?`},
		},
		"a level of the audit log": {`audit: rules: s: {order: 1, level: §"metdata"}`, []string{`bundle.audit.rules.s.level: "metdata" is not one of "Metadata", "None", "Request", "RequestResponse"; did you mean "Metadata"?`}},
		"an authorizer":            {`authorizers: [§"denyy", "rbac"]`, []string{`bundle.authorizers.0: "denyy" is not one of "abac", "deny", "rbac", "system:masters", "webhook", "plugin:NAME", "webhook:NAME"; did you mean "deny"?`}},
		"a setting":                {`dynamic: rbac: §"allow"`, []string{`bundle.dynamic.rbac: "allow" is not one of "Allow", "Match", "Refuse"; did you mean "Allow"?`}},
		"a value of another type":  {`dynamic: rbac: §true`, []string{`bundle.dynamic.rbac: true is not one of "Allow", "Match", "Refuse"`}},
		"how long to keep":         {`teams: b: kinds: "widgets.b.example.com": {group: "b.example.com", ` + widgetNames + `, versions: v1: #schema: {}, retention: history: §"forever"}`, []string{`bundle.teams.b.kinds."widgets.b.example.com".retention.history: "forever" is not one of "all", "none", a duration such as 12h or 90d`}},
		"a version to store":       {widgets(`names: {kind: "Widget", plural: "widgets"}, storageVersion: §"v2", versions: {v1: #schema: {}, v1beta1: #schema: {}}`), []string{widgetPath + `.storageVersion: "v2" is not one of "v1", "v1beta1"`}},
		"a group that is not the team's": {
			`teams: a: kinds: "widgets.c.org": {group: §"c.org", ` + widgetNames + `, ` + widgetSchema + `}`,
			[]string{`bundle.teams.a.kinds."widgets.c.org".group: "c.org" is not one of "a.example.com"`},
		},
		"a group of another team, in a deny": {
			`teams: a: rbac: denies: d: {reason: "x", ` + somebody + `rules: x: {apiGroups: [§"b.org"], resources: ["widgets"], verbs: ["get"]}}`,
			[]string{`bundle.teams.a.rbac.denies.d.rules.x.apiGroups.0: "b.org" is not one of "a.example.com"`},
		},
		"a reference":                {`teams: c: {groups: [], namespaces: §polcy.x}`, []string{`bundle.teams.c.namespaces: reference "polcy" not found; did you mean "policy"?`}},
		"a field of something else":  {role(`apiGroups: [""], resources: ["secrets"], verbs: policy.verbs.§raed`), []string{rulePath + `.verbs: undefined field: raed`}},
		"a definition, in a schema":  {widgets(widgetNames + `, versions: v1: #schema: spec: §#Nope`), []string{widgetPath + `.versions.v1.#schema.spec: reference "#Nope" not found`}},
		"anything to choose from":    {`teams: c: {groups: [], namespaces: [], kinds: "widgets.c.org": {§group: "c.org", ` + widgetNames + `, ` + widgetSchema + `}}`, []string{`bundle.teams.c.kinds."widgets.c.org".group: nothing can stand here yet: there is nothing to choose from`}},
		"a key that is not the kind": {`teams: a: kinds: §"widget.a.example.com": {group: "a.example.com", ` + widgetNames + `, ` + widgetSchema + `}`, []string{`bundle.teams.a.kinds."widget.a.example.com": the kind "widgets.a.example.com" stands under the key "widget.a.example.com"; the key is plural.group`}},

		// Names.
		"a field of the bundle":            {`§flows: {}`, []string{`bundle.flows: field not allowed; did you mean "flow"?`}},
		"a field of a team":                {`teams: a: §roles: x: y: 1`, []string{`bundle.teams.a.roles: field not allowed; allowed here are ` + teamFields}},
		"a field of a kind's names":        {widgets(`names: {kind: "Widget", plural: "widgets", §shortnames: ["w"]}, storageVersion: "v1", ` + widgetSchema), []string{widgetPath + `.names.shortnames: field not allowed; did you mean "shortNames"?`}},
		"a definition written as a field":  {widgets(widgetNames + `, versions: v1: §schema: {}`), []string{widgetPath + `.versions.v1.schema: field not allowed; did you mean "#schema"?`}},
		"a required field by a wrong name": {role(`apiGroups: [""], resources: ["secrets"], §verb: ["get"]`), []string{rulePath + `.verb: field not allowed; did you mean "verbs"?`}},
		"a required field by a wrong name, beside another mistake": {
			role(`apiGroups: §"", resources: ["secrets"], §verb: ["get"]`),
			[]string{rulePath + `.apiGroups: "" is not a list; write [""]`, rulePath + `.verb: field not allowed; did you mean "verbs"?`},
		},
		"a subject":                                  {binding(view + `subjects: [{§usr: "x"}], ` + somewhere), []string{bindingPath + `.subjects.0.usr: field not allowed; did you mean "user"?`}},
		"a subject beside another":                   {binding(view + `subjects: [{user: "x", §usr: "y"}], ` + somewhere), []string{bindingPath + `.subjects.0.usr: field not allowed; did you mean "user"?`}},
		"two subjects in one":                        {binding(view + `subjects: [{user: "x", §group: "y"}], ` + somewhere), []string{bindingPath + `.subjects.0: "group" and "user" exclude each other; write one of "group", "serviceAccount", "user"`}},
		"a field with a mistake in it":               {`teams: a: §roles: x: 5 & 6`, []string{`bundle.teams.a.roles: field not allowed; allowed here are ` + teamFields}},
		"a field beside another mistake":             {"{\nteams: a: §roles: {}\n" + role(`apiGroups: [""], resources: ["secrets"], verbs: [§"gett"]`) + "\n}", []string{`bundle.teams.a.roles: field not allowed; allowed here are ` + teamFields, rulePath + `.verbs.0: "gett" is not one of ` + verbs + `; did you mean "get"?`}},
		"a field of a struct where a list should be": {binding(view + `subjects: §{user: "x"}, ` + somewhere), []string{bindingPath + `.subjects: {user:"x"} is not a list; write [{user:"x"}]`}},
		"a field that a definition of one's own closes": {
			"{\n" + role(`#r & {§verbs: ["get"]}`) + "\n}\n#r: {apiGroups: [\"\"], resources: [\"secrets\"]}",
			[]string{rulePath + `.verbs: field not allowed`},
		},
		"a name of a role":    {`teams: a: rbac: clusterRoles: §"R X": rules: {}`, []string{`bundle.teams.a.rbac.clusterRoles."R X": "R X" cannot be a name here; write a name of lower-case letters, digits, '-', '.' and ':'`}},
		"a name of a team":    {`teams: §"A b": {groups: [], namespaces: []}`, []string{`bundle.teams."A b": "A b" cannot be a name here; write a name of lower-case letters, digits, '-', '.' and ':'`}},
		"a name of a version": {widgets(widgetNames + `, versions: {v1: #schema: {}, §one: #schema: {}}`), []string{widgetPath + `.versions.one: "one" cannot be a name here; write a version such as v1, v1beta1 or v1alpha1`}},

		// What is missing.
		"verbs":          {`teams: a: rbac: clusterRoles: r: rules: §x: {apiGroups: [""], resources: ["secrets"]}`, []string{rulePath + `.verbs: "verbs" is required`}},
		"two fields":     {`teams: §§c: {}`, []string{`bundle.teams.c.groups: "groups" is required`, `bundle.teams.c.namespaces: "namespaces" is required`}},
		"a role to bind": {`teams: a: rbac: bindings: §b: {` + somebody + somewhere + `}`, []string{bindingPath + `.clusterRole: "clusterRole" is required`}},
		"verbs, beside another mistake": {
			`teams: a: rbac: clusterRoles: r: rules: §x: {apiGroups: §"", resources: ["secrets"]}`,
			[]string{rulePath + `.verbs: "verbs" is required`, rulePath + `.apiGroups: "" is not a list; write [""]`},
		},
		"versions":            {`teams: a: kinds: §"widgets.a.example.com": {group: "a.example.com", ` + widgetNames + `}`, []string{widgetPath + `.versions: "versions" is required`}},
		"what a default uses": {widgets(`§names: {plural: "widgets"}, storageVersion: "v1", ` + widgetSchema), []string{widgetPath + `.names.kind: "kind" is required`}},
		"the groups":          {`teams: §c: {namespaces: [], kinds: "widgets.c.org": {group: "c.org", ` + widgetNames + `, ` + widgetSchema + `}}`, []string{`bundle.teams.c.groups: "groups" is required`}},
		"a subject's kind":    {binding(view + `subjects: [§{}], ` + somewhere), []string{bindingPath + `.subjects.0: incomplete value {user!:string} | {group!:string} | {serviceAccount!:=~"^[^/]+/[^/]+$"}`}},

		// Values.
		"a kind's name":         {widgets(`names: {kind: §"widget", plural: "widgets"}, storageVersion: "v1", ` + widgetSchema), []string{widgetPath + `.names.kind: "widget" is not a word that begins with a capital, such as WidgetSet`}},
		"a number":              {`flow: flowSchemas: s: {matchingPrecedence: §0, priorityLevel: "system", ` + somebody + `rules: {}}`, []string{`bundle.flow.flowSchemas.s.matchingPrecedence: 0 is not at least 2`}},
		"a namespace":           {binding(view + somebody + `namespaces: [§"prod"]`), []string{bindingPath + `.namespaces.0: "prod" is not within a-*, which the team rules over (bundle.cue:8)`}},
		"a service account":     {binding(view + `subjects: [{serviceAccount: §"x"}], ` + somewhere), []string{bindingPath + `.subjects.0.serviceAccount: "x" is not NAMESPACE/NAME`}},
		"a subject's type":      {binding(view + `subjects: [{group: §5}], ` + somewhere), []string{bindingPath + `.subjects.0.group: conflicting values 5 and string (mismatched types int and string)`}},
		"a list's type":         {role(`apiGroups: §"", resources: ["secrets"], verbs: ["get"]`), []string{rulePath + `.apiGroups: "" is not a list; write [""]`}},
		"a list's elements":     {`teams: a: kinds: §["x"]`, []string{`bundle.teams.a.kinds: conflicting values ["x"] and struct (mismatched types list and struct)`}},
		"a struct's type":       {`teams: a: kinds: §5`, []string{`bundle.teams.a.kinds: conflicting values 5 and struct (mismatched types int and struct)`}},
		"two values":            {`cluster: §"other"`, []string{`bundle.cluster: conflicting values "other" and "test"; the other one is at bundle.cue:6`}},
		"two values, one wrong": {"{\n" + binding(`clusterRole: "view", `+somebody+somewhere) + "\nteams: a: rbac: bindings: b: clusterRole: §\"edt\"\n}", []string{bindingPath + `.clusterRole: "edt" is not one of "admin", "cluster-admin", "edit", "view"; did you mean "edit"?`}},
		"a schema's field":      {widgets(widgetNames + `, versions: v1: #schema: spec: a: int & §string`), []string{widgetPath + `.versions.v1.#schema.spec.a: conflicting values int and string (mismatched types int and string)`}},
		"groups, which others use": {
			`teams: c: {groups: §"c.org", namespaces: [], kinds: "widgets.c.org": {group: "c.org", ` + widgetNames + `, ` + widgetSchema + `}}`,
			[]string{`bundle.teams.c.groups: "c.org" is not a list; write ["c.org"]`},
		},
		"a role, which others choose from": {
			"{\nteams: b: rbac: clusterRoles: q: rules: §5\n" + binding(view+somebody+somewhere) + "\n}",
			[]string{`bundle.teams.b.rbac.clusterRoles.q.rules: conflicting values 5 and struct (mismatched types int and struct)`},
		},
		"what a hidden field holds": {
			"{\n" + binding(view+"subjects: [_x], "+somewhere) + "\n}\n_x: {user: 5 & §string}",
			[]string{`_x.user: conflicting values 5 and string (mismatched types int and string)`},
		},
		"a field that hangs on nothing": {
			"{}\n_x: a: 5 & §6",
			[]string{`_x.a: conflicting values 6 and 5`},
		},
		"what a comprehension makes": {
			`teams: a: rbac: clusterRoles: {for x in ["p", "q"] {(x): rules: y: {apiGroups: [""], resources: ["secrets"], verbs: [§"gt"]}}}`,
			[]string{`bundle.teams.a.rbac.clusterRoles.p.rules.y.verbs.0: "gt" is not one of ` + verbs + `; did you mean "get"?`},
		},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}

// What is wrong in one part does not hide what is wrong in others, whether CUE finds it
// or stele.
func TestWhatIsBesideAMistakeIsCheckedAllTheSame(t *testing.T) {
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"in another team": {
			`{
	teams: a: §roles: {}
	teams: b: rbac: clusterRoles: r: rules: §x: {verbs: ["get"], resources: ["secrets"]}
}`, []string{
				`bundle.teams.a.roles: field not allowed; allowed here are "admission", "contact", "crds", "groups", "kinds", "name", "namespaces", "rbac", "views"`,
				`bundle.teams.b.rbac.clusterRoles.r.rules.x: a rule needs apiGroups and resources, or nonResourceURLs; the core group is ""`,
			},
		},
		"in another rule of the role": {
			`teams: a: rbac: clusterRoles: r: rules: {
	x: {apiGroups: [""], resources: ["secrets"], verbs: [§"gett"]}
	§y: {apiGroups: [""], resources: ["secrets"], verbs: []}
}`, []string{
				`bundle.teams.a.rbac.clusterRoles.r.rules.x.verbs.0: "gett" is not one of "*", "approve", "attest", "bind", "create", "delete", "deletecollection", "escalate" and 10 more; did you mean "get"?`,
				`bundle.teams.a.rbac.clusterRoles.r.rules.y: a rule needs verbs`,
			},
		},
		"in the schema of a kind": {
			"{\n" + widgets(`names: {kind: "Widget", plural: "widgets", §shortnames: []}, storageVersion: "v1", versions: v1: #schema: spec: {a: int, b: §float}`) + "\n}",
			[]string{
				widgetPath + `.names.shortnames: field not allowed; did you mean "shortNames"?`,
				`spec.b: the type float, which does not admit 1; write number`,
			},
		},
		"in a binding, where a role is wrong": {
			"{\nteams: b: rbac: clusterRoles: q: rules: §5\n" + binding(`clusterRole: §"edt", subjects: [{user: "x"}], namespaces: ["a-1"]`) + "\n}",
			[]string{
				`bundle.teams.b.rbac.clusterRoles.q.rules: conflicting values 5 and struct (mismatched types int and struct)`,
				`bundle.teams.a.rbac.bindings.b.clusterRole: "edt" is not one of "admin", "cluster-admin", "edit", "q", "view"; did you mean "edit"?`,
			},
		},
		"in a flow schema, where a level is wrong": {
			"{\nflow: priorityLevels: own: {nominalConcurrencyShares: §\"5\"}\nflow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: §\"onw\", subjects: [{user: \"x\"}], rules: {}}\n}",
			[]string{
				`bundle.flow.priorityLevels.own.nominalConcurrencyShares: conflicting values "5" and int (mismatched types string and int)`,
				`bundle.flow.flowSchemas.s.priorityLevel: "onw" is not one of "catch-all", "exempt", "global-default", "leader-election", "node-high", "own", "system", "workload-high", "workload-low"; did you mean "own"?`,
			},
		},
		"in a mutation": {
			`{
	cluster: §"other"
	teams: a: admission: mutate: m: {order: 1, match: {apiGroups: ["a.example.com"], resources: ["x"], operations: [§"CREAT"]}, mutations: x: {patchType: "JSONPatch", expression: "x"}}
}`, []string{
				`bundle.cluster: conflicting values "other" and "test"; the other one is at bundle.cue:6`,
				`bundle.teams.a.admission.mutate.m.match.operations.0: "CREAT" is not one of "*", "CONNECT", "CREATE", "DELETE", "UPDATE"; did you mean "CREATE"?`,
			},
		},
		"beside the bundle": {
			"{\n§flows: {}\n}\n§limits: 5",
			[]string{
				`bundle.flows: field not allowed; did you mean "flow"?`,
				"limits: a field beside `bundle` has no effect; move it into the bundle, or make it a definition: #limits",
			},
		},
		"in rules about a kind that is wrong": { // its name is known
			"{\n" + widgets(`names: {kind: §"widget", plural: "widgets"}, storageVersion: "v1", `+widgetSchema) + "\n" +
				role(`apiGroups: ["a.example.com"], resources: ["widgets", "widgets/status", §"gadgets"], verbs: ["get"]`) + "\n}",
			[]string{
				widgetPath + `.names.kind: "widget" is not a word that begins with a capital, such as WidgetSet`,
				`bundle.teams.a.rbac.clusterRoles.r.rules.x.resources.2: "gadgets" is not served in the API group "a.example.com"; did you mean "widgets"?`,
			},
		},
		"in rules, where kinds cannot be known": { // of which nothing can be said
			"{\nteams: b: kinds: §5\n" + role(`apiGroups: ["b.example.com"], resources: ["gadgets"], verbs: ["get"]`) + "\n}",
			[]string{`bundle.teams.b.kinds: conflicting values 5 and struct (mismatched types int and struct)`},
		},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}

// What is allowed is not refused because something else is not.
func TestTheWholeFormatIsAllowedBesideAMistake(t *testing.T) {
	source, places := module(t, ".", map[string]string{"bundle.cue": bundleFile(`{
	dynamic: {customresourcedefinitions: "Refuse", rbac: "Match", admissionPolicies: "Match", webhooks: "Match", flowControl: "Match"}
	authorizers: ["deny", "rbac", "plugin:p"]
	plugins: p: {
		sha256: "linux/amd64": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		match: {apiGroups: [""], resources: ["secrets"], verbs: ["delete"]}
		failurePolicy: "NoOpinion", timeout: "5s", config: {any: thing: 1}, secrets: t: secret: "tickets"
	}
	§flows: {}
	flow: priorityLevels: l: {nominalConcurrencyShares: 1, lendablePercent: 1, borrowingLimitPercent: 1, queuing: {queues: 1, handSize: 1, queueLengthLimit: 1}}
	flow: flowSchemas: s: {matchingPrecedence: 2, priorityLevel: "l", distinguisher: "ByUser", subjects: [{user: "x"}], rules: r: {apiGroups: [""], resources: ["secrets"], verbs: ["*"]}}
	audit: rules: a: {order: 1, level: "None", subjects: [{user: "x"}], verbs: ["get"], apiGroups: [""], resources: ["secrets"], namespaces: ["x"], omitStages: ["Panic"]}
	teams: a: {
		crds: "things.a.example.com": {apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", metadata: name: "things.a.example.com", spec: {group: "a.example.com", scope: "Cluster", names: {kind: "Thing", plural: "things"}, versions: [{name: "v1", served: true, storage: true, schema: openAPIV3Schema: type: "object"}]}}
		views: vv: {kind: "widgets.a.example.com", version: "v1", description: "x", filter: "x", sort: ["-a"], columns: a: {expression: "x", type: "date", description: "x", priority: 1}, groupBy: ["a"], aggregates: n: {function: "sum", expression: "x", description: "x", priority: 1}}
		rbac: {
			clusterRoles: r: {labels: l: "x", aggregate: a: "x", rules: {}}
			clusterRoles: s: rules: x: {verbs: ["get"], apiGroups: [""], resources: ["secrets"], resourceNames: ["x"]}
			clusterRoles: u: rules: x: {verbs: ["get"], nonResourceURLs: ["/x"]}
			bindings: b: {clusterRole: "r", subjects: [{group: "x"}, {serviceAccount: "x/y"}], namespaces: ["a-1"], when: "true"}
			denies: d: {subjects: [{user: "x"}], rules: {}, unless: "true", reason: "x"}
		}
		admission: mutate: m: {
			order: 1, match: {apiGroups: ["a.example.com"], apiVersions: ["v1"], resources: ["widgets"], operations: ["*"], namespaceSelector: {}, objectSelector: {}, conditions: c: "true"}
			params: any: 1, variables: v: "params.any", mutations: x: {order: 1, patchType: "JSONPatch", expression: "[JSONPatch{}]"}, failurePolicy: "Ignore", reinvocationPolicy: "Never"
		}
		admission: validate: v: {
			match: {apiGroups: ["a.example.com"], resources: ["widgets"]}
			params: any: 1, variables: v: "params.any", validationActions: ["Warn"]
			validations: x: {expression: "true", message: "x", messageExpression: "'x'", reason: "Forbidden"}
		}
		kinds: "widgets.a.example.com": {
			group: "a.example.com", scope: "Cluster", storageVersion: "v1"
			names: {kind: "Widget", plural: "widgets", singular: "widget", shortNames: ["w"], categories: ["all"]}
			versions: v1: {
				#schema: {spec: any: int, status: {}}
				served: true, deprecated: "x", subresources: {status: {}, scale: {specReplicasPath: ".a", statusReplicasPath: ".b", labelSelectorPath: ".c"}}
				additionalPrinterColumns: [{name: "a", type: "date", jsonPath: ".a", priority: 1, description: "x"}]
				selectableFields: [".spec.any"], validations: x: {path: "a", rule: "true", message: "x", messageExpression: "x", reason: "x"}
			}
			retention: {history: "90d", ttl: "5m"}
		}
	}
}`)})
	_, diags := compile.Bundle(source)
	var wrong []string
	for _, d := range diags {
		if !strings.Contains(d.Message, "version of stele") && !strings.Contains(d.Message, "is not supported yet") {
			wrong = append(wrong, fmt.Sprintf("%s:%d:%d %s", d.Pos.File, d.Pos.Line, d.Pos.Column, d.Message))
		}
	}
	if diff := cmp.Diff([]string{places[0] + " field not allowed"}, wrong); diff != "" {
		t.Errorf("(-want +said):\n%s", diff)
	}
}

// Whatever a bundle says, the compiler makes a policy of it or says why not, at lines
// that are there.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{
		"{}", `teams: a: roles: {}`, `teams: a: kinds: ["x"]`, `teams: a: contact: nobody`, widgets(widgetNames + ", " + widgetSchema),
		role(`apiGroups: "", resources: ["x"], verb: []`), binding(`clusterRole: "x", subjects: [{usr: "x"}]`), sections, "{\nflows: {}\n}\n_x: 5 & \"\\(1/0)\"",
		`teams: "A b": {groups: 5}`, `policy.#Team`, `{for x in bundle.teams {x}}`, `teams: [...]`, `{#x: _|_, teams: #x}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, additions string) {
		source, err := bundles.ReadFS(fstest.MapFS{
			"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")},
			"bundle.cue":         {Data: []byte(bundleFile(additions))},
		}, ".")
		if err != nil {
			t.Skip()
		}
		compiled, diags := compile.Bundle(source)
		if (compiled == nil) != (len(diags) > 0) {
			t.Fatalf("%v, and said %v", compiled, diags)
		}
		for _, d := range diags {
			if lines := strings.Count(bundleFile(additions), "\n") + 1; d.Message == "" || !d.Pos.IsZero() && (d.Pos.Line < 1 || d.Pos.Line > lines) {
				t.Errorf("said %v in %d lines", d, lines)
			}
		}
		if compiled != nil {
			encoded, _ := compiled.Form.Encode()
			if _, err := probes.Load(encoded); err != nil {
				t.Errorf("what compiles does not load: %v", err)
			}
		}
	})
}

// Clusters import what the platform and the teams write.
func TestEachPackageHasItsOwnMistakes(t *testing.T) {
	source, places := module(t, "clusters/prod", map[string]string{
		"platform/base.cue": `package platform

import "stele.dev/policy"

bundle: policy.#Bundle & {
	teams: widgets: {contact: "#widgets", groups: ["example.com"], namespaces: ["widgets-*"]}
	audit: rules: all: {order: 1, level: §"Metdata"}
}
`,
		"teams/widgets/access.cue": `package widgets

bundle: teams: widgets: rbac: {
	clusterRoles: "widgets:editor": rules: edit: {apiGroups: ["example.com"], resources: [§"wigets"], verbs: ["get"]}
	bindings: dev: {
		clusterRole: §"widgets:editr"
		subjects: [{group: "dev"}]
		namespaces: ["widgets-dev"]
	}
}
`,
		"teams/widgets/kinds.cue": `package widgets

bundle: teams: widgets: kinds: "widgets.example.com": {
	group: "example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
	versions: v1: #schema: spec: size: int & <=#max
}

#max: 10
`,
		"clusters/prod/cluster.cue": `package prod

import (
	"example.com/test/platform"
	"example.com/test/teams/widgets"
)

bundle: platform.bundle & widgets.bundle & {
	§clustr: "prod"
	cluster: "prod"
	teams: widgets: contact: §"#ops"
}
`,
	})
	// In the order of files, as the diagnostics are.
	expectAt(t, source, places,
		`bundle.clustr: field not allowed; did you mean "cluster"?`,
		`bundle.teams.widgets.contact: conflicting values "#widgets" and "#ops"; the other one is at platform/base.cue:6; to let an environment choose, write a default there: contact: string | *"#widgets"`,
		`bundle.audit.rules.all.level: "Metdata" is not one of "Metadata", "None", "Request", "RequestResponse"; did you mean "Metadata"?`,
		`bundle.teams.widgets.rbac.clusterRoles."widgets:editor".rules.edit.resources.0: "wigets" is not served in the API group "example.com"; did you mean "widgets"?`,
		`bundle.teams.widgets.rbac.bindings.dev.clusterRole: "widgets:editr" is not one of "admin", "cluster-admin", "edit", "view", "widgets:editor"; did you mean "widgets:editor"?`,
	)
}

func TestWhatIsNoPackageIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"syntax, in two files": {map[string]string{"a.cue": "package test\nbundle: {§,}\n", "b.cue": "package test\nx: §]\n"},
			[]string{`expected operand, found ','; a value is missing before it`, `expected operand, found ']'; a value is missing before it`}},
		"an import that is not there": {map[string]string{"a.cue": "package test\nimport §\"example.com/test/x\"\nbundle: x.y\n"},
			[]string{`there is no package "example.com/test/x" in the module; did you mean "example.com/test"?`}},
		"imports that nobody uses": {map[string]string{"a.cue": "package test\n\nimport §\"list\"\nimport \"stele.dev/policy\"\nbundle: policy.#Bundle & {cluster: \"x\", §flows: {}}\n"},
			[]string{`imported and not used: "list"`, `bundle.flows: field not allowed; did you mean "flow"?`}},
		"names that mean nothing": {map[string]string{"a.cue": "package test\nimport (\n\t§\"list\"\n\t\"stele.dev/policy\"\n)\nbundle: policy.#Bundle & {cluster: §clustr, §flows: {}, teams: a: {contact: \"\\(§nobody)\", groups: §#Groups, namespaces: [], §kind: {}}}\n_cluster: \"x\"\n"},
			[]string{
				`imported and not used: "list"`,
				`bundle.cluster: reference "clustr" not found; did you mean "_cluster"?`,
				`bundle.flows: field not allowed; did you mean "flow"?`,
				`bundle.teams.a.contact: reference "nobody" not found`,
				`bundle.teams.a.groups: reference "#Groups" not found`,
				`bundle.teams.a.kind: field not allowed; did you mean "kinds"?`,
			}},
		"no bundle": {map[string]string{"a.cue": "package test\n§x: 1\n"},
			[]string{"x: a field beside `bundle` has no effect; move it into the bundle, or make it a definition: #x"}},
		"a bundle without the definitions": {map[string]string{"a.cue": "package test\n§bundle: {cluster: \"x\", teams: {}}\n"},
			[]string{"bundle: it is not a policy.#Bundle, so that nothing would check it; write `bundle: policy.#Bundle & {…}`, with import \"stele.dev/policy\""}},
	} {
		t.Run(name, func(t *testing.T) {
			source, places := module(t, ".", tc.files)
			expectAt(t, source, places, tc.want...)
		})
	}
	t.Run("a folder of packages", func(t *testing.T) {
		source, _ := module(t, "clusters", map[string]string{"clusters/dev/a.cue": "package test\nbundle: {}\n"})
		_, diags := compile.Bundle(source)
		if len(diags) != 1 || diags[0].String() != "the folder has no CUE files; name the one that `bundle` is in" {
			t.Errorf("%v", diags)
		}
	})
}
