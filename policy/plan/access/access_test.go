package access_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/plan/access"
	"stele.dev/stele/policy/plan/plantest"
)

func compare(t testing.TB, s plan.Sides) []plan.Finding {
	t.Helper()
	findings, err := access.Compare(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return findings
}

// lines returns the findings in short: class, rule, path and subject.
func lines(findings []plan.Finding) (list []string) {
	p := plan.Plan{Findings: slices.Clone(findings)}
	p.Finish()
	for _, f := range p.Findings {
		list = append(list, strings.TrimSpace(strings.Join([]string{string(f.Class), f.Rule, f.Path, f.Subject}, " ")))
	}
	return list
}

const stay = `denies: stay: {
			subjects: [{group: "system:authenticated"}]
			rules: all: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["delete", "deletecollection"]}
			reason: "they stay"
		}
		denies: keep: {`

const controllers = "serviceaccount:kube-system/namespace-controller, serviceaccount:kube-system/generic-garbage-collector"

func TestChangesOfAccess(t *testing.T) {
	for _, c := range []struct {
		name string
		edit []string // of the bundle: pairs of old and new
		want []string
		has  string // in the JSON of the findings
	}{
		{"nothing", nil, nil, ""},
		{"another order and other words", []string{`object.spec.tier == 'dev' && object.spec.storageGiB <= 50`, `50 >= object.spec.storageGiB && ('dev' == object.spec.tier)`}, nil, ""},
		{"a viewer that may do anything", []string{`resources: ["databases"], verbs: ["get", "list", "watch"]}`, `resources: ["databases"], verbs: ["*"]}`}, []string{
			"breaks ESCALATION data/clusterRoles/data:viewer",
			"widens CONDITION_CHANGED data/bindings/self-service-look group:developers",
			"widens GRANT_ADDED data/bindings/self-service-look group:developers",
		}, `is aggregated into \"view\", too: no binding has that role`},
		{"wildcards in place of kinds and verbs", []string{`resources: ["databases"], verbs: ["get", "list", "watch", "create", "update", "patch"]`, `resources: ["*"], verbs: ["*"]`}, []string{
			"widens GRANT_ADDED data/bindings/developers group:team-data",
			"widens GRANT_ADDED data/bindings/developers group:team-data",
		}, `Group team-data may now do everything with every kind of data.corp.example, also future ones, in namespaces data-* (new: deletecollection, history and further verbs, all subresources, other kinds) if no deny refuses it.`},
		{"an alternative that no generated request has", []string{`unless: "'break-glass' in request.userInfo.groups"`, `unless: "'break-glass' in request.userInfo.groups || request.userInfo.username.matches('^z[.]y{30}@corp')"`}, []string{
			"widens CONDITION_CHANGED data/denies/keep group:team-data",
		}, `Its form shows that it holds whenever it held."],"evidence":"proved"`},
		{"an alternative that is evaluated first", []string{`unless: "'break-glass' in request.userInfo.groups"`, `unless: "request.userInfo.username.matches('^z[.]y{30}@corp') || 'break-glass' in request.userInfo.groups"`}, []string{
			"widens CONDITION_CHANGED data/denies/keep group:team-data",
		}, `By its form, it holds whenever it held, as long as it can be evaluated."],"evidence":"possible"`},
		{"a deny for everybody", []string{`denies: keep: {`, stay}, []string{
			"breaks DENY_MEETS_CONTROLLERS data/denies/stay " + controllers,
			"narrows DENY_ADDED data/denies/stay group:system:authenticated",
			"narrows DENY_ADDED data/denies/stay group:system:masters",
			"narrows DENY_MEETS_ADMINISTRATORS data/denies/stay group:system:masters",
			"narrows DENY_ADDED data/denies/stay group:team-data",
		}, `a namespace that has any stays in Terminating`},
		{"a deny that spares them", []string{`denies: keep: {`, strings.Replace(stay, `reason: "they stay"`, `reason: "they stay", unless: "request.userInfo.username.startsWith('system:serviceaccount:kube-system:')"`, 1)}, []string{
			"narrows DENY_ADDED data/denies/stay group:system:authenticated",
			"narrows DENY_ADDED data/denies/stay group:system:masters",
			"narrows DENY_MEETS_ADMINISTRATORS data/denies/stay group:system:masters",
			"narrows DENY_ADDED data/denies/stay group:team-data",
		}, ""},
		{"a deny whose exception depends on the object", []string{`denies: keep: {`, strings.Replace(stay, `reason: "they stay"`, `reason: "they stay", unless: "oldObject.spec.replicas < 5"`, 1)}, []string{
			"breaks DENY_MEETS_CONTROLLERS data/denies/stay " + controllers,
			"narrows DENY_ADDED data/denies/stay group:system:authenticated",
			"narrows DENY_ADDED data/denies/stay group:system:masters",
			"narrows DENY_MEETS_ADMINISTRATORS data/denies/stay group:system:masters",
			"narrows DENY_ADDED data/denies/stay group:team-data",
		}, `whatever allows it, unless the exception of the deny holds.`},
		{"a deny whose exception spares them and depends on the object", []string{`denies: keep: {`, strings.Replace(stay, `reason: "they stay"`, `reason: "they stay", unless: "request.userInfo.username.startsWith('system:serviceaccount:kube-system:') || oldObject.spec.replicas < 5"`, 1)}, []string{
			"narrows DENY_ADDED data/denies/stay group:system:authenticated",
			"narrows DENY_ADDED data/denies/stay group:system:masters",
			"narrows DENY_MEETS_ADMINISTRATORS data/denies/stay group:system:masters",
			"narrows DENY_ADDED data/denies/stay group:team-data",
		}, `Its exception: request.userInfo.username`},
		{"a narrower condition", []string{`<= 50"`, `<= 40"`}, []string{"narrows CONDITION_CHANGED data/bindings/self-service group:developers"}, `"evidence":"shown"`},
		{"a wider condition", []string{`<= 50"`, `<= 60"`}, []string{"widens CONDITION_CHANGED data/bindings/self-service group:developers"}, `"before":"the condition does not hold","after":"accepted"`},
		{"a condition both narrower and wider", []string{`object.spec.tier == 'dev' &&`, `object.spec.tier == 'standard' &&`}, []string{"changes CONDITION_CHANGED data/bindings/self-service group:developers"}, "accepts some that it refused"},
		{"a condition less", []string{`, when: "object.spec.tier == 'dev' && object.spec.storageGiB <= 50"`, ``}, []string{"widens CONDITION_CHANGED data/bindings/self-service group:developers"}, `"after":"always"`},
		{"an exception that is wider", []string{`'break-glass' in request.userInfo.groups"`, `'break-glass' in request.userInfo.groups || request.userInfo.username == 'dana'"`},
			[]string{"widens CONDITION_CHANGED data/denies/keep group:team-data"}, `user:dana`},
		{"a deny without its exception", []string{"\n\t\t\tunless: \"'break-glass' in request.userInfo.groups\"", ""}, []string{"narrows CONDITION_CHANGED data/denies/keep group:team-data"}, `denied: unless 'break-glass' in request.userInfo.groups`},
		{"a reason of a deny", []string{`reason: "customers use databases"`, `reason: "ask us"`}, []string{"looks MESSAGE_CHANGED data/denies/keep"}, `"after":"ask us"`},
		{"a deny less", []string{`verbs: ["delete"]`, `verbs: ["deletecollection"]`}, []string{"narrows DENY_ADDED data/denies/keep group:team-data", "widens DENY_REMOVED data/denies/keep group:team-data"}, ""},
		{"a binding more", []string{`bindings: {`, `bindings: {
			more: {clusterRole: "data:viewer", subjects: [{group: "sre"}, {user: "sam"}, {serviceAccount: "data-system/operator"}], namespaces: ["data-*"]}`},
			[]string{"widens GRANT_ADDED data/bindings/more group:sre, user:sam, serviceaccount:data-system/operator"}, "Group sre, User sam and ServiceAccount data-system/operator may now"},
		{"a binding less", []string{`developers: {clusterRole: "data:editor", subjects: [{group: "team-data"}], namespaces: ["data-*"]}`, ``}, []string{"narrows GRANT_REMOVED data/bindings/developers group:team-data"}, ""},
		{"secrets", []string{`bindings: {`, `clusterRoles: "data:secrets": rules: s: {apiGroups: [""], resources: ["secrets"], verbs: ["get"]}
			bindings: {
			secrets: {clusterRole: "data:secrets", subjects: [{group: "support"}], namespaces: ["data-*"]}`},
			[]string{"widens ESCALATION data/bindings/secrets group:support", "widens GRANT_ADDED data/bindings/secrets group:support"}, "read secrets"},
		{"who may push", []string{`teams: data: rbac: {`, `teams: platform: rbac: {
			clusterRoles: "platform:push": rules: p: {apiGroups: ["policy.stele.dev"], resources: ["policies"], verbs: ["create"]}
			bindings: push: {clusterRole: "platform:push", subjects: [{user: "ci"}], namespaces: ["*"]}
		}
		teams: data: rbac: {`}, []string{"widens ESCALATION platform/bindings/push user:ci", "widens GRANT_ADDED platform/bindings/push user:ci"}, "replace the whole policy"},
		{"who may plan", []string{`teams: data: rbac: {`, `teams: platform: rbac: bindings: plan: {clusterRole: "policy:planner", subjects: [{user: "ci"}], namespaces: ["*"]}
		teams: data: rbac: {`}, []string{"widens GRANT_ADDED platform/bindings/plan user:ci"}, ""},
		{"impersonation", []string{`teams: data: rbac: {`, `teams: platform: rbac: {
			clusterRoles: "platform:as": rules: p: {apiGroups: [""], resources: ["users"], verbs: ["impersonate"]}
			bindings: as: {clusterRole: "platform:as", subjects: [{user: "ci"}], namespaces: ["*"]}
		}
		teams: data: rbac: {`}, []string{"widens ESCALATION platform/bindings/as user:ci", "widens GRANT_ADDED platform/bindings/as user:ci"}, "impersonate"},
		{"another cluster", []string{`cluster: "dev"`, `cluster: "prod"`}, []string{"breaks CLUSTER_RENAMED cluster"}, ""},
		{"a wider window", []string{`windows: secrets: "10m"`, `windows: secrets: "2h"`}, []string{"widens WINDOW_WIDENED history/windows/secrets"}, "secret fields"},
		{"a narrower window", []string{`windows: secrets: "10m"`, `windows: {secrets: "10m", "databases.data.corp.example": "1d"}`}, []string{"narrows WINDOW_NARROWED history/windows/databases.data.corp.example"}, `"before":"all"`},
		{"the past is erased earlier", []string{`{history: "30d"}`, `{history: "7d"}`}, []string{"breaks RETENTION_SHORTENED history/retention/default"}, "It is about 7 kinds"},
		{"the past is kept longer", []string{`{history: "30d"}`, `{history: "31d"}`}, []string{"changes RETENTION_LENGTHENED history/retention/default"}, ""},
		{"shares", []string{`nominalConcurrencyShares: 10`, `nominalConcurrencyShares: 20`}, []string{"changes FLOW_CHANGED flow/priorityLevels/batch"}, `"It has 7.5% of the seats instead of 3.9%.","The other levels: catch-all 1.9% instead of 2%, global-default 7.5% instead of 7.8%,`},
		{"queues", []string{`nominalConcurrencyShares: 10`, `nominalConcurrencyShares: 10, lendablePercent: 50, borrowingLimitPercent: 0, queuing: {}`}, []string{"changes FLOW_CHANGED flow/priorityLevels/batch"},
			`"It lends up to 50% of them while they are idle, instead of 0%.","It borrows seats up to 0% of its own seats instead of without a limit.","There may wait 50 requests in each of 64 queues, of which a flow uses 6, instead of no requests."`},
		{"a level that replaces a built-in one", []string{`flow: priorityLevels: batch`, `flow: priorityLevels: "workload-low": {nominalConcurrencyShares: 300}
	flow: priorityLevels: batch`}, []string{"changes FLOW_CHANGED flow/priorityLevels/workload-low"}, `The priority level replaces the built-in one.`},
		{"a flow schema", []string{`flow: priorityLevels: batch`, `flow: flowSchemas: lists: {matchingPrecedence: 1000, priorityLevel: "batch", subjects: [{group: "developers"}], rules: x: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["list"], namespaces: ["data-shop", ""]}}
	flow: priorityLevels: batch`}, []string{"changes FLOW_CHANGED flow/flowSchemas/lists"},
			`["Requests of Group developers to list databases.data.corp.example in namespace data-shop and at cluster scope use the priority level batch (flow schema lists), and used global-default (flow schema global-default)."]`},
		{"a flow schema for all", []string{`flow: priorityLevels: batch`, `flow: flowSchemas: lists: {matchingPrecedence: 8000, priorityLevel: "batch", subjects: [{group: "system:authenticated"}], rules: x: {apiGroups: ["*"], resources: ["*"], verbs: ["list"]}}
	flow: priorityLevels: batch`}, []string{"changes FLOW_CHANGED flow/flowSchemas/lists"},
			`"Requests of Group system:authenticated to list all resources in any namespace use the priority level batch (flow schema lists), and used global-default (flow schema global-default).","Requests of Group system:serviceaccounts to list all resources in any namespace use the priority level batch (flow schema lists), and used workload-low (flow schema service-accounts)."]`},
		{"a flow schema that exempts", []string{`flow: priorityLevels: batch`, `flow: flowSchemas: lists: {matchingPrecedence: 1000, priorityLevel: "exempt", subjects: [{group: "developers"}], rules: x: {nonResourceURLs: ["/metrics"], verbs: ["get"]}}
	flow: priorityLevels: batch`}, []string{"widens FLOW_CHANGED flow/flowSchemas/lists"},
			`Requests of Group developers to get /metrics, /metrics/* use the priority level exempt (flow schema lists)`},
		{"a flow schema that replaces a built-in one", []string{`flow: priorityLevels: batch`, `flow: flowSchemas: "service-accounts": {matchingPrecedence: 9000, priorityLevel: "batch", subjects: [{group: "system:serviceaccounts"}], rules: x: {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}}
	flow: priorityLevels: batch`}, []string{"changes FLOW_CHANGED flow/flowSchemas/service-accounts"},
			`"Requests of Group system:serviceaccounts to do anything with all resources in any namespace use the priority level batch (flow schema service-accounts), and used workload-low (flow schema service-accounts).","Requests of Group system:serviceaccounts to do anything but get with /*, and to get /* but /healthz, /healthz/*, /livez, /livez/*, /readyz, /readyz/* use the priority level global-default (flow schema global-default), and used workload-low (flow schema service-accounts)."`},
		{"audit", []string{`level: "Metadata"`, `level: "Request"`}, []string{"changes AUDIT_CHANGED audit/rules/all"}, `The audit rule differs. More is recorded.","details":["More: everybody, all verbs, *: Request (all, bundle.cue:`},
		{"an audit rule that records less", []string{`audit: rules: all:`, `audit: rules: few: {order: -5, level: "None", subjects: [{group: "sre"}], verbs: ["get", "list"], apiGroups: [""], resources: ["secrets"]}
	audit: rules: all:`}, []string{"widens AUDIT_CHANGED audit/rules/few"}, `The audit rule is new. Less is recorded.","details":["Less: group sre, get and list, secrets: None (few, bundle.cue:`},
		{"an audit rule that changes nothing", []string{`audit: rules: all:`, `audit: rules: few: {order: -5, level: "Metadata", verbs: ["get", "list"], apiGroups: [""], resources: ["secrets"]}
	audit: rules: all:`}, []string{"changes AUDIT_CHANGED audit/rules/few"}, `The same is recorded of every request.`},
		{"no audit rules any more", []string{`audit: rules: all: {order: 10, level: "Metadata"}`, ``}, []string{"widens AUDIT_CHANGED audit/rules/all", "widens AUDIT_CHANGED builtin/secret-reads"}, `"path":"builtin/secret-reads"`},
		{"stages of all audit rules", []string{`audit: rules: all:`, `audit: omitStages: ["RequestReceived"]
	audit: rules: all:`}, []string{"widens AUDIT_CHANGED audit"}, `Metadata in ResponseStarted, ResponseComplete, Panic (all, bundle.cue:`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := plantest.Sides(t, plantest.Databases, plantest.Edit(t, plantest.Databases, c.edit...))
			found := compare(t, s)
			got := lines(found)
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			data, err := json.Marshal(found)
			if err != nil {
				t.Fatal(err)
			}
			if text := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(data)); !strings.Contains(text, c.has) {
				t.Errorf("%q is not in %s", c.has, text)
			}
			again, err := json.Marshal(compare(t, s))
			if err != nil || string(again) != string(data) {
				t.Errorf("the second comparison differs: %s, %v", again, err)
			}
			for _, f := range found {
				if f.Message == "" || !strings.HasSuffix(f.Message, ".") || f.Rule != "CLUSTER_RENAMED" && f.Rule[:4] != "TEAM" && f.Source.Line+f.Was.Line == 0 {
					t.Errorf("no sentence, or no line: %+v", f)
				}
			}
		})
	}
}

// A first policy has no thousand new grants, but what gives power is said.
func TestAFirstPolicy(t *testing.T) {
	found := lines(compare(t, plantest.Sides(t, "", plantest.Edit(t, plantest.Databases, `denies: keep: {`, stay))))
	if want := []string{"breaks DENY_MEETS_CONTROLLERS data/denies/stay " + controllers}; !slices.Equal(found, want) {
		t.Errorf("%q", found)
	}
}

// A change of what the platform lets a team rule over or read is a finding, with the line of the limit.
func TestLimitsOfTeams(t *testing.T) {
	const platform = "teams: platform:"
	const kind, named = `"pipelines.delivery.corp.example": {`, `"pipelines.delivery.corp.example": {group: "delivery.corp.example"` + "\n"
	for _, c := range []struct {
		name string
		edit []string // of the bundle: pairs of old and new
		want []string
		has  string // in the JSON of the findings
	}{
		{"more groups", []string{`groups: ["delivery.corp.example"]`, `groups: ["delivery.corp.example", ""]`, kind, named}, []string{"widens TEAM_LIMITS_WIDENED delivery/groups"},
			`"before":"[\"delivery.corp.example\"]","after":"[\"delivery.corp.example\", \"\"]","source":"bundle.cue:8:`},
		{"all groups", []string{`groups: ["delivery.corp.example"]`, `groups: ["*"]`, kind, named}, []string{"widens TEAM_LIMITS_WIDENED delivery/groups"}, ""},
		{"all namespaces", []string{`namespaces: ["ship-*"]`, `namespaces: ["*"]`}, []string{"widens TEAM_LIMITS_WIDENED delivery/namespaces"}, `may now grant any right in the namespaces \"*\"`},
		{"a part of the namespaces", []string{`namespaces: ["ship-*"]`, `namespaces: ["ship-a", "ship-b-*"]`}, []string{"narrows TEAM_LIMITS_NARROWED delivery/namespaces"}, `may no longer grant any right in the namespaces \"ship-*\"`},
		{"other namespaces", []string{`namespaces: ["ship-*"]`, `namespaces: ["boat-*"]`}, []string{"widens TEAM_LIMITS_WIDENED delivery/namespaces", "narrows TEAM_LIMITS_NARROWED delivery/namespaces"}, ""},
		{"another order", []string{`namespaces: ["data-*", "shared"]`, `namespaces: ["shared", "data-*"]`}, nil, ""},
		{"kinds to read", []string{platform, `reads: data: ["configmaps"]` + "\n\t" + platform}, []string{"widens TEAM_LIMITS_WIDENED data/reads"}, `may now read objects of \"configmaps\"`},
		{"kinds to read that are in the groups", []string{platform, `reads: data: ["databases.data.corp.example"]` + "\n\t" + platform}, nil, ""},
		{"a new team", []string{platform, `teams: more: {contact: "#m", groups: ["more.example.com"], namespaces: []}` + "\n\t" + platform}, []string{"changes TEAM_ADDED more", "widens TEAM_LIMITS_WIDENED more/groups"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			old, changed := plantest.Databases, plantest.Edit(t, plantest.Databases, c.edit...)
			found := compare(t, plantest.Sides(t, old, changed))
			if got := lines(found); !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if data, _ := json.Marshal(found); !strings.Contains(string(data), c.has) {
				t.Errorf("%s is not in %s", c.has, data)
			}
		})
	}
	t.Run("a team that is gone", func(t *testing.T) {
		more := plantest.Edit(t, plantest.Databases, platform, `teams: more: {contact: "#m", groups: ["more.example.com"], namespaces: []}`+"\n\t"+platform)
		want := []string{"changes TEAM_REMOVED more"}
		if got := lines(compare(t, plantest.Sides(t, more, plantest.Databases))); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("a policy that does not record limits", func(t *testing.T) {
		sides := plantest.Sides(t, plantest.Databases, plantest.Databases)
		older := *sides.From.Form()
		older.Teams = nil
		var err error
		if sides.From, err = policy.Of(&older); err != nil {
			t.Fatal(err)
		}
		found := compare(t, sides)
		if got := lines(found); !slices.Equal(got, []string{"changes TEAM_LIMITS_UNKNOWN teams"}) || len(found[0].Details) != 3 {
			t.Errorf("got %q: %+v", got, found)
		}
	})
}
