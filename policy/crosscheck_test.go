package policy_test

import (
	"strings"
	"testing"
)

func TestRulesNameWhatIsServed(t *testing.T) {
	const (
		path   = "bundle.teams.a.rbac.clusterRoles.r.rules.x"
		groups = `"", "a.example.com", "admissionregistration.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io", "events.k8s.io" and 5 more`
	)
	kind := widgets(widgetNames + ", " + widgetSchema)
	for name, tc := range map[string]struct {
		groups, resources string
		want              []string
	}{
		"a kind":                              {`"a.example.com"`, `"widgets"`, nil},
		"a kind's status":                     {`"a.example.com"`, `"widgets/status"`, nil},
		"a built-in kind":                     {`"coordination.k8s.io"`, `"leases"`, nil},
		"a built-in kind's status":            {`""`, `"namespaces/status"`, nil},
		"everything":                          {`"*"`, `"*"`, nil},
		"everything of a group":               {`"a.example.com"`, `"*"`, nil},
		"a subresource of everything":         {`"a.example.com"`, `"*/scale"`, nil},
		"a resource of any group":             {`"*"`, `"widgets"`, nil},
		"policies and what explains them":     {`"policy.stele.dev"`, `"policies", "explanations", "resourceaccessreviews", "accessdifferences"`, nil},
		"the log":                             {`"log.stele.dev"`, `"changes"`, nil},
		"reviews":                             {`"authorization.k8s.io"`, `"selfsubjectaccessreviews"`, nil},
		"roles":                               {`"rbac.authorization.k8s.io"`, `"clusterroles", "roles"`, nil},
		"who is impersonated":                 {`""`, `"users", "groups", "serviceaccounts"`, nil},
		"with what identity":                  {`"authentication.k8s.io"`, `"uids", "userextras/scopes"`, nil},
		"groups that each have one of them":   {`"", "a.example.com"`, `"secrets", "widgets"`, nil},
		"a group that is misspelled":          {`§"a.exmple.com"`, `"widgets"`, []string{`.apiGroups.0: nothing is served in the API group "a.exmple.com"; did you mean "a.example.com"?`}},
		"a group of Kubernetes'":              {`§"apps"`, `"deployments"`, []string{`.apiGroups.0: nothing is served in the API group "apps"; there are ` + groups}},
		"a resource that is misspelled":       {`"a.example.com"`, `§"wigdets"`, []string{`.resources.0: "wigdets" is not served in the API group "a.example.com"; did you mean "widgets"?`}},
		"a subresource that is not enabled":   {`"a.example.com"`, `§"widgets/scale"`, []string{`.resources.0: "widgets/scale" is not served in the API group "a.example.com"; there are "widgets", "widgets/status"`}},
		"a resource of another group":         {`"a.example.com"`, `§"secrets"`, []string{`.resources.0: "secrets" is not served in the API group "a.example.com"; it is in the API group ""`}},
		"a resource of no group":              {`"*"`, `§"pods"`, []string{`.resources.0: "pods" is not served in any of these API groups`}},
		"one of several resources":            {`"", "a.example.com"`, `"widgets", §"pods", "secrets"`, []string{`.resources.1: "pods" is not served in any of these API groups; there are "configmaps", "events", "groups", "namespaces", "namespaces/finalize", "namespaces/status", "resourcequotas", "resourcequotas/status" and 6 more`}},
		"a group that has none of them":       {`§"", "a.example.com"`, `"widgets"`, []string{`.apiGroups.0: the API group "" has none of these resources; leave it out`}},
		"a group and a resource":              {`§"a.exmple.com", "a.example.com"`, `"wigdets"`, []string{`.apiGroups.0: nothing is served in the API group "a.exmple.com"; did you mean "a.example.com"?`}},
		"all subresources, which is no thing": {`"a.example.com"`, `§"widgets/*"`, []string{`.resources.0: "widgets/*" is not served in the API group "a.example.com"; did you mean "widgets"?`}},
	} {
		t.Run(name, func(t *testing.T) {
			rule := role(`apiGroups: [` + tc.groups + `], resources: [` + tc.resources + `], verbs: ["frob"]`)
			rule = strings.Replace(rule, `"frob"`, `"get"`, 1)
			for i := range tc.want {
				tc.want[i] = path + tc.want[i]
			}
			expect(t, "{\n"+kind+"\n"+rule+"\n}", tc.want...)
		})
	}
}

func TestOtherRulesNameWhatIsServed(t *testing.T) {
	const subjects = `subjects: [{user: "x"}], `
	for name, tc := range map[string]struct{ bundle, want string }{
		"of a deny": {
			`teams: a: rbac: denies: d: {reason: "x", ` + subjects + `rules: x: {apiGroups: [§"a.example.com"], resources: ["widgets"], verbs: ["get"]}}`,
			`bundle.teams.a.rbac.denies.d.rules.x.apiGroups.0: nothing is served in the API group "a.example.com"; there are "", "admissionregistration.k8s.io", "apiextensions.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "coordination.k8s.io", "events.k8s.io", "flow.stele.dev" and 4 more`,
		},
		"of a flow schema": {
			`flow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: "system", ` + subjects + `rules: x: {apiGroups: [""], resources: [§"secret"], verbs: ["get"]}}`,
			`bundle.flow.flowSchemas.s.rules.x.resources.0: "secret" is not served in the API group ""; did you mean "secrets"?`,
		},
		"of the audit log": {
			`audit: rules: r: {order: 1, level: "None", resources: [§"lease"]}`,
			`bundle.audit.rules.r.resources.0: "lease" is not served in any of these API groups; did you mean "leases"?`,
		},
		"of the audit log, with a group alone": {
			`audit: rules: r: {order: 1, level: "None", apiGroups: [§"coordination.k8.io"]}`,
			`bundle.audit.rules.r.apiGroups.0: nothing is served in the API group "coordination.k8.io"; did you mean "coordination.k8s.io"?`,
		},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want) })
	}
}

func TestWhatCUECannotCheck(t *testing.T) {
	const globHint = "; names are of lower-case letters, digits and -; * stands for any of them"
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"a version without a schema": {
			widgets(widgetNames + `, versions: §v1: subresources: status: {}`),
			[]string{widgetPath + `.versions.v1: the version v1 has no schema; add #schema: {spec: {…}}`},
		},
		"a schema that lets everything pass": {widgets(widgetNames + `, versions: v1: #schema: {...}`), nil},
		"a kind of three teams": {
			"{\nteams: a: kinds: \"widgets.a.example.com\": _w\nteams: b: kinds: §\"widgets.a.example.com\": _w\nteams: d: {groups: [\"*\"], namespaces: [], kinds: \"widgets.a.example.com\": _w}\n}\n_w: {group: \"a.example.com\", " + widgetNames + ", " + widgetSchema + "}",
			[]string{`bundle.teams.b.kinds."widgets.a.example.com": the kind widgets.a.example.com is in the teams a, b and d; a kind has one owner, and a has it (bundle.cue:12)`},
		},
		"audit rules of one order": {
			"audit: rules: {\n\ta: {order: 1, level: \"None\", verbs: [\"get\"]}\n\tz: {order: 0, level: \"None\", verbs: [\"list\"]}\n\tb: {§order: 1, level: \"Metadata\"}\n}",
			[]string{`bundle.audit.rules.b.order: audit/rules/a and audit/rules/b have the same order, 1; one has to come first; the other one is at bundle.cue:12`},
		},
		"namespaces that cannot be": {
			`teams: b: rbac: bindings: b: {clusterRole: "view", subjects: [{user: "x"}], namespaces: ["*", "a-*-b", "*b", §"*-", §"A*", §"", "` + strings.Repeat("a", 63) + `*", §"` + strings.Repeat("a", 64) + `*"]}`,
			[]string{
				`bundle.teams.b.rbac.bindings.b.namespaces.3: no namespace can have a name like "*-"` + globHint,
				`bundle.teams.b.rbac.bindings.b.namespaces.4: no namespace can have a name like "A*"` + globHint,
				`bundle.teams.b.rbac.bindings.b.namespaces.5: no namespace can have a name like ""` + globHint,
				`bundle.teams.b.rbac.bindings.b.namespaces.7: no namespace can have a name like "` + strings.Repeat("a", 64) + `*"` + globHint,
			},
		},
		"namespaces of a team that cannot be": {
			`teams: c: {groups: [], namespaces: ["c-*", §"-c"]}`,
			[]string{`bundle.teams.c.namespaces.1: no namespace can have a name like "-c"` + globHint},
		},
		"namespaces in the audit log that cannot be": {
			`audit: rules: a: {order: 1, level: "None", namespaces: [§"Kube-system"]}`,
			[]string{`bundle.audit.rules.a.namespaces.0: no namespace can have a name like "Kube-system"; names are of lower-case letters, digits and -`},
		},
		"service accounts that cannot be": {
			`teams: b: rbac: bindings: b: {clusterRole: "view", subjects: [{serviceAccount: "a/b.c"}, §{serviceAccount: "A/b"}, {user: "system:serviceaccount:a:b"}, §{user: "system:serviceaccount:a/b"}, {user: "A/b"}], namespaces: ["*"]}`,
			[]string{
				`bundle.teams.b.rbac.bindings.b.subjects.1: no service account can be "A/b"; write serviceAccount: "namespace/name"`,
				`bundle.teams.b.rbac.bindings.b.subjects.3: no service account can be "system:serviceaccount:a/b"; write serviceAccount: "namespace/name"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}
