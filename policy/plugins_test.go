package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"stele.dev/stele/policy"
	"stele.dev/stele/policy/probes"
	"stele.dev/stele/schemas"
)

const checksum = `sha256: "linux/amd64": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"`

func TestPluginsAreInTheForm(t *testing.T) {
	c, at := compiled(t, `{
	authorizers: ["deny", "rbac", "plugin:z", "plugin:a"]
	plugins: §z: {`+checksum+`}
	plugins: §a: {
		`+checksum+`
		sha256: "linux/arm64": "0000000000000000000000000000000000000000000000000000000000000000"
		match: {apiGroups: [""], resources: ["secrets"], verbs: ["delete"]}
		failurePolicy: "NoOpinion", timeout: "5s", cacheTTL: "1m", shadow: true, config: {b: 1, a: "x"}, secrets: t: secret: "tickets"
	}
}`)
	sum := "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	want := []policy.Plugin{
		{
			Name: "a", SHA256: map[string]string{"linux/amd64": sum, "linux/arm64": strings.Repeat("0", 64)},
			Match:         policy.PluginMatch{APIGroups: list{""}, Resources: list{"secrets"}, Verbs: list{"delete"}},
			FailurePolicy: "NoOpinion", Timeout: 5 * time.Second, CacheTTL: time.Minute, Shadow: true,
			Config: []byte(`{"b":1,"a":"x"}`), Secrets: map[string]string{"t": "tickets"}, Source: at[1],
		},
		{Name: "z", SHA256: map[string]string{"linux/amd64": sum}, FailurePolicy: "Deny", Timeout: time.Second, Source: at[0]},
	}
	if diff := cmp.Diff(want, c.Form.Plugins); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(list{"deny", "rbac", "plugin:z", "plugin:a"}, list(c.Form.Authorizers)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if c.Warnings != nil {
		t.Errorf("it warns of %v", c.Warnings)
	}
}

func TestTheUsualChainIsNotSaid(t *testing.T) {
	said, _ := compiled(t, `authorizers: ["deny", "rbac"]`)
	unsaid, _ := compiled(t, `{}`)
	if said.Form.Authorizers != nil || unsaid.Form.Authorizers != nil {
		t.Errorf("%v, %v", said.Form.Authorizers, unsaid.Form.Authorizers)
	}
}

func TestMistakesInPlugins(t *testing.T) {
	for name, tc := range map[string]struct {
		bundle string
		want   []string
	}{
		"an authorizer twice": {`authorizers: ["deny", "rbac", §"deny"]`,
			[]string{`bundle.authorizers.2: "deny" is named twice; its first answer counts: leave out the second one`}},
		"a plugin by a wrong name": {"{\nauthorizers: [\"deny\", \"rbac\", §\"plugin:curfw\"]\nplugins: curfew: {" + checksum + "}\n}",
			[]string{`bundle.authorizers.2: there is no plugin "curfw" in plugins; did you mean "plugin:curfew"?`}},
		"a plugin of which nothing is said": {`authorizers: ["deny", "rbac", §"plugin:p"]`,
			[]string{`bundle.authorizers.2: there is no plugin "p" in plugins; say which program it is: plugins: "p": sha256: …`}},
		"no time": {"{\nauthorizers: [\"deny\", \"rbac\", \"plugin:p\"]\nplugins: p: {" + checksum + "\n§timeout: \"0s\"}\n}",
			[]string{`bundle.plugins.p.timeout: a plugin has more than 0s and at most 10s for a decision, not 0s`}},
		"too much time": {"{\nauthorizers: [\"deny\", \"rbac\", \"plugin:p\"]\nplugins: p: {" + checksum + "\n§timeout: \"11s\"}\n}",
			[]string{`bundle.plugins.p.timeout: a plugin has more than 0s and at most 10s for a decision, not 11s`}},
		"no checksum": {"{\nauthorizers: [\"deny\", \"rbac\", \"plugin:p\"]\nplugins: p: §sha256: {}\n}",
			[]string{`bundle.plugins.p.sha256: no program may run: there is no checksum; name those of the plugin's releases by system: "linux/amd64": "..."`}},
		"a checksum that is none": {"{\nauthorizers: [\"deny\", \"rbac\", \"plugin:p\"]\nplugins: p: sha256: \"linux/amd64\": §\"abc\"\n}",
			[]string{`bundle.plugins.p.sha256."linux/amd64": "abc" is not a SHA-256 in hexadecimal`}},
		"a plugin that cannot be called so": {"{\nplugins: §\"../x\": {" + checksum + "}\n}", []string{`bundle.plugins."../x": "../x" cannot be a name here; write a name of lower-case letters, digits, '-', '.' and ':'`}},
		"a chain of nobody": {`§authorizers: []`,
			[]string{`bundle.authorizers: a chain of no authorizers would refuse everything; leave authorizers out for the usual ones: deny, system:masters, rbac`}},
		"a webhook without a name": {`authorizers: ["deny", §"webhook:", "rbac"]`,
			[]string{`bundle.authorizers.1: "" can be the name of no webhook; name an entry of the operator's --authorization-config: lower-case letters, digits, dashes and dots`}},
		"a match of nothing": {"{\nauthorizers: [\"deny\", \"rbac\", \"plugin:p\"]\nplugins: p: {" + checksum + "\nmatch: resources: [§\"secret\"]}\n}",
			[]string{`bundle.plugins.p.match.resources.0: "secret" is not served in any of these API groups; did you mean "secrets"?`}},
	} {
		t.Run(name, func(t *testing.T) { expect(t, tc.bundle, tc.want...) })
	}
}

// An order that most likely means something else than what it does is said, with its place.
func TestWarningsAboutTheChain(t *testing.T) {
	for name, tc := range map[string]struct {
		bundle string
		want   string
	}{
		"a plugin that nobody asks":  {"plugins: §p: {" + checksum + "}", `bundle.plugins.p: the plugin is neither in the chain nor in admission: nobody asks it; put "plugin:p" into authorizers, or name it in the admission of a team`},
		"no denies":                  {`§authorizers: ["rbac"]`, `bundle.authorizers: deny is not in the chain: no deny of the policy has an effect; put "deny" first`},
		"no roles":                   {`§authorizers: ["deny", "abac"]`, `bundle.authorizers: rbac is not in the chain: no role and no binding grants anything; put "rbac" into authorizers`},
		"denies behind roles":        {`authorizers: ["rbac", §"deny"]`, `bundle.authorizers.1: deny stands behind rbac: what that allows is not denied; put "deny" first`},
		"a webhook before masters":   {`authorizers: ["deny", §"webhook:x", "system:masters", "rbac"]`, `bundle.authorizers.1: webhook:x is asked before system:masters are let in: when it denies or cannot be asked it locks out those who would mend that; leave system:masters out of the chain, or put them in front of webhook:x`},
		"masters before denies":      {`authorizers: ["system:masters", "deny", "rbac"]`, ""},
		"masters in the right place": {`authorizers: ["deny", "system:masters", "webhook", "rbac"]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, at := compiled(t, tc.bundle)
			got := ""
			for _, w := range c.Warnings {
				if len(at) == 0 || w.Pos != at[0] {
					t.Errorf("it stands at %s, want %v", w.Pos, at)
				}
				w.Pos = schemas.Position{}
				got += w.String()
			}
			if got != tc.want {
				t.Errorf("it warns %q\n    want %q", got, tc.want)
			}
		})
	}
}

// Who puts a policy in force is told of authorizers that may allow more than before.
func TestWhatAChainGains(t *testing.T) {
	const a, b = `plugins: a: {` + checksum + `}`, `plugins: §b: {` + checksum + `, shadow: true}`
	for name, tc := range map[string]struct{ was, is, want string }{
		"nothing": {`{}`, `{}`, ""},
		"a webhook": {`{}`, `authorizers: ["deny", "rbac", "webhook"]`,
			"bundle.authorizers: webhook joins the chain: what it allows is allowed from now on, whatever roles and bindings say"},
		"what was there before": {`authorizers: ["deny", "rbac", "webhook"]`, `authorizers: ["deny", "webhook", "rbac"]`, ""},
		"a shadow": {"{\n" + a + "\nauthorizers: [\"deny\", \"rbac\", \"plugin:a\"]\n}", "{\n" + a + "\n" + b + "\nauthorizers: [\"deny\", \"rbac\", \"plugin:a\", \"plugin:b\"]\n}",
			"bundle.cue:13: bundle.authorizers: plugin:b joins the chain as a shadow: it is asked, and not heeded"},
		"less": {`authorizers: ["deny", "rbac", "webhook"]`, `{}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before, _ := compiled(t, strings.ReplaceAll(tc.was, here, ""))
			encoded, _ := before.Form.Encode()
			was, err := probes.Load(encoded)
			if err != nil {
				t.Fatal(err)
			}
			is, _ := compiled(t, tc.is)
			if got := strings.TrimSpace(is.Form.Gained(was).Error()); got != tc.want {
				t.Errorf("it says %q\n   want %q", got, tc.want)
			}
		})
	}
}
