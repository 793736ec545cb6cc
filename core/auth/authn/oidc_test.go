package authn_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
)

// flags describe an issuer as kube-apiserver's --oidc-* flags do if they say no more than they have to, but for what changes.
func flags(t testing.TB, i *authntest.Issuer, changes ...func(*authn.OIDC)) *authn.OIDC {
	o := &authn.OIDC{IssuerURL: i.URL, ClientID: authntest.Audience, CAFile: file(t, i.CA), UsernameClaim: "sub", SigningAlgs: []string{"RS256"}}
	for _, change := range changes {
		change(o)
	}
	return o
}

// described is an authenticator that can ask the issuer of the flags.
func described(t testing.TB, i *authntest.Issuer, o *authn.OIDC) *authn.Authenticator {
	t.Helper()
	a := newAuthenticator(t, authn.Options{OIDC: o})
	eventually(t, "the issuer is known", func() bool { return metric(t, a, "stele_authentication_issuer_ready") == 1 })
	return a
}

func TestFlagsDescribeAnIssuer(t *testing.T) {
	i := issuer(t)
	claims := map[string]any{"email": "carol@example.com", "roles": []string{"dev", "ops"}, "team": "blue", "tier": ""}
	for what, c := range map[string]struct {
		flags func(*authn.OIDC)
		want  string // "" for nobody
	}{
		"no more than needed":          {func(*authn.OIDC) {}, i.URL + "#carol"},
		"a prefix":                     {func(o *authn.OIDC) { o.UsernamePrefix = "idp:" }, "idp:carol"},
		"no prefix":                    {func(o *authn.OIDC) { o.UsernamePrefix = "-" }, "carol"},
		"the address":                  {func(o *authn.OIDC) { o.UsernameClaim = "email" }, "carol@example.com"},
		"the address with a prefix":    {func(o *authn.OIDC) { o.UsernameClaim, o.UsernamePrefix = "email", "idp:" }, "idp:carol@example.com"},
		"a claim that it has not":      {func(o *authn.OIDC) { o.UsernameClaim = "login" }, ""},
		"groups":                       {func(o *authn.OIDC) { o.UsernamePrefix, o.GroupsClaim = "-", "roles" }, "carol dev ops"},
		"one group, with a prefix":     {func(o *authn.OIDC) { o.UsernamePrefix, o.GroupsClaim, o.GroupsPrefix = "-", "team", "idp:" }, "carol idp:blue"},
		"claims that it has":           {func(o *authn.OIDC) { o.RequiredClaims = map[string]string{"team": "blue", "tier": ""} }, i.URL + "#carol"},
		"a claim that it has not so":   {func(o *authn.OIDC) { o.RequiredClaims = map[string]string{"team": "blue", "tier": "gold"} }, ""},
		"a claim that it does not say": {func(o *authn.OIDC) { o.RequiredClaims = map[string]string{"tenant": ""} }, ""},
		"another client":               {func(o *authn.OIDC) { o.ClientID = "somebody else" }, ""},
		"another algorithm":            {func(o *authn.OIDC) { o.SigningAlgs = []string{"ES256", "PS256"} }, ""},
		"no algorithm":                 {func(o *authn.OIDC) { o.SigningAlgs = nil }, i.URL + "#carol"},
	} {
		a := described(t, i, flags(t, i, c.flags))
		got := ""
		if u, err := a.Authenticate(bearer(i.Token("carol", claims))); err == nil {
			got = strings.TrimSuffix(strings.Join(ofUser(u), " "), " system:authenticated")
		}
		if got != c.want {
			t.Errorf("%s: got in as %q, not %q", what, got, c.want)
		}
	}
}

func TestBadTokensOfAnIssuerThatFlagsDescribe(t *testing.T) {
	i, other := issuer(t), issuer(t)
	a := described(t, i, flags(t, i))
	bad := authntest.Bad(i, other, "mallory")
	bad["of an issuer that no flag describes"] = other.Token("mallory", nil)
	elliptic := authntest.NewKey("elliptic", "ES256")
	i.Publish(i.Key(), elliptic)
	bad["a published key, but not by --oidc-signing-algs"] = elliptic.Sign(nil, i.Claims("mallory", nil))
	for what, token := range bad {
		for range 2 {
			if got := who(a, bearer(token)); got != "" {
				t.Errorf("%s: got in as %q", what, got)
			}
		}
	}
	if got := who(a, bearer(i.Token("mallory", nil))); got != i.URL+"#mallory" {
		t.Errorf("what is good: got in as %q", got)
	}
}

func TestFlagsThatDescribeNoIssuerAreNamed(t *testing.T) {
	i := issuer(t)
	for says, wrong := range map[string]func(*authn.OIDC){
		`--oidc-issuer-url: Invalid value: "http://a.example.com": URL scheme must be https`: func(o *authn.OIDC) { o.IssuerURL = "http://a.example.com" },
		`--oidc-issuer-url: Required value`:                                                  func(o *authn.OIDC) { o.IssuerURL = "" },
		`--oidc-issuer-url: Invalid value: "https://stele.example.com"`:                      func(o *authn.OIDC) { o.IssuerURL = "https://stele.example.com" },
		`--oidc-client-id: Required value`:                                                   func(o *authn.OIDC) { o.ClientID = "" },
		`--oidc-username-claim: Required value`:                                              func(o *authn.OIDC) { o.UsernameClaim = "" },
		`--oidc-required-claim: Required value`:                                              func(o *authn.OIDC) { o.RequiredClaims = map[string]string{"": "x"} },
		`--oidc-signing-algs: "HS256" is not among ES256, `:                                  func(o *authn.OIDC) { o.SigningAlgs = []string{"RS256", "HS256"} },
		`--oidc-signing-algs: "none" is not among ES256, `:                                   func(o *authn.OIDC) { o.SigningAlgs = []string{"none"} },
		`--oidc-ca-file: open `:                                                              func(o *authn.OIDC) { o.CAFile += ".missing" },
		`--oidc-ca-file: it is empty`:                                                        func(o *authn.OIDC) { o.CAFile = file(t, "") },
		`--oidc-ca-file: Invalid value`:                                                      func(o *authn.OIDC) { o.CAFile = file(t, "x") },
	} {
		a, err := authn.New(authn.Options{OIDC: flags(t, i, wrong), Disallowed: []string{"https://stele.example.com"}})
		switch {
		case err == nil:
			a.Close()
			t.Errorf("started, instead of %q", says)
		case !strings.HasPrefix(err.Error(), says):
			t.Errorf("%v, which does not say %q", err, says)
		}
	}
	_, err := authn.New(authn.Options{OIDC: flags(t, i), Configuration: file(t, authntest.Configuration(i))})
	if err == nil || err.Error() != "--authentication-config and --oidc-* flags exclude each other" {
		t.Errorf("both: %v", err)
	}
}

// The certificate of the issuer is that of an authority which the file has only later.
func TestTheAuthoritiesOfAnIssuerThatFlagsDescribeChange(t *testing.T) {
	i := issuer(t)
	var log said
	o := flags(t, i, func(o *authn.OIDC) { o.CAFile = file(t, string(newSigner(t, "another").pem)) })
	a := running(t, authn.Options{OIDC: o, Logger: log.logger()})
	token := i.Token("carol", nil)
	if got := who(a, bearer(token)); got != "" {
		t.Errorf("without its authority: got in as %q", got)
	}
	replace(t, o.CAFile, i.CA)
	eventually(t, "the token counts", func() bool { return who(a, bearer(token)) == i.URL+"#carol" })
	replace(t, o.CAFile, "")
	eventually(t, "it is said that the file is wrong", func() bool { return log.contains("--oidc-ca-file: it is empty") })
	if got := who(a, bearer(token)); got != i.URL+"#carol" {
		t.Errorf("while the file is wrong: got in as %q", got)
	}
	if reloads := metric(t, a, "stele_authentication_file_reloads_total", "oidc-ca-file", "success", "failure"); reloads != 2 {
		t.Errorf("the metric says %v", reloads)
	}
}
