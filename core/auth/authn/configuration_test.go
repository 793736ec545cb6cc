package authn_test

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
)

func TestAllVersionsOfAConfigurationAreRead(t *testing.T) {
	i := issuer(t)
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		text := strings.Replace(authntest.Configuration(i), "apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/"+version, 1)
		trusting(t, authn.Options{Configuration: file(t, text)}, i)
	}
}

func TestAWrongConfigurationIsNotStartedWith(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for what, c := range map[string]struct{ content, says string }{
		"empty":                 {"", "it is empty"},
		"no YAML":               {"{", "parse error"},
		"no version":            {"kind: AuthenticationConfiguration", "apiVersion"},
		"unknown version":       {"apiVersion: apiserver.config.k8s.io/v9\nkind: AuthenticationConfiguration", "v9"},
		"another kind":          {"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []", "want an AuthenticationConfiguration"},
		"no object":             {"-----BEGIN CERTIFICATE-----\n", "it is no object; want an AuthenticationConfiguration"},
		"unknown field":         {head + "jwt:\n- issuer: {url: https://a.example.com, audiences: [a], port: 1}\n", `unknown field "jwt[0].issuer.port"`},
		"field twice":           {head + "jwt: []\njwt: []\n", `"jwt" already set`},
		"no issuer":             {head + "jwt:\n- claimMappings: {username: {claim: sub, prefix: ''}}\n", "jwt[0].issuer.url: Required value"},
		"plain HTTP":            {head + "jwt:\n- issuer: {url: http://a.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "jwt[0].issuer.url: Invalid value"},
		"our own issuer":        {head + "jwt:\n- issuer: {url: https://stele.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "jwt[0].issuer.url: Invalid value"},
		"issuer twice":          {head + "jwt:\n" + strings.Repeat("- issuer: {url: https://a.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", 2), "jwt[1].issuer.url: Duplicate value"},
		"no audience":           {head + "jwt:\n- issuer: {url: https://a.example.com}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "jwt[0].issuer.audiences: Required value"},
		"no prefix":             {head + "jwt:\n- issuer: {url: https://a.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub}}\n", "jwt[0].claimMappings.username.prefix: Required value"},
		"wrong expression":      {head + "jwt:\n- issuer: {url: https://a.example.com, audiences: [a]}\n  claimMappings: {username: {expression: 'claims.'}}\n", "jwt[0].claimMappings.username.expression: Invalid value"},
		"rule of no boolean":    {head + "jwt:\n- issuer: {url: https://a.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n  userValidationRules: [{expression: user.username}]\n", "jwt[0].userValidationRules[0].expression: Invalid value"},
		"reserved extra":        {head + "jwt:\n- issuer: {url: https://a.example.com, audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: kubernetes.io/x, valueExpression: claims.x}]}\n", "jwt[0].claimMappings.extra[0].key: Invalid value"},
		"no certificate":        {head + "jwt:\n- issuer: {url: https://a.example.com, audiences: [a], certificateAuthority: x}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "jwt[0].issuer.certificateAuthority: Invalid value"},
		"conditions of nothing": {head + "anonymous: {enabled: false, conditions: [{path: /x}]}\n", "anonymous.conditions: Invalid value"},
	} {
		path := file(t, c.content)
		a, err := authn.New(authn.Options{Configuration: path, Disallowed: []string{"https://stele.example.com"}})
		switch {
		case err == nil:
			a.Close()
			t.Errorf("%s: started", what)
		case !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path):
			t.Errorf("%s: %v, which does not say %q", what, err, c.says)
		}
	}
}

func TestFilesThatCannotBeReadAreNotStartedWith(t *testing.T) {
	missing := t.TempDir() + "/missing"
	for what, o := range map[string]authn.Options{
		"no token file":      {TokenFile: missing},
		"half a token":       {TokenFile: file(t, "token,bob\n")},
		"an open quote":      {TokenFile: file(t, "token,bob,1,\"devs\n")},
		"no configuration":   {Configuration: missing},
		"a folder of tokens": {TokenFile: os.TempDir()},
	} {
		if a, err := authn.New(o); err == nil {
			a.Close()
			t.Errorf("%s: started", what)
		}
	}
	for what, path := range map[string]string{"no authorities": missing, "no certificates in them": file(t, "x"), "nothing in them": file(t, "")} {
		if _, err := authn.NewAuthorities(path); err == nil {
			t.Errorf("%s: started", what)
		}
	}
}

// What is open to nobody in particular is what is configured, in one place.
func TestAnonymousRequests(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	on, off := &apiserver.AnonymousAuthConfig{Enabled: true}, &apiserver.AnonymousAuthConfig{}
	for _, c := range []struct {
		what          string
		configuration string
		flag          *apiserver.AnonymousAuthConfig
		open          string // of /, /healthz, /api
	}{
		{"nothing said", "", nil, "/healthz"},
		{"by the flag", "", on, "/ /healthz /api"},
		{"not by the flag", "", off, ""},
		{"the file says nothing of it", head, nil, "/healthz"},
		{"the file says nothing of it, the flag does", head, on, "/ /healthz /api"},
		{"by the file", head + "anonymous: {enabled: true}\n", nil, "/ /healthz /api"},
		{"not by the file", head + "anonymous: {enabled: false}\n", nil, ""},
		{"by the file, one path", head + "anonymous: {enabled: true, conditions: [{path: /api}]}\n", nil, "/api"},
	} {
		o := authn.Options{Anonymous: c.flag, TokenFile: file(t, "good,bob,b1\n")}
		if c.configuration != "" {
			o.Configuration = file(t, c.configuration)
		}
		a := newAuthenticator(t, o)
		var open []string
		for _, path := range []string{"/", "/healthz", "/api"} {
			q := request(nil)
			q.URL.Path = path
			if u, err := a.Authenticate(q); err == nil {
				if u != authn.Anonymous {
					t.Errorf("%s: %s is for %v", c.what, path, u)
				}
				open = append(open, path)
			}
			q = bearer("bad")
			q.URL.Path = path
			if got := who(a, q); got != "" {
				t.Errorf("%s: with a bad token, %s is for %q", c.what, path, got)
			}
		}
		if got := strings.Join(open, " "); got != c.open {
			t.Errorf("%s: open is %q, not %q", c.what, got, c.open)
		}
	}
	_, err := authn.New(authn.Options{Anonymous: on, Configuration: file(t, head+"anonymous: {enabled: true}\n")})
	if err == nil || !strings.Contains(err.Error(), "anonymous: Forbidden") {
		t.Errorf("said twice: %v", err)
	}
}
