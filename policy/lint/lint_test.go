package lint_test

import (
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/lint"
	"stele.dev/stele/schemas"
)

// prelude is a bundle of two teams with a kind, to which the tests add; the additions begin in line 21.
const prelude = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: [_]: contact: "#x"
	teams: a: {groups: ["a.example.com", "", "policy.stele.dev", "rbac.authorization.k8s.io", "authentication.k8s.io", "*"], namespaces: ["*"]}
	teams: a: kinds: "widgets.a.example.com": {
		group: "a.example.com", names: {kind: "Widget", plural: "widgets"}, storageVersion: "v1"
		versions: v1: #schema: #Widget
	}
}
#Widget: spec: {
	size:    *5 | int
	tier:    *"dev" | "prod"
	owner!:  string
	standby?: string
	token?:  string @stele(sensitive)
}

`

const (
	rbac     = "bundle: teams: a: rbac: "
	admit    = `bundle: teams: a: admission: validate: v: `
	hook     = `bundle: teams: a: admission: webhooks: validating: "x.example.com": `
	widgets  = `apiGroups: ["a.example.com"], resources: ["widgets"]`
	somebody = `subjects: [{group: "g"}]`
	match    = `match: {` + widgets + `}`
	rules    = `bundle: teams: a: kinds: "widgets.a.example.com": versions: v1: validations: r: `
	bound    = rbac + `bindings: b: {clusterRole: "r", ` + somebody + `, namespaces: ["*"]}` + "\n"
)

func role(name, rule string) string {
	return rbac + `clusterRoles: ` + name + `: rules: x: {` + rule + "}\n"
}

// refuses returns a deny of a rule, without the end of its line.
func refuses(rule string) string {
	return rbac + `denies: d: {reason: "x", ` + somebody + `, rules: x: {` + rule + `}}`
}

// readsLog lets the group g read the log.
const readsLog = rbac + "clusterRoles: log: rules: x: {nonResourceURLs: [\"/log/batches\"], verbs: [\"get\"]}\n" + rbac + `bindings: log: {clusterRole: "log", ` + somebody + `, namespaces: ["*"]}` + "\n"

// flowSchema returns a flow schema of the level system.
func flowSchema(name string, precedence int, rest string) string {
	return fmt.Sprintf("bundle: flow: flowSchemas: %q: {matchingPrecedence: %d, priorityLevel: \"system\", %s}", name, precedence, rest)
}

// marked returns a role with a finding on its line.
func marked(name, rule string) string {
	return strings.TrimSuffix(role(name, rule), "\n") + " // §"
}

// changes returns a rule that changes widgets with one step, without the end of its line. more are other fields of it.
func changes(name string, order int, more, patchType, expression string) string {
	return fmt.Sprintf("bundle: teams: a: admission: mutate: %s: {order: %d, %s, %s, mutations: s: {patchType: %q, expression: %q}} ", name, order, match, more, patchType, expression)
}

// sets returns a rule that sets a field of the spec of widgets.
func sets(name string, order int, more, value string) string {
	return changes(name, order, more, "ApplyConfiguration", "Object{spec: Object.spec{"+value+"}}")
}

// scaled gives widgets a status and a scale.
const scaled = "bundle: teams: a: kinds: \"widgets.a.example.com\": versions: v1: subresources: {status: {}, scale: {specReplicasPath: \".spec.size\", statusReplicasPath: \".status.size\"}}\n#Widget: status?: {size?: int, ready?: bool}\n"

// ofSub returns a rule that changes writes of a subresource of widgets.
func ofSub(subresource, name string, order int, expression string) string {
	return strings.Replace(changes(name, order, once, "ApplyConfiguration", expression), `["widgets"]`, `["widgets/`+subresource+`"]`, 1)
}

const (
	once  = `reinvocationPolicy: "Never"`
	again = `reinvocationPolicy: "IfNeeded"`
	when  = "match: conditions: c: "
)

// audit returns an audit rule, without the end of its line.
func audit(name string, order int, fields string) string {
	return fmt.Sprintf("\nbundle: audit: rules: %s: {order: %d, %s} ", name, order, fields)
}

// recorded is an audit rule for reads of secrets.
var recorded = audit("recorded", 99, `level: "Metadata", resources: ["secrets", "widgets"], verbs: ["get", "list", "watch"], subjects: [{group: "system:authenticated"}]`)

func check(t *testing.T, module fs.FS, pkg string) []lint.Finding {
	t.Helper()
	source, err := bundles.ReadFS(module, pkg)
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	found, err := lint.Check(t.Context(), &lint.Bundle{Form: compiled.Form, Module: source, Used: compiled.Source, Warnings: compiled.Warnings})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func module(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{"cue.mod/module.cue": {Data: []byte("module: \"example.com/test\"\nlanguage: version: \"v0.17.0\"\n")}}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

func TestFindingsInFlowSchemasSayWhatToDo(t *testing.T) {
	text := prelude + flowSchema("a", 9000, `subjects: [{serviceAccount: "x/y"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n" +
		flowSchema("b", 9001, `subjects: [{serviceAccount: "x/y"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n" +
		flowSchema("c", 7, `subjects: [{group: "system:masters"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n"
	var got []string
	for _, f := range check(t, module(map[string]string{"bundle.cue": text}), ".") {
		got = append(got, f.Pos.String()+" "+f.Path+": "+f.Message+"; "+f.Hint)
	}
	want := []string{
		"bundle.cue:22 flow/flowSchemas/a: flow/flowSchemas/a (bundle.cue:22) and the built-in flow schema service-accounts have the same matchingPrecedence, 9000, and both match requests of ServiceAccount x/y to get widgets.a.example.com in any namespace; a is tried first, because of its name; give one of them another matchingPrecedence",
		"bundle.cue:23 flow/flowSchemas/b: before it, flow/flowSchemas/a (bundle.cue:22) takes all of its requests; give it a matchingPrecedence below 9000, or leave it out",
		"bundle.cue:24 flow/flowSchemas/c: before it, the built-in flow schema exempt takes all of its requests; leave it out: members of system:masters are exempt",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLints(t *testing.T) {
	for name, tc := range map[string]struct {
		add  string   // to the prelude; § marks the line of each finding
		want []string // the lints, by line
	}{
		"nothing": {"", nil},

		"a rule that reads secrets": {
			admit + `{` + match + `, objects: x: {kind: "secrets", version: "v1"} // §` + "\n" + `validations: v: expression: "!objects.x.name('a').exists()"}`, []string{"OBJECTS_SECRET"}},
		"a rule whose params are secrets": {
			admit + `{` + match + `, paramKind: {apiVersion: "v1", kind: "Secret"}, paramRef: {name: "a", parameterNotFoundAction: "Allow"} // §` + "\n" + `validations: v: expression: "has(params.data)"}`, []string{"OBJECTS_SECRET"}},
		"a rule that lists all of a kind": {
			admit + `{` + match + `, objects: x: {kind: "namespaces", version: "v1"}` + "\n" + `validations: v: expression: "objects.x.list().size() < 9"} // §`, []string{"OBJECTS_LISTED"}},
		"a webhook that is asked about every write":  {hook + `{rules: x: {apiGroups: ["*"], resources: ["*/*"], operations: ["*"]}, sideEffects: "None", clientConfig: url: "https://x.example"} // §`, []string{"WEBHOOK_WIDE"}},
		"a webhook for some objects of every kind":   {hook + `{rules: x: {apiGroups: ["*"], resources: ["*"], operations: ["*"]}, objectSelector: matchLabels: a: "b", sideEffects: "None", clientConfig: url: "https://x.example"}`, nil},
		"a webhook for every write that may be away": {hook + `{rules: x: {apiGroups: ["*"], resources: ["*"], operations: ["*"]}, failurePolicy: "Ignore", sideEffects: "None", clientConfig: url: "https://x.example"}`, nil},
		"a webhook with much time":                   {hook + `{rules: x: {` + widgets + `, operations: ["*"]}, timeoutSeconds: 11, sideEffects: "None", clientConfig: url: "https://x.example"} // §`, []string{"WEBHOOK_SLOW"}},
		"a webhook with kube-apiserver's time":       {hook + `{rules: x: {` + widgets + `, operations: ["*"]}, timeoutSeconds: 10, sideEffects: "None", clientConfig: url: "https://x.example"}`, nil},
		"a webhook with much time that may be away":  {hook + `{rules: x: {` + widgets + `, operations: ["*"]}, timeoutSeconds: 30, failurePolicy: "Ignore", sideEffects: "None", clientConfig: url: "https://x.example"}`, nil},
		"a rule that lists what it narrows, and counts": {
			admit + `{` + match + `, objects: x: {kind: "namespaces", version: "v1"}` + "\n" + `validations: v: expression: "objects.x.labels({'a': 'b'}).list().size() < 9 && objects.x.count() < 9"}`, nil},

		"a binding that another one covers": {
			role("r", widgets+`, verbs: ["get"]`) + role("w", widgets+`, verbs: ["get", "list"]`) +
				rbac + `bindings: wide: {clusterRole: "w", ` + somebody + `, namespaces: ["*"]}` + "\n" +
				rbac + `bindings: narrow: {clusterRole: "r", ` + somebody + `, namespaces: ["x-*"]} // §`, []string{"BINDING_REDUNDANT"}},
		"a binding that two others cover together": {
			role("r", widgets+`, verbs: ["get", "list"]`) + role("g", widgets+`, verbs: ["get"]`) + role("l", widgets+`, verbs: ["list"]`) +
				rbac + `bindings: both: {clusterRole: "r", ` + somebody + `, namespaces: ["x"]} // §` + "\n" +
				rbac + `bindings: one: {clusterRole: "g", ` + somebody + `, namespaces: ["*"]}` + "\n" +
				rbac + `bindings: two: {clusterRole: "l", ` + somebody + `, namespaces: ["x", "y"]}`, []string{"BINDING_REDUNDANT"}},
		"a binding of an account that its group has": {
			role("r", widgets+`, verbs: ["get"]`) +
				rbac + `bindings: all: {clusterRole: "r", subjects: [{group: "system:serviceaccounts:x"}], namespaces: ["x"]}` + "\n" +
				rbac + `bindings: one: {clusterRole: "r", subjects: [{serviceAccount: "x/y"}], namespaces: ["x"]} // §`, []string{"BINDING_REDUNDANT"}},
		"a binding of administrators": {
			role("r", widgets+`, verbs: ["get"]`) + rbac + `bindings: b: {clusterRole: "r", subjects: [{group: "system:masters"}], namespaces: ["x"]} // §`, []string{"BINDING_REDUNDANT"}},
		"a condition that another binding makes void": {
			role("r", widgets+`, verbs: ["get"]`) +
				rbac + `bindings: always: {clusterRole: "r", ` + somebody + `, namespaces: ["x"]}` + "\n" +
				rbac + `bindings: sometimes: {clusterRole: "r", ` + somebody + `, namespaces: ["x"], when: "request.name != 'a'"} // §`, []string{"BINDING_REDUNDANT"}},
		"a binding that a conditional one does not cover": {
			role("r", widgets+`, verbs: ["get"]`) +
				rbac + `bindings: always: {clusterRole: "r", ` + somebody + `, namespaces: ["x"]}` + "\n" +
				rbac + `bindings: sometimes: {clusterRole: "r", ` + somebody + `, namespaces: ["x", "y"], when: "request.name != 'a'"}`, nil},
		"bindings of different subjects": {
			role("r", widgets+`, verbs: ["get"]`) +
				rbac + `bindings: one: {clusterRole: "r", ` + somebody + `, namespaces: ["x"]}` + "\n" +
				rbac + `bindings: two: {clusterRole: "r", subjects: [{group: "h"}], namespaces: ["x"]}`, nil},
		"bindings in namespaces that overlap": {
			role("r", widgets+`, verbs: ["get"]`) +
				rbac + `bindings: one: {clusterRole: "r", ` + somebody + `, namespaces: ["x-*"]}` + "\n" +
				rbac + `bindings: two: {clusterRole: "r", ` + somebody + `, namespaces: ["*-y"]}`, nil},

		"a deny that another one covers": {
			rbac + `denies: wide: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["delete", "deletecollection", "create"]}}` + "\n" +
				rbac + `denies: zzz: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["delete", "deletecollection"]}, unless: "request.name == 'a'"} // §`, []string{"DENY_REDUNDANT"}},
		"a deny with an exception covers none": {
			rbac + `denies: wide: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["delete", "deletecollection", "create"]}, unless: "request.name == 'a'"}` + "\n" +
				rbac + `denies: zzz: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["delete", "deletecollection"]}}`, nil},

		"a rule that another one covers": {
			rbac + `clusterRoles: r: rules: {` + "\n" + `one: {` + widgets + `, verbs: ["get", "list"]}` + "\n" + `two: {` + widgets + `, verbs: ["get"]} // §` + "\n}\n" + bound, []string{"RULE_REDUNDANT"}},
		"rules of different names": {
			rbac + `clusterRoles: r: rules: {` + "\n" + `one: {` + widgets + `, verbs: ["get", "list"], resourceNames: ["a"]}` + "\n" + `two: {` + widgets + `, verbs: ["get"]}` + "\n}\n" + bound, nil},

		"a role that nobody has":       {marked("r", widgets+`, verbs: ["get"]`), []string{"ROLE_UNUSED"}},
		"a role that another includes": {role("r", widgets+`, verbs: ["get"]`) + rbac + `clusterRoles: r: labels: "rbac.authorization.k8s.io/aggregate-to-view": "true"`, nil},

		"all verbs":            {bound + rbac + `clusterRoles: r: rules: x: {` + widgets + `, verbs: ["*"]} // §`, []string{"GRANT_WILDCARD"}},
		"all resources":        {bound + rbac + `clusterRoles: r: rules: x: {apiGroups: ["a.example.com"], resources: ["*"], verbs: ["get"]} // §`, []string{"GRANT_WILDCARD"}},
		"all groups":           {bound + rbac + `clusterRoles: r: rules: x: {apiGroups: ["*"], resources: ["widgets"], verbs: ["get"]} // §`, []string{"GRANT_WILDCARD"}},
		"all paths":            {bound + rbac + `clusterRoles: r: rules: x: {nonResourceURLs: ["/*"], verbs: ["get"]} // §`, []string{"GRANT_WILDCARD"}},
		"some paths":           {bound + rbac + `clusterRoles: r: rules: x: {nonResourceURLs: ["/metrics/*"], verbs: ["get"]}`, nil},
		"all verbs, denied":    {rbac + `denies: d: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["*"]}}`, nil},
		"a path in namespaces": {rbac + `bindings: b: {clusterRole: "r", ` + somebody + `, namespaces: ["x-*"]}` + "\n" + marked("r", `nonResourceURLs: ["/metrics"], verbs: ["get"]`), []string{"GRANT_NEVER_APPLIES"}},
		"a view of groups in namespaces": {"bundle: teams: a: views: \"by-tier\": {kind: \"widgets.a.example.com\", version: \"v1\", columns: tier: {expression: \"object.spec.tier\", type: \"string\"}, groupBy: [\"tier\"], aggregates: n: {function: \"count\"}}\n" +
			rbac + `bindings: b: {clusterRole: "r", ` + somebody + `, namespaces: ["x-*"]}` + "\n" + marked("r", `apiGroups: ["views.stele.dev"], resources: ["by-tier"], verbs: ["list"]`), []string{"GRANT_NEVER_APPLIES"}},
		"namespaces in namespaces": {rbac + `bindings: b: {clusterRole: "r", ` + somebody + `, namespaces: ["x-*"]}` + "\n" + role("r", `apiGroups: [""], resources: ["namespaces"], verbs: ["get"]`), nil},
		"a built-in role":          {rbac + `bindings: b: {clusterRole: "cluster-admin", ` + somebody + `, namespaces: ["*"]} // §`, []string{"GRANT_ESCALATES", "GRANT_WILDCARD"}},
		"another built-in":         {rbac + `bindings: b: {clusterRole: "view", ` + somebody + `, namespaces: ["x"]}`, nil},
		"push of policies":         {bound + marked("r", `apiGroups: ["policy.stele.dev"], resources: ["policies"], verbs: ["create"]`), []string{"GRANT_ESCALATES"}},
		"reading policies":         {bound + role("r", `apiGroups: ["policy.stele.dev"], resources: ["policies"], verbs: ["get"]`), nil},
		"acting as others":         {bound + marked("r", `apiGroups: [""], resources: ["users"], verbs: ["impersonate"], resourceNames: ["a"]`), []string{"GRANT_ESCALATES"}},
		"tokens of accounts":       {bound + marked("r", `apiGroups: [""], resources: ["serviceaccounts/token"], verbs: ["create"]`), []string{"GRANT_ESCALATES"}},
		"escalate":                 {bound + marked("r", `apiGroups: ["rbac.authorization.k8s.io"], resources: ["clusterroles"], verbs: ["escalate", "bind"]`), []string{"GRANT_ESCALATES"}},

		"a deny that meets them for some objects": {rbac + `denies: d: {reason: "x", subjects: [{group: "system:authenticated"}], rules: x: {` + widgets + `, verbs: ["delete", "deletecollection"]}, unless: "oldObject.spec.size < 5"} // §`, []string{"DENY_MEETS_CONTROLLERS"}},
		"a deny that meets controllers":           {rbac + `denies: d: {reason: "x", subjects: [{group: "system:authenticated"}], rules: x: {` + widgets + `, verbs: ["delete", "deletecollection"]}, unless: "request.userInfo.username == 'system:admin' || 'system:masters' in request.userInfo.groups && request.name == ''"} // §`, []string{"DENY_MEETS_CONTROLLERS"}},
		"a deny that meets no controllers":        {rbac + `denies: d: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["delete", "deletecollection"]}}`, nil},

		"a deny of deletes alone":                      {refuses(widgets+`, verbs: ["delete"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of deletes of one object":              {refuses(widgets + `, verbs: ["delete"], resourceNames: ["a"]`), nil},
		"a deny of many deletes at once":               {refuses(widgets + `, verbs: ["deletecollection"]`), nil},
		"two denies of deletes":                        {rbac + `denies: e: {reason: "x", subjects: [{group: "g"}, {user: "u"}], rules: x: {` + widgets + `, verbs: ["deletecollection"]}}` + "\n" + refuses(widgets+`, verbs: ["delete"]`), nil},
		"two denies of deletes, one with an exception": {rbac + `denies: e: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["deletecollection"]}, unless: "request.name == 'a'"}` + "\n" + refuses(widgets+`, verbs: ["delete"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of updates alone":                      {refuses(widgets+`, verbs: ["update"], resourceNames: ["a"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of gets alone":                         {refuses(widgets+`, verbs: ["get"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of all reads":                          {refuses(widgets + `, verbs: ["get", "list", "watch"]`), nil},
		"a deny of everything":                         {refuses(widgets + `, verbs: ["*"]`), nil},
		"a deny of events":                             {refuses(`apiGroups: [""], resources: ["events"], verbs: ["create"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of events.k8s.io":                      {refuses(`apiGroups: ["events.k8s.io"], resources: ["events"], verbs: ["create"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of all events":                         {refuses(`apiGroups: ["", "events.k8s.io"], resources: ["events"], verbs: ["create"]`), nil},
		"a deny of writes without the scale":           {scaled + refuses(widgets+`, verbs: ["update", "patch"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of the scale without writes":           {scaled + refuses(`apiGroups: ["a.example.com"], resources: ["widgets/scale"], verbs: ["update", "patch"]`) + " // §", []string{"DENY_LEAVES_OPEN"}},
		"a deny of writes with the scale":              {scaled + refuses(`apiGroups: ["a.example.com"], resources: ["widgets", "widgets/scale"], verbs: ["update", "patch"]`), nil},
		"a deny of writes of what has no scale":        {refuses(widgets + `, verbs: ["update", "patch"]`), nil},

		"a deny of reads for those who read the log":                   {readsLog + refuses(widgets+`, verbs: ["get", "list", "watch"]`) + " // §", []string{"DENY_MEETS_LOG"}},
		"a deny of reads and of the log":                               {readsLog + rbac + `denies: d: {reason: "x", ` + somebody + `, rules: {x: {` + widgets + `, verbs: ["get", "list", "watch"]}, log: {apiGroups: [], nonResourceURLs: ["/log/*"], verbs: ["get"]}}}`, nil},
		"a deny of reads for others":                                   {readsLog + rbac + `denies: d: {reason: "x", subjects: [{user: "v"}], rules: x: {` + widgets + `, verbs: ["get", "list", "watch"]}}`, nil},
		"a deny of reads with an exception for those who read the log": {readsLog + rbac + `denies: d: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["get", "list", "watch"]}, unless: "'g' in request.userInfo.groups"}`, nil},
		"a deny of writes for those who read the log":                  {readsLog + refuses(widgets+`, verbs: ["create"]`), nil},
		"a deny of reads for everybody":                                {rbac + `denies: d: {reason: "x", subjects: [{group: "system:authenticated"}], rules: x: {` + widgets + `, verbs: ["get", "list", "watch"]}, unless: "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"} // §`, []string{"DENY_MEETS_LOG"}},

		"push of parts of policies": {bound + role("r", `apiGroups: ["policy.stele.dev"], resources: ["policies"], verbs: ["create"], resourceNames: ["parts"]`), nil},
		"the role of planners":      {rbac + `bindings: b: {clusterRole: "policy:planner", ` + somebody + `, namespaces: ["*"]}`, nil},

		"a kind in a group of Kubernetes":   {"bundle: teams: a: kinds: \"deployments.apps\": { // §\n" + `group: "apps", names: {kind: "Deployment", plural: "deployments"}, storageVersion: "v1", versions: v1: #schema: spec?: {}}`, []string{"GROUP_OF_KUBERNETES"}},
		"a field to which a part is closed": {"bundle: teams: a: kinds: \"things.example.com\": {\n" + `group: "example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1", versions: v1: #schema: spec?: #closed & {b?: int} // §` + "\n}\n#closed: {a?: int}", []string{"FIELD_NEVER_SET"}},
		"a chain without deny":              {`bundle: authorizers: ["system:masters", "rbac"] // §`, []string{"AUTHORIZER_LEFT_OUT"}},
		"a chain with a late deny":          {`bundle: authorizers: ["system:masters", "rbac", "deny"] // §`, []string{"DENY_LATE"}},
		"a chain that may lock out":         {`bundle: authorizers: ["deny", "webhook:w", "system:masters", "rbac"] // §`, []string{"LOCKOUT"}},
		"the usual chain":                   {`bundle: authorizers: ["deny", "system:masters", "rbac"]`, nil},
		"a plugin that is not in the chain": {`bundle: plugins: p: {sha256: "linux/amd64": "` + strings.Repeat("0", 64) + `"} // §`, []string{"PLUGIN_UNUSED"}},

		"a flow schema after a wider one": {
			`bundle: flow: priorityLevels: own: {nominalConcurrencyShares: 5}` + "\n" +
				`bundle: flow: flowSchemas: first: {matchingPrecedence: 5, priorityLevel: "own", subjects: [{group: "system:authenticated"}], rules: x: {` + widgets + `, verbs: ["*"]}}` + "\n" +
				`bundle: flow: flowSchemas: second: {matchingPrecedence: 6, priorityLevel: "own", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["get"]}} // §`, []string{"FLOW_UNREACHED"}},
		"a flow schema after one of others": {
			`bundle: flow: priorityLevels: own: {nominalConcurrencyShares: 5}` + "\n" +
				`bundle: flow: flowSchemas: first: {matchingPrecedence: 5, priorityLevel: "own", subjects: [{group: "h"}], rules: x: {` + widgets + `, verbs: ["*"]}}` + "\n" +
				`bundle: flow: flowSchemas: second: {matchingPrecedence: 6, priorityLevel: "own", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["get"]}}`, nil},
		"a flow schema for nobody":                   {flowSchema("own", 5, "subjects: [], rules: x: {"+widgets+`, verbs: ["get"]}`) + " // §", []string{"FLOW_UNREACHED"}},
		"a flow schema for nothing":                  {flowSchema("own", 5, somebody+", rules: {}") + " // §", []string{"FLOW_UNREACHED"}},
		"a flow schema of administrators":            {flowSchema("own", 5, `subjects: [{group: "system:masters"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + " // §", []string{"FLOW_UNREACHED"}},
		"a flow schema of administrators and others": {flowSchema("own", 5, `subjects: [{group: "system:masters"}, {user: "u"}], rules: x: {`+widgets+`, verbs: ["get"]}`), nil},
		"a flow schema after a built-in one":         {flowSchema("own", 9001, `subjects: [{serviceAccount: "x/y"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + " // §", []string{"FLOW_UNREACHED"}},
		"a flow schema before a built-in one":        {flowSchema("own", 8999, `subjects: [{serviceAccount: "x/y"}], rules: x: {`+widgets+`, verbs: ["get"]}`), nil},
		"a flow schema after one that was built in": {flowSchema("service-accounts", 9000, `subjects: [{serviceAccount: "x/z"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n" +
			flowSchema("own", 9001, `subjects: [{serviceAccount: "x/y"}], rules: x: {`+widgets+`, verbs: ["get"]}`), nil},
		"a flow schema for everybody, at the end": {flowSchema("own", 9950, `subjects: [{user: "*"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + " // §", []string{"FLOW_UNREACHED"}},
		"a flow schema for some namespaces, after one for others": {flowSchema("first", 5, somebody+`, rules: x: {`+widgets+`, verbs: ["get"], namespaces: ["a"]}`) + "\n" +
			flowSchema("second", 6, somebody+`, rules: x: {`+widgets+`, verbs: ["get"], namespaces: ["a", "b"]}`), nil},
		"a flow schema for a namespace, after one for all": {flowSchema("first", 5, somebody+`, rules: x: {`+widgets+`, verbs: ["get"], namespaces: ["*"]}`) + "\n" +
			flowSchema("second", 6, somebody+`, rules: x: {`+widgets+`, verbs: ["get"], namespaces: ["a", "b"]}`) + " // §", []string{"FLOW_UNREACHED"}},
		"a flow schema for all, after two": {flowSchema("first", 5, somebody+`, rules: x: {`+widgets+`, verbs: ["get"], namespaces: ["*"]}`) + "\n" +
			flowSchema("second", 6, somebody+`, rules: x: {`+widgets+`, verbs: ["get"], namespaces: [""]}`) + "\n" +
			flowSchema("third", 7, somebody+`, rules: x: {`+widgets+`, verbs: ["get"]}`) + " // §", []string{"FLOW_UNREACHED"}},
		"flow schemas of one precedence": {flowSchema("a", 5, somebody+`, rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n" +
			flowSchema("b", 5, `subjects: [{user: "u"}], rules: x: {`+widgets+`, verbs: ["*"]}`) + " // §", []string{"FLOW_TIED"}},
		"flow schemas of one precedence for different users": {flowSchema("a", 5, `subjects: [{user: "v"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n" +
			flowSchema("b", 5, `subjects: [{user: "u"}], rules: x: {`+widgets+`, verbs: ["*"]}`), nil},
		"flow schemas of one precedence for different requests": {flowSchema("a", 5, somebody+`, rules: x: {`+widgets+`, verbs: ["get"]}`) + "\n" +
			flowSchema("b", 5, somebody+`, rules: x: {`+widgets+`, verbs: ["list"]}`), nil},
		"a flow schema with the precedence of a built-in one": {flowSchema("a", 9000, `subjects: [{serviceAccount: "x/y"}], rules: x: {`+widgets+`, verbs: ["get"]}`) + " // §", []string{"FLOW_TIED"}},
		"flows of namespaces, of paths":                       {flowSchema("a", 5, somebody+`, distinguisher: "ByNamespace", rules: x: {nonResourceURLs: ["/metrics"], verbs: ["get"]}`) + " // §", []string{"FLOW_UNDIVIDED"}},
		"flows of namespaces, of what is in none":             {flowSchema("a", 5, somebody+`, distinguisher: "ByNamespace", rules: x: {apiGroups: [""], resources: ["namespaces"], verbs: ["list"], namespaces: [""]}`) + " // §", []string{"FLOW_UNDIVIDED"}},
		"flows of namespaces":                                 {flowSchema("a", 5, somebody+`, distinguisher: "ByNamespace", rules: {y: {nonResourceURLs: ["/metrics"], verbs: ["get"]}, x: {`+widgets+`, verbs: ["list"]}}`), nil},
		"a level that only a built-in flow schema names":      {`bundle: flow: priorityLevels: "workload-low": {nominalConcurrencyShares: 5}`, nil},
		"a level that nothing names":                          {`bundle: flow: priorityLevels: own: {nominalConcurrencyShares: 5} // §`, []string{"PRIORITY_LEVEL_UNUSED"}},
		"an audit rule after a wider one": {
			audit("first", 1, `level: "Metadata", resources: ["widgets"]`) + audit("second", 2, `level: "Request", verbs: ["create"], resources: ["widgets"]`) + "// §" + recorded, []string{"AUDIT_UNREACHED"}},
		"an audit rule after another": {audit("first", 1, `level: "Metadata", verbs: ["get"], resources: ["widgets"]`) + audit("second", 2, `level: "Metadata", resources: ["widgets"]`) + recorded, nil},
		"an audit rule after two that match all of it together": {
			audit("first", 1, `level: "None", verbs: ["get"]`) + "// stele:allow AUDIT_SECRET_READS x" + audit("second", 2, `level: "Metadata", verbs: ["list"], resources: ["widgets", "secrets"]`) +
				audit("third", 3, `level: "Request", verbs: ["get", "list"], resources: ["widgets"]`) + "// §", []string{"AUDIT_UNREACHED"}},
		"an audit rule after two that match a part of it": {
			audit("first", 1, `level: "Metadata", verbs: ["get"]`) + audit("second", 2, `level: "Metadata", verbs: ["list"], resources: ["widgets"]`) +
				audit("third", 3, `level: "Metadata", verbs: ["get", "list"], resources: ["widgets/*"]`) + recorded, nil},
		"an audit rule for a member of a group": {audit("first", 1, `level: "Metadata", subjects: [{group: "system:authenticated"}]`) +
			audit("second", 2, `level: "Metadata", subjects: [{user: "u"}, {serviceAccount: "a/b"}]`) + "// §", []string{"AUDIT_UNREACHED"}},
		"an audit rule for paths":                              {audit("first", 1, `level: "Metadata", nonResourceURLs: ["/health*", "/metrics"]`) + audit("second", 2, `level: "Metadata", nonResourceURLs: ["/healthz/*", "/metrics"]`) + "// §" + recorded, []string{"AUDIT_UNREACHED"}},
		"an audit rule for all, after resources":               {audit("first", 1, `level: "Metadata", resources: ["*"]`) + audit("second", 2, `level: "Metadata"`), nil},
		"an audit rule that records secrets":                   {audit("first", 1, `level: "Request", verbs: ["create"]`) + "// §" + recorded, []string{"AUDIT_SECRETS"}},
		"an audit rule after one for secrets":                  {audit("first", 1, `level: "Metadata", resources: ["secrets", "widgets"]`) + audit("second", 2, `level: "RequestResponse"`), nil},
		"an audit rule that leaves out reads of secrets":       {audit("first", 1, `level: "None", verbs: ["get"]`) + "// §", []string{"AUDIT_SECRET_READS"}},
		"no audit rule for reads of secrets":                   {audit("first", 1, `level: "Metadata", verbs: ["list"]`) + "// §", []string{"AUDIT_SECRET_READS"}},
		"no audit rule for reads of a kind with secret fields": {audit("first", 1, `level: "Metadata", resources: ["secrets"]`) + "// §", []string{"AUDIT_SECRET_READS"}},
		"no audit rule for lists of secrets":                   {audit("first", 1, `level: "Metadata", verbs: ["get"]`) + "// §", []string{"AUDIT_SECRET_READS"}},
		"no audit rules":                                       {"", nil},

		"a validation that is always true":          {admit + `{` + match + `, validations: x: expression: "object.spec.size > 1 || true"} // §`, []string{"CEL_ALWAYS_TRUE"}},
		"a validation that is never true":           {admit + `{` + match + `, validations: x: expression: "object.spec.size > 1 && 1 > 2"} // §`, []string{"CEL_NEVER_TRUE"}},
		"a validation that the schema fulfils":      {admit + `{` + match + `, validations: x: expression: "object.spec.tier in ['dev', 'prod']"} // §`, []string{"CONDITION_ALWAYS_HOLDS"}},
		"a value that the schema lacks":             {admit + `{` + match + `, validations: x: expression: "object.spec.tier == 'gold'"} // §`, []string{"CONDITION_NEVER_HOLDS"}},
		"a lacking value beside others":             {admit + `{` + match + `, validations: x: expression: "object.spec.tier == 'gold' || object.spec.size > 1"}`, nil},
		"a grant for a value that the schema lacks": {role("r", widgets+`, verbs: ["create"]`) + rbac + `bindings: b: {clusterRole: "r", ` + somebody + `, namespaces: ["x"], when: "object.spec.tier == 'gold'"} // §`, []string{"CONDITION_NEVER_HOLDS"}},
		"an exception for any value":                {rbac + `denies: d: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["create"]}, unless: "object.spec.tier != 'gold'"} // §`, []string{"CONDITION_ALWAYS_HOLDS"}},
		"both":                                      {admit + `{` + match + `, validations: x: expression: "object.spec.tier == 'gold' && false"} // §`, []string{"CEL_NEVER_TRUE"}},
		"a validation that says false":              {admit + `{` + match + `, validations: x: expression: "false"}`, nil},
		"a validation that depends":                 {admit + `{` + match + `, validations: x: expression: "object.spec.size > 1 || object.spec.tier == 'dev'"}`, nil},
		"a grant that never holds":                  {role("r", widgets+`, verbs: ["get"]`) + rbac + `bindings: b: {clusterRole: "r", ` + somebody + `, namespaces: ["x"], when: "request.name == 'a' && false"} // §`, []string{"CEL_NEVER_TRUE"}},
		"an exception that always holds":            {rbac + `denies: d: {reason: "x", ` + somebody + `, rules: x: {` + widgets + `, verbs: ["delete", "deletecollection"]}, unless: "true || request.name == 'a'"} // §`, []string{"CEL_ALWAYS_TRUE"}},
		"a rule of the kind, always true":           {rules + `{rule: "self.spec.size == self.spec.size || 'a' in ['a']"} // §`, []string{"CEL_ALWAYS_TRUE"}},
		"a rule of the kind, never true":            {rules + `{rule: "self.spec.size > 2 && 'a' in ['b']"} // §`, []string{"CEL_NEVER_TRUE"}},
		"a part that never matters":                 {admit + `{` + match + `, validations: x: expression: "object.spec.size > 1 && (object.spec.tier == 'dev' || 1 < 2)"} // §`, []string{"CEL_UNREACHED"}},
		"a branch that is never taken":              {admit + `{` + match + `, validations: x: expression: "false ? object.spec.tier == 'dev' : object.spec.size > 1"} // §`, []string{"CEL_UNREACHED"}},
		"a variable that nothing reads":             {admit + `{` + match + `, variables: {` + "\n" + `a: "object.spec.size"` + "\n" + `b: "object.spec.size" // §` + "\n" + `c: "variables.a"` + "\n" + `}, validations: x: expression: "variables.c > 1"}`, []string{"CEL_UNREACHED"}},
		"the replicas of a Scale, which may be 0": {
			scaled + admit + `{match: {apiGroups: ["a.example.com"], resources: ["widgets/scale"]}, validations: x: expression: "object.spec.replicas < 5"} // §`, []string{"OPTIONAL_UNTESTED"}},
		"the replicas of a Scale, or 0": {
			scaled + admit + `{match: {apiGroups: ["a.example.com"], resources: ["widgets/scale"]}, validations: x: expression: "object.spec.?replicas.orValue(0) < 5"}`, nil},
		"an optional field without has": {admit + `{` + match + `, validations: x: expression: "object.spec.standby != ''"} // §`, []string{"OPTIONAL_UNTESTED"}},
		"an optional field with has":    {admit + `{` + match + `, validations: x: expression: "!has(object.spec.standby) || object.spec.standby != ''"}`, nil},

		"a default beside !":             {`#Widget: spec: a!: *1 | int // §`, []string{"DEFAULT_NEVER_APPLIES"}},
		"a default beside ?":             {`#Widget: spec: a?: *1 | int // §`, []string{"DEFAULT_NEVER_APPLIES"}},
		"a default":                      {`#Widget: spec: a: *1 | int`, nil},
		"two defaults":                   {`#Widget: spec: a: *1 | *2 | int // §`, []string{"DEFAULTS_CONFLICT"}},
		"a default out of bounds":        {`#Widget: spec: a: *1 | int & >5 // §`, []string{"DEFAULT_OUTSIDE"}},
		"a value beside its type":        {`#Widget: spec: a: *"x" | "y" | string // §`, []string{"ALTERNATIVE_COVERED"}},
		"a default beside its type":      {`#Widget: spec: a: *"x" | string`, nil},
		"a value beside another type":    {`#Widget: spec: a: "x" | int`, nil},
		"a part in the words of OpenAPI": {`#Widget: spec: a?: {type: "integer", minimum: 1} // §`, []string{"SCHEMA_OPENAPI"}},
		"a field type of one's own":      {`#Widget: spec: a?: {type: "card", number: string} | {type: "check", address: string}`, nil},
		"a sum of what is no quantity":   {"#Widget: spec: a?: =~\"^[a-z]+$\"\nbundle: quota: resources: \"a.example.com/a\": sums: a: {kind: \"widgets.a.example.com\", path: \".spec.a\"} // §", []string{"QUOTA_NO_QUANTITY"}},
		"a sum of quantities":            {"#Widget: spec: a?: =~\"^[0-9]+(Ki|Mi|Gi)$\"\nbundle: quota: resources: \"a.example.com/a\": sums: a: {kind: \"widgets.a.example.com\", path: \".spec.a\"}", nil},
		"an alternative without values":  {`#Widget: spec: a: *1 | int & >5 & <2 // §`, []string{"ALTERNATIVE_EMPTY"}},
		"a default that a rule rejects":  {rules + `{path: "spec.size", rule: "self > 7"} // §`, []string{"DEFAULT_VIOLATES"}},
		"defaults that do not fit":       {rules + `{rule: "self.spec.tier != 'dev' || self.spec.size > 5"} // §`, []string{"DEFAULT_VIOLATES"}},
		"defaults that fit":              {rules + `{rule: "self.spec.tier != 'dev' || self.spec.size <= 5"}`, nil},
		"a rule about what is given":     {rules + `{rule: "self.spec.owner == 'me' && self.spec.size > 7"}`, nil},
		"a part for CUE":                 {"#Widget: spec: {\nlong!: string\ncount: len(long) // §\n}", []string{"CUE_FALLBACK"}},

		"a message with a secret":        {admit + `{` + match + `, validations: x: {expression: "!has(object.spec.token)", messageExpression: "'no ' + object.spec.token"}} // §`, []string{"SECRET_IN_MESSAGE"}},
		"a message with a secret's name": {admit + `{` + match + `, validations: x: {expression: "!has(object.spec.token)", messageExpression: "'no token, ' + object.spec.owner"}}`, nil},
		"a secret by way of a variable":  {admit + `{` + match + `, variables: t: "object.spec.?token.orValue('')", validations: x: {expression: "variables.t == ''", messageExpression: "'no ' + variables.t"}} // §`, []string{"SECRET_IN_MESSAGE"}},
		"an annotation with a secret":    {admit + `{` + match + `, validations: x: expression: "!has(object.spec.token)", auditAnnotations: t: valueExpression: "'is ' + object.spec.?token.orValue('')"} // §`, []string{"SECRET_IN_MESSAGE"}},
		"a secret in a rule of the kind": {rules + `{rule: "!has(self.spec.token)", messageExpression: "'no ' + self.spec.token"} // §`, []string{"SECRET_IN_MESSAGE"}},
		"a view with a secret": {bound + role("r", `apiGroups: ["views.stele.dev"], resources: ["big"], verbs: ["list"]`) +
			`bundle: teams: a: views: big: {kind: "widgets.a.example.com", version: "v1", filter: "object.spec.token == 'x'", columns: size: {expression: "object.spec.size", type: "integer"}} // §`, []string{"VIEW_SHOWS_SECRET"}},
		"a view without the secret": {bound + role("r", `apiGroups: ["views.stele.dev"], resources: ["big"], verbs: ["list"]`) +
			`bundle: teams: a: views: big: {kind: "widgets.a.example.com", version: "v1", filter: "has(object.spec.token)", columns: size: {expression: "object.spec.size", type: "integer"}}`, nil},
		"a view of secrets": {bound + role("r", `apiGroups: ["views.stele.dev"], resources: ["big"], verbs: ["watch"]`) +
			`bundle: teams: a: views: big: {kind: "secrets", version: "v1", columns: name: {expression: "object.metadata.name", type: "string"}} // §`, []string{"VIEW_SHOWS_SECRET"}},
		"a view that nobody may read": {bound + role("r", widgets+`, verbs: ["get"]`) +
			`bundle: teams: a: views: big: {kind: "widgets.a.example.com", version: "v1", columns: size: {expression: "object.spec.size", type: "integer"}} // §`, []string{"VIEW_UNREAD"}},
		"a window for what holds secrets": {`bundle: history: windows: "widgets.a.example.com": "all" // §`, []string{"SECRET_HISTORY"}},

		"mutations that fight": {
			sets("one", 1, once, "tier: 'dev'") + "\n" + sets("two", 2, once, "tier: 'prod'") + "// §", []string{"MUTATIONS_FIGHT"}},
		"mutations that fight for some": {
			sets("one", 1, when+`"object.spec.size > 10"`, "tier: 'dev'") + "\n" + sets("two", 2, when+`"object.spec.owner == 'bob'"`, "tier: 'prod'") + "// §", []string{"MUTATIONS_FIGHT"}},
		"mutations that fight over what an optional field decides": {
			sets("one", 1, once, "tier: 'dev'") + "\n" + sets("two", 2, when+`"object.spec.?standby.orValue('') == 'yes'"`, "tier: 'prod'") + "// §", []string{"MUTATIONS_FIGHT"}},
		"mutations that fight over a label": {
			changes("one", 1, once, "ApplyConfiguration", "Object{metadata: Object.metadata{labels: {'a': 'b'}}}") + "\n" +
				changes("two", 2, once, "JSONPatch", "[JSONPatch{op: 'add', path: '/metadata/labels/a', value: object.metadata.?name.orValue('x')}]") + "// §", []string{"MUTATIONS_FIGHT"}},
		"mutations that exclude each other": {
			sets("one", 1, when+`"object.spec.owner != 'bob'"`, "tier: 'dev'") + "\n" + sets("two", 2, when+`"object.spec.owner == 'bob'"`, "tier: 'prod'"), nil},
		"mutations of different operations": {
			sets("one", 1, `match: operations: ["CREATE"]`, "tier: 'dev'") + "\n" + sets("two", 2, `match: operations: ["UPDATE"]`, "tier: 'prod'"), nil},
		"a mutation that corrects another one": {
			sets("one", 1, when+`"!has(object.spec.standby)"`, "standby: 'a'") + "\n" + sets("two", 2, when+`"has(object.spec.standby) && object.spec.standby == 'a'"`, "standby: 'b'"), nil},
		"mutations that agree": {sets("one", 1, once, "tier: 'prod'") + "\n" + sets("two", 2, again, "tier: 'prod'"), nil},
		"a mutation that adds up": {
			changes("one", 1, again, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: object.spec.size + 1}]") + "// §", []string{"MUTATION_REPEATS"}},
		"a mutation that adds up and runs once": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: object.spec.size + 1}]"), nil},
		"a mutation that stops": {
			changes("one", 1, again+", "+when+`"object.spec.size < 1000"`, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/size', value: 1000}]"), nil},
		"a mutation that a validation refuses": {
			sets("one", 1, when+`"object.spec.tier == 'prod'"`, "size: 500") + "// §\n" + admit + `{` + match + `, validations: v: expression: "object.spec.size < 100"}`, []string{"MUTATION_REFUSED"}},
		"a mutation that a validation refuses for some": {
			sets("one", 1, once, "size: 500") + "\n" + admit + `{` + match + `, validations: v: expression: "object.spec.size < 100 || object.spec.tier == 'dev'"}`, nil},
		"a mutation that a validation warns of": {
			sets("one", 1, once, "size: 500") + "\n" + admit + `{` + match + `, validationActions: ["Warn"], validations: v: expression: "object.spec.size < 100"}`, nil},
		"a mutation that another one mends": {
			sets("one", 1, when+`"object.spec.size == 7"`, "size: 500") + "\n" + sets("two", 2, when+`"object.spec.size >= 100"`, "size: 99") + "\n" +
				admit + `{` + match + `, validations: v: expression: "object.spec.size < 100"}`, nil},
		"a validation that refuses everything": {
			sets("one", 1, once, "size: 500") + "\n" + admit + `{` + match + `, validations: v: expression: "false"}`, nil},
		"a mutation that the schema refuses": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/tier', value: 'test'}]") + "// §", []string{"MUTATION_REFUSED"}},
		"a mutation that a rule of the kind refuses": {
			sets("one", 1, once, "size: 500") + "// §\n" + rules + `{rule: "self.spec.size < 100"}`, []string{"MUTATION_REFUSED"}},
		"a mutation that cannot be made": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'replace', path: '/spec/ports/0', value: 'x'}]") + "// §", []string{"MUTATION_FAILS"}},
		"a mutation that cannot be made for some": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'replace', path: '/spec/standby', value: 'x'}]"), nil},
		"a mutation that cannot be made and is ignored": {
			changes("one", 1, `failurePolicy: "Ignore"`, "JSONPatch", "[JSONPatch{op: 'replace', path: '/spec/ports/0', value: 'x'}]"), nil},
		"a mutation that changes the name": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'replace', path: '/metadata/name', value: 'x'}]") + "// §", []string{"MUTATION_REFUSED"}},
		"a mutation of what the server sets": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'add', path: '/metadata/generation', value: 7}]") + "// §", []string{"MUTATION_DROPPED"}},
		"a mutation of a field that the kind does not have": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/sizes', value: 7}]") + "// §", []string{"MUTATION_DROPPED"}},
		"a mutation of such a field and of another one": {
			changes("one", 1, once, "JSONPatch", "[JSONPatch{op: 'add', path: '/spec/sizes', value: 7}, JSONPatch{op: 'add', path: '/spec/size', value: 7}]"), nil},
		"a mutation of the status in writes of the object": {
			scaled + sets("one", 1, once, "tier: 'dev'}, status: Object.status{size: 7") + "\n" +
				changes("two", 2, once, "ApplyConfiguration", "Object{status: Object.status{ready: true}}") + "// §", []string{"MUTATION_DROPPED"}},
		"a mutation of the object in writes of the status": {
			scaled + ofSub("status", "one", 1, "Object{spec: Object.spec{size: 7}}") + "// §", []string{"MUTATION_DROPPED"}},
		"a mutation of the status in writes of it": {
			scaled + ofSub("status", "one", 1, "Object{status: Object.status{ready: true}}"), nil},
		"mutations of the status that fight": {
			scaled + ofSub("status", "one", 1, "Object{status: Object.status{ready: true}}") + "\n" + ofSub("status", "two", 2, "Object{status: Object.status{ready: false}}") + "// §", []string{"MUTATIONS_FIGHT"}},
		"mutations of the status and of the object": {
			scaled + ofSub("status", "one", 1, "Object{status: Object.status{ready: true}}") + "\n" + sets("two", 2, once, "size: 7"), nil},
		"a mutation of a status that a validation refuses": {
			scaled + ofSub("status", "one", 1, "Object{status: Object.status{ready: true}}") + "// §\n" + admit +
				`{match: {apiGroups: ["a.example.com"], resources: ["widgets/status"]}, validations: v: expression: "!has(object.status) || !object.status.?ready.orValue(false)"}`, []string{"MUTATION_REFUSED"}},
		"a mutation of Scales that adds up": {
			scaled + strings.Replace(ofSub("scale", "one", 1, "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"), once, again, 1) + "// §", []string{"MUTATION_REPEATS"}},
		"a mutation of Scales that the kind refuses": {
			scaled + ofSub("scale", "one", 1, "Object{spec: Object.spec{replicas: 500}}") + "// §\n" + rules + `{rule: "self.spec.size < 100"}`, []string{"MUTATION_REFUSED"}},
		"a mutation of Scales": {
			scaled + ofSub("scale", "one", 1, "Object{spec: Object.spec{replicas: object.spec.replicas > 50 ? 50 : object.spec.replicas}}"), nil},
		"a mutation that is allowed": {
			sets("one", 1, once, "tier: 'dev'") + "\n" + sets("two", 2, once, "tier: 'prod'") + "// stele:allow MUTATIONS_FIGHT the platform decides", nil},
		"a condition of a mutation that always holds": {
			sets("one", 1, when+`"1 < 2"`, "tier: 'dev'") + "// §", []string{"CEL_ALWAYS_TRUE"}},
		"a variable of a mutation that nothing reads": {
			sets("one", 1, `variables: v: "1"`, "tier: 'dev'") + "// §", []string{"CEL_UNREACHED"}},

		"allowed on the line":       {bound + rbac + `clusterRoles: r: rules: x: {` + widgets + `, verbs: ["*"]} // stele:allow GRANT_WILDCARD they run it`, nil},
		"allowed on the line above": {bound + "// stele:allow GRANT_WILDCARD they run it\n// for all of us\n" + rbac + `clusterRoles: r: rules: x: {` + widgets + `, verbs: ["*"]}`, nil},
		"two allowed":               {rbac + `bindings: b: {clusterRole: "cluster-admin", ` + somebody + `, namespaces: ["*"]} // stele:allow GRANT_WILDCARD,GRANT_ESCALATES operators`, nil},
		"one of two allowed":        {rbac + `bindings: b: {clusterRole: "cluster-admin", ` + somebody + `, namespaces: ["*"]} // stele:allow GRANT_WILDCARD operators §`, []string{"GRANT_ESCALATES"}},
		"nothing to allow":          {`// stele:allow GRANT_WILDCARD §`, []string{"ALLOW_UNUSED"}},
		"an unknown lint":           {`// stele:allow GRANT_WILDCRAD §`, []string{"ALLOW_UNKNOWN"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := prelude + tc.add + "\n"
			var want []string
			marked := 0
			for i, line := range strings.Split(text, "\n") {
				for range strings.Count(line, "§") {
					if marked < len(tc.want) {
						want = append(want, fmt.Sprintf("bundle.cue:%d %s", i+1, tc.want[marked]))
					}
					marked++
				}
				for ; marked > 0 && marked < len(tc.want) && strings.Contains(line, "cluster-admin"); marked++ {
					want = append(want, fmt.Sprintf("bundle.cue:%d %s", i+1, tc.want[marked]))
				}
			}
			var got []string
			for _, f := range check(t, module(map[string]string{"bundle.cue": strings.ReplaceAll(text, "§", "")}), ".") {
				got = append(got, f.Pos.String()+" "+f.Lint)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// gauges is a definition with the names, and with what is given beside its versions.
func gauges(names, rest string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gauges.a.example.com}
spec:
  group: a.example.com
  scope: Namespaced
  names: {kind: Gauge, plural: gauges` + names + `}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}` + rest + "]\n"
}

func TestLintsOfFiles(t *testing.T) {
	const embed = "@extern(embed)\n\npackage test\n\nbundle: teams: a: crds: \"gauges.a.example.com\": {...} @embed(file=gauges.yaml)\n"
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"a name that CUE does not read": {map[string]string{"access.cu": "package test\n"}, []string{"access.cu:1 FILE_NAME"}},
		"a file of something else":      {map[string]string{"README.md": "test\n"}, nil},
		"a definition in the module":    {map[string]string{"gauges.yaml": gauges("", "")}, []string{"gauges.yaml:1 DEFINITION_UNUSED"}},
		"an embedded definition":        {map[string]string{"gauges.yaml": gauges("", ""), "more.cue": embed}, nil},
		"a short name of another kind":  {map[string]string{"gauges.yaml": gauges(", shortNames: [cm]", ""), "more.cue": embed}, []string{"gauges.yaml:7 SHORT_NAME_TAKEN"}},
		"a version that is left out": {map[string]string{"gauges.yaml": gauges("", ", {name: v2, served: false, storage: false, schema: {openAPIV3Schema: {type: object, properties: {a: {type: string, format: x, enum: [{}]}}}}}"), "more.cue": embed},
			[]string{"gauges.yaml:8 DEFINITION_PART_UNUSED", "gauges.yaml:8 DEFINITION_PART_UNUSED"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.files["bundle.cue"] = prelude
			var got []string
			for _, f := range check(t, module(tc.files), ".") {
				got = append(got, f.Pos.String()+" "+f.Lint)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A comment in a package of two bundles may allow what only one of them has.
func TestCommentsOfSharedPackages(t *testing.T) {
	team := func(rest string) string {
		return "package team\n\nteam: {contact: \"#x\", groups: [\"a.example.com\"], namespaces: [\"a\"]\nrbac: clusterRoles: r: rules: x: {apiGroups: [\"\"], resources: [\"secrets\"], verbs: [\"*\"]} // stele:allow " + rest + "\n}\n"
	}
	bundle := func(name, rest string) string {
		return "package " + name + "\n\nimport (\n\"stele.dev/policy\"\n\"example.com/test/team\"\n)\n\nbundle: policy.#Bundle & {cluster: \"" + name + "\", teams: a: team.team" + rest + "}\n"
	}
	files := map[string]string{
		"team/team.cue":   team("GRANT_WILDCARD,ROLE_UNUSED they hold them"),
		"one/bundle.cue":  bundle("one", " & {rbac: bindings: b: {clusterRole: \"r\", subjects: [{group: \"g\"}], namespaces: [\"a\"]}}"),
		"two/bundle.cue":  bundle("two", ""),
		"only/bundle.cue": bundle("only", "\n// stele:allow LOCKOUT nothing of the kind\n"),
	}
	for pkg, want := range map[string][]string{"one": nil, "two": nil, "only": {"only/bundle.cue:9 ALLOW_UNUSED"}} {
		var got []string
		for _, f := range check(t, module(files), pkg) {
			got = append(got, f.Pos.String()+" "+f.Lint)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", pkg, diff)
		}
	}
}

// The examples have only findings that are allowed, and notes.
func TestExamples(t *testing.T) {
	for _, dir := range []string{"quickstart", "controller/policy", "platform/clusters/dev", "platform/clusters/prod-eu", "gitops/clusters/dev", "gitops/clusters/prod"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			source, err := bundles.ReadDir("../../examples/" + dir)
			if err != nil {
				t.Fatal(err)
			}
			compiled, diags := compile.Bundle(source)
			if len(diags) > 0 {
				t.Fatal(diags)
			}
			found, err := lint.Check(t.Context(), &lint.Bundle{Form: compiled.Form, Module: source, Used: compiled.Source, Warnings: compiled.Warnings})
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				if f.Severity != lint.Note {
					t.Errorf("%s: %s", f.Lint, f.Diagnostic())
				}
			}
		})
	}
}

// Rules that overlap in many ways, and very many findings, end in time with a note.
func TestLimits(t *testing.T) {
	form := &policy.Form{Version: policy.FormVersion}
	for i := range 400 {
		name := fmt.Sprintf("r%d", i)
		form.Roles = append(form.Roles, policy.Role{ID: "a/clusterRoles/" + name, Name: name, Source: schemas.Position{File: "a.cue", Line: i + 1}, Rules: []policy.Rule{{
			ID: "a/clusterRoles/" + name + "/x", Verbs: []string{"*"}, APIGroups: []string{"a"}, Resources: []string{"x"}, Source: schemas.Position{File: "a.cue", Line: i + 1}}}})
		form.Bindings = append(form.Bindings, policy.Binding{ID: "a/bindings/" + name, Role: name, Subjects: []policy.Subject{{Group: "g"}},
			Namespaces: []string{fmt.Sprintf("*-%d-*", i)}, Source: schemas.Position{File: "a.cue", Line: i + 1}})
	}
	source := &bundles.Source{Package: "."}
	found, err := lint.Check(t.Context(), &lint.Bundle{Form: form, Module: source, Used: source})
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	count := 0
	for _, f := range found {
		switch f.Lint {
		case "NOT_CHECKED":
			notes = append(notes, f.Path+": "+f.Message)
		case "GRANT_WILDCARD":
			count++
		}
	}
	if diff := cmp.Diff([]string{": bindings and denies were not compared: the rules overlap in too many ways",
		"GRANT_WILDCARD: there are 200 more findings of this lint, which are not shown"}, notes); diff != "" || count != 200 {
		t.Errorf("%d findings; (-want +got):\n%s", count, diff)
	}
}

// Each lint is documented, and has a text for --explain.
func TestCatalog(t *testing.T) {
	text, err := os.ReadFile("../../docs/LINTS.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var table strings.Builder
	for _, l := range lint.Lints {
		if seen[l.ID] || l.ID != strings.ToUpper(l.ID) || l.Title == "" || l.Write == "" || len(l.Long) < 20 || !strings.HasSuffix(l.Long, ".") {
			t.Errorf("%+v", l)
		}
		seen[l.ID] = true
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", l.ID, l.Severity, l.Title, l.Write)
	}
	if !strings.Contains(string(text), table.String()) {
		t.Errorf("docs/LINTS.md does not have the table of lints; it is:\n%s", table.String())
	}
}

// Findings about rules that change objects say what was tried, and show a write.
func TestFindingsInMutationsShowAWrite(t *testing.T) {
	text := prelude + sets("one", 1, again, "tier: 'dev'") + "\n" + sets("two", 2, again+", "+when+`"object.spec.owner == 'bob'"`, "tier: 'prod'") + "\n"
	found := check(t, module(map[string]string{"bundle.cue": text}), ".")
	if len(found) != 1 {
		t.Fatalf("findings: %v", found)
	}
	for _, want := range []string{`it changes /spec/tier from "dev" to "prod", and a/mutate/one/s (bundle.cue:22) changes it back, and both are reinvoked, so that they do not settle`, `create widgets.a.example.com in default by user:somebody`, `"owner":"bob"`} {
		if !strings.Contains(found[0].Message, want) {
			t.Errorf("no %q in %s", want, found[0].Message)
		}
	}
}
