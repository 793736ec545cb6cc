package policy_test

import (
	"net/netip"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"stele.dev/stele/policy"
)

// noPEM looks like a certificate.
const noPEM = `"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"`

func TestMistakesInAggregates(t *testing.T) {
	const good = `url: "https://weather.example.com", group: "weather.example.com", versions: ["v1"]`
	for name, test := range map[string]struct {
		aggregate string
		want      []string
	}{
		"none":               {`w: {` + good + `}`, nil},
		"plain HTTP":         {`w: {§url: "http://weather.example.com", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: the server is reached by TLS only: the url does not begin with https://; write https://HOST:PORT`}},
		"a path":             {`w: {§url: "https://weather.example.com/x", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: the url has a path, a query or a fragment: those of each request are sent; write https://HOST:PORT`}},
		"a user":             {`w: {§url: "https://u:p@weather.example.com", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: the url has a user: this server shows a client certificate instead; write https://HOST:PORT`}},
		"a port":             {`w: {§url: "https://weather.example.com:99999", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: "99999" is no port; write https://HOST:PORT`}},
		"loopback":           {`w: {§url: "https://127.0.0.1:8443", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: 127.0.0.1 is an address of this machine, which private: true would allow; write https://HOST:PORT`}},
		"loopback by name":   {`w: {§url: "https://localhost", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: ::1 is an address of this machine, which private: true would allow; write https://HOST:PORT`}},
		"loopback, allowed":  {`w: {url: "https://127.0.0.1:8443", group: "w.example.com", versions: ["v1"], private: true}`, nil},
		"a private address":  {`w: {§url: "https://[fd00::1]:8443", group: "w.example.com", versions: ["v1"]}`, []string{`bundle.aggregate.w.url: fd00::1 is a private address, which private: true would allow; write https://HOST:PORT`}},
		"metadata of clouds": {`w: {§url: "https://169.254.169.254", group: "w.example.com", versions: ["v1"], private: true}`, []string{`bundle.aggregate.w.url: 169.254.169.254 is no address of a server: link-local addresses, multicast and 0.0.0.0 are refused; write https://HOST:PORT`}},
		"no PEM":             {`w: {` + good + `, §caBundle: "x"}`, []string{`bundle.aggregate.w.caBundle: it is not a list of certificates in PEM; give the certificates in PEM`}},
		"no certificate":     {`w: {` + good + `, §caBundle: ` + noPEM + `}`, []string{`bundle.aggregate.w.caBundle: one of its certificates cannot be read: x509: malformed certificate; give the certificates in PEM`}},
		"a version twice":    {`w: {url: "https://weather.example.com", group: "w.example.com", versions: ["v1", §"v1"]}`, []string{`bundle.aggregate.w.versions.1: the version v1 is there twice; leave it out`}},
		"no time":            {`w: {` + good + `, §answerTimeout: "0s"}`, []string{`bundle.aggregate.w.answerTimeout: no server answers in no time; give a time such as 5s`}},
		"a group of kinds":   {`w: {url: "https://weather.example.com", §group: "a.example.com", versions: ["v9"]}`, []string{`bundle.aggregate.w.group: the API group a.example.com has kinds of this bundle; one is disks.a.example.com (bundle.cue:11)`}},
		"a built-in group":   {`w: {url: "https://weather.example.com", §group: "coordination.k8s.io", versions: ["v1"]}`, []string{`bundle.aggregate.w.group: the API group coordination.k8s.io is that of kinds that are built in; name another group`}},
		"a group of its own": {`w: {url: "https://weather.example.com", §group: "policy.stele.dev", versions: ["v1"]}`, []string{`bundle.aggregate.w.group: the API group policy.stele.dev is that of this server; name another group`}},
		"a group twice": {`{a: {url: "https://a.example.com", group: "w.example.com", versions: ["v1"]}, b: {url: "https://b.example.com", §group: "w.example.com", versions: ["v2"]}}`,
			[]string{`bundle.aggregate.b.group: two servers answer the API group w.example.com: one group has one server; the other one is aggregate/a (bundle.cue:16)`}},
		"no group": {`w: {url: "https://weather.example.com", group: §"apps", versions: ["v1"]}`, []string{`bundle.aggregate.w.group: "apps" is not an API group with a dot, such as metrics.example.com`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expect(t, viewed+"aggregate: "+test.aggregate, test.want...)
		})
	}
}

// Only the other server knows its resources, so that rules may name any of its group.
func TestRulesNameResourcesOfAggregates(t *testing.T) {
	p := loaded(t, `{
		aggregate: weather: {url: "https://weather.example.com", group: "weather.example.com", versions: ["v1beta1", "v1"]}
		teams: a: rbac: {
			clusterRoles: r: rules: x: {verbs: ["get"], apiGroups: ["weather.example.com"], resources: ["forecasts", "forecasts/rain"]}
			bindings: b: {clusterRole: "r", subjects: [{user: "ann"}], namespaces: ["a-*"]}
		}
	}`)
	a := p.Aggregate(schema.GroupVersion{Group: "weather.example.com", Version: "v1"})
	if a == nil || a.Name() != "weather" || strings.Join(a.Versions, " ") != "v1 v1beta1" || a.Source.Line == 0 {
		t.Fatalf("the policy has the server %+v", a)
	}
	if p.Aggregate(schema.GroupVersion{Group: "weather.example.com", Version: "v2"}) != nil || p.Form().AllowsDefinitions("weather.example.com") {
		t.Error("the group is also somebody else's")
	}
	if has, _ := p.Form().Served().Find("weather.example.com", "storms"); !has {
		t.Error("who-can does not know its resources")
	}
}

func TestAddressesOfAggregates(t *testing.T) {
	for text, private := range map[string]string{
		"8.8.8.8": "any", "2001:4860:4860::8888": "any", "10.1.2.3": "private", "192.168.0.1": "private", "100.64.0.1": "private", "127.0.0.2": "private", "::1": "private",
		"::ffff:127.0.0.1": "private", "fd12::1": "private", "169.254.169.254": "none", "::ffff:169.254.169.254": "none", "fe80::1": "none", "0.0.0.0": "none", "::": "none", "224.0.0.1": "none",
	} {
		ip := netip.MustParseAddr(text)
		if got := policy.WrongAggregateAddress(ip, false) == ""; got != (private == "any") {
			t.Errorf("%s without private: allowed is %v", text, got)
		}
		if got := policy.WrongAggregateAddress(ip, true) == ""; got != (private != "none") {
			t.Errorf("%s with private: allowed is %v", text, got)
		}
	}
}
