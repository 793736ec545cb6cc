package rules_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/admission"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/access"
	"stele.dev/stele/policy/plan/plantest"
	"stele.dev/stele/policy/plan/rules"
	"stele.dev/stele/schemas"
)

func compare(t testing.TB, s plan.Sides) []plan.Finding {
	t.Helper()
	findings, err := rules.Compare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// lines returns the findings in short: class, rule, path and evidence.
func lines(findings []plan.Finding) (list []string) {
	for _, f := range findings {
		list = append(list, strings.Join([]string{string(f.Class), f.Rule, f.Path, string(f.Evidence)}, " "))
	}
	slices.Sort(list)
	return list
}

// rare is true for no generated request.
const rare = `(has(object.spec.owner) && object.spec.owner.matches('^z[.]y{30}@corp'))`

const limit, tenant, owned = "data/validate/storage-limit", "data/validate/own-tenant", "data/validate/owned"

// A parameter that is null is there, for has.
func TestANullIsNotAMissingParameter(t *testing.T) {
	with := func(params string) string {
		return plantest.Edit(t, plantest.Databases, "owned: {", `given: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			params: {`+params+`}
			validations: given: expression: "has(params.none)"
		}
		owned: {`)
	}
	found := compare(t, plantest.Sides(t, with(""), with("none: null")))
	if got := lines(found); !slices.Equal(got, []string{"widens PARAM_CHANGED data/validate/given/params.none shown"}) || found[0].After != "null" {
		t.Errorf("%v", found)
	}
}

// The form of a check shows the direction only if all else that the rule decides by is equal.
func TestTheFormOfACheckProvesNothingAboutRulesThatDifferOtherwise(t *testing.T) {
	const check, head = `object.spec.storageGiB <= params.maxGiB`, `"storage-limit": {`
	bundle := plantest.Edit(t, plantest.Databases, "teams: platform:", "reads: data: [\"*\"]\n\tteams: platform:")
	for name, c := range map[string]struct {
		from, to []string // edits of the bundle
		want     string
	}{
		"more is refused, and errors are not": {[]string{head, head + `failurePolicy: "Ignore"` + "\n"}, []string{head, head + `failurePolicy: "Ignore"` + "\n", check, check + ` && !` + rare}, "narrows RULE_CHANGED " + limit + " possible"},
		"another failure policy":              {nil, []string{head, head + `failurePolicy: "Ignore"` + "\n", check, check + ` || ` + rare}, "changes RULE_CHANGED " + limit + " possible"},
		"another match":                       {nil, []string{head, head + `match: scope: "Namespaced"` + "\n", check, check + ` || ` + rare}, "changes RULE_CHANGED " + limit + " possible"},
		"more stored objects":                 {nil, []string{head, head + `objects: others: {kind: "pipelines.delivery.corp.example", version: "v1"}` + "\n", check, check + ` || ` + rare + ` && objects.others.exists()`}, "changes RULE_CHANGED " + limit + " possible"},
	} {
		t.Run(name, func(t *testing.T) {
			found := compare(t, plantest.Sides(t, plantest.Edit(t, bundle, c.from...), plantest.Edit(t, bundle, c.to...)))
			if got := lines(found); !slices.Contains(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

func TestChangesOfRules(t *testing.T) {
	for _, c := range []struct {
		name string
		edit []string // of the bundle: pairs of old and new
		want []string
		has  string // in the JSON of the findings
	}{
		{"nothing", nil, nil, ""},
		{"other words", []string{`object.spec.storageGiB <= params.maxGiB`, `( params.maxGiB >= object.spec.storageGiB )`}, nil, ""},
		{"another order", []string{`object.spec.tier != 'critical' || object.spec.replicas >= params.minReplicas`, `params.minReplicas <= object.spec.replicas || !(object.spec.tier == 'critical')`}, nil, ""},
		{"a parameter", []string{`maxGiB: 500`, `maxGiB: 300`}, []string{"narrows PARAM_CHANGED " + limit + "/params.maxGiB shown"}, `"before":"500","after":"300"`},
		{"two parameters", []string{`maxGiB: 500, minReplicas: 1`, `maxGiB: 300, minReplicas: 3`},
			[]string{"narrows PARAM_CHANGED " + limit + "/params.maxGiB shown", "narrows PARAM_CHANGED " + limit + "/params.minReplicas shown"}, `"after":"too`},
		{"a parameter that allows more", []string{`maxGiB: 500`, `maxGiB: 5000`}, []string{"widens PARAM_CHANGED " + limit + "/params.maxGiB shown"}, `"after":"accepted"`},
		{"a parameter beyond the schema", []string{`minReplicas: 1`, `minReplicas: 0`}, []string{"changes PARAM_CHANGED " + limit + "/params.minReplicas possible"}, "generated requests"},
		{"a rule less", []string{`"own-tenant": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			validations: same: {expression: "!has(object.spec.tenant) || 'tenant-' + object.spec.tenant in request.userInfo.groups", message: "use your own tenant"}
		}`, ``}, []string{"widens RULE_REMOVED " + tenant + " proved"}, ""},
		{"a rule more", []string{`owned: {`, `small: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			validations: small: {expression: "object.spec.replicas < 5", message: "small"}
		}
		owned: {`}, []string{"narrows RULE_ADDED data/validate/small proved"}, ""},
		{"a rule that refuses more", []string{`object.spec.storageGiB <= params.maxGiB`, `object.spec.storageGiB < params.maxGiB`}, []string{"narrows RULE_TIGHTENED " + limit + " shown"}, `"storageGiB":500`},
		{"a rule that refuses less", []string{`object.spec.storageGiB <= params.maxGiB`, `object.spec.storageGiB <= params.maxGiB || object.spec.tier == 'critical'`}, []string{"widens RULE_LOOSENED " + limit + " shown"}, `critical`},
		{"a rule that refuses others", []string{`object.spec.tier != 'critical' ||`, `object.spec.tier != 'standard' ||`, `minReplicas: 1`, `minReplicas: 1`}, []string{"changes RULE_CHANGED " + limit + " possible"}, ""},
		{"an alternative that no generated request has", []string{`object.spec.storageGiB <= params.maxGiB`, `object.spec.storageGiB <= params.maxGiB || ` + rare},
			[]string{"widens RULE_CHANGED " + limit + " proved"}, "Its form shows that it accepts all that it accepted"},
		{"an alternative that is evaluated first", []string{`object.spec.storageGiB <= params.maxGiB`, rare + ` || object.spec.storageGiB <= params.maxGiB`},
			[]string{"widens RULE_CHANGED " + limit + " possible"}, "it accepts all that it accepted, as long as it can be evaluated"},
		{"an exception that no generated request has", []string{`object.spec.storageGiB <= params.maxGiB`, `object.spec.storageGiB <= params.maxGiB && !(` + rare + `)`},
			[]string{"narrows RULE_CHANGED " + limit + " proved"}, "Its form shows that it refuses all that it refused"},
		{"an exception that is evaluated first", []string{`object.spec.storageGiB <= params.maxGiB`, `!(` + rare + `) && object.spec.storageGiB <= params.maxGiB`},
			[]string{"narrows RULE_CHANGED " + limit + " possible"}, "it refuses all that it refused, as long as it can be evaluated"},
		{"a rule about the user", []string{`'tenant-' + object.spec.tenant in request.userInfo.groups"`, `'tenant-' + object.spec.tenant in request.userInfo.groups || request.userInfo.username == 'root'"`}, []string{"widens RULE_LOOSENED " + tenant + " shown"}, "user:root"},
		{"a rule that refuses now", []string{`validationActions: ["Warn", "Audit"]`, `validationActions: ["Deny"]`}, []string{"narrows RULE_ACTION_STRENGTHENED " + owned + " proved"}, ""},
		{"a rule that only warns", []string{`"own-tenant": {`, `"own-tenant": {
			validationActions: ["Warn"]`}, []string{"widens RULE_ACTION_WEAKENED " + tenant + " proved"}, ""},
		{"a reason", []string{`message: "too large"`, `message: "too large", reason: "Forbidden"`}, []string{"looks MESSAGE_CHANGED " + limit + " proved"}, "reason Forbidden"},
		{"a message that is an expression", []string{`message: "too large"`, `messageExpression: "'too' + ' large'"`}, []string{"looks MESSAGE_CHANGED " + limit + " proved"}, "expression"},
		{"a message", []string{`message: "too large"`, `message: "much too large"`}, []string{"looks MESSAGE_CHANGED " + limit + " proved"}, ""},
		{"fewer operations", []string{`"own-tenant": {
			match: {`, `"own-tenant": {
			match: {operations: ["CREATE"], `}, []string{"widens MATCH_CHANGED " + tenant + " proved"}, ""},
		{"a match condition", []string{`"own-tenant": {
			match: {`, `"own-tenant": {
			match: {conditions: "not-admins": "!('sre' in request.userInfo.groups)", `}, []string{"widens MATCH_CHANGED " + tenant + " shown"}, "sre"},
		{"the default of a field that a condition reads", []string{`tier:       *"dev" | "standard" | "critical"`, `tier:       "dev" | *"standard" | "critical"`},
			[]string{"breaks CONDITION_MEETS_DEFAULT data/bindings/self-service shown", "changes CONDITION_MEETS_DEFAULT " + limit + "/critical possible"}, `because the default changed`},
		{"a value that a condition compares with", []string{`tier:       *"dev" | "standard" | "critical"`, `tier:       *"small" | "standard" | "critical"`},
			[]string{"breaks CONDITION_MEETS_DEFAULT data/bindings/self-service shown", "changes CONDITION_MEETS_DEFAULT " + limit + "/critical possible", "changes CONDITION_NEVER_HOLDS data/bindings/self-service proved"}, `object.spec.tier == \"dev\"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := plantest.Sides(t, plantest.Databases, plantest.Edit(t, plantest.Databases, c.edit...))
			found := compare(t, s)
			slices.Sort(c.want)
			if got := lines(found); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			data, err := json.Marshal(found)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), c.has) {
				t.Errorf("%q is not in %s", c.has, data)
			}
			again, err := json.Marshal(compare(t, s))
			if err != nil || string(again) != string(data) {
				t.Errorf("the second comparison differs: %s, %v", again, err)
			}
			for _, f := range found {
				if x := f.Counterexample; (x != nil) != (f.Evidence == plan.Shown) || x != nil && (x.Before == "accepted") == (x.After == "accepted") {
					t.Errorf("not a counterexample: %+v", f)
				}
				if f.Message == "" || f.Source.Line+f.Was.Line == 0 {
					t.Errorf("no sentence, or no line: %+v", f)
				}
			}
		})
	}
}

// refused reports whether a policy refuses to create an object, by a rule or one of its checks.
func refused(t *testing.T, p *policy.Policy, text json.RawMessage, user, rule string) bool {
	t.Helper()
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &content); err != nil {
		t.Fatal(err)
	}
	delete(content, "apiVersion")
	delete(content, "kind")
	delete(content, "metadata")
	r := &policy.Request{User: user, Groups: []string{"system:authenticated"}, Verb: "create", IsResource: true, Group: "data.corp.example", Version: "v1", Resource: "databases", Namespace: "default"}
	a := &admission.Attributes{Request: r, Operation: policy.Create, Object: &policy.Object{Meta: &metav1.ObjectMeta{Name: "example", Namespace: "default"}, Content: content}, Namespace: func() *policy.Object { return nil }}
	v := p.Version(schema.GroupVersionResource{Group: "data.corp.example", Version: "v1", Resource: "databases"})
	if errs := v.Program.Validate(content); len(errs) > 0 {
		t.Errorf("no request can have it: %v", errs)
	}
	return slices.ContainsFunc(admission.MustOf(p).Validate(t.Context(), v, a), func(f admission.Finding) bool { return strings.HasPrefix(f.Rule, rule) })
}

// What a finding shows is decided so by the server's code, for the object as the finding has it.
func TestCounterexamplesFlip(t *testing.T) {
	for _, edit := range [][]string{
		{`maxGiB: 500`, `maxGiB: 300`}, {`maxGiB: 500`, `maxGiB: 501`}, {`storageGiB <= params.maxGiB`, `storageGiB < params.maxGiB`},
		{`object.spec.tier != 'critical' || object.spec.replicas >= params.minReplicas`, `object.spec.tier != 'critical' || object.spec.replicas >= params.minReplicas + 2`},
		{`has(object.spec.owner)`, `has(object.spec.owner) && has(object.spec.tenant)`},
		{`has(object.spec.owner)`, `!has(object.spec.tenant) || object.spec.tenant.size() <= 12`},
	} {
		s := plantest.Sides(t, plantest.Databases, plantest.Edit(t, plantest.Databases, edit...))
		found := compare(t, s)
		if len(found) == 0 || found[0].Counterexample == nil {
			t.Errorf("%v: no counterexample: %+v", edit, found)
			continue
		}
		x := found[0].Counterexample
		if x.Old != nil || !strings.HasPrefix(x.Request, "create ") {
			t.Errorf("not the simplest request: %s", x.Request)
			continue
		}
		_, user, _ := strings.Cut(x.Request, "by user:")
		user, _, _ = strings.Cut(user, " of ")
		rule := strings.TrimSuffix(found[0].Path, "/params.maxGiB")
		if was, is := refused(t, s.From, x.Object, user, rule), refused(t, s.To, x.Object, user, rule); was == is || was == strings.HasPrefix(x.Before, "accepted") {
			t.Errorf("%v: refused %v, then %v: %+v %s", edit, was, is, x, x.Object)
		}
	}
}

// A rule that reads stored objects is tried on small states: a side that was not evaluated is never shown as accepting.
func TestRulesThatReadStoredObjects(t *testing.T) {
	bundle := func(rule string) string {
		return plantest.Edit(t, plantest.Databases, "teams: platform:", "reads: data: [\"configmaps\"]\n\tteams: platform:", "owned: {", `exists: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			`+rule+`
		}
		owned: {`)
	}
	const maps = `objects: maps: {kind: "configmaps", version: "v1"}
		`
	get := func(more string) string {
		return maps + `validations: x: {expression: "objects.maps.get(object.metadata.namespace, object.spec.tier).hasValue()` + more + `", message: "there is no ConfigMap of this name"}`
	}
	constant := `validations: x: {expression: "object.spec.tier != 'critical'", message: "not critical"}`
	for _, c := range []struct {
		name, from, to string
		want           []string
		has            []string
	}{
		{"a check of stored objects is gone", get(""), constant, []string{"widens RULE_CHANGED data/validate/exists shown", "changes RULE_READS_CHANGED data/validate/exists possible", "looks MESSAGE_CHANGED data/validate/exists proved"},
			[]string{`"before":"accepted"`, `"stored":[{"apiVersion":"v1"`, `"name":"critical"`, "A check of stored objects may be gone"}},
		{"a check of stored objects comes", constant, get(""), []string{"changes RULE_CHANGED data/validate/exists shown", "changes RULE_READS_CHANGED data/validate/exists possible", "looks MESSAGE_CHANGED data/validate/exists proved"}, nil},
		{"a check of stored objects and nothing else", get(""), `validations: x: {expression: "true", message: "there is no ConfigMap of this name"}`,
			[]string{"widens RULE_LOOSENED data/validate/exists shown", "changes RULE_READS_CHANGED data/validate/exists possible"}, []string{`"before":"there is no ConfigMap of this name","after":"accepted"`}},
		{"an alternative to stored objects", get(""), get(" || object.spec.replicas == 2"), []string{"widens RULE_LOOSENED data/validate/exists shown"}, []string{`"replicas":2`}},
		{"a condition beside stored objects", get(""), get(" && object.spec.replicas != 2"), []string{"narrows RULE_TIGHTENED data/validate/exists shown"}, []string{`"replicas":2`, `"stored":[{`}},
	} {
		found := compare(t, plantest.Sides(t, bundle(c.from), bundle(c.to)))
		slices.Sort(c.want)
		if got := lines(found); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
		data, err := json.Marshal(found)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.has {
			if !strings.Contains(string(data), text) {
				t.Errorf("%s: no %s in %s", c.name, text, data)
			}
		}
	}
}

func TestConditionsThatAreDecidedBeforehand(t *testing.T) {
	never := func(p *policy.Policy) (list []string) {
		for _, d := range rules.NeverHolds(p) {
			list = append(list, d.Path)
		}
		return list
	}
	always := func(p *policy.Policy) (list []string) {
		for _, d := range rules.AlwaysTrue(p) {
			list = append(list, d.Path)
		}
		return list
	}
	const max = limit + "/max"
	for _, c := range []struct {
		expression    string
		never, always bool
	}{
		{"object.spec.storageGiB <= 500", false, false},
		{"object.spec.storageGiB < 1", true, false},
		{"object.spec.storageGiB <= 0 || object.spec.replicas > 7", true, false},
		{"object.spec.storageGiB <= 0 || object.spec.replicas > 6", false, false},
		{"object.spec.storageGiB <= 8192", false, true},
		{"object.spec.storageGiB >= 1 && object.spec.replicas != 9", false, true},
		{"object.spec.tier in ['gold', 'silver']", true, false},
		{"object.spec.tier in ['dev', 'standard', 'critical']", false, true},
		{"!(object.spec.tier == 'gold')", false, true},
		{"object.spec.tier == 'gold' && request.userInfo.username == 'dana'", true, false},
		{"object.spec.tenant == 'x'", false, false},
	} {
		p := plantest.Compile(t, plantest.Edit(t, plantest.Databases, `object.spec.storageGiB <= params.maxGiB`, c.expression+` && params.maxGiB >= 0`))
		if got := slices.Contains(never(p), max); got != c.never {
			t.Errorf("%s: never holds: %v", c.expression, got)
		}
		p = plantest.Compile(t, plantest.Edit(t, plantest.Databases, `expression: "object.spec.storageGiB <= params.maxGiB"`, `expression: "`+c.expression+`"`, `{maxGiB: 500, `, `{`))
		if got := slices.Contains(always(p), max); got != c.always {
			t.Errorf("%s: always holds: %v", c.expression, got)
		}
	}
}

// big returns a form with many rules.
func big(t testing.TB, roles, validations int) *policy.Form {
	t.Helper()
	f := *plantest.Compile(t, plantest.Databases).Form()
	limits := f.Validations[slices.IndexFunc(f.Validations, func(v policy.Validation) bool { return v.ID == limit })]
	f.Validations, f.Probes = nil, nil
	for i := range validations {
		v := limits
		v.ID = fmt.Sprintf("data/validate/rule-%03d", i)
		v.Params = json.RawMessage(fmt.Sprintf(`{"maxGiB":%d,"minReplicas":1}`, 100+i))
		v.Validations = slices.Clone(limits.Validations)
		for j := range v.Validations {
			v.Validations[j].ID = v.ID + strings.TrimPrefix(v.Validations[j].ID, limit)
		}
		f.Validations = append(f.Validations, v)
	}
	f.Roles, f.Bindings = slices.Clone(f.Roles), slices.Clone(f.Bindings)
	for i := range roles {
		name := fmt.Sprintf("data:role-%04d", i)
		at := schemas.Position{File: "many.cue", Line: i + 1}
		f.Roles = append(f.Roles, policy.Role{ID: "data/clusterRoles/" + name, Name: name, Source: at, Rules: []policy.Rule{{
			ID: "data/clusterRoles/" + name + "/r", Verbs: []string{"get", "list"}, APIGroups: []string{"data.corp.example"}, Resources: []string{fmt.Sprintf("kind%ds", i%40)}, Source: at}}})
		f.Bindings = append(f.Bindings, policy.Binding{ID: fmt.Sprintf("data/bindings/b-%04d", i), Role: name, Subjects: []policy.Subject{{Group: fmt.Sprintf("team-%d", i%50)}}, Namespaces: []string{fmt.Sprintf("data-%d-*", i%20)}, Source: at})
	}
	return &f
}

// BenchmarkCompare compares policies of 2,000 rules of roles and 500 of admission, of which a tenth differ.
func BenchmarkCompare(b *testing.B) {
	was, is := big(b, 2000, 500), big(b, 2000, 500)
	for i := range is.Validations {
		if i%10 == 0 {
			is.Validations[i].Params = json.RawMessage(fmt.Sprintf(`{"maxGiB":%d,"minReplicas":2}`, 90+i))
		}
	}
	for i := range is.Roles {
		if i%10 == 0 && strings.HasPrefix(is.Roles[i].Name, "data:role") {
			is.Roles[i].Rules[0].Verbs = []string{"get", "list", "delete"}
		}
	}
	s := plan.Sides{From: plantest.Load(b, was), To: plantest.Load(b, is)}
	for b.Loop() {
		found := len(compare(b, s))
		more, err := access.Compare(b.Context(), s)
		if err != nil || found < 50 || len(more) < 10 {
			b.Fatal(found, len(more), err)
		}
	}
}
