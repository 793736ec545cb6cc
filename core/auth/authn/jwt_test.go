package authn_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"stele.dev/stele/core/auth/authn"
	"stele.dev/stele/core/auth/authn/authntest"
)

func TestATokenOfAnIssuerIsItsSubject(t *testing.T) {
	first, second := issuer(t), issuer(t)
	a := trusting(t, authn.Options{}, first, second)
	for range 2 { // the second time from memory
		u, err := a.Authenticate(bearer(second.Token("carol", map[string]any{"groups": []string{"ops"}})))
		if err != nil || !slices.Equal(ofUser(u), []string{"carol", "ops", "system:authenticated"}) {
			t.Errorf("got %v, %v", u, err)
		}
	}
}

// Whatever is wrong with it, nobody gets in, no matter whether it was verified before.
func TestBadTokensAreRefused(t *testing.T) {
	first, second := issuer(t), issuer(t)
	a := trusting(t, authn.Options{}, first, second)
	for what, token := range authntest.Bad(first, second, "mallory") {
		for range 2 {
			if got := who(a, bearer(token)); got != "" {
				t.Errorf("%s: got in as %q", what, got)
			}
			if _, ok, _ := a.Token(t.Context(), token, nil); ok {
				t.Errorf("%s: reviewed as valid", what)
			}
		}
	}
	if got := who(a, bearer(first.Token("mallory", nil))); got != "mallory" {
		t.Errorf("what is good: got in as %q", got)
	}
}

// The memory of what was verified does not outlive the token.
func TestATokenIsRefusedOnceItHasExpired(t *testing.T) {
	i := issuer(t)
	a := trusting(t, authn.Options{}, i)
	expiry := time.Now().Add(2 * time.Second).Truncate(time.Second)
	token := i.Token("carol", map[string]any{"exp": expiry.Unix()})
	if got := who(a, bearer(token)); got != "carol" && time.Now().Before(expiry) {
		t.Fatalf("before: got in as %q", got)
	}
	eventually(t, "the token is refused", func() bool { return who(a, bearer(token)) == "" })
	if early := time.Until(expiry); early > 0 {
		t.Errorf("it was refused %v before its end", early)
	}
	if late := time.Since(expiry); late > 8*time.Second { // the memory would have it for ten
		t.Errorf("it was refused %v after its end", late)
	}
}

func TestAnIssuersKeysRotate(t *testing.T) {
	i := issuer(t)
	a := trusting(t, authn.Options{}, i)
	old, next := i.Key(), authntest.NewKey("second", "ES256")
	i.Publish(next, old)
	for what, token := range map[string]string{"the new key": i.Token("carol", nil), "the old one": old.Sign(nil, i.Claims("carol", nil))} {
		if got := who(a, bearer(token)); got != "carol" {
			t.Errorf("%s, while both are published: got in as %q", what, got)
		}
	}
	i.Publish(next)
	if got := who(a, bearer(i.Token("dora", nil))); got != "dora" {
		t.Errorf("the new key: got in as %q", got)
	}
}

// Until then its tokens are refused, and all else goes on.
func TestAnIssuerMayComeLate(t *testing.T) {
	i := issuer(t)
	i.Down(true)
	a := newAuthenticator(t, authn.Options{Configuration: file(t, authntest.Configuration(i)), TokenFile: file(t, "good,bob,b1\n")})
	if got := who(a, bearer(i.Token("carol", nil))); got != "" {
		t.Errorf("its token: got in as %q", got)
	}
	if got := who(a, bearer("good")); got != "bob" {
		t.Errorf("a static token: got in as %q", got)
	}
	if ready := metric(t, a, "stele_authentication_issuer_ready"); ready != 0 {
		t.Errorf("the metric says %v", ready)
	}
}

func TestRulesOfAnIssuer(t *testing.T) {
	i := issuer(t)
	a := trusting(t, authn.Options{Configuration: file(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n"+i.Entry()+`  claimMappings:
    username: {expression: "claims.sub"}
    groups: {expression: "has(claims.roles) ? dyn(claims.roles).map(r, 'role:' + string(r)) : dyn([])"}
    uid: {claim: id}
    extra:
    - {key: example.com/tenant, valueExpression: "claims.?tenant.orValue('')"}
  claimValidationRules:
  - {expression: "!has(claims.hd) || claims.hd == 'example.com'", message: not of this house}
  userValidationRules:
  - {expression: "!user.username.startsWith('system:')", message: reserved}
  - {expression: "user.groups.all(g, !g.startsWith('system:'))", message: reserved}
`)})
	token := func(subject string, claims map[string]any) string {
		if claims == nil {
			claims = map[string]any{}
		}
		claims["id"] = "7"
		return i.Token(subject, claims)
	}
	eventually(t, "the issuer is known", func() bool { return who(a, bearer(token("probe", nil))) == "probe" })
	u, err := a.Authenticate(bearer(token("carol", map[string]any{"hd": "example.com", "roles": []string{"dev"}, "tenant": "blue"})))
	if err != nil || !slices.Equal(ofUser(u), []string{"carol", "role:dev", "system:authenticated"}) || u.GetUID() != "7" || !slices.Equal(u.GetExtra()["example.com/tenant"], []string{"blue"}) {
		t.Errorf("got %v, %v", u, err)
	}
	for what, token := range map[string]string{
		"a claim that a rule refuses": token("carol", map[string]any{"hd": "example.org"}),
		"a reserved name":             token("system:admin", nil),
		"a claim of the wrong type":   token("carol", map[string]any{"roles": 1}),
		"no name":                     token("", nil),
	} {
		if got := who(a, bearer(token)); got != "" {
			t.Errorf("%s: got in as %q", what, got)
		}
	}
}

// A token names whom it is for; who asks for others is told that it is not for them.
func TestATokenIsForTheAudiencesOfTheAPI(t *testing.T) {
	i := issuer(t)
	a := trusting(t, authn.Options{Audiences: []string{"api"}, TokenFile: file(t, "good,bob,b1\n")}, i)
	for what, token := range map[string]string{"static": "good", "of an issuer": i.Token("bob", nil)} {
		if resp, ok, err := a.Token(t.Context(), token, []string{"api", "more"}); !ok || err != nil || !slices.Equal(resp.Audiences, []string{"api"}) {
			t.Errorf("%s, for the API: %v, %v, %v", what, resp, ok, err)
		}
		if resp, ok, _ := a.Token(t.Context(), token, []string{"else"}); ok {
			t.Errorf("%s, for somebody else: %v", what, resp)
		}
		if got := who(a, bearer(token)); got != "bob" {
			t.Errorf("%s, in a request: got in as %q", what, got)
		}
	}
}

func TestWhatIsWrongWithATokenDoesNotHoldIt(t *testing.T) {
	first, second := issuer(t), issuer(t)
	a := trusting(t, authn.Options{}, first, second)
	for what, token := range authntest.Bad(first, second, "mallory") {
		_, err := a.Authenticate(bearer(token))
		if err != nil && len(token) > 2 && strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", what, err)
		}
		_, _, err = a.Token(httptest.NewRequest("GET", "/", nil).Context(), token, nil)
		if err != nil && len(token) > 2 && strings.Contains(err.Error(), token) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
