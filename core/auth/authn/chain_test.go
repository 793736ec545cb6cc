package authn_test

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"stele.dev/stele/core/auth/authn"
)

// saying is a way in that knows one token.
func saying(token, name string) authenticator.Token {
	return authenticator.TokenFunc(func(_ context.Context, got string) (*authenticator.Response, bool, error) {
		switch got {
		case token, "all":
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
		case "ignored":
			return nil, false, nil
		}
		return nil, false, errors.New(name + " does not know it")
	})
}

// refused hears of refusals.
type refused struct{ errs []string }

func (r *refused) Failed(_ *http.Request, err error) { r.errs = append(r.errs, err.Error()) }

func TestWaysInHaveAnOrder(t *testing.T) {
	ca, alice := client(t)
	proxied := false
	o := accepting(t, ca)
	o.FrontProxy = authenticator.RequestFunc(func(q *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: "proxied"}}, proxied, nil
	})
	o.TokenFile = file(t, "all,static,1\n")
	o.ServiceAccounts, o.BootstrapTokens, o.Webhook = saying("sa", "account"), saying("boot", "bootstrap"), saying("hook", "webhook")
	a := newAuthenticator(t, o)
	q := request(alice)
	q.Header.Set("Authorization", "Bearer all")
	if got := who(a, q); got != "alice" {
		t.Errorf("certificate and token: %q", got)
	}
	proxied = true
	if got := who(a, request(alice)); got != "proxied" {
		t.Errorf("a proxy's: %q", got)
	}
	proxied = false
	if got := who(a, bearer("all")); got != "static" {
		t.Errorf("a token that all know: %q", got)
	}
	// What one does not know another may.
	for token, want := range map[string]string{"sa": "account", "boot": "bootstrap", "hook": "webhook", "ignored": "", "else": ""} {
		if got := who(a, bearer(token)); got != want {
			t.Errorf("token %q: %q", token, got)
		}
	}
	o.TokenFile = ""
	if got := who(newAuthenticator(t, o), bearer("all")); got != "account" {
		t.Errorf("a token that all but the file know: %q", got)
	}
	o.ServiceAccounts = nil
	if got := who(newAuthenticator(t, o), bearer("all")); got != "bootstrap" {
		t.Errorf("a token that bootstrap tokens and the webhook know: %q", got)
	}
}

func TestAWrongCertificateDoesNotSpoilARightToken(t *testing.T) {
	ca, _ := client(t)
	_, foreign := client(t)
	o := accepting(t, ca)
	o.TokenFile = file(t, "good,bob,b1\n")
	a := newAuthenticator(t, o)
	for token, want := range map[string]string{"good": "bob", "bad": ""} {
		q := request(foreign)
		q.Header.Set("Authorization", "Bearer "+token)
		if got := who(a, q); got != want {
			t.Errorf("token %q: %q", token, got)
		}
	}
}

// It is as if it were not there, also where nobody in particular is let in.
func TestACertificateWithoutACommonNameIsNobody(t *testing.T) {
	ca, _ := client(t)
	o := accepting(t, ca)
	o.TokenFile = file(t, "good,bob,b1\n")
	nameless := issued(t, ca, "", "system:masters")
	a := newAuthenticator(t, o)
	if got := who(a, request(nameless)); got != "" {
		t.Errorf("alone: %q", got)
	}
	q := request(nameless)
	q.Header.Set("Authorization", "Bearer good")
	if got := who(a, q); got != "bob" {
		t.Errorf("with a token: %q", got)
	}
	q = request(nameless)
	q.URL.Path = "/healthz"
	if u, err := a.Authenticate(q); u != authn.Anonymous || err != nil {
		t.Errorf("where it is open: %v, %v", u, err)
	}
}

// Nor is a token: whom no policy can name must not be let in by their groups.
func TestATokenWithoutANameIsNobodys(t *testing.T) {
	i := issuer(t)
	a := trusting(t, authn.Options{TokenFile: file(t, "nameless,,7,\"system:masters\"\n")}, i)
	for what, token := range map[string]string{
		"a static token": "nameless",
		"a JWT":          i.Token("", map[string]any{"groups": []string{"system:masters"}}),
	} {
		if u, err := a.Authenticate(bearer(token)); err == nil || !strings.Contains(err.Error(), "without a name") {
			t.Errorf("%s: %v, %v", what, u, err)
		}
	}
}

// Operators hear what was wrong with each credential, once a request, and never of who had none.
func TestWhatIsWrongIsSaidTogether(t *testing.T) {
	ca, _ := client(t)
	_, foreign := client(t)
	o := accepting(t, ca)
	var heard refused
	o.Failures, o.ServiceAccounts, o.Webhook = &heard, saying("sa", "account"), saying("hook", "webhook")
	a := newAuthenticator(t, o)
	q := request(foreign)
	q.Header.Set("Authorization", "Bearer secret")
	_, err := a.Authenticate(q)
	for _, part := range []string{"certificate", "account does not know it", "webhook does not know it"} {
		if !errors.Is(err, authn.ErrUnauthorized) || len(heard.errs) != 1 || !strings.Contains(heard.errs[0], part) {
			t.Errorf("%q is missing in %q", part, heard.errs)
		}
	}
	who(a, request(nil))
	if len(heard.errs) != 1 {
		t.Errorf("after a request without credentials: %q", heard.errs)
	}
}

func TestCredentialsAreNotLeftInTheHeaders(t *testing.T) {
	a := newAuthenticator(t, authn.Options{TokenFile: file(t, "good,bob,b1\n")})
	for _, token := range []string{"good", "bad"} {
		q := bearer(token)
		for _, name := range []string{"X-Remote-User", "x-remote-group", "X-Remote-Uid", "X-Remote-Extra-Scopes"} {
			q.Header.Set(name, "system:masters")
		}
		q.Header.Set("X-Remote-Controlled", "stays")
		who(a, q)
		if len(q.Header) != 1 {
			t.Errorf("token %q: left are %v", token, q.Header)
		}
	}
}

// Whatever it is that tells who asks: a token that is left there would be answered with.
func TestATokenIsNotLeftAmongSubprotocols(t *testing.T) {
	ca, alice := client(t)
	o := accepting(t, ca)
	o.TokenFile = file(t, "good,bob,b1\n")
	a := newAuthenticator(t, o)
	token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("good"))
	for _, c := range []struct {
		what      string
		q         *http.Request
		protocols []string
		left      []string
	}{
		{"with a certificate", request(alice), []string{token + ", v5"}, []string{"v5"}},
		{"with a certificate and nothing else", request(alice), []string{token}, nil},
		{"with a token in the header as well", bearer("good"), []string{"v4", token, "v5"}, []string{"v4,v5"}},
		{"with a wrong one", bearer("bad"), []string{token + "!, v5"}, []string{"v5"}},
		{"by itself", request(nil), []string{token + ",v5"}, []string{"v5"}},
		{"without one", request(alice), []string{"v4, v5"}, []string{"v4, v5"}},
	} {
		c.q.Header.Set("Connection", "Upgrade")
		c.q.Header.Set("Upgrade", "websocket")
		c.q.Header["Sec-Websocket-Protocol"] = c.protocols
		who(a, c.q)
		if got := c.q.Header["Sec-Websocket-Protocol"]; !slices.Equal(got, c.left) {
			t.Errorf("%s: left is %q", c.what, got)
		}
	}
}

// A proxy's headers are nothing to who has no proxy.
func TestHeadersOfAProxyAreNobodys(t *testing.T) {
	a := newAuthenticator(t, authn.Options{TokenFile: file(t, "good,bob,b1\n")})
	q := bearer("good")
	q.Header.Set("X-Remote-User", "admin")
	q.Header.Set("X-Remote-Group", "system:masters")
	if u, err := a.Authenticate(q); err != nil || !slices.Equal(ofUser(u), []string{"bob", "system:authenticated"}) {
		t.Errorf("with a token: %v, %v", u, err)
	}
	q = request(nil)
	q.Header.Set("X-Remote-User", "admin")
	if got := who(a, q); got != "" {
		t.Errorf("alone: %q", got)
	}
}

// Which of them counts is seen differently from place to place.
func TestOfTwoAuthorizationHeadersNoneCounts(t *testing.T) {
	ca, alice := client(t)
	o := accepting(t, ca)
	o.TokenFile = file(t, "good,bob,b1\n")
	a := newAuthenticator(t, o)
	q := bearer("good")
	q.Header.Add("Authorization", "Bearer good")
	if got := who(a, q); got != "" {
		t.Errorf("got in as %q", got)
	}
	q = request(alice)
	q.Header["Authorization"] = []string{"Bearer good", "Bearer good"}
	if got := who(a, q); got != "alice" {
		t.Errorf("with a certificate: %q", got)
	}
}

func TestATokenInASubprotocol(t *testing.T) {
	a := newAuthenticator(t, authn.Options{TokenFile: file(t, "good,bob,b1\n")})
	for what, c := range map[string]struct{ protocols, want string }{
		"good":              {"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("good")) + ", v5", "bob"},
		"bad":               {"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("bad")) + ", v5", ""},
		"no base64":         {"base64url.bearer.authorization.k8s.io.!, v5", ""},
		"no other protocol": {"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("good")), ""},
		"no token":          {"v5", ""},
	} {
		q := request(nil)
		q.Header.Set("Connection", "Upgrade")
		q.Header.Set("Upgrade", "websocket")
		q.Header.Set("Sec-WebSocket-Protocol", c.protocols)
		if got := who(a, q); got != c.want {
			t.Errorf("%s: %q", what, got)
		}
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	ca, _ := client(t)
	asked := 0
	o := accepting(t, ca)
	groups := make([]string, 2000)
	for i := range groups {
		groups[i] = strings.Repeat("g", 20)
	}
	o.TokenFile = file(t, "good,bob,b1,\""+strings.Join(groups, ",")+"\"\nlarge,bob,b1,\""+strings.Repeat("group-of-many,", 10000)+"\"\n")
	o.Webhook = authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) { asked++; return nil, false, nil })
	a := newAuthenticator(t, o)
	if got := who(a, bearer("good")); got != "bob" {
		t.Errorf("many groups: %q", got)
	}
	if got := who(a, bearer("large")); got != "" {
		t.Errorf("too many groups: %q", got)
	}
	asked = 0
	if got := who(a, bearer(strings.Repeat("x", 64<<10+1))); got != "" || asked != 0 {
		t.Errorf("too large a token: %q, and it was asked about %d times", got, asked)
	}
	if who(a, bearer(strings.Repeat("x", 64<<10))); asked != 1 {
		t.Errorf("as large a token as may be: it was asked about %d times", asked)
	}
	if got := who(a, request(issued(t, ca, "carol", make([]string, 10000)...))); got != "" {
		t.Errorf("a certificate with many empty groups: %q", got)
	}
	if got := who(a, request(issued(t, ca, "carol", groups...))); got != "carol" {
		t.Errorf("a certificate with many groups: %q", got)
	}
	if got := who(a, request(issued(t, ca, "carol", slices.Repeat(groups, 2)...))); got != "" {
		t.Errorf("a certificate with too many groups: %q", got)
	}
}

// latest is the log that hears of failures now.
type latest struct{ to *failures }

func (l *latest) Failed(r *http.Request, err error) { l.to.Failed(r, err) }

// A JWT that nobody claims points at an issuer that is missing, or mistyped.
func TestWhatTokensThatNobodyClaimsAreCountedAs(t *testing.T) {
	known, other := issuer(t), issuer(t)
	log := latest{newFailures(t)}
	a := trusting(t, authn.Options{Failures: &log}, known)
	jwt := other.Token("bob", nil)
	for what, c := range map[string]struct{ token, class string }{
		"of another issuer":           {jwt, "token issuer"},
		"of the issuer, for others":   {known.Token("bob", map[string]any{"aud": "bank"}), "jwt audience"},
		"with four parts":             {jwt + ".a", "token unknown"},
		"with a payload that is none": {"a.b.c", "token unknown"},
		"large, and no JWT":           {strings.Repeat("a", 60_000), "token unknown"},
		"too large":                   {strings.Repeat("a", 64<<10+1), "token too-large"},
	} {
		log.to = newFailures(t)
		if got := who(a, bearer(c.token)); got != "" {
			t.Errorf("%s: got in as %q", what, got)
		}
		log.to.counted(t, what, c.class)
	}
}
