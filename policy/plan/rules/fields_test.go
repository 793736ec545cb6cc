package rules_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/plantest"
	"stele.dev/stele/schemas"
)

// fields returns the paths of the fields of a type that have values, without those that only say where something is written, and
// without the compiled form of expressions, whose text is another field.
func fields(t reflect.Type, path string) (list []string) {
	switch {
	case t == reflect.TypeFor[schemas.Position]() || strings.HasSuffix(path, "/Checked"):
		return nil
	case t == reflect.TypeFor[metav1.LabelSelector]() || t.Kind() != reflect.Struct && t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer:
		return []string{path}
	case t.Kind() != reflect.Struct:
		if t.Elem().Kind() == reflect.Uint8 {
			return []string{path}
		}
		return fields(t.Elem(), path)
	}
	for i := range t.NumField() {
		f := t.Field(i)
		at := path + "/" + f.Name
		if f.Anonymous {
			at = path
		}
		list = append(list, fields(f.Type, at)...)
	}
	return list
}

// whole is a bundle whose rules have every field.
func whole(t *testing.T) string {
	const everything = `whole: {
			match: {
				apiGroups: ["data.corp.example"], apiVersions: ["v1"], resources: ["databases"], operations: ["CREATE", "UPDATE"], resourceNames: ["a", "b"], scope: "Namespaced"
				excludeResourceRules: left: {apiGroups: ["data.corp.example"], apiVersions: ["v1"], resources: ["databases"], operations: ["CREATE"], resourceNames: ["b"], scope: "Namespaced"}
				namespaceSelector: matchLabels: {source: "n1"}, objectSelector: matchLabels: {tier: "o1"}
				conditions: big: "object.spec.storageGiB > 3"
			}
			objects: others: {kind: "pipelines.delivery.corp.example", version: "v1"}
			paramKind: {apiVersion: "delivery.corp.example/v1", kind: "Pipeline"}
			paramRef: {name: "limits", namespace: "shared", parameterNotFoundAction: "Deny"}
			variables: few: "object.spec.replicas < 4"
			CHANGES
		}
		constant: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE"]}
			params: source: "p1"
			CONSTANT
		}`
	validation := strings.NewReplacer("CHANGES", `validations: first: {expression: "variables.few || objects.others.exists() || params.metadata.name != ''", message: "too many", reason: "Forbidden"}
			validations: second: {expression: "object.spec.storageGiB < 900", messageExpression: "'it is ' + string(object.spec.storageGiB)"}
			validationActions: ["Deny"]
			failurePolicy: "Fail"
			auditAnnotations: size: valueExpression: "string(object.spec.storageGiB)"`,
		"CONSTANT", `validations: first: expression: "params.source != ''"`).Replace(everything)
	mutation := strings.NewReplacer("whole:", "changes: order: 10\n\t\tchanges:", "constant:", "fixed: order: 20\n\t\tfixed:",
		"CHANGES", `mutations: first: {order: 1, patchType: "JSONPatch", expression: "[JSONPatch{op: 'replace', path: '/spec/replicas', value: variables.few || objects.others.exists() || params.metadata.name != '' ? 1 : 2}]"}
			mutations: second: {order: 2, patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{tier: 'standard'}}"}
			failurePolicy: "Fail", reinvocationPolicy: "Never"`,
		"CONSTANT", `mutations: first: {patchType: "JSONPatch", expression: "[JSONPatch{op: 'replace', path: '/spec/tenant', value: params.source}]"}`).Replace(everything)
	return plantest.Edit(t, plantest.Databases, `groups: ["data.corp.example"]`, `groups: ["data.corp.example", "more.corp.example"]`, "teams: platform:", "reads: data: [\"*\"]\n\tteams: platform:", `"databases.data.corp.example": {`, `"databases.data.corp.example": {group: "data.corp.example"`+"\n",
		`versions: v1: #schema: spec!: {paused: bool | *false}`, `versions: {v1: #schema: spec!: {paused: bool | *false}, v2: #schema: spec!: {paused: bool | *false}}`, "owned: {", validation+"\n\t\towned: {", "teams: data: admission: validate: {", "teams: data: admission: mutate: {\n"+mutation+"\n\t}\n\tteams: data: admission: validate: {")
}

// change is a change of one field of a rule: of the bundle's text, or else of the form.
type change struct {
	old, new string
	form     func(*policy.Form)
	want     []string // class and rule of the findings
	says     string   // is in a message or the details
}

// changesOfMatch are changes of the fields of a match, with the class that a check has for them.
var changesOfMatch = map[string]struct {
	edit  func(*policy.Match)
	class string
	says  string
}{
	"/Match/APIGroups":              {func(m *policy.Match) { m.APIGroups = append(m.APIGroups, "more.corp.example") }, "narrows", "apiGroups"},
	"/Match/APIVersions":            {func(m *policy.Match) { m.APIVersions = []string{"*"} }, "narrows", "apiVersions"},
	"/Match/Resources":              {func(m *policy.Match) { m.Resources = append(m.Resources, "databases/status") }, "narrows", "resources"},
	"/Match/Operations":             {func(m *policy.Match) { m.Operations = []string{"CREATE"} }, "widens", "operations"},
	"/Match/ResourceNames":          {func(m *policy.Match) { m.ResourceNames = []string{"b"} }, "widens", "resourceNames"},
	"/Match/Scope":                  {func(m *policy.Match) { m.Scope = "" }, "narrows", "scope"},
	"/Match/Exact":                  {func(m *policy.Match) { m.Exact = true }, "changes", "matchPolicy"}, // what is excluded differs, too
	"/Match/Excludes/APIGroups":     {func(m *policy.Match) { m.Excludes[0].APIGroups = []string{"*"} }, "widens", "excludeResourceRules"},
	"/Match/Excludes/APIVersions":   {func(m *policy.Match) { m.Excludes[0].APIVersions = []string{"*"} }, "widens", "excludeResourceRules"},
	"/Match/Excludes/Resources":     {func(m *policy.Match) { m.Excludes[0].Resources = []string{"*"} }, "widens", "excludeResourceRules"},
	"/Match/Excludes/Operations":    {func(m *policy.Match) { m.Excludes[0].Operations = []string{"*"} }, "widens", "excludeResourceRules"},
	"/Match/Excludes/ResourceNames": {func(m *policy.Match) { m.Excludes[0].ResourceNames = nil }, "widens", "excludeResourceRules"},
	"/Match/Excludes/Scope":         {func(m *policy.Match) { m.Excludes[0].Scope = "" }, "widens", "excludeResourceRules"},
	"/Match/NamespaceSelector": {func(m *policy.Match) {
		m.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"source": "n2"}}
	}, "changes", "namespaceSelector"},
	"/Match/ObjectSelector": {func(m *policy.Match) { m.ObjectSelector = nil }, "narrows", "objectSelector"},
	"/Match/Excludes: a new one": {func(m *policy.Match) {
		m.Excludes = append(m.Excludes, policy.Exclude{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}, Operations: []string{"UPDATE"}})
	}, "widens", "excludeResourceRules"},
	"/Match/Excludes: one is gone":    {func(m *policy.Match) { m.Excludes = nil }, "narrows", "excludeResourceRules"},
	"/Match/ResourceNames: no names":  {func(m *policy.Match) { m.ResourceNames = nil }, "narrows", "resourceNames"},
	"/Match/Operations: other writes": {func(m *policy.Match) { m.Operations, m.ResourceNames = []string{"UPDATE"}, []string{"c"} }, "changes", "operations"},
}

// A plan reports the change of every field of a validation, with its class and a sentence.
func TestEveryFieldOfAValidationIsCompared(t *testing.T) {
	reads := []string{"changes RULE_READS_CHANGED"}
	form := func(edit func(*policy.Validation)) func(*policy.Form) {
		return func(f *policy.Form) {
			edit(&f.Validations[slices.IndexFunc(f.Validations, func(r policy.Validation) bool { return r.ID == "data/validate/whole" })])
		}
	}
	cases := map[string]change{
		"/ID":                                  {old: `whole: {`, new: `other: {`, want: []string{"narrows RULE_ADDED", "widens RULE_REMOVED"}, says: "must satisfy 2 expressions more"},
		"/Params":                              {old: `source: "p1"`, new: `source: ""`, want: []string{"narrows PARAM_CHANGED"}, says: "A parameter of the rule differs."},
		"/Objects/Name":                        {form: form(func(r *policy.Validation) { r.Objects[0].Name = "them" }), want: reads, says: "The rule reads other stored objects."},
		"/Objects/Group":                       {old: `kind: "pipelines.delivery.corp.example"`, new: `kind: "configmaps"`, want: reads, says: "The rule reads other stored objects."},
		"/Objects/Resource":                    {old: `kind: "pipelines.delivery.corp.example"`, new: `kind: "databases.data.corp.example"`, want: reads, says: "The rule reads other stored objects."},
		"/Objects/Version":                     {old: `example", version: "v1"}`, new: `example", version: "v2"}`, want: reads, says: "The rule reads other stored objects."},
		"/ParamSource/Group":                   {old: `paramKind: {apiVersion: "delivery.corp.example/v1", kind: "Pipeline"}`, new: `paramKind: {apiVersion: "v1", kind: "ConfigMap"}`, want: reads, says: "as its params"},
		"/ParamSource/Resource":                {old: `apiVersion: "delivery.corp.example/v1", kind: "Pipeline"`, new: `apiVersion: "v1", kind: "Secret"`, want: reads, says: "as its params"},
		"/ParamSource/Version":                 {old: `apiVersion: "delivery.corp.example/v1"`, new: `apiVersion: "delivery.corp.example/v2"`, want: reads, says: "as its params"},
		"/ParamSource/Name":                    {old: `name: "limits"`, new: `name: "bounds"`, want: reads, says: "as its params"},
		"/ParamSource/Selector":                {old: `name: "limits"`, new: `selector: matchLabels: limits: "yes"`, want: reads, says: "as its params"},
		"/ParamSource/Namespace":               {old: `namespace: "shared"`, new: `namespace: "data-1"`, want: reads, says: "as its params"},
		"/ParamSource/Deny":                    {old: `parameterNotFoundAction: "Deny"`, new: `parameterNotFoundAction: "Allow"`, want: []string{"widens RULE_READS_CHANGED"}, says: "the rule is skipped"},
		"/ParamSource: none":                   {old: `params.metadata.name != ''`, new: `false`, form: form(func(r *policy.Validation) { r.ParamSource = nil }), want: []string{"changes RULE_CHANGED", "changes RULE_READS_CHANGED"}, says: "any more"},
		"/Variables/Name":                      {old: `variables: few:`, new: `variables: {few: "object.spec.replicas < 4"}, #not:`}, // a name says nothing
		"/Variables/Text":                      {old: `object.spec.replicas < 4`, new: `object.spec.replicas < 3`, want: []string{"changes RULE_CHANGED"}, says: "The expressions of the rule differ."},
		"/Validations/ID":                      {old: `validations: second:`, new: `validations: third:`, want: []string{"looks MESSAGE_CHANGED"}, says: "Refused users read another message."},
		"/Validations/Expression/Text":         {old: `object.spec.storageGiB < 900`, new: `object.spec.storageGiB < 800`, want: []string{"changes RULE_CHANGED"}, says: "The expressions of the rule differ."},
		"/Validations/Message":                 {old: `message: "too many"`, new: `message: "far too many"`, want: []string{"looks MESSAGE_CHANGED"}},
		"/Validations/MessageExpression/Text":  {old: `'it is '`, new: `'it was '`, want: []string{"looks MESSAGE_CHANGED"}},
		"/Validations/Reason":                  {old: `reason: "Forbidden"`, new: `reason: "Unauthorized"`, want: []string{"looks MESSAGE_CHANGED"}},
		"/Actions":                             {old: `validationActions: ["Deny"]`, new: `validationActions: ["Audit"]`, want: []string{"widens RULE_ACTION_WEAKENED"}, says: "not refused any more"},
		"/Ignore":                              {old: `failurePolicy: "Fail"`, new: `failurePolicy: "Ignore"`, want: []string{"widens RULE_FAILURE_CHANGED"}, says: "cannot be evaluated are accepted now"},
		"/Annotations/Name":                    {old: `auditAnnotations: size:`, new: `auditAnnotations: width:`, want: []string{"changes RULE_RECORDS_CHANGED"}, says: "The audit log has other annotations of the rule."},
		"/Annotations/Text":                    {old: `valueExpression: "string(object.spec.storageGiB)"`, new: `valueExpression: "string(object.spec.replicas)"`, want: []string{"changes RULE_RECORDS_CHANGED"}},
		"/Match/Conditions/Text":               {old: `object.spec.storageGiB > 3`, new: `object.spec.storageGiB > 4`, want: []string{"changes MATCH_CHANGED"}, says: "under other conditions"}, // what it reads is not known here, so no request tells
		"/Match/Conditions/Name":               {old: `conditions: big:`, new: `conditions: large:`},                                                                                            // a name says nothing
		"/Validations/ID: without any message": {old: `validations: first: expression: "params.source != ''"`, new: `validations: other: expression: "params.source != ''"`, want: []string{"looks MESSAGE_CHANGED"}},
	}
	for path, c := range changesOfMatch {
		cases[path] = change{form: form(func(r *policy.Validation) { c.edit(&r.Match) }), want: []string{c.class + " MATCH_CHANGED"}, says: c.says}
	}
	checkChanges(t, reflect.TypeFor[policy.Validation](), cases, 0)
}

// A plan reports the change of every field of a mutation, with its class and a sentence.
func TestEveryFieldOfAMutationIsCompared(t *testing.T) {
	form := func(edit func(*policy.Mutation)) func(*policy.Form) {
		return func(f *policy.Form) {
			edit(&f.Mutations[slices.IndexFunc(f.Mutations, func(r policy.Mutation) bool { return r.ID == "data/mutate/changes" })])
		}
	}
	cases := map[string]change{
		"/ID":                        {old: "changes: order: 10\n\t\tchanges: {", new: "other: order: 10\n\t\tother: {", want: []string{"changes MUTATION_ADDED", "changes MUTATION_REMOVED"}, says: "are changed by it, in place 10"},
		"/Order":                     {old: `changes: order: 10`, new: `changes: order: 30`, says: "order"},
		"/Params":                    {old: `source: "p1"`, new: `source: "p2"`, says: "params"},
		"/Objects/Name":              {form: form(func(r *policy.Mutation) { r.Objects[0].Name = "them" }), says: "objects"},
		"/Objects/Group":             {old: `kind: "pipelines.delivery.corp.example"`, new: `kind: "configmaps"`, says: "objects"},
		"/Objects/Resource":          {old: `kind: "pipelines.delivery.corp.example"`, new: `kind: "databases.data.corp.example"`, says: "objects"},
		"/Objects/Version":           {old: `example", version: "v1"}`, new: `example", version: "v2"}`, says: "objects"},
		"/ParamSource/Group":         {old: `apiVersion: "delivery.corp.example/v1", kind: "Pipeline"`, new: `apiVersion: "v1", kind: "ConfigMap"`, says: "paramRef"},
		"/ParamSource/Resource":      {old: `apiVersion: "delivery.corp.example/v1", kind: "Pipeline"`, new: `apiVersion: "v1", kind: "Secret"`, says: "paramRef"},
		"/ParamSource/Version":       {old: `apiVersion: "delivery.corp.example/v1"`, new: `apiVersion: "delivery.corp.example/v2"`, says: "paramRef"},
		"/ParamSource/Name":          {old: `name: "limits"`, new: `name: "bounds"`, says: "paramRef"},
		"/ParamSource/Selector":      {old: `name: "limits"`, new: `selector: matchLabels: limits: "yes"`, says: "paramRef"},
		"/ParamSource/Namespace":     {old: `namespace: "shared"`, new: `namespace: "data-1"`, says: "paramRef"},
		"/ParamSource/Deny":          {old: `parameterNotFoundAction: "Deny"`, new: `parameterNotFoundAction: "Allow"`, says: "paramRef"},
		"/Variables/Name":            {old: `variables: few: "`, new: `variables: more: "true", variables: few: "`, says: "variables"},
		"/Variables/Text":            {old: `object.spec.replicas < 4`, new: `object.spec.replicas < 3`, says: "variables"},
		"/Mutations/ID":              {old: `mutations: second:`, new: `mutations: third:`, says: "mutations"},
		"/Mutations/PatchType":       {form: form(func(r *policy.Mutation) { r.Mutations[0].PatchType = policy.ApplyConfiguration }), says: "mutations"},
		"/Mutations/Expression/Text": {old: `tier: 'standard'`, new: `tier: 'dev'`, says: "mutations"},
		"/Ignore":                    {old: `failurePolicy: "Fail"`, new: `failurePolicy: "Ignore"`, want: []string{"widens MUTATION_CHANGED"}, says: "accepted unchanged now"},
		"/Reinvoke":                  {old: `reinvocationPolicy: "Never"`, new: `reinvocationPolicy: "IfNeeded"`, says: "reinvocationPolicy"},
		"/Match/Conditions/Text":     {old: `object.spec.storageGiB > 3`, new: `object.spec.storageGiB > 4`, says: "match.conditions"},
		"/Match/Conditions/Name":     {old: `conditions: big:`, new: `conditions: large:`, says: "match.conditions"},
	}
	for path, c := range changesOfMatch {
		cases[path] = change{form: form(func(r *policy.Mutation) { c.edit(&r.Match) }), says: "match." + c.says}
	}
	for path, c := range cases {
		if c.want == nil {
			c.want = []string{"changes MUTATION_CHANGED"}
			cases[path] = c
		}
	}
	checkChanges(t, reflect.TypeFor[policy.Mutation](), cases, 1)
}

// checkChanges checks what a plan says of each change, and that each field of a type is changed. Texts are edited in the mutations if
// section is 1, and after them otherwise.
func checkChanges(t *testing.T, of reflect.Type, cases map[string]change, section int) {
	bundle := whole(t)
	at := strings.Index(bundle, "\n\tteams: data: admission: validate: {")
	from := plantest.Compile(t, bundle)
	changed := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(cases)) {
		c := cases[path]
		field, _, _ := strings.Cut(path, ":")
		changed[field] = true
		t.Run(path, func(t *testing.T) {
			parts := []string{bundle[at:], bundle[:at]}
			if c.old != "" {
				start := 0
				if section == 1 {
					start = strings.Index(parts[1], "changes: order: 10")
				} else {
					start = strings.Index(parts[0], "whole: {")
				}
				parts[section] = parts[section][:start] + plantest.Edit(t, parts[section][start:], c.old, c.new)
			}
			s := plan.Sides{From: from, To: plantest.Compile(t, parts[1]+parts[0])}
			if c.form != nil {
				f := clone(t, s.To.Form())
				c.form(f)
				s.To = loaded(t, f)
			}
			var got []string
			said := ""
			for _, f := range compare(t, s) {
				got = append(got, string(f.Class)+" "+f.Rule)
				said += f.Message + " " + strings.Join(f.Details, " ") + "\n"
				if f.Message == "" || !strings.HasSuffix(f.Message, ".") || f.Source.Line+f.Was.Line == 0 {
					t.Errorf("no sentence, or no line: %+v", f)
				}
			}
			if slices.Sort(got); !slices.Equal(got, c.want) || !strings.Contains(said, c.says) {
				t.Errorf("got %q, want %q and %q in\n%s", got, c.want, c.says, said)
			}
		})
	}
	for _, path := range fields(of, "") {
		if !changed[path] {
			t.Errorf("a change of the field %s is not tried: compare it in a plan", path)
		}
	}
	for path := range changed {
		if !slices.Contains(fields(of, ""), path) && !slices.ContainsFunc(fields(of, ""), func(f string) bool { return strings.HasPrefix(f, path+"/") }) {
			t.Errorf("there is no field %s", path)
		}
	}
}

// clone returns a copy of a form, without probes.
func clone(t *testing.T, f *policy.Form) *policy.Form {
	t.Helper()
	encoded, _ := f.Encode()
	copied, err := policy.DecodeForm(encoded)
	if err != nil {
		t.Fatal(err)
	}
	copied.Probes = nil
	return copied
}

// loaded loads a form whose rules may name what is not served.
func loaded(t *testing.T, f *policy.Form) *policy.Policy {
	t.Helper()
	encoded, _ := f.Encode()
	p, err := policy.New(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
