package policy_test

import "testing"

func TestMistakesInWebhooks(t *testing.T) {
	team := func(webhooks string) string {
		return "{\nteams: wards: {contact: \"#x\", groups: [\"\"], namespaces: [\"*\"], admission: webhooks: {\n" + webhooks + "\n}}\n}"
	}
	const (
		at    = "bundle.teams.wards.admission.webhooks.validating.\"a.example.com\""
		rules = `sideEffects: "None", rules: r: {apiGroups: [""], operations: ["*"], resources: `
		there = `clientConfig: url: "https://a.example.com"`
	)
	one := func(webhook string) string { return team("validating: \"a.example.com\": {\n" + webhook + "\n}") }
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"all subresources of a kind":       {one(rules + `["configmaps/*"]}` + "\n" + there), nil},
		"all subresources of all kinds":    {one(rules + `["*/*"]}` + "\n" + there), nil},
		"a kind that does not exist":       {one(rules + `["secrets", §"configmap"]}` + "\n" + there), []string{at + `.rules.r.resources.1: "configmap" is not served in the API group ""; did you mean "configmaps"?`}},
		"all subresources of such a kind":  {one(rules + `["secrets", §"configmap/*"]}` + "\n" + there), []string{at + `.rules.r.resources.1: "configmap" is not served in the API group ""; did you mean "configmaps"?`}},
		"no TLS":                           {one(rules + `["secrets"]}` + "\n" + `clientConfig: §url: "http://a.example.com"`), []string{at + `.clientConfig.url: a webhook is asked by TLS only: the url does not begin with https://; write https://HOST:PORT/PATH`}},
		"a query":                          {one(rules + `["secrets"]}` + "\n" + `clientConfig: §url: "https://a.example.com?a=b"`), []string{at + `.clientConfig.url: the url has a query or a fragment, which are not sent; write https://HOST:PORT/PATH`}},
		"a caBundle without certificates":  {one(rules + `["secrets"]}` + "\n" + there + "\nclientConfig: §caBundle: \"x\""), []string{at + `.clientConfig.caBundle: it is not a list of certificates in PEM; give the certificates in PEM`}},
		"no address":                       {one(rules + `["secrets"]}` + "\n§clientConfig: {}"), []string{at + `.clientConfig: a webhook is at a url, or at a service; give one of them`}},
		"more time than there is":          {one(rules + `["secrets"]}` + "\n" + there + "\ntimeoutSeconds: §31"), []string{at + `.timeoutSeconds: 31 is not at most 30`}},
		"a condition that is no condition": {one(rules + `["secrets"]}` + "\n" + there + "\nmatchConditions: §c: \"object.metadata.name\""), []string{at + `.matchConditions.c: in CEL: its value is of type string, and must be of type bool`}},
		"only connections":                 {one(`sideEffects: "None", rules: r: {apiGroups: [""], resources: ["secrets"], operations: [§"CONNECT"]}` + "\n" + there), []string{at + `.rules.r.operations: nothing here can be connected to: the rule matches nothing; name CREATE, UPDATE or DELETE`}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}
