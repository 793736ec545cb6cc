package policy_test

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// disks are widgets with fields that quotas can sum, and others.
const disks = `teams: a: kinds: "widgets.a.example.com": {
	group: "a.example.com"
	` + widgetNames + `
	versions: v1: {
		#schema: {
			spec: {
				size:    int
				storage: string @k8s(format=quantity)
				disks?: [...{size: int | string @k8s(intOrString,format=quantity)}]
				parts?: [string]: {memory: =~"^[0-9]+Mi$"}
				name:   string
				tier:   "gold" | "silver"
				secret: string @stele(sensitive) @k8s(format=quantity)
			}
			status: used?: int
		}
		subresources: status: {}
	}
}
`

func quotaOf(quota string) string { return "{\n" + disks + "\nquota: " + quota + "\n}" }

func TestWhatQuotasCanLimit(t *testing.T) {
	p := loaded(t, quotaOf(`{
		resources: "storage.a.example.com": sums: {
			whole: {kind: "widgets.a.example.com", path: ".spec.storage"}
			disks: {kind: "widgets.a.example.com", path: ".spec.disks[*].size"}
			parts: {kind: "widgets.a.example.com", path: ".spec.parts[*].memory"}
		}
		scopes: {
			Gold: {kinds: ["widgets.a.example.com"], fields: ".spec.tier": "gold"}
			Ours: selector: matchLabels: team: "a"
			Tier: {kinds: ["widgets.a.example.com"], value: field: ".spec.tier"}
		}
	}`))
	rules := p.Quotas()
	for _, name := range []string{"count/widgets.a.example.com", "count/configmaps", "configmaps", "secrets", "resourcequotas", "count/leases.coordination.k8s.io", "storage.a.example.com"} {
		if rules.Measures(name) == nil {
			t.Errorf("%s stands for nothing; there are %s", name, strings.Join(rules.Names(), ", "))
		}
	}
	for _, name := range []string{"count/events", "count/events.events.k8s.io", "count/namespaces", "serviceaccounts", "pods", "count/gadgets.a.example.com"} {
		if slices.Contains(rules.Names(), name) {
			t.Errorf("%s stands for something", name)
		}
	}
	for name, valued := range map[string]bool{"Gold": false, "Ours": false, "Tier": true} {
		if has, values := rules.HasQuotaScope(name); !has || values != valued {
			t.Errorf("scope %s: %v, with values %v", name, has, values)
		}
	}
	if has, _ := rules.HasQuotaScope("BestEffort"); has || rules.HasQuotaResource("configmaps") || rules.HasQuotaResource("count/configmaps") || !rules.HasQuotaResource("storage.a.example.com") {
		t.Error("the policy defines what Kubernetes does, or not what it says")
	}
}

func TestMistakesInQuota(t *testing.T) {
	mark := func(of, field string) string {
		if of == field {
			return "§"
		}
		return ""
	}
	sum := func(of, kind, path string) string {
		return quotaOf(`resources: "storage.a.example.com": sums: s: {` + mark(of, "kind") + `kind: ` + kind + `, ` + mark(of, "path") + `path: ` + path + `}`)
	}
	const (
		widget   = `"widgets.a.example.com"`
		kindPath = `bundle.quota.resources."storage.a.example.com".sums.s.kind: `
		pathPath = `bundle.quota.resources."storage.a.example.com".sums.s.path: `
	)
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"no kind":                  {sum("kind", `"widget.a.example.com"`, `".spec.size"`), []string{kindPath + `there is no kind widget.a.example.com; did you mean "widgets.a.example.com"?`}},
		"not in namespaces":        {sum("kind", `"namespaces"`, `".spec.size"`), []string{kindPath + `objects of namespaces are in no namespace, and quotas are`}},
		"events":                   {sum("kind", `"events"`, `".count"`), []string{kindPath + `quotas do not count events, as in Kubernetes`}},
		"no field":                 {sum("path", widget, `".spec.sizes"`), []string{pathPath + `the schema says nothing of .spec.sizes (version v1 of widgets.a.example.com); quotas read objects in the version in which they are stored`}},
		"no list":                  {sum("path", widget, `".spec.size[*]"`), []string{pathPath + `the schema says nothing of .spec.size[*] (version v1 of widgets.a.example.com); quotas read objects in the version in which they are stored`}},
		"an index":                 {sum("path", widget, `".spec.disks[0].size"`), []string{pathPath + `".spec.disks[0].size" is no path: write names with dots in front, and [*] for each item of a list (version v1 of widgets.a.example.com); quotas read objects in the version in which they are stored`}},
		"any string":               {sum("path", widget, `".spec.name"`), []string{pathPath + `.spec.name may be any string; say that it is a quantity: @k8s(format=quantity), or format: quantity in a CustomResourceDefinition`}},
		"a list":                   {sum("path", widget, `".spec.disks"`), []string{pathPath + `.spec.disks is no number and no quantity; a quantity is a number, or a string such as 10Gi`}},
		"a secret":                 {sum("path", widget, `".spec.secret"`), []string{pathPath + `.spec.secret is secret, and quotas show their sums`}},
		"the status":               {sum("path", widget, `".status.used"`), []string{pathPath + `the status is a report: who writes it cannot be refused because of a quota; name a field of the spec`}},
		"nothing":                  {quotaOf(`resources: §"storage.a.example.com": sums: {}`), []string{`bundle.quota.resources."storage.a.example.com": nothing is summed under this name; name a kind and a path in sums`}},
		"a name of Kubernetes":     {quotaOf(`resources: §"requests.storage": sums: s: {kind: ` + widget + `, path: ".spec.size"}`), []string{`bundle.quota.resources."requests.storage": Kubernetes gives the name "requests.storage" a meaning of its own; choose another one, such as storage.data.example.com`}},
		"a count":                  {quotaOf(`resources: §"count/widgets.a.example.com": sums: s: {kind: ` + widget + `, path: ".spec.size"}`), []string{`bundle.quota.resources."count/widgets.a.example.com": Kubernetes gives the name "count/widgets.a.example.com" a meaning of its own; choose another one, such as storage.data.example.com`}},
		"a scope of Kubernetes":    {quotaOf(`scopes: §BestEffort: selector: matchLabels: a: "b"`), []string{`bundle.quota.scopes.BestEffort: Kubernetes gives the scope "BestEffort" a meaning of its own; choose another name`}},
		"an empty scope":           {quotaOf(`scopes: §S: kinds: [` + widget + `]`), []string{`bundle.quota.scopes.S: the scope says nothing of the objects in it; write a selector, fields or a value`}},
		"a scope with both":        {quotaOf(`scopes: §S: {selector: matchLabels: a: "b", value: label: "tier"}`), []string{`bundle.quota.scopes.S: a scope has a condition or a value, not both; make it two scopes: a quota can have several`}},
		"fields of no kind":        {quotaOf(`scopes: §S: fields: ".spec.tier": "gold"`), []string{`bundle.quota.scopes.S: a scope with fields needs kinds that have them; write kinds: ["plural.group"]`}},
		"a field that is not":      {quotaOf(`scopes: S: {kinds: [` + widget + `], fields: §".spec.tiers": "gold"}`), []string{`bundle.quota.scopes.S.fields.".spec.tiers": the schema says nothing of .spec.tiers (version v1 of widgets.a.example.com); quotas read objects in the version in which they are stored`}},
		"a field with many values": {quotaOf(`scopes: S: {kinds: [` + widget + `], value: §field: ".spec.disks[*].size"}`), []string{`bundle.quota.scopes.S.value.field: .spec.disks[*].size has many values; name a field with one`}},
		"a selector":               {quotaOf(`scopes: S: §selector: matchLabel: a: "b"`), []string{`bundle.quota.scopes.S.selector: unknown field "matchLabel"; a selector has matchLabels and matchExpressions`}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}

// The view of the documentation is that of the packs, and shows all that a quota limits.
func TestAViewOfQuotas(t *testing.T) {
	text, err := os.ReadFile("../docs/QUOTA.md")
	if err != nil {
		t.Fatal(err)
	}
	const view = "views: (packs.#QuotaUsage).views"
	if !strings.Contains(string(text), "team: "+view) {
		t.Error("docs/QUOTA.md has no view")
	}
	p, _ := packed(t, view, "")
	if views := p.Views(); len(views) != 1 || views[0].View.Name != "quota-usage" || views[0].View.Kind != "resourcequotas" || len(views[0].View.Columns) != 2 {
		t.Errorf("%+v", views)
	}
}
