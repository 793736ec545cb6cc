package policy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
)

func TestAuditRulesAreInOrder(t *testing.T) {
	c, at := compiled(t, `audit: {
	§omitStages: ["RequestReceived"]
	omitManagedFields: true
	rules: {
		§rest: {order: 99, level: "Metadata"}
		§leases: {order: 10, level: "None", apiGroups: ["coordination.k8s.io"], resources: ["leases"], names: ["a"], namespaces: ["kube-system"]}
		§writes: {order: -3, level: "RequestResponse", verbs: policy.verbs.write, subjects: [{group: "x"}, {serviceAccount: "a/b"}], omitStages: ["Panic"], omitManagedFields: false, sync: true}
		§paths: {order: 5, level: "Metadata", nonResourceURLs: ["/metrics", "/healthz*"], subjects: [{user: "u"}], memberOf: ["g"]}
	}
}`)
	no := false
	want := policy.Audit{OmitStages: list{"RequestReceived"}, OmitManagedFields: true, Source: at[0], Rules: []policy.AuditRule{
		{ID: "audit/rules/writes", Level: "RequestResponse", Verbs: list{"create", "update", "patch", "delete"},
			Subjects: []policy.Subject{{Group: "x"}, {User: "system:serviceaccount:a:b"}}, OmitStages: list{"Panic"}, OmitManagedFields: &no, Sync: true, Source: at[3]},
		{ID: "audit/rules/paths", Level: "Metadata", NonResourceURLs: list{"/metrics", "/healthz*"}, Subjects: []policy.Subject{{User: "u"}}, MemberOf: list{"g"}, Source: at[4]},
		{ID: "audit/rules/leases", Level: "None", APIGroups: list{"coordination.k8s.io"}, Resources: list{"leases"}, Names: list{"a"}, Namespaces: list{"kube-system"}, Source: at[2]},
		{ID: "audit/rules/rest", Level: "Metadata", Source: at[1]},
	}}
	if diff := cmp.Diff(want, c.Form.Audit); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Warnings != nil {
		t.Errorf("it warns: %v", c.Warnings)
	}
}

func TestMistakesInAuditRules(t *testing.T) {
	// rule is a rule of the level Request.
	rule := func(fields string) string { return `audit: rules: §x: {order: 1, level: "Request", ` + fields + `}` }
	field := func(fields string) string { return `audit: rules: x: {order: 1, level: "Request", ` + fields + `}` }
	const at = "bundle.audit.rules.x"
	for name, tc := range map[string]struct{ bundle, want string }{
		"the same order": {`audit: rules: {
			a: {order: 1, level: "None"}
			b: {level: "None", §order: 1}
		}`, `bundle.audit.rules.b.order: audit/rules/a and audit/rules/b have the same order, 1; one has to come first; the other one is at bundle.cue:12`},
		"a level":                      {`audit: rules: x: {order: 1, level: §"Metdata"}`, at + `.level: "Metdata" is not one of "Metadata", "None", "Request", "RequestResponse"; did you mean "Metadata"?`},
		"a stage":                      {field(`omitStages: [§"Received"]`), at + `.omitStages.0: "Received" is not one of "Panic", "RequestReceived", "ResponseComplete", "ResponseStarted"`},
		"a verb":                       {field(`verbs: [§"*"]`), at + `.verbs.0: "*" is not one of "create", "delete", "deletecollection", "get", "head", "list", "options", "patch" and 4 more`},
		"a group":                      {field(`apiGroups: [§"rbac.authorisation.k8s.io"], resources: ["clusterroles"]`), at + `.apiGroups.0: nothing is served in the API group "rbac.authorisation.k8s.io"; did you mean "rbac.authorization.k8s.io"?`},
		"a group of no resources":      {field(`apiGroups: ["", §"coordination.k8s.io"], resources: ["secrets"]`), at + `.apiGroups.1: the API group "coordination.k8s.io" has none of these resources; leave it out`},
		"a group alone":                {field(`apiGroups: [§"rbac.authorisation.k8s.io"]`), at + `.apiGroups.0: nothing is served in the API group "rbac.authorisation.k8s.io"; did you mean "rbac.authorization.k8s.io"?`},
		"a resource":                   {field(`resources: ["configmaps", §"secret"]`), at + `.resources.1: "secret" is not served in any of these API groups; did you mean "secrets"?`},
		"a resource with subresources": {field(`apiGroups: [""], resources: [§"secret/*"]`), at + `.resources.0: "secret" is not served in the API group ""; did you mean "secrets"?`},
		"a subresource":                {field(`apiGroups: [""], resources: [§"namespaces/finalise"]`), at + `.resources.0: "namespaces" has no subresource "finalise"; did you mean "namespaces/finalize"?`},
		"a subresource of all":         {field(`resources: [§"*/statuses"]`), at + `.resources.0: no resource has a subresource "statuses"; did you mean "*/status"?`},
		"all subresources":             {field(`resources: [§"*/*"]`), at + `.resources.0: no resource has a subresource "*"; "*" alone is all resources with their subresources`},
		"resources and paths":          {rule(`resources: ["secrets"], nonResourceURLs: ["/metrics"]`), at + `: a rule is about resources or about nonResourceURLs, not both; make it two rules`},
		"namespaces and paths":         {rule(`namespaces: ["default"], nonResourceURLs: ["/metrics"]`), at + `: a rule is about resources or about nonResourceURLs, not both; make it two rules`},
		"a path":                       {field(`nonResourceURLs: ["/metrics", §"/a*b"]`), at + `.nonResourceURLs.1: no request is for a path "/a*b"; a * stands only at the end`},
		"a verb of paths":              {field(`resources: ["secrets"], verbs: [§"put"]`), at + `.verbs.0: no request for a resource has the verb "put"; the verb is "update"`},
		"a verb of resources":          {field(`nonResourceURLs: ["*"], verbs: [§"list"]`), at + `.verbs.0: no request for a path has the verb "list"; the verb is "get"`},
		"a resource outside": {"{\n" + widgets(widgetNames+`, scope: "Cluster", `+widgetSchema) + "\n" + field(`resources: ["secrets", §"widgets"], namespaces: ["default"]`) + "\n}",
			at + `.resources.1: "widgets" is not in namespaces, so that no request for it matches; make it a rule without namespaces, or add "" to them`},
		"a pattern of namespaces":       {field(`namespaces: ["default", §"kube-*"]`), at + `.namespaces.1: no namespace can have a name like "kube-*"; audit rules have no patterns of namespaces: name each of them, or leave namespaces out for all`},
		"names without resources":       {field(`§names: ["x"]`), at + `.names: names of objects without resources match nothing; add the resources of the objects`},
		"names of what is created":      {field(`resources: ["secrets"], verbs: ["create"], §names: ["x"]`), at + `.names: a request that creates an object does not name it in its path, so that none matches; leave out names, or add other verbs`},
		"no stages":                     {field(`§omitStages: ["RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"]`), at + `: the rule omits all stages, so that nothing is recorded; leave one of them, or write level: "None"`},
		"no stages with those for all":  {`audit: {omitStages: ["Panic", "RequestReceived"], rules: x: {order: 1, level: "Request", §omitStages: ["ResponseStarted", "ResponseComplete"]}}`, at + `: the rule omits all stages, so that nothing is recorded; leave one of them, or write level: "None"; Panic, RequestReceived are omitted for all rules`},
		"an answer that waits for none": {`audit: rules: x: {order: 1, level: "None", §sync: true}`, at + `.sync: the answer cannot wait for a record: at the level None there is none; leave out sync, or raise the level`},
		"everybody":                     {field(`subjects: [{user: "a"}, §{group: "*"}]`), at + `.subjects.1: no user or group has the name "*"; leave out subjects: then the requests of all users match`},
		"members of groups":             {field(`subjects: [§{group: "a"}], memberOf: ["b"]`), at + `.subjects.0: memberOf is for users, and this is a group; make it two rules, or leave out memberOf`},
		"an empty list":                 {field(`§verbs: []`), at + `.verbs: the list is empty; name something, or leave it out: then all requests match`},
		"a field":                       {field(`§resourceNames: ["a"]`), at + `.resourceNames: field not allowed; did you mean "resources"?`},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want) })
	}
}
