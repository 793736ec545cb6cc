package policy_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/format"
	"stele.dev/stele/policy/rights"
	"stele.dev/stele/schemas"
)

// readers are the fields of a team's part, as DEFINITION.field, that name a kind whose stored objects are read. Each has what a team
// writes for the kind databases.b.example.com, or for another kind that its groups do not include.
var readers = map[string]string{
	"#Validation.objects": `admission: validate: r: {match: {apiGroups: ["a.example.com"], resources: ["things"]}
		objects: others: {kind: "databases.b.example.com", version: "v1"}
		validations: v: expression: "objects.others.count() > 0"}`,
	"#Validation.paramKind": `admission: validate: r: {match: {apiGroups: ["a.example.com"], resources: ["things"], scope: "Namespaced"}
		paramKind: {apiVersion: "b.example.com/v1", kind: "Database"}, paramRef: {name: "x", parameterNotFoundAction: "Deny"}
		validations: v: expression: "params.metadata.name == 'x'"}`,
	"#Mutation.objects": `admission: mutate: r: {order: 1, match: {apiGroups: ["a.example.com"], resources: ["things"]}
		objects: others: {kind: "databases.b.example.com", version: "v1"}
		mutations: m: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'add', path: '/x', value: objects.others.count()}]"}}`,
	"#Mutation.paramKind": `admission: mutate: r: {order: 1, match: {apiGroups: ["a.example.com"], resources: ["things"], scope: "Namespaced"}
		paramKind: {apiVersion: "b.example.com/v1", kind: "Database"}, paramRef: {name: "x", parameterNotFoundAction: "Deny"}
		mutations: m: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'add', path: '/x', value: params.metadata.name}]"}}`,
	"#View.kind": `views: "some-databases": {kind: "databases.b.example.com", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}}`,
}

// within are the fields that let a rule meet requests for the objects of a kind. Their API groups are those of the team.
var within = map[string]string{
	"#Deny.rules":                 `rbac: denies: d: {subjects: [{user: "u"}], reason: "no", rules: r: {apiGroups: ["b.example.com"], resources: ["databases"], verbs: ["get"]}}`,
	"#Validation.match":           `admission: validate: r: {match: {apiGroups: ["b.example.com"], resources: ["databases"]}, validations: v: expression: "true"}`,
	"#Mutation.match":             `admission: mutate: r: {order: 1, match: {apiGroups: ["b.example.com"], resources: ["databases"]}, mutations: m: {patchType: "JSONPatch", expression: "[]"}}`,
	"#ValidatingWebhook.rules":    `admission: webhooks: validating: "x.b.example.com": {rules: r: {apiGroups: ["b.example.com"], resources: ["databases"], operations: ["CREATE"]}, sideEffects: "None", clientConfig: url: "https://a.example"}`,
	"#MutatingWebhook.rules":      `admission: webhooks: mutating: "x.b.example.com": {order: 1, rules: r: {apiGroups: ["b.example.com"], resources: ["databases"], operations: ["CREATE"]}, sideEffects: "None", clientConfig: url: "https://a.example"}`,
	"#ValidatingPlugin.match":     `admission: plugins: validating: p: {plugin: "p", match: {apiGroups: ["b.example.com"], resources: ["databases"]}}`,
	"#MutatingPlugin.match":       `admission: plugins: mutating: p: {order: 1, plugin: "p", match: {apiGroups: ["b.example.com"], resources: ["databases"]}}`,
	"#Team.kinds":                 kind("others", "b.example.com", ""),
	"#Team.crds":                  `crds: "others.b.example.com": {apiVersion: "apiextensions.k8s.io/v1", kind: "CustomResourceDefinition", metadata: name: "others.b.example.com", spec: {group: "b.example.com", scope: "Namespaced", names: {plural: "others", kind: "Other"}, versions: [{name: "v1", served: true, storage: true, schema: openAPIV3Schema: type: "object"}]}}`,
	"#Team.groups":                `groups: ["b.example.com"]`, // the platform has said it
	"#Team.rbac.clusterRoles":     `rbac: clusterRoles: r: {labels: "rbac.authorization.k8s.io/aggregate-to-view": "true", rules: r: {apiGroups: ["b.example.com"], resources: ["databases"], verbs: ["get"]}}`,
	"#Team.rbac.bindings":         `rbac: bindings: b: {clusterRole: "view", subjects: [{user: "u"}], namespaces: ["b-x"]}`,
	"#ClusterRole.rules":          "", // granted by bindings, which the team's namespaces limit
	"#Binding.clusterRole":        "", // as #Team.rbac.bindings
	"#Match.excludeResourceRules": "", // it only leaves out requests
}

// namesNoKind are all other fields of the definitions that a team's part is made of.
var namesNoKind = strings.Fields(`
	#Team.name #Team.contact #Team.namespaces #Team.rbac #Team.rbac.denies #Team.admission #Team.admission.mutate #Team.admission.validate
	#Team.admission.webhooks #Team.admission.webhooks.mutating #Team.admission.webhooks.validating #Team.admission.plugins
	#Team.admission.plugins.mutating #Team.admission.plugins.validating #Team.views
	#ClusterRole.aggregate #ClusterRole.labels #ClusterRole.name #ClusterRole.namespace #Binding.name #Binding.subjects #Binding.namespaces #Binding.when #Deny.subjects #Deny.unless #Deny.reason
	#Validation.params #Validation.paramRef #Validation.variables #Validation.validations #Validation.validationActions #Validation.failurePolicy
	#Validation.auditAnnotations
	#Mutation.order #Mutation.params #Mutation.paramRef #Mutation.variables #Mutation.mutations #Mutation.failurePolicy #Mutation.reinvocationPolicy
	#ValidatingWebhook.namespaceSelector #ValidatingWebhook.objectSelector #ValidatingWebhook.matchConditions #ValidatingWebhook.matchPolicy
	#ValidatingWebhook.failurePolicy #ValidatingWebhook.timeoutSeconds #ValidatingWebhook.sideEffects #ValidatingWebhook.admissionReviewVersions
	#ValidatingWebhook.clientConfig #ValidatingWebhook.configuration #MutatingWebhook.order #MutatingWebhook.reinvocationPolicy
	#ValidatingPlugin.plugin #ValidatingPlugin.failurePolicy #ValidatingPlugin.timeout #ValidatingPlugin.sideEffects
	#MutatingPlugin.order #MutatingPlugin.reinvocationPolicy
	#Match.apiGroups #Match.apiVersions #Match.resources #Match.operations #Match.resourceNames #Match.scope #Match.matchPolicy
	#Match.namespaceSelector #Match.objectSelector #Match.conditions
	#View.version #View.description #View.filter #View.columns #View.sort #View.groupBy #View.aggregates`)

// fieldsOfTeams returns the fields of the definitions that a team's part is made of, as DEFINITION.field.
func fieldsOfTeams(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(format.File, format.Files()[format.File])
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	var fields func(of string, s *ast.StructLit)
	fields = func(of string, s *ast.StructLit) {
		for _, d := range s.Elts {
			f, ok := d.(*ast.Field)
			if !ok {
				continue
			}
			name, _, err := ast.LabelName(f.Label)
			if err != nil || strings.HasPrefix(name, "_") {
				continue
			}
			found[of+"."+name] = true
			if inner, ok := f.Value.(*ast.StructLit); ok && of[:5] == "#Team" {
				fields(of+"."+name, inner)
			}
		}
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.Field); ok {
			name, _, _ := ast.LabelName(f.Label)
			if s, ok := f.Value.(*ast.StructLit); ok && slices.Contains([]string{"#Team", "#ClusterRole", "#Binding", "#Deny", "#Validation", "#Mutation",
				"#ValidatingWebhook", "#MutatingWebhook", "#ValidatingPlugin", "#MutatingPlugin", "#Match", "#View"}, name) {
				fields(name, s)
			}
		}
	}
	return found
}

// ofTwoTeams is a bundle in which the team a has the kind things.a.example.com, and b databases.b.example.com.
func ofTwoTeams(a, bundle string) string {
	return "{\nteams: a: {" + kind("things", "a.example.com", "") + "}\n" +
		`teams: b: {kinds: "databases.b.example.com": {group: "b.example.com", names: {kind: "Database", plural: "databases"}, storageVersion: "v1", versions: v1: #schema: {}}}` + "\n" +
		"teams: a: " + a + "\n" + bundle + "\n}"
}

// A team reads objects of the kinds of its groups, and no others: whatever part of it names a kind of another team is refused. A
// field that is new in the format must say here what it is.
func TestATeamReadsNoKindsOfOthers(t *testing.T) {
	fields := fieldsOfTeams(t)
	listed := slices.Concat(slices.Collect(maps.Keys(readers)), slices.Collect(maps.Keys(within)), namesNoKind)
	for field := range fields {
		if !slices.Contains(listed, field) {
			t.Errorf("%s: does it name a kind? Add it to readers, within or namesNoKind", field)
		}
	}
	for field, part := range readers {
		t.Run(field, func(t *testing.T) {
			if !fields[field] {
				t.Error("the format has no such field")
			}
			lines := compileTwoTeams(t, ofTwoTeams("{"+part+"}", ""))
			want := `the team a may not read databases.b.example.com: its groups are "a.example.com" (bundle.cue:8); have the platform allow it beside the teams of the bundle: reads: "a": ["databases.b.example.com"]`
			if len(lines) != 1 || !strings.Contains(lines[0], want) || !strings.HasPrefix(lines[0], "bundle.cue:1") {
				t.Errorf("said %q, want %q", lines, want)
			}
			for _, allowed := range []string{`"databases.b.example.com"`, `"*"`, `"secrets", "databases.b.example.com"`} {
				if lines := compileTwoTeams(t, ofTwoTeams("{"+part+"}", "reads: a: ["+allowed+"]")); len(lines) > 0 {
					t.Errorf("allowed by %s: %q", allowed, lines)
				}
			}
			if lines := compileTwoTeams(t, ofTwoTeams("{"+part+"}", `reads: b: ["*"]`)); len(lines) != 1 {
				t.Errorf("another team may read it: %q", lines)
			}
		})
	}
	for field, part := range within {
		if part == "" {
			continue
		}
		t.Run(field, func(t *testing.T) {
			lines := compileTwoTeams(t, ofTwoTeams("{"+part+"}", `plugins: p: sha256: "linux/amd64": "`+strings.Repeat("0", 64)+`"`))
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "bundle.cue:14: ") {
				t.Errorf("said %q", lines)
			}
		})
	}
}

// What the platform allows names teams and kinds that exist, and stands where the part of a team cannot say it.
func TestWhatTeamsMayReadIsThePlatformsToSay(t *testing.T) {
	for name, tc := range map[string]struct{ bundle, want string }{
		"no such team":        {`reads: aa: ["secrets"]`, `bundle.cue:11: bundle.reads.aa: there is no team "aa"; there are "a", "b"`},
		"no such kind":        {`reads: a: ["secret"]`, `bundle.cue:11: bundle.reads.a.0: there is no kind "secret"; did you mean "secrets"?`},
		"in the team's part":  {`teams: a: reads: ["secrets"]`, `bundle.cue:11: bundle.teams.a.reads: field not allowed`},
		"a kind that is read": {`reads: a: ["secrets", "*"]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lines := strings.Join(compileTwoTeams(t, tc.bundle), "\n")
			if !strings.HasPrefix(lines, tc.want) || tc.want == "" && lines != "" {
				t.Errorf("said %q, want %q", lines, tc.want)
			}
		})
	}
}

// The limits of teams are a part of the policy, so that two policies that differ only in limits are two policies.
func TestTheLimitsOfTeamsAreInThePolicy(t *testing.T) {
	was, is := loaded(t, "{}"), loaded(t, `reads: a: ["secrets"]`)
	if was.Digest() == is.Digest() {
		t.Error("two bundles that differ in limits have one digest")
	}
	want := []policy.Team{
		{Name: "a", Groups: limit(8, 13, "a.example.com"), Namespaces: limit(8, 40, "a-*"), Reads: limit(11, 16, "secrets")},
		{Name: "b", Groups: limit(9, 13, "b.example.com", "a.example.com", "batch.k8s.io"), Namespaces: limit(9, 73, "*")},
	}
	if diff := cmp.Diff(want, is.Form().Teams); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func limit(line, column int, values ...string) policy.Limit {
	return policy.Limit{Values: values, Source: schemas.Position{File: "bundle.cue", Line: line, Column: column}}
}

// Who may grant a right follows from the limits of the teams.
func TestTeamsThatMayGrant(t *testing.T) {
	form := &policy.Form{
		Teams: []policy.Team{
			{Name: "data", Groups: limit(1, 1, "data.example.com"), Namespaces: limit(2, 1, "data-*", "shared")},
			{Name: "platform", Groups: limit(3, 1, "*"), Namespaces: limit(4, 1, "*")},
			{Name: "web", Groups: limit(5, 1, "web.example.com", "data.example.com"), Namespaces: limit(6, 1)},
		},
		Views: []policy.View{{ID: "web/views/sites", Name: "sites"}},
	}
	for name, tc := range map[string]struct {
		q    rights.Question
		want []string
	}{
		"in a namespace of the team":   {rights.Question{Verb: "get", Resource: "secrets", Namespace: "data-1"}, []string{"data namespaces [data-*] bundle.cue:2", "platform namespaces [*] bundle.cue:4"}},
		"in a namespace of nobody":     {rights.Question{Verb: "get", Resource: "secrets", Namespace: "other"}, []string{"platform namespaces [*] bundle.cue:4"}},
		"in some namespace":            {rights.Question{Verb: "get", Resource: "secrets", AnyNamespace: true}, []string{"data namespaces [data-* shared] bundle.cue:2", "platform namespaces [*] bundle.cue:4"}},
		"outside of namespaces":        {rights.Question{Verb: "get", Resource: "nodes"}, []string{"platform namespaces [*] bundle.cue:4"}},
		"a path":                       {rights.Question{Verb: "get", Path: "/metrics"}, []string{"platform namespaces [*] bundle.cue:4"}},
		"a kind of a group":            {rights.Question{Verb: "get", Group: "data.example.com", Resource: "databases", Namespace: "other"}, []string{"data groups [data.example.com] bundle.cue:1", "platform namespaces [*] bundle.cue:4", "web groups [data.example.com] bundle.cue:5"}},
		"a view":                       {rights.Question{Verb: "get", Group: "views.stele.dev", Resource: "sites", Namespace: "other"}, []string{"platform namespaces [*] bundle.cue:4", "web views [sites] "}},
		"a view of another team":       {rights.Question{Verb: "get", Group: "views.stele.dev", Resource: "others", Namespace: "other"}, []string{"platform namespaces [*] bundle.cue:4"}},
		"everything, where it matters": {rights.Question{Verb: "*", Group: "*", Resource: "*", Namespace: "shared"}, []string{"data namespaces [shared] bundle.cue:2", "platform namespaces [*] bundle.cue:4"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, g := range rights.LimitsOf(form).Grantors(&tc.q) {
				got = append(got, fmt.Sprintf("%s %s %v %s", g.Team, g.By, g.Values, g.Source))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if rights.LimitsOf(&policy.Form{}) != nil {
		t.Error("a form that does not say limits has some")
	}
}
