package policy_test

import (
	"slices"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/flows"
	"stele.dev/stele/policy/format"
)

const fromX = `subjects: [{user: "x"}], `

func TestMistakesInPriorityLevels(t *testing.T) {
	const at = "bundle.flow.priorityLevels"
	used := func(level string) string {
		return "\nflow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: \"l\", " + fromX + `rules: {}}` + "\n}\nbundle: {\n" + level
	}
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"exempt":                         {`flow: priorityLevels: §exempt: {nominalConcurrencyShares: 5}`, []string{`.exempt: the built-in priority level exempt cannot be replaced; choose another name: exempt is for administrators, who must always get through`}},
		"catch-all":                      {`flow: priorityLevels: §"catch-all": {nominalConcurrencyShares: 5}`, []string{`."catch-all": the built-in priority level catch-all cannot be replaced; choose another name: catch-all is for requests that no other flow schema matches`}},
		"a suggested one":                {`flow: priorityLevels: "workload-low": {nominalConcurrencyShares: 5}`, nil},
		"a hand larger than the queues":  {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, queuing: {queues: 4, §handSize: 5}}`, []string{`.l.queuing.handSize: a flow cannot have a hand of 5 queues if there are 4; lower handSize, or raise queues`}},
		"fewer queues than the usual":    {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, queuing: {§queues: 5}}`, []string{`.l.queuing.handSize: a flow cannot have a hand of 6 queues if there are 5; lower handSize, or raise queues`}},
		"a hand of all queues":           {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, queuing: {queues: 5, handSize: 5}}`, nil},
		"a hand that no hash can choose": {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, queuing: {queues: 64, §handSize: 11}}`, []string{`.l.queuing.handSize: the hash of a flow has 60 bits, and choosing 11 of 64 queues takes 66; lower handSize or queues`}},
		"the largest hand":               {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, queuing: {queues: 64, handSize: 10}}`, nil},
		"too many queues":                {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, queuing: {queues: §10000001}}`, []string{`.l.queuing.queues: 10000001 is not at most 10000000`}},
		"negative shares":                {`flow: priorityLevels: l: {nominalConcurrencyShares: §-1}`, []string{`.l.nominalConcurrencyShares: -1 is not at least 0`}},
		"more than all to lend":          {`flow: priorityLevels: l: {nominalConcurrencyShares: 5, lendablePercent: §101}`, []string{`.l.lendablePercent: 101 is not at most 100`}},
		"no share, and a limit of borrowing": {used(`flow: priorityLevels: §l: {nominalConcurrencyShares: 0, borrowingLimitPercent: 200}`),
			[]string{`.l: the level never has a seat, so that requests of s are always rejected: it has no share, and its limit of borrowing is a percentage of nothing; give it nominalConcurrencyShares, or leave out borrowingLimitPercent`}},
		"no share, and nothing that is used": {`flow: priorityLevels: l: {nominalConcurrencyShares: 0, borrowingLimitPercent: 200}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.want {
				tc.want[i] = at + tc.want[i]
			}
			expect(t, "{\n"+tc.bundle+"\n}", tc.want...)
		})
	}
}

func TestMistakesInFlowSchemas(t *testing.T) {
	const at = "bundle.flow.flowSchemas"
	rule := func(text string) string {
		return `flow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: "system", ` + fromX + `rules: x: {` + text + `}}`
	}
	of := func(resources, rest string) string {
		return rule(`apiGroups: ["*"], resources: [` + resources + `], verbs: ["*"], ` + rest)
	}
	subject := func(text string) string {
		return `flow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: "system", subjects: [` + text + `], rules: {}}`
	}
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"exempt":                          {`flow: flowSchemas: §exempt: {matchingPrecedence: 5, priorityLevel: "system", ` + fromX + `rules: {}}`, []string{`.exempt: the built-in flow schema exempt cannot be replaced; choose another name: exempt is for administrators, who must always get through`}},
		"catch-all":                       {`flow: flowSchemas: §"catch-all": {matchingPrecedence: 5, priorityLevel: "system", ` + fromX + `rules: {}}`, []string{`."catch-all": the built-in flow schema catch-all cannot be replaced; choose another name: catch-all is for requests that no other flow schema matches`}},
		"a suggested one":                 {`flow: flowSchemas: "service-accounts": {matchingPrecedence: 5, priorityLevel: "system", ` + fromX + `rules: {}}`, nil},
		"before exempt":                   {`flow: flowSchemas: s: {matchingPrecedence: §1, priorityLevel: "system", ` + fromX + `rules: {}}`, []string{`.s.matchingPrecedence: 1 is not at least 2`}},
		"no watches":                      {`flow: flowSchemas: s: {watches: §0, matchingPrecedence: 5, priorityLevel: "system", ` + fromX + `rules: {}}`, []string{`.s.watches: 0 is not more than 0`}},
		"the names of objects":            {of(`"secrets"`, `§resourceNames: ["x"]`), []string{`.s.rules.x.resourceNames: field not allowed; did you mean "resources"?`}},
		"an unknown verb":                 {rule(`apiGroups: [""], resources: ["secrets"], verbs: [§"gett"]`), []string{`.s.rules.x.verbs.0: "gett" is not one of "*", "create", "delete", "deletecollection", "get", "head", "list", "options" and 5 more; did you mean "get"?`}},
		"a verb that is checked beside":   {rule(`apiGroups: [""], resources: ["secrets"], verbs: [§"escalate"]`), []string{`.s.rules.x.verbs.0: "escalate" is not one of "*", "create", "delete", "deletecollection", "get", "head", "list", "options" and 5 more`}},
		"a method for a resource":         {rule(`apiGroups: [""], resources: ["secrets"], verbs: ["get", §"post"]`), []string{`.s.rules.x.verbs.1: no request for a resource has the verb "post"; the verb is "create"`}},
		"a verb for a path":               {rule(`nonResourceURLs: ["/metrics"], verbs: ["get", §"list"]`), []string{`.s.rules.x.verbs.1: no request for a path has the verb "list"; the verb is "get"`}},
		"methods of paths":                {rule(`nonResourceURLs: ["/metrics"], verbs: ["get", "post", "put", "patch", "delete", "head", "options"]`), nil},
		"a pattern of paths":              {rule(`nonResourceURLs: ["/metrics/*", "/*", §"/met*"], verbs: ["*"]`), []string{`.s.rules.x.nonResourceURLs.2: no request is for a path "/met*"; write "/met", which includes all paths below it, or "/met/*" for those alone`}},
		"a star within a path":            {rule(`nonResourceURLs: [§"/a/*/b"], verbs: ["*"]`), []string{`.s.rules.x.nonResourceURLs.0: no request is for a path "/a/*/b"; a * stands only at the end, after a /`}},
		"a pattern of resources":          {rule(`apiGroups: [""], resources: [§"*/status"], verbs: ["*"]`), []string{`.s.rules.x.resources.0: "*/status" is no resource: flow schemas have no patterns of resources; name each of them, such as "widgets/status"`}},
		"paths in namespaces":             {rule(`nonResourceURLs: ["/metrics"], verbs: ["*"], §namespaces: ["x"]`), []string{`.s.rules.x.namespaces: requests for paths have no namespace; leave it out`}},
		"a namespace":                     {of(`"secrets"`, `namespaces: ["kube-system", ""]`), nil},
		"no namespaces":                   {of(`"secrets"`, `§namespaces: []`), []string{`.s.rules.x.namespaces: a rule for no namespaces matches no request; name some, or leave it out: then all requests are meant`}},
		"everything":                      {of(`"secrets"`, `namespaces: ["", §"*"]`), []string{`.s.rules.x.namespaces.1: "*" and "" together are all requests; leave out namespaces`}},
		"all namespaces and one":          {of(`"secrets"`, `namespaces: [§"*", "x"]`), []string{`.s.rules.x.namespaces.0: "*" is every namespace; leave out the others`}},
		"a pattern of namespaces":         {of(`"secrets"`, `namespaces: [§"kube-*"]`), []string{`.s.rules.x.namespaces.0: no namespace can have a name like "kube-*"; flow schemas have no patterns of namespaces: "*" alone is every namespace`}},
		"no name of a namespace":          {of(`"secrets"`, `namespaces: ["x", §"X"]`), []string{`.s.rules.x.namespaces.1: no namespace can have a name like "X"; names are of lower-case letters, digits and -`}},
		"what is not in namespaces":       {widgetsIn("Cluster") + "\n" + of(`"secrets", §"widgets", §"widgets/status", "namespaces"`, `namespaces: ["x"]`), []string{`.s.rules.x.resources.1: "widgets" is not in namespaces, so that no request for it matches; make it a rule without namespaces, or add "" to them`, `.s.rules.x.resources.2: "widgets/status" is not in namespaces, so that no request for it matches; make it a rule without namespaces, or add "" to them`}},
		"what is not in namespaces there": {widgetsIn("Cluster") + "\n" + of(`"widgets"`, `namespaces: ["x", ""]`), nil},
		"what is in namespaces":           {widgetsIn("Namespaced") + "\n" + of(`"widgets"`, `namespaces: ["x"]`), nil},
		"what has no kind":                {of(`"serviceaccounts/token", "rolebindings"`, `namespaces: ["x"]`), nil},
		"an account":                      {subject(`§{serviceAccount: "X/y"}`), []string{`.s.subjects.0: no service account can be "X/y"; write serviceAccount: "namespace/name"`}},
		"all accounts of no namespace":    {subject(`§{serviceAccount: "X/*"}`), []string{`.s.subjects.0: no service account can be "X/*"; write serviceAccount: "namespace/name"`}},
		"an unknown level": {`flow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: §"sytem", ` + fromX + `rules: {}}`, []string{
			`.s.priorityLevel: "sytem" is not one of "catch-all", "exempt", "global-default", "leader-election", "node-high", "system", "workload-high", "workload-low"; did you mean "system"?`}},
		"an unknown subresource": {rule(`apiGroups: [""], resources: [§"secrets/scale"], verbs: ["*"]`), []string{`.s.rules.x.resources.0: "secrets/scale" is not served in the API group ""; there are "configmaps", "events", "groups", "namespaces", "namespaces/finalize", "namespaces/status", "resourcequotas", "resourcequotas/status" and 4 more`}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tc.want {
				tc.want[i] = at + tc.want[i]
			}
			expect(t, "{\n"+tc.bundle+"\n}", tc.want...)
		})
	}
}

// widgetsIn returns a kind with a scope.
func widgetsIn(scope string) string {
	return widgets(widgetNames + `, scope: "` + scope + `", ` + widgetSchema)
}

func TestSubjectsOfFlowSchemas(t *testing.T) {
	c, _ := compiled(t, `flow: flowSchemas: s: {matchingPrecedence: 5, priorityLevel: "system", subjects: [{user: "*"}, {group: "*"}, {serviceAccount: "a/*"}, {serviceAccount: "a/b"}], rules: {}}`)
	want := []policy.Subject{{User: "*"}, {Group: "*"}, {User: "system:serviceaccount:a:*"}, {User: "system:serviceaccount:a:b"}}
	if diff := cmp.Diff(want, c.Form.Flow.FlowSchemas[0].Subjects); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The definitions list the names that the program has, and in their order.
func TestTheFormatNamesTheBuiltInLevelsAndFlowSchemas(t *testing.T) {
	definitions := cuecontext.New().CompileBytes(format.Files()[format.File])
	named := func(list string) (names []string) {
		if err := definitions.LookupPath(cue.ParsePath(list)).Decode(&names); err != nil {
			t.Fatal(err)
		}
		return names
	}
	table := flows.New(&policy.Flow{})
	var levels, schemas []string
	for _, l := range table.Levels() {
		levels = append(levels, l.Name)
	}
	for _, s := range table.Schemas() {
		schemas = append(schemas, s.Name)
	}
	if diff := cmp.Diff(schemas, named("#BuiltinFlowSchemas")); diff != "" {
		t.Errorf("flow schemas (-program +format):\n%s", diff)
	}
	if diff := cmp.Diff(levels, slices.Sorted(slices.Values(named("#BuiltinLevels")))); diff != "" {
		t.Errorf("priority levels (-program +format):\n%s", diff)
	}
}
