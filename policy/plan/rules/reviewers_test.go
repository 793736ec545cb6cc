package rules_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/plantest"
)

// A plan reports the change of every field of a webhook or a plugin, with its class and the names of the fields.
func TestEveryFieldOfAReviewerIsCompared(t *testing.T) {
	bundle := plantest.Edit(t, plantest.Databases, `teams: data: admission: validate: {`, `plugins: {one: sha256: "linux/amd64": "0000000000000000000000000000000000000000000000000000000000000000", two: sha256: "linux/amd64": "1000000000000000000000000000000000000000000000000000000000000000"}
	teams: data: admission: webhooks: mutating: hook: {
		order: 10, rules: {a: {apiGroups: ["data.corp.example"], apiVersions: ["v1"], resources: ["databases"], operations: ["CREATE"], scope: "Namespaced"}}
		namespaceSelector: matchLabels: a: "b", objectSelector: matchLabels: source: "b", matchConditions: big: "object.spec.storageGiB > 3"
		sideEffects: "None", timeoutSeconds: 3
		clientConfig: {service: {namespace: "n", name: "s", path: "/p", port: 8443}, clientCertificate: secret: "c", bearerToken: secret: "t"}
	}
	teams: data: admission: plugins: validating: program: {plugin: "one", match: {apiGroups: ["data.corp.example"], resources: ["databases"], resourceNames: ["a"], excludeResourceRules: x: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["UPDATE"]}}}
	teams: data: admission: validate: {`)
	hook := func(edit func(*policy.Reviewer)) func(*policy.Form) {
		return editReviewer("data/webhooks/mutating/hook", edit)
	}
	program := func(edit func(*policy.Reviewer)) func(*policy.Form) {
		return editReviewer("data/plugins/validating/program", edit)
	}
	changes := func(names string) []string { return []string{"changes REVIEWER_CHANGED", names} }
	cases := map[string]struct {
		edit func(*policy.Form)
		want []string // class and rule, and what the message names
	}{
		"/ID":                  {program(func(r *policy.Reviewer) { r.ID += "2" }), []string{"narrows REVIEWER_ADDED", "widens REVIEWER_REMOVED", "must pass a plugin more"}},
		"/ID: of what changes": {hook(func(r *policy.Reviewer) { r.ID += "2" }), []string{"changes REVIEWER_ADDED", "changes REVIEWER_REMOVED", "A webhook may change"}},
		"/Mutating":            {program(func(r *policy.Reviewer) { r.Mutating = true }), changes("mutating")},
		"/Order":               {hook(func(r *policy.Reviewer) { r.Order = 11 }), changes("order")},
		"/Rules/ID":            {hook(func(r *policy.Reviewer) { r.Rules[0].ID = "other" }), changes("rules")},
		"/Rules/APIGroups":     {hook(func(r *policy.Reviewer) { r.Rules[0].APIGroups = []string{"*"} }), changes("rules")},
		"/Rules/APIVersions":   {hook(func(r *policy.Reviewer) { r.Rules[0].APIVersions = []string{"*"} }), changes("rules")},
		"/Rules/Resources":     {hook(func(r *policy.Reviewer) { r.Rules[0].Resources = []string{"*"} }), changes("rules")},
		"/Rules/Operations":    {hook(func(r *policy.Reviewer) { r.Rules[0].Operations = []string{"*"} }), changes("rules")},
		"/Rules/Scope":         {hook(func(r *policy.Reviewer) { r.Rules[0].Scope = "" }), changes("rules")},
		"/NamespaceSelector":   {hook(func(r *policy.Reviewer) { r.NamespaceSelector = nil }), changes("namespaceSelector")},
		"/ObjectSelector": {hook(func(r *policy.Reviewer) {
			r.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"source": "c"}}
		}), changes("objectSelector")},
		"/Conditions/Name":            {hook(func(r *policy.Reviewer) { r.Conditions[0].Name = "large" }), changes("matchConditions")},
		"/Conditions/Text":            {hook(func(r *policy.Reviewer) { r.Conditions[0].Text = "true" }), changes("matchConditions")},
		"/ResourceNames":              {program(func(r *policy.Reviewer) { r.ResourceNames = nil }), changes("resourceNames")},
		"/Excludes/APIGroups":         {program(func(r *policy.Reviewer) { r.Excludes[0].APIGroups = []string{"*"} }), changes("excludeResourceRules")},
		"/Excludes/APIVersions":       {program(func(r *policy.Reviewer) { r.Excludes[0].APIVersions = []string{"v1"} }), changes("excludeResourceRules")},
		"/Excludes/Resources":         {program(func(r *policy.Reviewer) { r.Excludes[0].Resources = []string{"*"} }), changes("excludeResourceRules")},
		"/Excludes/Operations":        {program(func(r *policy.Reviewer) { r.Excludes[0].Operations = []string{"*"} }), changes("excludeResourceRules")},
		"/Excludes/ResourceNames":     {program(func(r *policy.Reviewer) { r.Excludes[0].ResourceNames = []string{"x"} }), changes("excludeResourceRules")},
		"/Excludes/Scope":             {program(func(r *policy.Reviewer) { r.Excludes[0].Scope = "Namespaced" }), changes("excludeResourceRules")},
		"/Exact":                      {hook(func(r *policy.Reviewer) { r.Exact = true }), changes("matchPolicy")},
		"/Ignore":                     {program(func(r *policy.Reviewer) { r.Ignore = true }), []string{"widens REVIEWER_CHANGED", "failurePolicy"}},
		"/Timeout":                    {hook(func(r *policy.Reviewer) { r.Timeout = time.Minute }), changes("timeout")},
		"/SideEffects":                {hook(func(r *policy.Reviewer) { r.SideEffects = "Some" }), changes("sideEffects")},
		"/Again":                      {hook(func(r *policy.Reviewer) { r.Again = true }), changes("reinvocationPolicy")},
		"/Webhook/URL":                {hook(func(r *policy.Reviewer) { r.Webhook.URL = "https://x.example" }), changes("clientConfig")},
		"/Webhook/CABundle":           {hook(func(r *policy.Reviewer) { r.Webhook.CABundle = "x" }), changes("clientConfig")},
		"/Webhook/ClientCertificate":  {hook(func(r *policy.Reviewer) { r.Webhook.ClientCertificate = "d" }), changes("clientConfig")},
		"/Webhook/BearerToken":        {hook(func(r *policy.Reviewer) { r.Webhook.BearerToken = "" }), changes("clientConfig")},
		"/Webhook/Service/Namespace":  {hook(func(r *policy.Reviewer) { r.Webhook.Service.Namespace = "m" }), changes("clientConfig")},
		"/Webhook/Service/Name":       {hook(func(r *policy.Reviewer) { r.Webhook.Service.Name = "m" }), changes("clientConfig")},
		"/Webhook/Service/Path":       {hook(func(r *policy.Reviewer) { r.Webhook.Service.Path = "/q" }), changes("clientConfig")},
		"/Webhook/Service/Port":       {hook(func(r *policy.Reviewer) { r.Webhook.Service.Port = 443 }), changes("clientConfig")},
		"/Plugin":                     {program(func(r *policy.Reviewer) { r.Plugin = "two" }), changes("plugin")},
		"/Ignore: of what may change": {hook(func(r *policy.Reviewer) { r.Ignore = true }), []string{"widens REVIEWER_CHANGED", "failurePolicy"}},
		"/Configuration":              {hook(func(r *policy.Reviewer) { r.Configuration = "chart" }), []string{"changes OBJECT_RENAMED", "another configuration"}},
		"/Ignore: and more":           {hook(func(r *policy.Reviewer) { r.Ignore, r.Order = true, 3 }), changes("failurePolicy, order")},
	}
	from := plantest.Compile(t, bundle)
	tried := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(cases)) {
		c := cases[path]
		field, _, _ := strings.Cut(path, ":")
		tried[field] = true
		f := clone(t, from.Form())
		c.edit(f)
		check := func(s plan.Sides, want []string) {
			t.Helper()
			var got []string
			said := ""
			for _, f := range compare(t, s) {
				got = append(got, string(f.Class)+" "+f.Rule)
				said += f.Message + "\n"
				if f.Source.Line+f.Was.Line == 0 {
					t.Errorf("%s: no line: %+v", path, f)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want[:len(want)-1]) || !strings.Contains(said, want[len(want)-1]) {
				t.Errorf("%s: got %q, want %q in\n%s", path, got, want, said)
			}
		}
		check(plan.Sides{From: from, To: loaded(t, f)}, c.want)
		if field == "/Ignore" && c.want[0] == "widens REVIEWER_CHANGED" {
			check(plan.Sides{From: loaded(t, f), To: from}, []string{"narrows REVIEWER_CHANGED", "failurePolicy"})
		}
	}
	for _, path := range fields(reflect.TypeFor[policy.Reviewer](), "") {
		if !tried[path] {
			t.Errorf("a change of the field %s is not tried: compare it in a plan", path)
		}
	}
}

// editReviewer returns a change of the reviewer of an ID.
func editReviewer(id string, edit func(*policy.Reviewer)) func(*policy.Form) {
	return func(f *policy.Form) {
		edit(&f.Reviewers[slices.IndexFunc(f.Reviewers, func(r policy.Reviewer) bool { return r.ID == id })])
	}
}
