package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kschema "k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/limits/cputime"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
)

// inCEL is a bundle of a team with a kind to say something about.
const inCEL = `{
	teams: b: {
		kinds: "things.b.example.com": {
			group: "b.example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1"
			versions: v1: {
				#schema: {
					spec!: {size!: int & <=1000, names?: [...string], tags?: [string]: int, deep?: {flag?: bool}, ports?: [...{name!: string, port!: int}]}
					status?: {ready?: bool}
				}
				subresources: status: {}
				RULES
			}
		}
		kinds: "others.b.example.com": {group: "b.example.com", names: {kind: "Other", plural: "others"}, storageVersion: "v1", versions: v1: #schema: {spec!: {color!: string}}}
		rbac: clusterRoles: {
			reader: rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["get", "list"]}
			writer: rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["create", "update"]}
		}
		BODY
	}
	reads: b: ["configmaps"]
}`

func compileCEL(t *testing.T, rules, body string) []string {
	t.Helper()
	return compileTwoTeams(t, strings.NewReplacer("RULES", rules, "BODY", body).Replace(inCEL))
}

// What is wrong with an expression is said where it stands, before anything is enforced.
func TestWhatIsWrongWithAnExpressionIsSaid(t *testing.T) {
	validate := func(rest string) string {
		return `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things"]}, ` + rest + `}`
	}
	one := func(expression string) string { return validate(`validations: x: expression: "` + expression + `"`) }
	params := func(ref string) string {
		return `paramKind: {apiVersion: "v1", kind: "ConfigMap"}, paramRef: {parameterNotFoundAction: "Deny", ` + ref + `}, validations: x: expression: "params.data.a != ''"`
	}
	when := func(role, expression string) string {
		return `rbac: bindings: x: {clusterRole: "` + role + `", subjects: [{user: "u"}], namespaces: ["*"], when: "` + expression + `"}`
	}
	const inBody, inRules = "bundle.cue:29: bundle.teams.b.", "bundle.cue:21: "
	for name, tc := range map[string]struct {
		rules, body string
		want        string // part of the only line; "" for nothing wrong
	}{
		"a field of the object":           {body: one("object.spec.size < 5")},
		"a field that is not there":       {body: one("object.spec.sise < 5"), want: inBody + "admission.validate.v.validations.x.expression: in CEL: undefined field 'sise'; did you mean \"size\"?"},
		"a field of something else":       {body: one("object.metadata.size < 5"), want: inBody + "admission.validate.v.validations.x.expression: in CEL: undefined field 'size'; its fields are "},
		"a field that something else has": {body: one("object.spec.names.all(n, n == 'x') && object.spec.lables == 'x'"), want: "in CEL: undefined field 'lables'; its fields are "},
		"a field in a loop":               {body: one("object.spec.ports.all(p, p.nam != '')"), want: "undefined field 'nam'; did you mean \"name\"?$"},
		"a field in a loop over a map":    {body: one("object.spec.ports.all(i, p, p.prt > i)"), want: "undefined field 'prt'; did you mean \"port\"?$"},
		"a field of an item":              {body: one("object.spec.ports[0].nams == ''"), want: "undefined field 'nams'; did you mean \"name\"?$"},
		"an optional field":               {body: one("object.spec.?deep.?flagg.orValue(true)"), want: "undefined field 'flagg'; did you mean \"flag\"?$"},
		"a field that is asked for":       {body: one("has(object.spec.deep.flagg)"), want: "undefined field 'flagg'; did you mean \"flag\"?$"},
		"a name that is not there":        {body: one("objekt.spec.size < 5"), want: "undeclared reference to 'objekt'; did you mean \"object\"?"},
		"a comparison of types":           {body: one("object.spec.size < 'x'"), want: "< cannot be applied to int and string; convert one of them"},
		"a pattern that clients choose":   {body: one("object.metadata.name.matches(object.spec.names[0])"), want: "the pattern of matches must be a constant or one of the params"},
		"a pattern of the params":         {body: validate(`params: p: "^x", validations: x: expression: "object.metadata.name.matches(params.p)"`)},
		"something that is no condition":  {body: one("object.spec.size"), want: "its value is of type int, and must be of type bool"},
		"no CEL":                          {body: one("object.spec.size <"), want: "in CEL: Syntax error"},
		"a field of the status":           {body: one("!has(object.status) || object.status.ready")},
		"metadata":                        {body: one("object.metadata.labels['a'] == 'b' && object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')")},
		"metadata that is not there":      {body: one("object.metadata.labls['a'] == 'b'"), want: "undefined field 'labls'; did you mean \"labels\"?"},
		"the old object":                  {body: one("oldObject == null || object.spec.size >= oldObject.spec.size")},
		"the request":                     {body: one("request.operation == 'CREATE' && 'a' in request.userInfo.groups && !request.dryRun && request.verb == 'create'")},
		"a field of the request":          {body: one("request.user == 'x'"), want: "undefined field 'user'"},
		"the namespace":                   {body: one("namespaceObject.metadata.labels['a'] == 'b'")},
		"what else they may":              {body: one("authorizer.group('b.example.com').resource('things').check('delete').allowed()")},
		"Kubernetes' libraries":           {body: one("quantity('1Gi').isGreaterThan(quantity('1Mi')) && isURL('https://x') && object.spec.names.isSorted() && ip('10.0.0.1').family() == 4")},
		"a list of messages":              {body: one("object.spec.ports.all(p, p.port > 0 && p.name != '')")},
		"a map":                           {body: one("object.spec.tags.all(k, object.spec.tags[k] > 0)")},
		"a parameter":                     {body: validate(`params: max: 5, validations: x: expression: "object.spec.size < params.max"`)},
		"a parameter that is not there":   {body: validate(`params: max: 5, validations: x: expression: "object.spec.size < params.maxx"`), want: "undefined field 'maxx'; did you mean \"max\"?"},
		"params that there are not":       {body: one("object.spec.size < params.max"), want: "undeclared reference to 'params'"},
		"variables in any order":          {body: validate(`variables: {a: "variables.b + 1", b: "object.spec.size"}, validations: x: expression: "variables.a < 5"`)},
		"a variable of another type":      {body: validate(`variables: a: "object.spec.size", validations: x: expression: "variables.a < 'x'"`), want: "cannot be applied to int and string"},
		"a variable that is not there":    {body: validate(`variables: abc: "object.spec.size", validations: x: expression: "variables.acb < 5"`), want: "did you mean \"variables.abc\"?"},
		"a variable that is wrong":        {body: validate(`variables: a: "object.spec.sise", validations: x: expression: "variables.a < 5"`), want: "admission.validate.v.variables.a: in CEL: undefined field 'sise'"},
		"variables in a circle":           {body: validate(`variables: {a: "variables.b", b: "variables.a"}, validations: x: expression: "true"`), want: "names itself"},
		"a message":                       {body: validate(`validations: x: {expression: "true", messageExpression: "'size ' + string(object.spec.size)"}`)},
		"a message that is no text":       {body: validate(`validations: x: {expression: "true", messageExpression: "object.spec.size"}`), want: "messageExpression: in CEL: its value is of type int, and must be of type string"},
		"a condition of the match":        {body: validate(`match: conditions: c: "request.name", validations: x: expression: "true"`), want: "match.conditions.c: in CEL: its value is of type string, and must be of type bool"},
		"a loop over a list":              {body: one("object.spec.names.all(a, a.matches('^[a-z]+$'))")},
		"loops within loops":              {body: one("object.spec.names.all(a, object.spec.names.all(b, object.spec.names.all(c, a + b != c)))"), want: "times what an expression may cost at most"},
		"a kind that is not there":        {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["thinks"]}, validations: x: expression: "true"}`, want: "no kind is matched: \"thinks\" is not served in these apiGroups; did you mean \"things\"?"},
		"a kind that is not there, of two": {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things", "thinks"]}, validations: x: expression: "false"}`,
			want: `admission.validate.v.match.resources.1: "thinks" is not served in the API group "b.example.com"; did you mean "things"?`},
		"a subresource that is not there": {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things/exec"]}, validations: x: expression: "false"}`,
			want: `admission.validate.v.match.resources.0: "things/exec" is not served in the API group "b.example.com"`},
		"all subresources":                    {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things/*"]}, validations: x: expression: "object.spec.size < 5"}`},
		"several kinds":                       {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things", "others"]}, validations: x: expression: "object.metadata.name != 'x'"}`},
		"several kinds, and a field of one":   {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things", "others"]}, validations: x: expression: "object.spec.size < 5"}`, want: "undefined field 'size' (objects may be b.example.com/v1, Kind=Other)"},
		"any kind, whose fields nobody knows": {body: `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["*"]}, validations: x: expression: "object.spec.size < 5"}`},
		"the object of a delete": {body: validate(`match: operations: ["DELETE"], validations: x: expression: "object.spec.size < 5"`),
			want: inBody + "admission.validate.v.validations.x.expression: object is null on DELETE, so this cannot be evaluated then: no such key: spec; write oldObject, or \"object == null || …\""},
		"the object of any write":             {body: validate(`match: operations: ["*"], validations: x: expression: "object.spec.size < 5"`), want: "object is null on DELETE"},
		"the old object of a create":          {body: one("oldObject.spec.size < 5"), want: "oldObject is null on CREATE, so this cannot be evaluated then: no such key: spec; write object, or \"oldObject == null || …\""},
		"the old object of an update":         {body: validate(`match: operations: ["UPDATE"], validations: x: expression: "oldObject.spec.size < object.spec.size"`)},
		"both objects of a create":            {body: one("oldObject.spec.size <= object.spec.size"), want: "oldObject is null on CREATE"},
		"the object, if there is one":         {body: validate(`match: operations: ["*"], validations: x: expression: "object == null || object.spec.size < 5"`)},
		"the object, but of a delete":         {body: validate(`match: operations: ["*"], validations: x: expression: "request.operation == 'DELETE' || object.spec.size < 5"`)},
		"the object, but for some":            {body: validate(`match: operations: ["DELETE"], validations: x: expression: "object.spec.size < 5 || 'x' in request.userInfo.groups"`)},
		"the object, if parameters say so":    {body: validate(`params: checked: true, match: operations: ["DELETE"], validations: x: expression: "!params.checked || object.spec.size < 5"`), want: "object is null on DELETE"},
		"the object, unless parameters do":    {body: validate(`params: checked: false, match: operations: ["DELETE"], validations: x: expression: "!params.checked || object.spec.size < 5"`)},
		"the object, by way of variables":     {body: validate(`match: operations: ["DELETE"], variables: {a: "variables.b + 1", b: "object.spec.size"}, validations: x: expression: "variables.a < 5"`), want: "object is null on DELETE, so this cannot be evaluated then: no such key: spec"},
		"the object in a variable not needed": {body: validate(`match: operations: ["DELETE"], variables: b: "object.spec.size", validations: x: expression: "object == null || variables.b < 5"`)},
		"the object in a loop":                {body: validate(`match: operations: ["DELETE"], validations: x: expression: "object.spec.names.all(n, n != '')"`), want: "object is null on DELETE"},
		"the object behind a condition":       {body: validate(`match: {operations: ["*"], conditions: c: "request.operation != 'DELETE'"}, validations: x: expression: "object.spec.size < 5"`)},
		"the object in a condition":           {body: validate(`match: {operations: ["DELETE"], conditions: c: "object.spec.size < 5"}, validations: x: expression: "false"`), want: "admission.validate.v.match.conditions.c: object is null on DELETE"},
		"what fails with any object":          {body: validate(`match: operations: ["DELETE"], validations: x: expression: "[1][2] == 1 || object.spec.size < 5"`), want: "object is null on DELETE"},
		"what fails without one":              {body: validate(`match: operations: ["DELETE"], validations: x: expression: "[1][2] == 1"`)},
		"no operation":                        {body: validate(`match: operations: [], validations: x: expression: "true"`), want: "admission.validate.v.match.operations: it matches no request; there are CREATE, UPDATE and DELETE, and * for all of them"},
		"an operation that nobody asks for":   {body: validate(`match: operations: ["CONNECT"], validations: x: expression: "true"`), want: "it matches no request"},
		"that operation among others":         {body: validate(`match: operations: ["CONNECT", "UPDATE"], validations: x: expression: "true"`)},
		"Deny and Warn":                       {body: validate(`validationActions: ["Deny", "Warn"], validations: x: expression: "true"`), want: "Deny and Warn together"},
		"an action twice":                     {body: validate(`validationActions: ["Audit", "Audit"], validations: x: expression: "true"`), want: "admission.validate.v.validationActions.1: Audit is there twice"},
		"a message of two lines":              {body: validate(`validations: x: {expression: "true", message: "one\ntwo"}`), want: "admission.validate.v.validations.x.message: a message is one line"},
		"a message that ends a line":          {body: validate(`validations: x: {expression: "true", message: "one\n"}`)},
		"a message of spaces":                 {body: validate(`validations: x: {expression: "true", message: " "}`), want: "admission.validate.v.validations.x.message: a message of spaces says nothing"},
		"a param with a name":                 {body: validate(params(`name: "limits.v1"`))},
		"a param that nobody can create":      {body: validate(params(`name: "Limits of all"`)), want: "admission.validate.v.paramRef.name: no configmaps can have the name \"Limits of all\"; a lowercase RFC 1123 subdomain"},
		"a param where nobody can create it":  {body: validate(params(`name: "limits", namespace: "a.b"`)), want: "admission.validate.v.paramRef.namespace: no namespaces can have the name \"a.b\"; must not contain dots"},
		"a selector that is none":             {body: validate(`match: objectSelector: matchExpressions: [{key: "a", operator: "Inn"}], validations: x: expression: "true"`), want: "match.objectSelector: "},
		"another field in a selector":         {body: validate(`match: objectSelector: matchLabel: a: "b", validations: x: expression: "true"`), want: `unknown field "matchLabel"`},
		"somebody else's group":               {body: `admission: validate: v: {match: {apiGroups: ["c.example.com"], resources: ["things"]}, validations: x: expression: "true"}`, want: "bundle.cue:29: bundle.teams.b.admission.validate.v.match.apiGroups.0: "},

		"a grant under a condition":              {body: when("reader", "request.namespace.startsWith('a') || request.verb == 'get'")},
		"a condition that is wrong":              {body: when("reader", "request.nmespace == 'a'"), want: inBody + "rbac.bindings.x.when: in CEL: undefined field 'nmespace'; did you mean \"namespace\"?"},
		"a condition on the object":              {body: when("writer", "object.spec.size < 5 && (oldObject == null || oldObject.spec.size < 5)")},
		"a condition on the object, of its kind": {body: when("writer", "object.spec.color == 'red'"), want: "undefined field 'color'"},
		"a condition on the object that is read": {body: when("reader", "object.spec.size < 5"), want: `rbac.bindings.x.when: a condition on the object cannot be decided for the verb "get" of rule b/clusterRoles/reader/r (bundle.cue:26)`},
		"a condition on the object of admins":    {body: when("cluster-admin", "object.metadata.name == 'x'"), want: `cannot be decided for the verb "*"`},
		"a condition on the object before":       {body: when("writer", "oldObject.spec.size < 5"), want: "rbac.bindings.x.when: oldObject is null on create, so this cannot be evaluated then: no such key: spec; write object, or \"oldObject == null || …\""},
		"a condition but of a create":            {body: when("writer", "request.verb == 'create' || oldObject.spec.size < 5")},
		"an exception by the object of a delete": {body: `rbac: denies: d: {subjects: [{group: "g"}], rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no", unless: "object.spec.size < 5"}`, want: "rbac.denies.d.unless: object is null on delete, so this cannot be evaluated then: no such key: spec; write oldObject, or \"object == null || …\""},
		"an exception by what is deleted":        {body: `rbac: denies: d: {subjects: [{group: "g"}], rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no", unless: "oldObject.spec.size < 5"}`},
		"an exception":                           {body: `rbac: denies: d: {subjects: [{group: "g"}], rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no", unless: "'x' in request.userInfo.groups"}`},
		"an exception that is wrong":             {body: `rbac: denies: d: {subjects: [{group: "g"}], rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["delete"]}, reason: "no", unless: "'x' in request.userInfo.gruops"}`, want: "rbac.denies.d.unless: in CEL: undefined field 'gruops'; did you mean \"groups\"?"},

		"a rule of the schema":                {rules: `validations: grow: {path: "spec.size", rule: "self >= oldSelf", message: "it can only grow"}`},
		"a rule on the whole":                 {rules: `validations: whole: {rule: "self.spec.size > 1 && self.metadata.name != 'x'", messageExpression: "'not ' + string(self.spec.size)"}`},
		"a rule on metadata":                  {rules: `validations: whole: rule: "self.metadata.labels['x'] == 'y'"`, want: inRules + "things.b.example.com/validations/whole.rule: in CEL: undefined field 'labels'"},
		"a rule on a field that is not there": {rules: `validations: r: {path: "spec.sise", rule: "self > 1"}`, want: "things.b.example.com/validations/r.path: the schema says nothing of spec.sise; did you mean \"size\"?"},
		"a rule with a path that is none":     {rules: `validations: r: {path: "spec..size", rule: "self > 1"}`, want: `"spec..size" is no path`},
		"a rule on items":                     {rules: `validations: r: {path: "spec.ports[*]", rule: "self.port > 0"}`},
		"a rule on values":                    {rules: `validations: r: {path: "spec.tags[*]", rule: "self > oldSelf"}`},
		"a transition of items":               {rules: `validations: r: {path: "spec.ports[*].port", rule: "self > oldSelf"}`, want: "oldSelf cannot be used for the items of a list"},
		"a rule of another type":              {rules: `validations: r: {path: "spec.size", rule: "self == 'x'"}`, want: "cannot be applied to int and string"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := compileCEL(t, tc.rules, tc.body)
			switch {
			case tc.want == "" && len(lines) > 0:
				t.Errorf("said %q", lines)
			case tc.want != "" && (len(lines) != 1 || !strings.Contains(lines[0]+"$", tc.want)):
				t.Errorf("said %q\nwant %q", lines, tc.want)
			}
		})
	}
}

// What expressions see of an object is what its schema says it is.
func TestWhatExpressionsSee(t *testing.T) {
	const schema = `{
	teams: b: {
		kinds: "things.b.example.com": {group: "b.example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1", versions: v1: #schema: spec!: {
			num!: int, ratio!: number, whole!: number, text!: string, flag!: bool, null?: null | string
			"for"?: string, "with-dash"?: string, list?: [...int], items?: [...{name!: string, at!: int}], map?: [string]: int
			open?: {...}, either?: int | string, deep?: {er?: {value?: int}}, namespace?: string
		}}
		admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things"], operations: ["UPDATE"]}
			params: {a: 1, b: ["x", "y"], c: {d: true}, e: 1.5, f: {}}
			variables: {double: "object.spec.num * 2", names: "object.spec.items.map(i, i.name)"}
			validations: {VALIDATIONS}
		}
		rbac: clusterRoles: reader: rules: r: {apiGroups: ["b.example.com"], resources: ["things"], verbs: ["get"]}
		rbac: bindings: r: {clusterRole: "reader", subjects: [{user: "u"}], namespaces: ["ns"]}
	}
}`
	hold := []string{
		"object.spec.num == 5 && object.spec.num + 1 == 6",
		"object.spec.ratio > 0.5 && object.spec.whole + 0.5 == 2.5", // a whole number of a field that may have fractions
		"object.spec.text.startsWith('te') && object.spec.flag",
		"object.spec.__for__ == 'x' && object.spec.with__dash__dash == 'y'",
		"object.spec.namespace == 'n'",
		"!has(object.spec.either) && !has(object.spec.deep.er.value) && has(object.spec.deep.er)",
		"object.spec.list == [1, 2] && object.spec.list.sum() == 3 && 2 in object.spec.list",
		"object.spec.items.exists(i, i.name == 'b' && i.at == 2) && object.spec.items[0].name == 'a'",
		"object.spec.items == oldObject.spec.items && object.spec == oldObject.spec && object != null",
		"object.spec.map['k'] == 1 && object.spec.map.all(k, object.spec.map[k] == 1) && size(object.spec.map) == 1",
		"object.spec.open.anything.goes == 'yes' && object.spec.open.number == 3",
		"object.apiVersion == 'b.example.com/v1' && object.kind == 'Thing' && object.metadata.name == 'thing' && object.metadata.namespace == 'ns'",
		"object.metadata.labels['team'] == 'x' && !has(object.metadata.annotations) && object.metadata.finalizers == ['f']",
		"object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z') && object.metadata.ownerReferences[0].name == 'owner'",
		"oldObject.metadata.generation == 3 && !has(object.metadata.deletionTimestamp)",
		"params.a == 1 && params.b == ['x', 'y'] && params.c.d && params.e == 1.5 && size(params.f) == 0",
		"variables.double == 10 && variables.names == ['a', 'b'] && variables.double + variables.double == 20",
		"request.verb == 'update' && request.operation == 'UPDATE' && request.namespace == 'ns' && request.name == 'thing'",
		"request.userInfo.username == 'u' && request.userInfo.groups == ['g'] && request.userInfo.extra['k'] == ['v'] && request.userInfo.uid == '7'",
		"request.kind.kind == 'Thing' && request.resource.resource == 'things' && request.resource.version == 'v1' && request.subResource == '' && request.dryRun",
		"namespaceObject.metadata.labels['env'] == 'prod'",
		"authorizer.group('b.example.com').resource('things').namespace('ns').check('get').allowed()",
		"!authorizer.group('b.example.com').resource('others').check('get').allowed() && !authorizer.requestResource.check('delete').allowed()",
	}
	var list strings.Builder
	for i, e := range hold {
		fmt.Fprintf(&list, "v%02d: expression: %q\n", i, e)
	}
	p := loaded(t, strings.Replace(schema, "VALIDATIONS", list.String(), 1))
	v := p.Version(kschema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"})
	object := func() *policy.Object {
		return &policy.Object{
			Meta: &metav1.ObjectMeta{Name: "thing", Namespace: "ns", Labels: map[string]string{"team": "x"}, Finalizers: []string{"f"}, Generation: 3,
				CreationTimestamp: metav1.Unix(1700000000, 0), OwnerReferences: []metav1.OwnerReference{{Name: "owner"}}},
			Content: map[string]any{"spec": map[string]any{
				"num": int64(5), "ratio": 0.75, "whole": int64(2), "text": "text", "flag": true, "for": "x", "with-dash": "y", "namespace": "n",
				"list": []any{int64(1), int64(2)}, "items": []any{map[string]any{"name": "a", "at": int64(1)}, map[string]any{"name": "b", "at": int64(2)}},
				"map": map[string]any{"k": int64(1)}, "open": map[string]any{"anything": map[string]any{"goes": "yes"}, "number": int64(3)},
				"deep": map[string]any{"er": map[string]any{}},
			}},
		}
	}
	found := admission.MustOf(p).Validate(t.Context(), v, &admission.Attributes{
		Request: &policy.Request{User: "u", UID: "7", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}, Verb: "update", IsResource: true,
			Group: "b.example.com", Version: "v1", Resource: "things", Namespace: "ns", Name: "thing"},
		Operation: policy.Update, DryRun: true, Object: object(), Old: object(),
		Namespace: func() *policy.Object {
			return &policy.Object{Meta: &metav1.ObjectMeta{Name: "ns", Labels: map[string]string{"env": "prod"}}}
		},
	})
	for _, f := range found {
		t.Errorf("%s: %s", f.Rule, f.Message)
	}
	if rules := admission.MustOf(p); len(v.Rules) != 0 || !rules.Validates(v, "", policy.Update) || rules.Validates(v, "", policy.Delete) || rules.Validates(v, "status", policy.Update) {
		t.Error("the rule is about other requests than it says")
	}
}

// Where the type of an object is not known, its fields have the names that they have in
// JSON; and the fields of a map always come in one order.
func TestWhatExpressionsSeeOfAnyObject(t *testing.T) {
	const schema = `{
	teams: b: {
		kinds: "things.b.example.com": {group: "b.example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1", versions: v1: {
			#schema: spec!: {"host-net"?: bool, map?: [string]: int}
			validations: order: {path: "spec.map", rule: "self.map(k, k) == ['a', 'b', 'c', 'd', 'e']"}
		}}
		admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["*"]}
			validations: index: expression: "'host-net' in object.spec && object.spec['host-net'] && object.spec.all(k, k in object.spec)"
			validations: equal: expression: "object.spec.map == {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5} && {'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5} == object.spec.map"
			validations: order: expression: "object.spec.map.map(k, k)[0] == 'a' && object.spec.map(k, k) == ['host-net', 'map']"
		}
	}
}`
	p := loaded(t, schema)
	v := p.Version(kschema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"})
	for range 50 {
		object := &policy.Object{Meta: &metav1.ObjectMeta{Name: "x"}, Content: map[string]any{"spec": map[string]any{
			"host-net": true, "map": map[string]any{"a": int64(1), "b": int64(2), "c": int64(3), "d": int64(4), "e": int64(5)}}}}
		for _, f := range admission.MustOf(p).Validate(t.Context(), v, &admission.Attributes{Request: &policy.Request{}, Operation: policy.Create, Object: object}) {
			t.Fatalf("%s: %s", f.Rule, f.Message)
		}
		if errs, _ := v.ValidateRules(t.Context(), object, nil); len(errs) > 0 {
			t.Fatal(errs)
		}
	}
}

// A rule whose conditions are not all met is not about the request, also if another of its
// conditions cannot be evaluated.
func TestMatchConditionsThatCannotBeEvaluated(t *testing.T) {
	p := loaded(t, strings.NewReplacer("RULES", "", "BODY", `
		admission: validate: one: {match: {apiGroups: ["b.example.com"], resources: ["things"], conditions: {a: "object.metadata.labels['x'] == 'y'", b: "request.name == 'no'"}}, validations: x: expression: "false"}
		admission: validate: two: {match: {apiGroups: ["b.example.com"], resources: ["things"], conditions: {a: "object.metadata.labels['x'] == 'y'", b: "true"}}, validations: x: expression: "true"}
	`).Replace(inCEL))
	v := p.Version(kschema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"})
	found := admission.MustOf(p).Validate(t.Context(), v, &admission.Attributes{Request: &policy.Request{}, Operation: policy.Create, Object: &policy.Object{Meta: &metav1.ObjectMeta{}}})
	if len(found) != 1 || found[0].Rule != "b/validate/two" || !strings.Contains(found[0].Message, "condition a: ") {
		t.Errorf("%+v", found)
	}
}

// A single call that would do or make far more than its arguments are long is refused
// before it begins.
func TestCallsThatWouldDoTooMuch(t *testing.T) {
	for expression, want := range map[string]string{
		"object.spec.long.replace('x', object.spec.long) != ''":            "replace was given a text of more than 4 MiB",
		"object.spec.many.join(object.spec.long) != ''":                    "join was given a text of more than 4 MiB",
		"object.spec.some.map(x, object.spec.long).join() != ''":           "join was given a text of more than 4 MiB",
		"sets.equivalent(object.spec.many, object.spec.many)":              "running out of cost budget",
		"sets.contains(object.spec.many, object.spec.many)":                "running out of cost budget",
		"object.spec.many.distinct().size() > 0":                           "running out of cost budget",
		"object.spec.long.indexOf(object.spec.long + 'y') < 0":             "indexOf was given arguments of that size",
		"object.spec.precise.format([1.5]) != ''":                          "format was given a format with such a precision",
		"quantity(object.spec.huge).isGreaterThan(quantity('1'))":          "quantity was given a number of that size",
		"isQuantity(object.spec.long)":                                     "isQuantity was given a number of that size",
		"isSemver(object.spec.long)":                                       "isSemver was given a version of that length",
		"object.spec.long.find(object.spec.pattern) != ''":                 "find was given arguments of that size",
		"object.spec.few.replace('a', 'b') == 'b' && 'a'.find('a') == 'a'": "",
		"['a', 'b', 'a'].distinct().join('-') == 'a-b' && sets.contains([1, 2], [1]) && '%.2f'.format([1.5]) == '1.50' && lists.range(3) == [0, 1, 2]": "",
	} {
		t.Run(expression, func(t *testing.T) {
			p := loaded(t, strings.ReplaceAll(`{
	teams: b: {
		kinds: "things.b.example.com": {group: "b.example.com", names: {kind: "Thing", plural: "things"}, storageVersion: "v1", versions: v1: #schema: spec!: {...}}
		admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["*"]}, validations: x: expression: "EXPRESSION"}
	}
}`, "EXPRESSION", expression))
			many := make([]any, 20_000)
			for i := range many {
				many[i] = fmt.Sprint(i)
			}
			attributes := &admission.Attributes{
				Request: &policy.Request{}, Operation: policy.Create, Object: &policy.Object{Meta: &metav1.ObjectMeta{}, Content: map[string]any{"spec": map[string]any{
					"long": strings.Repeat("x", 64<<10), "many": many, "some": many[:100], "precise": "%.1000000000f", "few": "a", "huge": "1e1000000000", "pattern": "(?:x{0,30}){0,30}y",
				}}},
			}
			var found []admission.Finding
			cputime.Within(t, 5*time.Second, func() {
				found = admission.MustOf(p).Validate(t.Context(), p.Version(kschema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"}), attributes)
			})
			switch {
			case want == "" && len(found) > 0:
				t.Error(found[0].Message)
			case want != "" && (len(found) != 1 || !strings.Contains(found[0].Message, want)):
				t.Errorf("%+v, want %s", found, want)
			}
		})
	}
}

// An expression that would run for ever ends, and refuses.
func TestExpressionsEnd(t *testing.T) {
	p := loaded(t, strings.NewReplacer("RULES", "", "BODY", `admission: validate: v: {match: {apiGroups: ["b.example.com"], resources: ["things"]}
		validations: x: expression: "object.spec.names.all(a, a != 'y')"
	}`).Replace(inCEL))
	v := p.Version(kschema.GroupVersionResource{Group: "b.example.com", Version: "v1", Resource: "things"})
	many := make([]any, 400_000)
	for i := range many {
		many[i] = "x"
	}
	found := admission.MustOf(p).Validate(t.Context(), v, &admission.Attributes{Request: &policy.Request{}, Operation: policy.Create,
		Object: &policy.Object{Meta: &metav1.ObjectMeta{}, Content: map[string]any{"spec": map[string]any{"names": many}}}})
	if len(found) != 1 || !found[0].Denies() || !strings.Contains(found[0].Message, "evaluation took too long") {
		t.Errorf("found %+v", found)
	}
}
